"""Workers that hold several shards and work in turns: what is kept of those under way, and who fails when a turn does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray.pool import Progress
from parley.engine.core.ray.record import write_shards
from parley.engine.core.runs.run_folder import RunFolder, put_unfinished, read_unfinished, write_unfinished
from parley.envs.core.errors import RefusedModelError
from parley.envs.core.storage.files import entries
from parley.envs.core.storage.uris import local_copy
from tests.engine.core.ray.workers import (
    NUMBERS,
    By,
    DiesInATurn,
    FailsAtItsEnd,
    InTurns,
    IsRefusedInATurn,
    RaisesInATurn,
    shards_of,
)
from tests.engine.core.runs.rows import SmallConfig

EITHER = pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.ray)])
ROOM = 3


pytestmark = pytest.mark.usefixtures("settled")


def start(path: Path) -> RunFolder:
    return RunFolder.open(path, SmallConfig(), job="test", schema=NUMBERS)


def steps(log: Path) -> Counter[str]:
    """How often each shard made a step."""
    return Counter(path.name.split(".")[0] for path in log.iterdir())


def numbers(run: RunFolder) -> dict[str, Any]:
    rows = run.read_rows().to_pylist()
    return {row["item_key"][-2:]: row["number"] if row["status"] == "ok" else row["error"] for row in rows}


@EITHER
def test_every_shard_makes_its_steps_beside_others(num_workers: int, log: Path, tmp_path: Path) -> None:
    seen: list[tuple[Progress, Counter[str]]] = []
    with start(tmp_path / "run") as run:
        write_shards(
            run,
            By(InTurns, str(log)),
            shards_of(8, 1),
            num_workers=num_workers,
            room=ROOM,
            on_progress=lambda *news: seen.append((news[0], Counter(news[1]))),
        )
        assert numbers(run) == {f"{number:02d}": max(1, number) for number in range(8)}
        assert not read_unfinished(run.path)
    assert steps(log) == {f"{number:05d}": max(1, number) for number in range(8)}
    assert all(0 <= progress.work - progress.num_done <= 0.5 * ROOM * max(1, num_workers) for progress, _ in seen)
    assert max(counts["steps"] for _, counts in seen) > 1, "what is under way is counted"
    assert (seen[-1][0].num_done, seen[-1][0].work, seen[-1][1]["steps"]) == (8, 8, 0)


def test_a_shard_that_was_interrupted_goes_on_from_what_was_kept(log: Path, tmp_path: Path) -> None:
    def interrupt(progress: Progress, counts: Counter[str]) -> None:
        if progress.num_done == 4 and counts["steps"] > 3:
            raise KeyboardInterrupt

    shards = shards_of(8, 1)
    with start(tmp_path / "run") as run, pytest.raises(KeyboardInterrupt):
        write_shards(run, By(InTurns, str(log)), shards, num_workers=0, room=ROOM, on_progress=interrupt)
    kept = read_unfinished(tmp_path / "run")
    assert kept
    with start(tmp_path / "run") as run:
        write_shards(run, By(InTurns, str(log)), shards, num_workers=0, room=ROOM)
        assert numbers(run) == {f"{number:02d}": max(1, number) for number in range(8)}
        assert not read_unfinished(run.path)
    for name, made in steps(log).items():
        more = 1 if name in kept else 0
        assert max(1, int(name)) <= made <= max(1, int(name)) + more, "no more than the turn that was interrupted is done again"


def test_what_is_damaged_counts_as_nothing(log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start(tmp_path / "run") as run:
        write_unfinished(run.path, "00002", 1)
        (run.path / "unfinished" / "00001.json").write_text("{")
        write_shards(run, By(InTurns, str(log)), shards_of(3, 1), num_workers=0, room=ROOM)
        assert numbers(run) == {"00": 1, "01": 1, "02": 2}
    assert "00001.json is damaged" in caplog.text
    assert steps(log) == {"00000": 1, "00001": 1, "00002": 1}


@pytest.mark.ray
def test_a_worker_that_dies_in_a_turn_costs_that_turn(log: Path, tmp_path: Path) -> None:
    work = By(DiesInATurn, str(log), str(tmp_path / "mark"), "00005")
    with start(tmp_path / "run") as run:
        write_shards(run, work, shards_of(8, 1), num_workers=1, room=8)
        assert numbers(run) == {f"{number:02d}": max(1, number) for number in range(8)}
    assert (tmp_path / "mark").exists()
    for name, made in steps(log).items():
        assert max(1, int(name)) <= made <= max(1, int(name)) + 1


@EITHER
def test_a_shard_that_raises_fails_alone(num_workers: int, log: Path, tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        write_shards(run, By(RaisesInATurn, str(log), "00005"), shards_of(8, 1), num_workers=num_workers, room=8)
        expected: dict[str, Any] = {f"{number:02d}": max(1, number) for number in range(8)}
        assert numbers(run) == {**expected, "05": "ZeroDivisionError: no luck"}


def test_what_every_shard_would_meet_ends_the_run_within_the_turn(log: Path, tmp_path: Path) -> None:
    with start(tmp_path / "run") as run, pytest.raises(RefusedModelError):
        write_shards(run, By(IsRefusedInATurn, str(log)), shards_of(8, 1), num_workers=0, room=8)
    assert set(steps(log).values()) == {1}, "none is tried again alone"


@EITHER
def test_of_a_run_at_a_uri_workers_put_what_is_kept_and_delete_it(num_workers: int, log: Path, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/store/run"
    rows_uri = f"{uri}/rows"
    with start(local_copy(uri)) as run:
        put_unfinished(rows_uri, "00004", 3)
        run.event("looked")
    assert "00004.json" in entries(f"{uri}/unfinished")
    with start(local_copy(uri)) as run:
        assert read_unfinished(run.path) == {"00004": 3}
        write_shards(run, By(InTurns, str(log), 0.01), shards_of(6, 1), num_workers=num_workers, room=ROOM)
        assert numbers(run) == {f"{number:02d}": max(1, number) for number in range(6)}
    assert steps(log)["00004"] == 1
    assert not entries(f"{uri}/unfinished")


@pytest.mark.parametrize("at_a_uri", [False, True])
def test_an_item_that_fails_at_its_end_goes_on_from_there_and_a_shard_that_raises_begins_anew(
    at_a_uri: bool, log: Path, tmp_path: Path
) -> None:
    place = local_copy(f"file://{tmp_path}/store/run") if at_a_uri else tmp_path / "run"
    with start(place) as run:
        write_shards(run, By(FailsAtItsEnd, str(log), "00003"), shards_of(4, 1), num_workers=0, room=ROOM)
    with start(place) as run:
        assert read_unfinished(run.path).keys() == {"00003"}
        write_shards(run, By(RaisesInATurn, str(log), "00003"), shards_of(4, 1), num_workers=0, room=ROOM)
    with start(place) as run:
        assert not read_unfinished(run.path)
