"""Runs at a URI: what is put there and when, and that a copy is never right against it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.runs import remote_sync
from parley.engine.core.runs.parts import require_writable
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder, put_unfinished, read_unfinished
from parley.engine.core.stats.statistics import count
from parley.engine.negotiation.verbs.match import DIALOGUES
from parley.envs.core.errors import RunError, StorageError
from parley.envs.core.storage import files
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.files import entries, put
from parley.envs.core.storage.uris import local_copy
from parley.envs.corpora.arrow import CACHE_VARIABLE
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.checkpoint import Checkpoint
from tests.engine.core.runs.rows import SmallConfig, rows
from tests.envs.core.storage.remote import DENIED, Bucket
from tests.policies.seq2seq.made_up import VOCABULARY


def start(uri: str, **changes: float) -> RunFolder:
    return RunFolder.open(local_copy(uri), SmallConfig(**changes), job="attack", schema=DIALOGUES)


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str = "other") -> None:
    """Goes on as another machine, with a cache of its own."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / name))


def save_model(folder: Path, value: float) -> None:
    Checkpoint("small", {}, {"value": value}, VOCABULARY, {"w": torch.full((3,), value)}).save(folder)


def test_everything_is_there_before_the_event_that_tells_of_it(
    uri: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_sync, "_PAUSE_S", 3600.0)
    with start(uri) as run:
        assert bucket.keys("put")[-3:] == ["run/environment.json", "run/config.json", "run/log/00000.jsonl"]
        run.write_shard("00000", rows(["a", "b"]))
        (run.path / "table.md").write_text("| |")
        run.event("epoch", number=1)
        assert bucket.keys("put")[-3:] == ["run/rows/part-00000.parquet", "run/table.md", "run/log/00000.jsonl"]
        run.write_summary({"advantage": count(1, 30)})
        assert bucket.keys("put")[-2:] == ["run/summary.json", "run/log/00000.jsonl"]
        assert (run.summary() or {})["run"] == uri
    assert sorted(bucket.objects) == [
        f"{bucket.name}/run/{name}"
        for name in (
            "config.json",
            "environment.json",
            "log/00000.jsonl",
            "rows/part-00000.parquet",
            "summary.json",
            "table.md",
        )
    ]


