"""One pool of actors for several pieces of work: all come to their end, and what fails in one is no matter of another."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from parley.engine.core.ray import logs
from parley.engine.core.ray.pool import (
    KEPT,
    Progress,
    Several,
    SharedPool,
    _BuildFailure,
    _Piece,
    _turns_of,
    run_sharded,
    working_in,
)
from parley.engine.core.ray.session import RaySession
from parley.engine.core.ray.worker import Shard, ShardAttempt, ShardFailure, Turns, attempt
from parley.envs.core.errors import CheckpointError, ClusterError, RefusedModelError
from tests.engine.core.ray.workers import (
    CannotBeBuilt,
    Counting,
    CountingInTwo,
    InTurns,
    IsRefused,
    RaisesInATurn,
    processes_of,
    shards_of,
)

Outcome = dict[str, Any] | BaseException


def in_one_pool(calls: dict[str, Callable[[], Outcome]]) -> dict[str, Outcome]:
    """What each call, in a thread of its own, returns or raises; two actors do the sharded work of all."""
    pool, found = SharedPool(), dict[str, Outcome]()

    def work(name: str) -> None:
        try:
            with working_in(pool):
                found[name] = calls[name]()
        except BaseException as error:
            found[name] = error

    threads = [Thread(target=work, args=(name,)) for name in calls]
    for thread in threads:
        thread.start()
    try:
        pool.serve(lambda: len(found) < len(calls), num_workers=2, num_gpus_per_worker=0.0, start_timeout_s=120)
    finally:
        for thread in threads:
            thread.join(30)
    return found


def counted(folder: Path, shards: int, worker: type[Counting] = Counting) -> Callable[[], Outcome]:
    folder.mkdir()

    def call() -> Outcome:
        results: dict[str, Any] = {}
        run_sharded(
            worker,
            (str(folder),),
            shards_of(2 * shards, 2),
            num_workers=2,
            on_result=lambda shard, result: results.update({shard.name: result}),
        )
        return results

    return call


def unbuilt() -> Outcome:
    run_sharded(CannotBeBuilt, (), shards_of(3, 1), num_workers=2, on_result=lambda shard, result: None)
    return {}


def full_disk(shard: Any, result: Any) -> None:
    raise OSError("the disk is full")


class Talking:
    def run(self, shard: Shard[int]) -> list[int]:
        logging.getLogger("parley.talking").warning("at work")
        return list(shard.items)


def test_what_a_worker_logs_names_the_shard_as_the_driver_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ray.get", lambda spec: spec)
    (shard,) = shards_of(1, 1)
    given = Shard(f"007-{shard.name}", shard.keys, (_Piece(7, [(Talking, ())], shard),))
    with logs.json_lines():
        tried = attempt(Several(), given).result
    assert isinstance(tried, ShardAttempt)
    assert tried.result == [0]
    assert json.loads(capsys.readouterr().err)["shard"] == shard.name


def in_turns(number: int, spec: tuple[Any, ...], shards: list[Shard[int]]) -> list[Shard[_Piece]]:
    """Shards of a piece as the pool sends them, to a worker that opens references by `ray.get` as it is patched here."""
    worker_class, *worker_args = spec
    pieces = [_Piece(number, [(_turns_of, (worker_class, *worker_args))], shard) for shard in shards]
    return [Shard(f"{number:03d}-{piece.shard.name}", piece.shard.keys, (piece,), kept=piece.shard.kept) for piece in pieces]


def turns_until_the_end(joining: list[Shard[_Piece]]) -> tuple[dict[str, Any], list[set[str]]]:
    """Results by the name that the pool gave, and those under way after each turn."""
    turns, results, under_way = Turns[_Piece, Any](Several()), dict[str, Any](), list[set[str]]()
    while len(results) < len(joining):
        turn = turns.take([] if under_way else joining, 1.0)
        results |= turn.ended
        under_way.append({*turn.under_way})
        assert len(under_way) < 50
    return results, under_way


def test_shards_of_more_pieces_than_are_kept_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ray.get", lambda spec: spec)
    given = [shard for number in range(KEPT + 1) for shard in in_turns(number, (InTurns, str(tmp_path)), shards_of(4, 1))]
    results, under_way = turns_until_the_end(given)
    for name, tried in results.items():
        assert tried.result.result[0]["number"] == max(1, int(name[4:]))
    assert {name[:3] for name in under_way[0]} == {"000", "001"}
    assert any(name.startswith("002") for names in under_way for name in names)


def test_what_fails_in_a_turn_fails_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ray.get", lambda spec: spec)
    raises = in_turns(0, (RaisesInATurn, str(tmp_path), "00003"), shards_of(5, 1))
    unbuilt, well = in_turns(1, (CannotBeBuilt,), shards_of(1, 1)), in_turns(2, (InTurns, str(tmp_path)), shards_of(4, 1))
    results, _ = turns_until_the_end([*raises, *unbuilt, *well])
    failed = {name for name, tried in results.items() if isinstance(tried.result, ShardFailure)}
    assert failed == {"000-00003"}
    assert isinstance(results["001-00000"].result, _BuildFailure)
    assert results["002-00003"].result.result[0]["number"] == 3


def test_a_shard_in_turns_goes_on_from_what_was_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ray.get", lambda spec: spec)
    (shard,) = shards_of(4, 1)[3:]
    (given,) = in_turns(0, (InTurns, str(tmp_path)), [shard])
    # An actor that died has told how far it was; what the driver sent first is older.
    turn = Turns[_Piece, Any](Several()).take([replace(given, kept=2)], 1.0)
    assert turn.ended["000-00003"].result.result[0]["number"] == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_refused_model_ends_all_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ray.get", lambda spec: spec)
    (shard,) = shards_of(1, 1)
    tried = attempt(Several(), Shard("000-00000", shard.keys, (_Piece(0, [(IsRefused, (str(tmp_path),))], shard),)))
    assert isinstance(tried.result, ShardFailure)
    assert isinstance(tried.result.ends, RefusedModelError)


def test_a_stage_is_wanted_once_all_shards_are_with_actors_and_nobody_is_about_to_bring_some() -> None:
    pool, go_on = SharedPool(), Event()
    assert pool.needs_more([])
    thread = Thread(target=go_on.wait)
    thread.start()
    assert not pool.needs_more([thread])
    go_on.set()
    thread.join()
    assert pool.needs_more([thread])
    pool._num_waiting = 1
    assert not pool.needs_more([])


@pytest.mark.parametrize("worker", [Counting, InTurns])
def test_the_seconds_of_workers_are_those_of_their_shards(worker: Callable[..., Any], tmp_path: Path) -> None:
    stages: list[Progress] = []
    given, room, began = shards_of(4, 1), 3 * (worker is InTurns), time.monotonic()
    took = run_sharded(
        worker, (str(tmp_path), 0.05), given, num_workers=0, room=room, on_result=lambda *_: None, on_progress=stages.append
    )
    # In turns: one that three shards share, of which two end, two more with the third and the fourth, and one with the fourth.
    assert 0.2 <= took.busy_s <= time.monotonic() - began
    assert [progress.busy_s for progress in stages] == sorted(progress.busy_s for progress in stages)


@pytest.mark.ray
def test_work_in_turns_is_done_by_the_same_actors(ray_session: RaySession, tmp_path: Path) -> None:
    heard: dict[str, list[float]] = {}

    def piece(name: str, shards: int) -> Callable[[], Outcome]:
        (tmp_path / name).mkdir()

        def call() -> Outcome:
            results: dict[str, Any] = {}
            shares = heard.setdefault(name, [])
            took = run_sharded(
                InTurns,
                (str(tmp_path / name), 0.01),
                shards_of(shards, 1),
                num_workers=2,
                room=3,
                on_result=lambda shard, result: results.update({shard.name: result[0]["number"]}),
                on_under_way=lambda shard, stands: shares.append(stands.share),
            )
            assert took.busy_s > 0
            return results

        return call

    outcomes = in_one_pool({name: piece(name, num) for name, num in (("a", 6), ("b", 3), ("c", 4))})
    for name, num in (("a", 6), ("b", 3), ("c", 4)):
        assert outcomes[name] == {f"{number:05d}": max(1, number) for number in range(num)}
        assert heard[name]
    # On a busy machine the second actor may come up when all is done.
    assert len({process for name in "abc" for process in map(_process, (tmp_path / name).iterdir())}) <= 2


def _process(step: Path) -> str:
    return step.name.split(".")[2]


@pytest.mark.ray
def test_all_work_is_done_by_the_same_actors_and_fails_alone(ray_session: RaySession, tmp_path: Path) -> None:
    for name in ("refused", "short", "long"):
        (tmp_path / name).mkdir()

    def refused() -> Outcome:
        worker_args = (str(tmp_path / "refused"), 0.01)
        run_sharded(Counting, worker_args, shards_of(9, 1), num_workers=2, on_result=full_disk)
        return {}

    calls = {"long": counted(tmp_path / "long" / "log", 12, CountingInTwo), "short": counted(tmp_path / "short" / "log", 3)}
    found = in_one_pool({**calls, "unbuilt": unbuilt, "refused": refused})
    assert isinstance(found["unbuilt"], CheckpointError)
    assert isinstance(found["refused"], OSError)
    workers = set()
    for name, shards in (("long", 12), ("short", 3)):
        (tmp_path / name / "alone").mkdir()
        worker = Counting(str(tmp_path / name / "alone"))
        assert found[name] == {shard.name: worker.run(shard) for shard in shards_of(2 * shards, 2)}
        workers |= processes_of(tmp_path / name / "log")
    assert len(workers) == 2


@pytest.mark.ray
def test_a_pool_that_cannot_start_tells_everybody(
    ray_session: RaySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BaseException] = []

    def call() -> None:
        try:
            with working_in(pool):
                counted(tmp_path / "log", 2)()
        except ClusterError as error:
            told.append(error)

    pool = SharedPool()
    thread = Thread(target=call)
    thread.start()
    with pytest.raises(ClusterError, match="too little room"):
        pool.serve(lambda: not told, num_workers=99, num_gpus_per_worker=0.0, start_timeout_s=5)
    thread.join(30)
    assert len(told) == 1
