"""Jobs on clusters that lose machines, workers and drivers: they end with the rows of a run that nothing disturbed.

Each script has a Ray of its own, in a process of its own. More of training, and of what it loses, is in tests/engine/rllib.
All are slow: Ray takes three seconds of a core, and every worker that begins, or takes a dead one's place, two more for torch.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.ray import pool
from parley.engine.core.ray.session import RaySession
from tests.engine.core.ray.own_cluster import survives
from tests.engine.core.verbs.faults import NUM_SHARDS, attempts, make_case, num_deaths_left, order_deaths, slowed
from tests.engine.core.verbs.made_up import Notes, kill_at, rows

pytestmark = pytest.mark.ray

LOSES_A_MACHINE = """
import sys
from pathlib import Path
from tests.engine.core.verbs.faults import When, attempts, make_case, slow_workers
from tests.engine.core.ray.own_cluster import start_cluster
folder, log = Path(sys.argv[1]), Path(sys.argv[1]) / "log"
case = make_case("KIND", folder)
whole = case.rows_of(folder / "whole")
cluster = start_cluster(HEAD)
machines = [cluster.add_node(num_cpus=1) for _ in range(2 - HEAD)]
slow_workers(log)
losing = When(4, lambda: cluster.remove_node(machines[0], allow_graceful=False))
found = case.rows_of(folder / "lost", losing, workers=2, address=cluster.address)
assert losing.acted
shards = [shard for shard, _ in attempts(log)]
assert len(shards) > len(set(shards)), "nothing was in the hands of the machine that was lost"
assert found == whole
cluster.shutdown()
print("survived")
"""
LOSES_A_RUNNER = """
import sys
from pathlib import Path
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.minmax import MINMAX
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights, campaign, corpus_vocabulary, data_root, save_negotiator
from tests.engine.core.ray.own_cluster import start_cluster
folder = Path(sys.argv[1])
(folder / "data").mkdir()
root = data_root(folder / "data")
trainee = save_negotiator(folder / "trainee", seed=3, vocabulary=corpus_vocabulary(root))
cluster = start_cluster(1)
whole = MINMAX.run(campaign(root, trainee, address=cluster.address), folder / "whole", Silent())
doomed = cluster.add_node(num_cpus=1)

class Losing(Notes):
    def advance(self, done, note=""):
        super().advance(done, note)
        if self.said[-1:] == ["round 1: training the target"] and done == 1:
            cluster.remove_node(doomed, allow_graceful=False)

notes = Losing()
found = MINMAX.run(campaign(root, trainee, env_runners=2, address=cluster.address), folder / "lost", notes)
assert any(line.endswith("training goes on with 1 env runners") for line in notes.said), notes.said
assert {name: estimate.value for name, estimate in found.metrics.items()} == {
    name: estimate.value for name, estimate in whole.metrics.items()
}
assert_equal_weights(folder / "lost", folder / "whole")
cluster.shutdown()
print("survived")
"""


def slow(*kinds: str) -> list[object]:
    return [pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


# That a lost machine costs no shard is held of the frame by tests/engine/core/ray/test_recovery.py.
@pytest.mark.parametrize("kind", slow("search", "attack", "robustness", "ranking", "ranking-attack", "selfplay"))
def test_a_machine_lost_in_the_middle_costs_no_row(tmp_path: Path, kind: str) -> None:
    """A head and one more machine, each with a worker."""
    survives(LOSES_A_MACHINE.replace("KIND", kind).replace("HEAD", "1"), tmp_path, timeout_s=550)


@pytest.mark.slow
def test_of_three_machines_the_head_works_not_and_one_is_lost(tmp_path: Path) -> None:
    survives(LOSES_A_MACHINE.replace("KIND", "search").replace("HEAD", "0"), tmp_path, timeout_s=550)


@pytest.mark.slow
def test_a_machine_lost_in_the_middle_of_adversarial_training_changes_nothing(tmp_path: Path) -> None:
    """A runner on either machine; the phases after the loss have room for one."""
    survives(LOSES_A_RUNNER, tmp_path, timeout_s=550)


# That a killed driver loses no finished shard is held of the frame by tests/engine/core/ray/test_recovery.py.
@pytest.mark.parametrize("kind", slow("selfplay", "search", "attack", "robustness", "ranking", "ranking-attack"))
def test_a_killed_driver_goes_on_in_another_session(tmp_path: Path, kind: str, ray_session: RaySession) -> None:
    case, path, log = make_case(kind, tmp_path), tmp_path / "run", tmp_path / "log"
    words = shlex.split(case.job.command(replace(case.config, workers=2), path))[1:]
    slowly = (
        f"from pathlib import Path; from tests.engine.core.verbs.faults import slow_workers; slow_workers(Path({str(log)!r}))"
    )
    kill_at('parts("run") == 3', *words, folder=tmp_path, before=slowly)
    saved = rows(path)
    notes = Notes()
    found = case.rows_of(path, notes, workers=1)
    assert notes.steps[0] == len(saved) < len(found), "what is saved is not done again"
    assert [row for row in found if row in saved] == saved
    assert found == case.rows_of(tmp_path / "whole")


# That lost workers cost nothing is held of the frame by test_pool.py, test_record.py and test_turns.py beside that.
@pytest.mark.parametrize("kind", slow("selfplay", "search", "attack", "robustness", "ranking", "ranking-attack"))
def test_workers_killed_every_few_shards_cost_no_row(
    tmp_path: Path, kind: str, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, log = make_case(kind, tmp_path), tmp_path / "log"
    whole = case.rows_of(tmp_path / "whole")
    monkeypatch.setattr(pool, "ActorPool", slowed(log))
    # Those that work in turns begin with all shards at once: no shard is new any more to who comes after both have died.
    deaths = (1, 4) if kind == "search" else (1, 4, 8)
    order_deaths(log, *deaths)
    found = case.rows_of(tmp_path / "run", workers=2)
    assert not num_deaths_left(log)
    assert len({pid for _, pid in attempts(log)}) > len(deaths), "somebody came after those that died"
    assert len(attempts(log)) >= NUM_SHARDS + len(deaths)
    assert found == whole
