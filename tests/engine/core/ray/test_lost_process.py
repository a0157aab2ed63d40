"""Work without actors that ends its process: done once more, and given up after the second time; each try is a process."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray.record import write_shards
from parley.engine.core.runs.documents import BEGUN
from parley.engine.core.runs.run_folder import RunFolder
from parley.envs.core.storage.files import entries, put
from parley.envs.core.storage.uris import local_copy
from parley.envs.corpora.arrow import CACHE_VARIABLE
from tests.engine.core.ray import workers
from tests.engine.core.ray.workers import NUMBERS, By, Counting, attempts, shards_of
from tests.engine.core.runs.rows import SmallConfig

NUM_ITEMS, SIZE, ROOM = 6, 1, 4
GIVEN_UP = "RunError: the process died 2 times while it worked on this shard"

pytestmark = pytest.mark.usefixtures("settled")


def work(name: str, room: int, worker: str, args: Sequence[str], cache: str) -> None:
    os.environ[CACHE_VARIABLE] = cache
    with RunFolder.open(local_copy(name), SmallConfig(), job="test", schema=NUMBERS) as run:
        shards = shards_of(NUM_ITEMS, SIZE)
        write_shards(run, By(getattr(workers, worker), *args), shards, num_workers=0, room=room)


def driven(name: str, room: int, worker: str, *args: str) -> int | None:
    """The exit status of a process that works on the run; it is forked off one that has imported what all need."""
    if "://" in name:
        # A dead process' lease is let go at once.
        put(f"{name}/lease.json", b'{"holder": "", "token": "", "under": "", "time": 0}')
    forks = multiprocessing.get_context("forkserver")
    # Pyarrow loads pandas where it is given lists.
    forks.set_forkserver_preload([__name__, "pandas", "pyarrow.parquet"])
    process = forks.Process(target=work, args=(name, room, worker, args, os.environ[CACHE_VARIABLE]))
    process.start()
    process.join()
    return process.exitcode


def found(name: str) -> dict[str, Any]:
    """What came of each item."""
    with RunFolder.open(local_copy(name), SmallConfig(), job="test", schema=NUMBERS) as run:
        return {row["item_key"]: row["error"] or row["status"] for row in run.read_rows().to_pylist()}


@pytest.mark.parametrize("at_a_uri", [False, True])
def test_a_shard_that_ends_the_process_fails_after_the_second_time_and_all_others_are_done(
    at_a_uri: bool, log: Path, tmp_path: Path
) -> None:
    name = f"file://{tmp_path}/store/run" if at_a_uri else str(tmp_path / "run")
    deadly = (name, 0, "ExitsOn", str(log), "00002")
    assert driven(*deadly) == 7
    assert driven(*deadly) == 7
    assert Counter(attempts(log)) == {"00000": 1, "00001": 1, "00002": 2, "00003": 1, "00004": 1, "00005": 1}
    assert driven(*deadly) == 0
    assert Counter(attempts(log))["00002"] == 2
    outcome = found(name)
    assert outcome.pop("item 0002").startswith(GIVEN_UP)
    assert list(outcome.values()) == ["ok"] * 5
    assert not (local_copy(name) / BEGUN).exists()
    assert not at_a_uri or BEGUN not in entries(name)
    assert driven(name, 0, "Counting", str(log)) == 0
    assert set(found(name).values()) == {"ok"}


def test_a_process_that_was_killed_once_costs_nothing(log: Path, tmp_path: Path) -> None:
    once = (str(tmp_path / "run"), 0, "DiesOnce", str(log), str(tmp_path / "mark"), "00003")
    assert driven(*once) == -9
    assert driven(*once) == 0
    assert set(found(once[0]).values()) == {"ok"}


def test_of_shards_that_were_worked_on_together_no_more_fails_than_the_one_to_blame(log: Path, tmp_path: Path) -> None:
    deadly = (str(tmp_path / "run"), ROOM, "ExitsInATurn", str(log), "00004")
    assert [driven(*deadly) for _ in range(3)] == [7, 7, 0]
    outcome = found(deadly[0])
    assert outcome.pop("item 0004").startswith(GIVEN_UP)
    assert list(outcome.values()) == ["ok"] * 5


def test_an_interruption_that_python_sees_does_not_count(log: Path, tmp_path: Path) -> None:
    def interrupt(progress: Any, counts: Any) -> None:
        noted.append(json.loads((tmp_path / "run" / BEGUN).read_text()) if progress.num_done else None)
        if progress.num_done == 2:
            raise KeyboardInterrupt

    noted: list[Any] = []
    with RunFolder.open(tmp_path / "run", SmallConfig(), job="test", schema=NUMBERS) as run:
        with pytest.raises(KeyboardInterrupt):
            write_shards(run, By(Counting, str(log)), shards_of(6, 1), num_workers=0, on_progress=interrupt)
        assert noted[-1] == {"begun": ["00001"], "deaths": {}}
        assert not (run.path / BEGUN).exists()


def test_damaged_notes_tell_of_nothing(log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RunFolder.open(tmp_path / "run", SmallConfig(), job="test", schema=NUMBERS) as run:
        (run.path / BEGUN).write_text('{"begun": ["00')
        write_shards(run, By(Counting, str(log)), shards_of(6, 1), num_workers=0)
    assert "is damaged" in caplog.text
    assert len(attempts(log)) == 6
