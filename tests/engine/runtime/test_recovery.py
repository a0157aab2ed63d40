"""Runs that outlive their driver and their machines; each test has a Ray of its own, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.runtime.record import record_shards
from engine.runtime.session import Session
from engine.store.run_folder import RunFolder
from tests.engine.runtime.apart import survives
from tests.engine.runtime.workers import NUMBERS, By, Counting, attempts, shards_of
from tests.engine.store.rows import SmallConfig

ROOT = Path(__file__).resolve().parents[3]
NUM_ITEMS, SIZE = 60, 3
DRIVER = f"""
import sys
from pathlib import Path
from engine.runtime.record import record_shards
from engine.runtime.session import connect
from engine.store.run_folder import RunFolder
from tests.engine.runtime.workers import NUMBERS, By, Counting, shards_of
from tests.engine.store.rows import SmallConfig
with RunFolder.open(Path(sys.argv[1]), SmallConfig(), job="test", schema=NUMBERS) as run, connect(num_cpus=2):
    shards = shards_of({NUM_ITEMS}, {SIZE})
    record_shards(run, By(Counting, sys.argv[2], 0.4), shards, num_workers=2)
"""
LOSES_A_MACHINE = f"""
import sys, time
import ray
from engine.runtime.pool import run_sharded
from engine.runtime.session import connect
from tests.engine.runtime.apart import start_cluster
from tests.engine.runtime.workers import OneOfTwo, shards_of
cluster = start_cluster(1)
doomed = cluster.add_node(num_cpus=1)
names = []
def take(shard, result):
    names.append(shard.name)
    assert len(result) == {SIZE}
    if len(names) == 6:
        cluster.remove_node(doomed, allow_graceful=False)
        # Ray knows of the death before the pool does, which goes on to give the dead worker a shard.
        while "RESTARTING" not in [actor["State"] for actor in ray._private.state.actors().values()]:
            time.sleep(0.1)
with connect(cluster.address) as session:
    assert not session.is_local
    last = run_sharded(OneOfTwo, (sys.argv[1], 0.2), shards_of({NUM_ITEMS}, {SIZE}), num_workers=2, on_result=take)
assert last.num_done == {NUM_ITEMS} and last.num_failed == 0, last
assert len(names) == len(set(names)) == {NUM_ITEMS // SIZE}, names
cluster.shutdown()
print("survived")
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_driver_loses_no_finished_shard(tmp_path: Path, ray_session: Session) -> None:
    run_path, first, second = tmp_path / "run", tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(run_path), str(first)], cwd=ROOT) as driver:
        deadline = time.monotonic() + 90
        while len(list(run_path.glob("rows/*.parquet"))) < 4:
            assert driver.poll() is None, "the driver ended before it was killed"
            assert time.monotonic() < deadline, "the driver saved nothing"
            time.sleep(0.05)
        os.kill(driver.pid, signal.SIGKILL)
    saved = set(RunFolder.load(run_path).read_rows()["item_key"].to_pylist())
    assert 12 <= len(saved) < NUM_ITEMS

    shards = shards_of(NUM_ITEMS, SIZE)
    with RunFolder.open(run_path, SmallConfig(), job="test", schema=NUMBERS) as run:
        assert run.done_keys() == saved
        record_shards(run, By(Counting, str(second)), shards, num_workers=2)
        resumed = run.read_rows()
    assert attempts(second) == [shard.name for shard in shards if not saved & set(shard.keys)]

    with RunFolder.open(tmp_path / "straight", SmallConfig(), job="test", schema=NUMBERS) as run:
        record_shards(run, By(Counting, str(second)), shards, num_workers=0)
        assert resumed.equals(run.read_rows())


@pytest.mark.ray
@pytest.mark.slow
def test_a_lost_machine_costs_no_shard(tmp_path: Path) -> None:
    """Two machines of one CPU each, one is lost, and nothing has room for its worker any more."""
    survives(LOSES_A_MACHINE, tmp_path, timeout_s=250)
