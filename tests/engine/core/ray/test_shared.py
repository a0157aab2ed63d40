"""Arrays that workers share."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
import ray

from parley.engine.core.ray.pool import SharedArrays, run_sharded
from parley.engine.core.ray.session import RaySession
from parley.engine.core.ray.worker import Shard
from tests.engine.core.ray.workers import shards_of


class Reads:
    """Says what it sees of the arrays."""

    def __init__(self, shared: SharedArrays) -> None:
        self.first, self.again = shared.get(), shared.get()

    def run(self, shard: Shard[int]) -> dict[str, Any]:
        weights = self.first["weights"]
        return {
            "sum": float(weights.sum()),
            "writable": bool(weights.flags.writeable),
            "copied": not np.shares_memory(weights, self.again["weights"]),
        }


class Restarted:
    """An actor that reads arrays when it starts."""

    def __init__(self, shared: SharedArrays) -> None:
        self.total = float(shared.get()["weights"].sum())

    def read(self) -> tuple[float, int]:
        return self.total, os.getpid()


@pytest.mark.ray
def test_an_actor_that_is_started_again_reads_them_again_and_ray_does_not_warn(
    ray_session: RaySession, capfd: pytest.CaptureFixture[str]
) -> None:
    shared = SharedArrays.put({"weights": np.ones((1000, 500), dtype=np.float32)})
    actor = ray.remote(Restarted).options(max_restarts=1, max_task_retries=1).remote(shared)
    total, first = ray.get(actor.read.remote())
    os.kill(first, signal.SIGKILL)
    again, second = ray.get(actor.read.remote())
    assert (total, again) == (5e5, 5e5)
    assert second != first
    assert "restart will fail" not in capfd.readouterr().err
    ray.kill(actor)


@pytest.mark.ray
def test_workers_read_the_same_pages_and_cannot_write_them(ray_session: RaySession) -> None:
    # Ray maps what is larger than this; smaller values travel with the call.
    shared = SharedArrays.put({"weights": np.ones((1000, 500), dtype=np.float32)})
    found: list[Any] = []
    run_sharded(Reads, (shared,), shards_of(4, 1), num_workers=2, on_result=lambda _, result: found.append(result))
    assert found == [{"sum": 5e5, "writable": False, "copied": False}] * 4
