"""Results that the object store has no room for; the script has a Ray of its own, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.core.ray.own_cluster import survives

CROWDS_THE_STORE = """
import time
from parley.engine.core.ray import session
from parley.engine.core.ray.pool import run_sharded
from parley.engine.core.ray.session import connect
from tests.engine.core.ray.workers import Bulky, shards_of
options = session._options()
session._options = lambda: options | {"object_store_memory": 80_000_000}

def take(shard, result):
    # Long enough for four results to wait.
    time.sleep(0.5)
    numbers.append(int(result[0]))
    assert len(result) == millions * 1_000_000 and (result == result[0]).all()

with connect(num_cpus=2):
    for millions, num_shards in ((30, 6), (100, 3)):
        numbers = []
        last = run_sharded(Bulky, (millions,), shards_of(num_shards, 1), num_workers=2, on_result=take)
        assert sorted(numbers) == list(range(num_shards)), numbers
        assert (last.num_done, last.num_failed) == (num_shards, 0)
print("survived")
"""


@pytest.mark.ray
@pytest.mark.slow
def test_results_larger_than_the_object_store_come_back_whole(tmp_path: Path) -> None:
    """Four results of 30 MB at once in a store of 80 MB, then results of 100 MB each."""
    survives(CROWDS_THE_STORE, tmp_path, timeout_s=550)
