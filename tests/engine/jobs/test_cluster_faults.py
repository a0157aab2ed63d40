"""Runs on clusters that lose machines, workers, memory and drivers: they end with the rows of a run that nothing disturbed.

Each script has a Ray of its own, in a process of its own. Training, and what it loses, is in tests/engine/rllib.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from engine.runtime.session import Session
from engine.store.run_folder import RunFolder
from tests.engine.jobs.faults import make_case
from tests.engine.jobs.made_up import kill_when, rows, start_parley
from tests.engine.runtime.apart import survives

pytestmark = pytest.mark.ray

KINDS = ("search", "attack", "robustness", "selfplay")
LOSES_A_MACHINE = """
import sys
from pathlib import Path
from ray.cluster_utils import Cluster
from tests.engine.jobs.faults import HEALTH, When, attempts, make_case, slow_workers
folder, log = Path(sys.argv[1]), Path(sys.argv[1]) / "log"
case = make_case("KIND", folder)
whole = case.rows_of(folder / "whole")
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=HEAD, include_dashboard=False, _system_config=HEALTH))
machines = [cluster.add_node(num_cpus=1) for _ in range(2 - HEAD)]
slow_workers(log)
losing = When(log, 4, lambda: cluster.remove_node(machines[0], allow_graceful=False))
found = case.rows_of(folder / "lost", losing, workers=2, address=cluster.address)
assert losing.acted
shards = [shard for shard, _ in attempts(log)]
assert len(shards) > len(set(shards)), "nothing was in the hands of the machine that was lost"
assert found == whole
cluster.shutdown()
print("survived")
"""


def slow(*kinds: str) -> list[object]:
    return [pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


@pytest.mark.parametrize("kind", ["search", *slow("attack", "robustness", "selfplay")])
def test_a_machine_lost_in_the_middle_costs_no_row(tmp_path: Path, kind: str) -> None:
    """A head and one more machine, each with a worker."""
    survives(LOSES_A_MACHINE.replace("KIND", kind).replace("HEAD", "1"), tmp_path, timeout_s=200)


@pytest.mark.slow
def test_of_three_machines_the_head_works_not_and_one_is_lost(tmp_path: Path) -> None:
    survives(LOSES_A_MACHINE.replace("KIND", "search").replace("HEAD", "0"), tmp_path, timeout_s=200)