def test_another_machine_goes_on_with_it(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(uri) as run:
        run.write_shard("00000", rows(["a", "b"]))
        (run.path / "training.safetensors").write_bytes(b"state")
        run.event("epoch", number=1)
    elsewhere(monkeypatch, tmp_path)
    with start(uri) as run:
        assert run.done_keys() == {"a", "b"}
        assert (run.path / "training.safetensors").read_bytes() == b"state"
        run.write_shard("00001", rows(["c"]))
        kinds = [event["kind"] for event in run.events()]
        assert kinds == ["started", "shard", "epoch", "resumed", "shard"]
        resumed = run.read_rows()
    with RunFolder.open(tmp_path / "plain", SmallConfig(), job="attack", schema=DIALOGUES) as run:
        run.write_shard("00000", rows(["a", "b"]))
        run.write_shard("00001", rows(["c"]))
        assert resumed.equals(run.read_rows())
        for name in ("part-00000.parquet", "part-00001.parquet"):
            assert (run.path / "rows" / name).read_bytes() == (local_copy(uri) / "rows" / name).read_bytes()


def test_a_stale_copy_never_wins(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(uri) as run:
        run.write_shard("00000", rows(["a", "b"]))
        run.event("epoch", number=1)
        assert run.read_rows().num_rows == 2
    with monkeypatch.context() as patch:
        elsewhere(patch, tmp_path)
        with start(uri) as run:
            # Other rows of the same number of letters, so the part has the same size.
            run.write_shard("00000", rows(["x", "y"]))
            run.event("epoch", number=2)
    here = local_copy(uri)
    (here / "stray.md").write_text("of a session whose last words were lost")
    (here / "rows" / "part-00009.parquet").write_bytes(b"")
    found = RunFolder.load(fetched_run(uri))
    assert found.read_rows()["item_key"].to_pylist() == ["x", "y"]
    assert [event["number"] for event in found.events() if event["kind"] == "epoch"] == [1, 2]
    assert not (here / "stray.md").exists()


def test_a_run_that_is_gone_is_gone_here_too(uri: str, bucket: Bucket) -> None:
    start(uri).close()
    bucket.objects.clear()
    with pytest.raises(RunError, match=f"there is no run here(.|\n)*{uri}"):
        RunFolder.load(fetched_run(uri))
    with start(uri, temperature=0.9) as run:
        assert [event["kind"] for event in run.events()] == ["started"]


def test_one_writer_and_any_number_that_look(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(uri) as run:
        run.write_shard("00000", rows(["a"]))
        run.event("epoch", number=1)
        log = run.path / "events.jsonl"
        with log.open("a") as file:
            file.write('{"time": "2026-01-01T00:00:00+00:00", "kind": "not put yet"}\n')
        # On the same machine the writer's own copy is the newest.
        assert RunFolder.load(fetched_run(uri)).events()[-1]["kind"] == "not put yet"
        elsewhere(monkeypatch, tmp_path)
        looked_at = RunFolder.load(fetched_run(uri))
        assert looked_at.events()[-1]["kind"] == "epoch"
        assert looked_at.writer() == run.writer()
        assert looked_at.outcomes().done == 1
        with pytest.raises(RunError, match="another process is writing this run"):
            start(uri)
    assert looked_at.writer() is None


def test_the_log_is_put_in_segments(uri: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(remote_sync, "_SEGMENT_BYTES", 1000)
    with start(uri) as run:
        for number in range(200):
            run.event("epoch", number=number)
        assert (run.path / "events.jsonl").stat().st_size > 10_000
    sizes = {key: len(content) for key, (content, _) in bucket.objects.items() if "/log/" in key}
    assert len(sizes) > 10
    assert max(sizes.values()) < 1200
    elsewhere(monkeypatch, tmp_path)
    with start(uri) as run:
        run.event("epoch", number=200)
        assert [event["number"] for event in run.events() if event["kind"] == "epoch"] == list(range(201))


def test_shards_that_come_thick_share_their_puts(uri: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_sync, "_PAUSE_S", 3600.0)
    with start(uri) as run:
        before = len(bucket.keys("put"))
        for number in range(50):
            run.write_shard(f"{number:05d}", rows([f"{number}"]))
        assert {key.split("/")[1] for key in bucket.keys("put")[before:]} == {"rows"}
    assert sum(event["kind"] == "shard" for event in RunFolder.load(fetched_run(uri)).events()) == 50


def test_a_checkpoint_that_is_replaced_is_never_a_mixture(uri: str, bucket: Bucket) -> None:
    with start(uri) as run:
        save_model(run.path / "checkpoint", 1.0)
        run.event("epoch", number=1)
        save_model(run.path / "checkpoint", 2.0)
        asked = len(bucket.asked)
        run.event("epoch", number=2)
        changes = [(what, key.rpartition("/")[2]) for what, key in bucket.asked[asked:] if what != "list"]
        assert changes[0] == ("delete", "config.json")
        assert changes[-2:] == [("put", "config.json"), ("put", "00000.jsonl")]
    shutil.rmtree(local_copy(uri))
    found = Checkpoint.load(fetched_model(uri) / "checkpoint", "small", PairVocabulary)
    assert found.weights["w"].tolist() == [2.0] * 3


def test_to_look_at_a_run_copies_no_weights_and_no_rows(
    uri: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(uri) as run:
        save_model(run.path / "checkpoint", 1.0)
        run.write_shard("00000", rows(["a"]))
    elsewhere(monkeypatch, tmp_path)
    before = len(bucket.keys("read"))
    path = fetched_run(uri)
    assert not [key for key in bucket.keys("read")[before:] if key.endswith((".safetensors", ".parquet"))]
    assert (path / "checkpoint" / "config.json").is_file()
    assert (path / "rows").is_dir()
    assert RunFolder.load(path).read_rows().num_rows == 1


def test_runs_below_a_run_are_copied_with_it_and_put_by_themselves(
    uri: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(uri) as outer:
        with RunFolder.open(outer.path / "stage", SmallConfig(), job="stage", schema=DIALOGUES) as inner:
            inner.write_shard("00000", rows(["a"]))
        puts = [key for key in bucket.keys("put") if key.startswith("run/stage/config.json")]
        outer.event("epoch", number=1)
        assert [key for key in bucket.keys("put") if key.startswith("run/stage/config.json")] == puts
    elsewhere(monkeypatch, tmp_path)
    assert RunFolder.load(fetched_run(uri) / "stage").read_rows().num_rows == 1
    assert RunFolder.load(fetched_run(f"remote://{bucket.name}") / "run" / "stage").job == "stage"


def test_a_put_that_fails_midway_leaves_a_run_that_goes_on(uri: str, bucket: Bucket) -> None:
    with start(uri) as run:
        run.write_shard("00000", rows(["a"]))
        bucket.room = 100
        with pytest.raises(StorageError, match="the connection was reset"):
            run.write_shard("00001", rows(["b"]))
        assert max(bucket.objects).endswith("part-00000.parquet")
        bucket.room = float("inf")
    with start(uri) as run:
        assert run.done_keys() == {"a"}


def test_storage_without_rights_is_an_error_before_any_work(uri: str, bucket: Bucket) -> None:
    bucket.refuse = lambda operation, key: DENIED if operation == "put" else None
    with pytest.raises(StorageError, match=r"cannot be written(.|\n)*ACCESS_DENIED(.|\n)*credentials"):
        start(uri)
    bucket.refuse = lambda operation, key: None
    start(uri).close()


def test_files_that_are_not_the_runs_stay(uri: str, bucket: Bucket) -> None:
    start(uri).close()
    put(f"{uri}/.keep", b"")
    put(f"{uri}/notes.md", b"somebody's")
    with start(uri) as run:
        run.event("epoch", number=1)
    assert {f"{bucket.name}/run/.keep", f"{bucket.name}/run/notes.md"} <= bucket.objects.keys()


def test_a_place_that_holds_something_else_is_left_alone(uri: str, bucket: Bucket) -> None:
    put(f"{uri}/holiday/photo.jpg", b"")
    with pytest.raises(RunError, match=f"not a run and not empty(.|\n)*{uri}(.|\n)*holiday"):
        start(uri)
    assert list(bucket.objects) == [f"{bucket.name}/run/holiday/photo.jpg"]


def test_a_damaged_part_is_set_aside_there_too(uri: str, bucket: Bucket) -> None:
    with start(uri) as run:
        run.write_shard("00000", rows(["a"]))
    put(f"{uri}/rows/part-00000.parquet", b"PAR1 no more")
    with pytest.raises(RunError, match=f"parley resume {uri} does its items again"):
        RunFolder.load(fetched_run(uri)).read_rows()
    with start(uri) as run:
        assert run.done_keys() == frozenset()
        assert run.read_rows().num_rows == 0
    assert [key.rpartition("/")[2] for key in bucket.objects if "/rows/" in key] == ["part-00000.parquet.corrupt"]


def test_a_writer_that_was_replaced_puts_nothing_more(uri: str, bucket: Bucket) -> None:
    run = start(uri)
    run.write_shard("00000", rows(["a"]))
    put(f"{uri}/lease.json", b'{"holder": "process 7 on node-3", "token": "theirs", "under": "elsewhere", "time": 9e9}')
    assert run._mirror is not None
    run._mirror._lease._renew()
    before = len(bucket.keys("put"))
    for work in (lambda: run.write_shard("00001", rows(["b"])), lambda: run.event("epoch"), run.close):
        with pytest.raises(RunError, match="process 7 on node-3"):
            work()
    assert len(bucket.keys("put")) == before


def test_rights_are_tried_without_a_trace(uri: str) -> None:
    require_writable(uri)
    assert entries(uri, recursive=True) == {}


def test_missing_rights_say_what_to_do() -> None:
    Bucket("closed").refuse = lambda operation, key: DENIED if operation == "put" else None
    with pytest.raises(StorageError, match=r"where: remote://closed/runs(.|\n)*ACCESS_DENIED(.|\n)*fix:.*credentials"):
        require_writable("remote://closed/runs")


def test_a_worker_of_a_killed_run_may_end_a_shard_while_the_next_run_begins(uri: str, bucket: Bucket) -> None:
    """An actor outlives its driver for some seconds: it puts the part and deletes the state while a resume copies the run."""
    with start(uri) as run:
        run.event("epoch", number=1)
        put_unfinished(run.rows_uri, "00000", {"steps": 1})
        put_unfinished(run.rows_uri, "00001", {"steps": 2})

    def orphan(operation: str, key: str) -> None:
        if (operation, key) == ("read", f"{bucket.name}/run/unfinished/00000.json"):
            bucket.objects.pop(key, None)

    bucket.refuse = orphan
    with start(uri) as run:
        assert read_unfinished(run.path) == {"00001": {"steps": 2}}
        assert not list(run.path.rglob("*.writing"))
    assert fetched_run(uri) == run.path


def test_a_worker_of_a_killed_run_may_end_a_write_while_the_next_run_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (tmp_path / "there").as_uri()
    put(f"{place}/rows/part-00000.parquet", b"rows")
    aside = tmp_path / "there" / "rows" / "part-00001.parquet.ab.writing"
    aside.write_bytes(b"more")
    (tmp_path / "there" / "rows" / "part-00002.parquet.cd.writing").write_bytes(b"half")
    resolve = files._resolve

    def renames(uri: str) -> Any:
        system, path = resolve(uri)

        class Listed:
            type_name, delete_file = system.type_name, staticmethod(system.delete_file)

            @staticmethod
            def get_file_info(selector: Any) -> Any:
                infos = system.get_file_info(selector)
                aside.rename(aside.with_name("part-00001.parquet"))
                return infos

        return Listed, path

    with monkeypatch.context() as patch:
        patch.setattr(files, "_resolve", renames)
        files.sweep(place)
    assert list(entries(place, recursive=True)) == ["rows/part-00000.parquet", "rows/part-00001.parquet"]
    assert not list(tmp_path.rglob("*.writing"))
