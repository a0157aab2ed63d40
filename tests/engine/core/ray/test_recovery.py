"""Runs that outlive their driver and their machines; each test has a Ray of its own, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parley.engine.core.ray.record import write_shards
from parley.engine.core.ray.session import TIMEOUT_VARIABLE, RaySession
from parley.engine.core.runs.run_folder import RunFolder
from tests.engine.core.ray.own_cluster import survives
from tests.engine.core.ray.workers import NUMBERS, By, Counting, attempts, shards_of
from tests.engine.core.runs.rows import SmallConfig

ROOT = Path(__file__).resolve().parents[4]
NUM_ITEMS, SIZE = 60, 3
DRIVER = f"""
import sys
from pathlib import Path
from parley.engine.core.ray.record import write_shards
from parley.engine.core.ray.session import connect
from parley.engine.core.runs.run_folder import RunFolder
from tests.engine.core.ray.workers import NUMBERS, By, Stalls, shards_of
from tests.engine.core.runs.rows import SmallConfig
with RunFolder.open(Path(sys.argv[1]), SmallConfig(), job="test", schema=NUMBERS) as run, connect(num_cpus=2):
    shards = shards_of({NUM_ITEMS}, {SIZE})
    write_shards(run, By(Stalls, sys.argv[2], 8), shards, num_workers=2)
"""
LOSES_A_MACHINE = f"""
import sys, time
import ray
from parley.engine.core.ray.pool import run_sharded
from parley.engine.core.ray.session import connect
from tests.engine.core.ray.own_cluster import start_cluster
from tests.engine.core.ray.workers import OneOfTwo, shards_of
cluster = start_cluster(1)
doomed = cluster.add_node(num_cpus=1)
names, up = [], []
def take(shard, result):
    names.append(shard.name)
    assert len(result) == {SIZE}
    if len(names) == 6:
        cluster.remove_node(doomed, allow_graceful=False)
        # Ray hears of it later than the calls of the worker fail, or, where it is waited for, before.
        while NOTICED and all(node["Alive"] for node in ray.nodes()):
            time.sleep(0.1)
with connect(cluster.address) as session:
    assert not session.is_local
    last = run_sharded(
        OneOfTwo,
        (sys.argv[1], 0.2),
        shards_of({NUM_ITEMS}, {SIZE}),
        num_workers=2,
        on_result=take,
        on_progress=lambda progress: up.append(progress.num_workers),
    )
assert last.num_done == {NUM_ITEMS} and last.num_failed == 0, last
assert len(names) == len(set(names)) == {NUM_ITEMS // SIZE}, names
assert (max(up), up[-1]) == (2, 1), up
cluster.shutdown()
print("survived")
"""
LOSES_ALL_MACHINES = f"""
import sys
from parley.engine.core.ray.pool import run_sharded
from parley.engine.core.ray.session import connect
from parley.envs.core.errors import ClusterError
from tests.engine.core.ray.own_cluster import start_cluster
from tests.engine.core.ray.workers import OneOfTwo, shards_of
cluster = start_cluster(0)
machines = [cluster.add_node(num_cpus=1) for _ in range(2)]
names = []
def take(shard, result):
    names.append(shard.name)
    if len(names) == 6:
        for machine in machines:
            cluster.remove_node(machine, allow_graceful=False)
        if RETURNS:
            cluster.add_node(num_cpus=1)
with connect(cluster.address) as session:
    try:
        run_sharded(OneOfTwo, (sys.argv[1], 0.2), shards_of({NUM_ITEMS}, {SIZE}), num_workers=2, on_result=take)
    except ClusterError as error:
        assert not RETURNS and "no worker has been up for 60 s" in str(error), error
    else:
        assert RETURNS and len(names) == len(set(names)) == {NUM_ITEMS // SIZE}, names
cluster.shutdown()
print("survived")
"""


@pytest.mark.ray
def test_a_killed_driver_loses_no_finished_shard(tmp_path: Path, ray_session: RaySession) -> None:
    run_path, first, second = tmp_path / "run", tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(run_path), str(first)], cwd=ROOT) as driver:
        deadline = time.monotonic() + 200
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
        write_shards(run, By(Counting, str(second)), shards, num_workers=2)
        resumed = run.read_rows()
    assert attempts(second) == [shard.name for shard in shards if not saved & set(shard.keys)]

    with RunFolder.open(tmp_path / "straight", SmallConfig(), job="test", schema=NUMBERS) as run:
        write_shards(run, By(Counting, str(second)), shards, num_workers=0)
        assert resumed.equals(run.read_rows())


@pytest.mark.ray
@pytest.mark.parametrize("noticed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["unnoticed", "noticed"])
def test_a_lost_machine_costs_no_shard(tmp_path: Path, noticed: bool) -> None:
    """Two machines of one CPU each, one is lost, and nothing has room for its worker any more."""
    warned = survives(LOSES_A_MACHINE.replace("NOTICED", str(noticed)), tmp_path, timeout_s=550)
    assert "a worker is lost: 1 of 2 workers are up" in warned


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("returns", [True, False])
def test_a_run_waits_for_a_worker_when_all_machines_are_lost_and_then_ends(
    tmp_path: Path, returns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "200" if returns else "60")
    survives(LOSES_ALL_MACHINES.replace("RETURNS", str(returns)), tmp_path, timeout_s=550)
