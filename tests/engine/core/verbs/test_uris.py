"""Jobs whose runs and models lie at URIs: the same results, on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.ray.record import Rows
from parley.engine.core.ray.worker import Shard, TurnResult
from parley.engine.core.runs import remote_sync as remote_lock
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.core.verbs.status import FINISHED, INTERRUPTED, run_status, statuses
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.whitebox import ATTACK_REACTIVE, FixedTurnConfig
from parley.engine.triggers.targets import Target
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.engine.triggers.verbs.models import open_models
from parley.engine.triggers.verbs.search import HITS, SEARCH, SearchTask, SearchWorker
from parley.envs.core.errors import CheckpointError, StorageError
from parley.envs.core.storage.files import put
from parley.envs.core.storage.uris import display_path, local_copy
from parley.envs.corpora.arrow import CACHE_VARIABLE
from tests.engine.core.verbs.made_up import Notes, save_negotiator
from tests.engine.triggers.verbs.searches import save_seq2seq, search, words_of, write_corpus, write_targets
from tests.envs.core.storage.remote import DENIED, Bucket


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(remote_lock, "SETTLE_S", 0.0)
    return Bucket(tmp_path.name)


def upload(folder: Path, uri: str) -> str:
    for path in folder.rglob("*"):
        if path.is_file():
            put(f"{uri}/{path.relative_to(folder)}", path.read_bytes())
    return uri


@pytest.fixture
def asked(tmp_path: Path, bucket: Bucket) -> TriggerConfig:
    """A search of a model at a URI."""
    save_seq2seq(tmp_path / "model" / "checkpoint", words_of(write_corpus(tmp_path)))
    model = upload(tmp_path / "model", f"remote://{bucket.name}/model")
    return search(model, write_targets(tmp_path))


class _Killed(BaseException):
    """Nothing may handle it, as nothing handles SIGKILL."""


def test_a_search_that_was_killed_goes_on_elsewhere(
    tmp_path: Path, asked: TriggerConfig, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, uri = SEARCH.run, f"remote://{bucket.name}/search"
    config = replace(asked, shard_size=1)
    work, done = SearchWorker.turn, list[str]()

    def killed(self: SearchWorker, joining: Sequence[Shard[Target]], seconds: float) -> TurnResult[Rows]:
        if len(done) >= 2:
            raise _Killed
        found = work(self, joining, 0.0)
        done.extend(found.ended)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SearchWorker, "turn", killed)
        with pytest.raises(_Killed):
            run(config, local_copy(uri), Silent())
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "other"))
    assert run_status(fetched_run(uri)).state == INTERRUPTED
    assert run_status(local_copy(uri)).pace.done == len(done) < 5
    result = run(config, local_copy(uri), Silent())
    assert (display_path(result.run), result.next_commands) == (uri, (f"parley report {uri}",))
    plain = run(config, tmp_path / "plain", Silent())
    assert RunFolder.load(local_copy(uri)).read_rows().equals(RunFolder.load(tmp_path / "plain").read_rows())
    assert result.metrics["loss"] == plain.metrics["loss"]
    (summary,) = (content.decode() for key, (content, _) in bucket.objects.items() if key.endswith("search/summary.json"))
    assert str(tmp_path / "other") not in summary
    assert f"--run {uri}" in summary
    assert [status.state for status in statuses(fetched_run(f"remote://{bucket.name}"))] == [FINISHED]
    notes = Notes()
    run(config, local_copy(uri), notes)
    assert f"{uri} is finished: nothing is left to do" in notes.said


def test_what_is_told_of_a_search_is_read_where_its_rows_are(tmp_path: Path, asked: TriggerConfig) -> None:
    SEARCH.run(asked, tmp_path / "run", Silent())
    rows = RunFolder.load(tmp_path / "run").read_rows().to_pylist()
    found = SearchTask(asked, open_models(asked)).digest(rows)
    assert found["targets"] == len(rows)
    assert found["candidates"] == sum(restart["candidates"] for row in rows for restart in row["restarts"])
    assert {name for name in found if name.startswith(HITS)} <= {HITS + hit["type"] for hit in rows[0]["hits"]}


@pytest.mark.parametrize("uri", ["remote://{}/nothing", "hf:remote://{}/nothing"])
def test_a_model_that_is_not_there_is_named_by_its_uri(uri: str, asked: TriggerConfig, bucket: Bucket, tmp_path: Path) -> None:
    config = replace(asked, model=uri.format(bucket.name), objective=replace(asked.objective, t_out=-3.0))
    with pytest.raises(CheckpointError, match="nothing"):
        SEARCH.run(config, tmp_path / "run", Silent())


def test_storage_without_rights_ends_a_job_before_its_work(asked: TriggerConfig, bucket: Bucket) -> None:
    bucket.refuse = lambda operation, key: DENIED if operation == "put" else None
    with pytest.raises(StorageError, match="credentials"):
        SEARCH.run(asked, local_copy(f"remote://{bucket.name}/search"), Silent())


def test_agents_at_uris_play_as_they_do_from_folders(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_negotiator(tmp_path / "agent" / "checkpoint")
    uri = upload(folder.parent, f"remote://{bucket.name}/agent")
    tables = []
    for agent, place in ((uri, local_copy(f"remote://{bucket.name}/match")), (str(folder), tmp_path / "match")):
        SELFPLAY.run(MatchConfig(adversary=agent, target="scripted", judge=agent, dialogues=6), place, Silent())
        tables.append(RunFolder.load(place).read_rows())
    assert tables[0].equals(tables[1])


def test_a_stage_names_its_models_by_uri_and_not_by_a_cache(tmp_path: Path, bucket: Bucket) -> None:
    folder = save_negotiator(tmp_path / "agent" / "checkpoint")
    uri = upload(folder.parent, f"remote://{bucket.name}/agent")
    path = local_copy(f"remote://{bucket.name}/attack")
    ATTACK_REACTIVE.run(FixedTurnConfig(speaker=uri, target=uri, dialogues=2), path, Silent())
    assert RunFolder.load(path).config["target"] == uri
    assert not [key for key, (content, _) in bucket.objects.items() if str(tmp_path / "cache").encode() in content]
