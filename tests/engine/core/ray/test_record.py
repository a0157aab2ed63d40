"""Sharded work into runs at a URI: workers put their parts, and what comes of it is what a local run holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from parley.engine.core.ray.record import ShardResult, ShardWriter, write_shards
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.parts import digest_of, put_part, to_table
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.envs.core.errors import RunError, StorageError
from parley.envs.core.storage.files import entries, put
from parley.envs.core.storage.uris import local_copy
from parley.envs.corpora.arrow import CACHE_VARIABLE
from tests.engine.core.ray.workers import NUMBERS, By, Counting, DiesOnce, RaisesOn, attempts, shards_of
from tests.engine.core.runs.rows import SmallConfig

ROOT = Path(__file__).resolve().parents[4]
HERE, ACTORS = 0, 2
EITHER = pytest.mark.parametrize("num_workers", [HERE, pytest.param(ACTORS, marks=pytest.mark.ray)])
NUM_ITEMS, SIZE = 60, 3
DRIVER = f"""
import sys
from parley.engine.core.ray.record import write_shards
from parley.engine.core.ray.session import connect
from parley.engine.core.runs.run_folder import RunFolder
from parley.envs.core.storage.files import put
from parley.envs.core.storage.uris import local_copy
from tests.engine.core.ray.workers import NUMBERS, By, Stalls, shards_of
from tests.engine.core.runs.rows import SmallConfig
with RunFolder.open(local_copy(sys.argv[1]), SmallConfig(), job="test", schema=NUMBERS) as run, connect(num_cpus=2):
    shards = shards_of({NUM_ITEMS}, {SIZE})
    write_shards(run, By(Stalls, sys.argv[2], 8), shards, num_workers=2)
"""


pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store/run"


def start(name: str) -> RunFolder:
    return RunFolder.open(local_copy(name), SmallConfig(), job="test", schema=NUMBERS)


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "rows").iterdir())}


@EITHER
def test_workers_put_the_bytes_that_a_driver_writes(num_workers: int, uri: str, log: Path, tmp_path: Path) -> None:
    shards, told = shards_of(30, 4), {}
    for name in (uri, str(tmp_path / "plain")):
        seen: list[dict[str, int]] = []
        with start(name) as run:
            write_shards(
                run,
                By(Counting, str(log)),
                shards,
                num_workers=num_workers,
                on_progress=lambda _, counts, seen=seen: seen.append(dict(counts)),  # type: ignore[misc]
            )
            events = Counter(event["kind"] for event in run.events())
            told[name] = seen[-1], events
            if name == uri:
                assert not list((run.path / "rows").iterdir())
            assert run.read_rows().num_rows == 30
    assert told[uri] == told[str(tmp_path / "plain")]
    assert parts(tmp_path / "store" / "run") == parts(tmp_path / "plain")


def test_a_receipt_holds_no_rows_of_a_run_at_a_uri(uri: str, log: Path) -> None:
    (shard,) = shards_of(4, 4)
    receipt: ShardResult = ShardWriter(By(Counting, str(log)), NUMBERS, f"{uri}/rows").run(shard)
    assert (receipt.rows, receipt.digest["done"]) == ((), 4)
    assert receipt.saved is not None
    part, size = receipt.saved
    assert (part.num_done, part.num_failed, part.digest) == (4, 0, digest_of(shard.keys))
    assert entries(f"{uri}/rows")[f"part-{shard.name}.parquet"].size == size
    assert len(ShardWriter(By(Counting, str(log)), NUMBERS, "").run(shard).rows) == 4


def test_a_part_whose_receipt_was_lost_is_found(uri: str, log: Path) -> None:
    shards = shards_of(12, 4)
    with start(uri) as run:
        put_part(run.rows_uri, "00001", to_table(Counting(str(log)).run(shards[1]), NUMBERS))
    next(log.iterdir()).unlink()
    with start(uri) as run:
        last = write_shards(run, By(Counting, str(log)), shards, num_workers=0)
        assert last.num_items == 8
        assert run.read_rows()["item_key"].to_pylist() == [key for shard in shards for key in shard.keys]
    assert attempts(log) == ["00000", "00002"]


@EITHER
def test_failed_shards_are_error_rows_there_too_and_tried_again(num_workers: int, uri: str, log: Path) -> None:
    with start(uri) as run:
        write_shards(run, By(RaisesOn, str(log)), shards_of(20, 4), num_workers=num_workers)
        assert run.outcomes().errors == {"ZeroDivisionError: no luck": 4, "SystemExit: 3": 4}
        write_shards(run, By(Counting, str(log)), shards_of(20, 4), num_workers=num_workers)
        assert run.outcomes().done == 20
    assert attempts(log) == [f"{i:05d}" for i in range(5)]


@pytest.mark.ray
def test_a_killed_worker_costs_no_row_and_doubles_none(uri: str, log: Path, tmp_path: Path) -> None:
    shards = shards_of(40, 4)
    with start(uri) as run:
        mark = tmp_path / "killed"
        last = write_shards(run, By(DiesOnce, str(log), str(mark), "00003"), shards, num_workers=2)
        rows = run.read_rows()
    assert mark.exists()
    assert attempts(log).count("00003") == 2
    assert (last.num_done, last.num_failed) == (40, 0)
    assert rows["item_key"].to_pylist() == [key for shard in shards for key in shard.keys]
    assert set(rows["status"].to_pylist()) == {"ok"}


@EITHER
def test_a_worker_without_rights_ends_the_run_before_any_work(num_workers: int, uri: str, log: Path, tmp_path: Path) -> None:
    with start(uri) as run:
        # Not even a superuser may put a file below a file.
        (tmp_path / "store" / "run" / "rows").write_text("")
        with pytest.raises(StorageError, match=rf"cannot be written(.|\n)*{uri}/rows"):
            write_shards(run, By(Counting, str(log)), shards_of(8, 4), num_workers=num_workers)
    assert attempts(log) == []


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_driver_loses_nothing_and_another_machine_goes_on(
    uri: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: RaySession
) -> None:
    rows = tmp_path / "store" / "run" / "rows"
    with subprocess.Popen([sys.executable, "-c", DRIVER, uri, str(log)], cwd=ROOT) as driver:
        deadline = time.monotonic() + 200
        while len(list(rows.glob("*.parquet"))) < 4:
            assert driver.poll() is None, "the driver ended before it was killed"
            assert time.monotonic() < deadline, "the workers put nothing"
            time.sleep(0.05)
        os.kill(driver.pid, signal.SIGKILL)
    second = tmp_path / "second"
    second.mkdir()
    # Another machine, which has another cache, waits until the lease has run out.
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "other"))
    with pytest.raises(RunError, match=f"process {driver.pid} on"):
        start(uri)
    put(f"{uri}/lease.json", b'{"holder": "", "token": "", "under": "", "time": 0}')
    saved = set(RunFolder.load(fetched_run(uri)).read_rows()["item_key"].to_pylist())
    assert 12 <= len(saved) < NUM_ITEMS
    with start(uri) as run:
        assert run.done_keys() == saved
        shards = shards_of(NUM_ITEMS, SIZE)
        write_shards(run, By(Counting, str(second)), shards, num_workers=2)
        resumed = run.read_rows()
    assert attempts(second) == [shard.name for shard in shards if not saved & set(shard.keys)]
    with start(str(tmp_path / "straight")) as run:
        write_shards(run, By(Counting, str(second)), shards, num_workers=0)
        assert resumed.equals(run.read_rows())
