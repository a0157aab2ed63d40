"""The pool: equal results for any number of workers, and nothing lost or doubled when workers fail or die."""

from __future__ import annotations

import logging
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.ray import actors, session
from parley.engine.core.ray.actors import MAX_DEATHS, MAX_LOSSES
from parley.engine.core.ray.pool import Progress, run_sharded
from parley.engine.core.ray.record import write_shards
from parley.engine.core.ray.session import RaySession
from parley.engine.core.ray.worker import Shard, ShardFailure, capacity
from parley.engine.core.runs.run_folder import RunFolder
from parley.envs.core.errors import CheckpointError, ClusterError, RefusedModelError
from tests.engine.core.ray.workers import (
    NUMBERS,
    By,
    CannotBeBuilt,
    Counting,
    DiesOn,
    DiesWhileStarting,
    Environment,
    IsRefused,
    OnlyOne,
    RaisesOn,
    SlowToBuild,
    Unsendable,
    WaitsForAnother,
    attempts,
    seed_of,
    shards_of,
    until,
)
from tests.engine.core.runs.rows import SmallConfig

HERE, ACTORS = 0, 2
EITHER = pytest.mark.parametrize("num_workers", [HERE, pytest.param(ACTORS, marks=pytest.mark.ray)])


@pytest.fixture(autouse=True)
def session_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("ray"):
        request.getfixturevalue("ray_session")


class Collected(dict[str, Any]):
    """Results by shard name; a shard that comes back twice is an error."""

    def take(self, shard: Shard[int], result: Any) -> None:
        assert shard.name not in self, f"{shard.name} came back twice"
        self[shard.name] = result


@EITHER
def test_every_shard_comes_back_once_with_progress(num_workers: int, log: Path) -> None:
    results = Collected()
    seen: list[Progress] = []
    last = run_sharded(
        Counting, (str(log),), shards_of(50, 8), num_workers=num_workers, on_result=results.take, on_progress=seen.append
    )
    assert sorted(results) == [f"{i:05d}" for i in range(7)]
    assert attempts(log) == sorted(results)
    assert seen[0] == Progress(0, 0, 50, 0)
    assert [progress.num_done for progress in seen] == sorted(progress.num_done for progress in seen)
    assert seen[-1] == last
    assert (last.num_done, last.num_failed, last.num_items) == (50, 0, 50)
    assert 1 <= last.num_workers <= max(1, num_workers)


@pytest.mark.ray
def test_rows_are_equal_for_no_one_and_two_workers(log: Path, tmp_path: Path) -> None:
    tables = []
    for num_workers in (0, 1, 2):
        with RunFolder.open(tmp_path / f"run {num_workers}", SmallConfig(), job="test", schema=NUMBERS) as run:
            write_shards(run, By(Counting, str(log)), shards_of(30, 4), num_workers=num_workers)
            tables.append(run.read_rows())
    assert tables[0].num_rows == 30
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


@pytest.mark.ray
def test_no_shard_waits_at_a_worker_for_which_another_has_time(log: Path) -> None:
    results = Collected()
    run_sharded(WaitsForAnother, (str(log),), shards_of(2, 1), num_workers=ACTORS, on_result=results.take)
    assert list(results.values()) == [2, 2], "each began while the other was at work, a worker that started late included"


# That actors fail alike, and are tried again, is held of them by test_record.py beside this.
def test_a_shard_that_raises_is_a_failure_and_not_the_end(log: Path) -> None:
    results = Collected()
    last = run_sharded(RaisesOn, (str(log),), shards_of(20, 4), num_workers=HERE, on_result=results.take)
    assert {name for name, result in results.items() if isinstance(result, ShardFailure)} == {"00001", "00002"}
    assert results["00001"].reason == "ZeroDivisionError: no luck"
    assert "workers.py" in results["00001"].details
    assert results["00002"].reason == "SystemExit: 3"
    assert (last.num_done, last.num_failed) == (20, 8)


