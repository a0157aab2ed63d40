"""One pool of actors for several pieces of work: all come to their end, and what fails in one is no matter of another."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from parley.engine.core.ray import logs
from parley.engine.core.ray.pool import Several, SharedPool, _Piece, run_sharded, working_in
from parley.engine.core.ray.session import RaySession
from parley.engine.core.ray.worker import Shard, attempt
from parley.envs.core.errors import CheckpointError, ClusterError
from tests.engine.core.ray.workers import CannotBeBuilt, Counting, CountingInTwo, processes_of, shards_of

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
        assert attempt(Several(), given).result == [0]
    assert json.loads(capsys.readouterr().err)["shard"] == shard.name


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