def test_failed_shards_become_error_rows_and_are_tried_again(log: Path, tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", SmallConfig(), job="test", schema=NUMBERS) as run:
        write_shards(run, By(RaisesOn, str(log)), shards_of(20, 4), num_workers=HERE)
        rows = run.read_rows().to_pylist()
        assert Counter(row["status"] for row in rows) == {"ok": 12, "error": 8}
        broken = next(row for row in rows if row["item_key"] == "item 0004")
        assert (broken["error"], broken["seed"]) == ("ZeroDivisionError: no luck", seed_of("item 0004"))
        failures = [event for event in run.events() if event["kind"] == "shard_failed"]
        assert {event["name"] for event in failures} == {"00001", "00002"}
        write_shards(run, By(Counting, str(log)), shards_of(20, 4), num_workers=HERE)
        assert run.read_rows()["status"].to_pylist() == ["ok"] * 20
    assert attempts(log) == [f"{i:05d}" for i in range(5)]


@EITHER
def test_a_worker_that_cannot_be_built_says_why(num_workers: int) -> None:
    with pytest.raises(CheckpointError, match="train first"):
        run_sharded(CannotBeBuilt, (), shards_of(4, 2), num_workers=num_workers, on_result=Collected().take)


@pytest.mark.parametrize("num_workers", [HERE, pytest.param(1, marks=pytest.mark.ray)])
def test_what_every_shard_would_meet_ends_the_run(num_workers: int, log: Path, tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", SmallConfig(), job="test", schema=NUMBERS) as run:
        with pytest.raises(RefusedModelError, match=r"wants a key(.|\n)*export it"):
            write_shards(run, By(IsRefused, str(log)), shards_of(40, 2), num_workers=num_workers)
        assert not run.read_rows().num_rows, "a resumed run does all of them"
    assert attempts(log) == ["00000"], "what waits at the worker is not begun"


@EITHER
def test_what_taking_a_result_raises_ends_the_run(num_workers: int, log: Path) -> None:
    def refuse(shard: Shard[int], result: Any) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        run_sharded(Counting, (str(log),), shards_of(40, 2), num_workers=num_workers, on_result=refuse)
    assert len(attempts(log)) <= 1 + 2 * ACTORS


@EITHER
def test_no_shards_need_no_worker(num_workers: int) -> None:
    assert run_sharded(CannotBeBuilt, (), [], num_workers=num_workers, on_result=Collected().take) == Progress(0, 0, 0, 0)


@pytest.mark.ray
@pytest.mark.slow
def test_a_shard_that_kills_its_workers_fails_alone(log: Path) -> None:
    results = Collected()
    last = run_sharded(DiesOn, (str(log), "00000"), shards_of(16, 4), num_workers=1, on_result=results.take)
    assert sorted(results) == [f"{i:05d}" for i in range(4)]
    assert {name for name, result in results.items() if isinstance(result, ShardFailure)} == {"00000"}
    assert "its worker died 3 times" in results["00000"].reason
    assert attempts(log).count("00000") == 3
    assert last.num_failed == 4


@pytest.mark.ray
@pytest.mark.slow
def test_a_worker_that_dies_while_it_starts_ends_the_run() -> None:
    with pytest.raises(ClusterError, match="dies while it starts"):
        run_sharded(DiesWhileStarting, (), shards_of(4, 2), num_workers=1, on_result=Collected().take)


@pytest.mark.ray
@pytest.mark.slow
def test_a_worker_that_dies_while_it_starts_is_given_up_where_another_works(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, given_up = Collected(), tmp_path / "given up"

    def take_note(record: logging.LogRecord) -> bool:
        if record.getMessage() == "a worker died 3 times while it started: work goes on with 1 others":
            given_up.touch()
        return True

    monkeypatch.setattr(actors.logger, "filters", [take_note])
    worker_args = (str(log), str(tmp_path / "taken"), str(given_up))
    last = run_sharded(OnlyOne, worker_args, shards_of(6, 1), num_workers=2, on_result=results.take)
    assert (last.num_done, last.num_failed, last.num_workers) == (6, 0, 1)
    assert given_up.exists()


@pytest.mark.ray
@pytest.mark.slow
def test_deaths_on_machines_that_are_gone_are_no_fault_of_a_shard(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "machines_up", lambda: frozenset({"another"}))
    results = Collected()
    run_sharded(DiesOn, (str(log), "00000"), shards_of(2, 1), num_workers=1, on_result=results.take)
    assert f"its worker died {MAX_LOSSES} times" in results["00000"].reason
    assert attempts(log).count("00000") == MAX_LOSSES > MAX_DEATHS
    assert not isinstance(results["00001"], ShardFailure)


@pytest.mark.ray
def test_a_result_that_cannot_travel_is_a_failure() -> None:
    results = Collected()
    run_sharded(Unsendable, (), shards_of(2, 1), num_workers=1, on_result=results.take)
    assert all("cannot pickle" in result.reason for result in results.values())
    assert len(results) == 2


@pytest.mark.ray
def test_actors_compute_with_the_threads_they_reserve_and_see_no_gpu() -> None:
    results = Collected()
    run_sharded(Environment, (), shards_of(2, 1), num_workers=1, num_cpus_per_worker=2, on_result=results.take)
    found = results["00000"]
    assert (found["OMP_NUM_THREADS"], found["torch"], found["CUDA_VISIBLE_DEVICES"]) == ("2", 2, "")
    assert found["pid"] == results["00001"]["pid"]


@pytest.mark.ray
@pytest.mark.parametrize(
    "asked",
    [{"num_workers": 5}, {"num_workers": 2, "num_cpus_per_worker": 3}, {"num_workers": 1, "num_gpus_per_worker": 64}],
    ids=["workers", "CPUs", "GPUs"],
)
def test_too_little_room_is_an_error_at_once(asked: dict[str, Any], log: Path) -> None:
    with pytest.raises(ClusterError, match=r"too little room(.|\n)*4 CPUs(.|\n)*at most [01]|at most 4"):
        run_sharded(Counting, (str(log),), shards_of(20, 1), on_result=Collected().take, **asked)
    assert attempts(log) == []


@pytest.mark.ray
def test_resources_that_others_hold_are_an_error_after_a_while(log: Path, ray_session: RaySession) -> None:
    import ray

    @ray.remote(num_cpus=4)
    class Greedy:
        def hold(self) -> bool:
            return True

    greedy = Greedy.remote()  # type: ignore[attr-defined]  # Ray adds it
    assert ray.get(greedy.hold.remote())
    until(lambda: not ray.available_resources().get("CPU"))
    try:
        with pytest.raises(ClusterError, match=r"no worker could start within 1 s(.|\n)*free 0 CPUs"):
            run_sharded(Counting, (str(log),), shards_of(4, 1), num_workers=2, on_result=Collected().take, start_timeout_s=1)
    finally:
        ray.kill(greedy)


@pytest.mark.ray
def test_workers_that_are_being_built_are_waited_for(
    tmp_path: Path, log: Path, ray_session: RaySession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, results = tmp_path / "built", Collected()
    # Ten minutes are over once the worker is being built.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 600 * (tmp_path / "built.begun").exists(), sleep=time.sleep)
    monkeypatch.setattr(actors, "time", clock)

    def release() -> None:
        until(lambda: "1 of 1 workers have been built for 600 s, and are waited for" in caplog.text)
        mark.touch()

    with ThreadPoolExecutor(1) as aside:
        released = aside.submit(release)
        args = (str(log), str(mark))
        run_sharded(SlowToBuild, args, shards_of(4, 1), num_workers=1, on_result=results.take, start_timeout_s=600)
        released.result()
    assert len(results) == 4


@pytest.mark.ray
def test_a_cluster_with_too_little_room_says_what_is_there(
    log: Path, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "_current", RaySession("10.0.0.1:6379"))
    run_sharded(Counting, (str(log),), shards_of(10, 1), num_workers=5, on_result=Collected().take)
    assert "room for 4 in 4 CPUs and 0 GPUs now: work starts with those" in caplog.text
    wanted: dict[str, Any] = {"num_workers": 1, "num_gpus_per_worker": 1, "on_result": Collected().take, "start_timeout_s": 1}
    with pytest.raises(ClusterError, match=r"nothing adds machines to it(.|\n)*there are 1 machine of 4 CPUs and 0 GPUs"):
        run_sharded(Counting, (str(log),), shards_of(4, 1), **wanted)
    monkeypatch.setattr(session, "can_grow", lambda: True)
    with pytest.raises(ClusterError, match="no worker could start within 1 s"):
        run_sharded(Counting, (str(log),), shards_of(4, 1), **wanted)
    assert "room for 0 in 4 CPUs and 0 GPUs now: work waits for machines to be added" in caplog.text


def test_actors_without_a_session_are_an_error(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ClusterError, match="no Ray session"):
        run_sharded(Counting, (str(log),), shards_of(4, 1), num_workers=1, on_result=Collected().take)


def machine(cpus: float, gpus: float = 0, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus}}


@pytest.mark.parametrize(
    ("machines", "cpus", "gpus", "room"),
    [
        ([machine(2)], 1, 0, 2),
        ([machine(3), machine(3)], 2, 0, 2),
        ([machine(8, 1)], 1, 0.25, 4),
        ([machine(8, 1)], 1, 0.4, 2),
        ([machine(8, 3)], 1, 2, 1),
        ([machine(1, 8)], 1, 0.5, 1),
        ([machine(8), machine(8, alive=False)], 1, 0, 8),
        ([{"Alive": True, "Resources": {}}], 1, 0, 0),
        ([], 1, 0, 0),
    ],
)
def test_capacity_counts_whole_workers_per_machine(machines: list[dict[str, Any]], cpus: float, gpus: float, room: int) -> None:
    assert capacity(machines, cpus, gpus) == room


@given(st.lists(st.integers(0, 16), max_size=5), st.sampled_from([0.5, 1, 2, 3]))
def test_capacity_never_exceeds_the_sum(cpus: list[int], each: float) -> None:
    assert capacity([machine(number) for number in cpus], each, 0) * each <= sum(cpus)
