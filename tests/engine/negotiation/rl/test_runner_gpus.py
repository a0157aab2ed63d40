"""Env runners that have a share of a GPU: how many have room, and that they play what others play."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from parley.engine.core.ray.session import RaySession
from parley.engine.core.verbs import composite as placement
from parley.engine.core.verbs.composite import fitting_runners
from parley.engine.negotiation.attacks.opponents import Opponent
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.rl.env import ADVERSARY
from parley.engine.negotiation.rl.runner import DialogueEnvRunner
from parley.envs.core.errors import ClusterError
from parley.policies.chat.settings import ChatSeat
from tests.engine.core.ray.own_cluster import survives
from tests.engine.core.verbs.made_up import Notes

PLAYS = """
import sys
from dataclasses import replace
from pathlib import Path
import ray
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY
from tests.engine.negotiation.rl.test_training_lost import assert_equal_results, config
from tests.engine.negotiation.rl.trainings import World
folder = Path(sys.argv[1])
# A GPU that Ray gives out and torch does not find: what plays on it plays on the CPU.
ray.init("local", num_cpus=3, num_gpus=1, include_dashboard=False)
world = World(folder)
TRAIN_ADVERSARY.run(config(world), folder / "whole", Silent())
TRAIN_ADVERSARY.run(replace(config(world), env_runners=2, runner_gpus=0.5), folder / "shared", Silent())
assert_equal_results(folder / "shared", folder / "whole")
print("survived")
"""


def test_an_agent_of_another_kind_computes_where_the_runner_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr("parley.engine.negotiation.rl.runner.make_agent", lambda *named, **how: made.append(how))
    runner: Any = object.__new__(DialogueEnvRunner)
    met = (Opponent(name="them", agent="hf:model", reward="advantage", complementary=True),)
    roster = SimpleNamespace(role=ADVERSARY, drawable=met, chat=ChatSeat(), answers=None)
    runner.config = SimpleNamespace(reinforce=ReinforceConfig(), roster=roster)
    runner.module = {ADVERSARY: SimpleNamespace(net=SimpleNamespace(vocabulary=None))}
    runner.device, runner._agents = torch.device("cuda:0"), {}
    runner._agent("them")
    assert made[0]["device"] == "cuda:0"


def test_runners_are_as_many_as_shares_of_gpus_beside_the_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 8.0, "GPU": 2.0})
    monkeypatch.setattr(placement, "can_grow", lambda: False)
    cluster, notes = RaySession("10.0.0.1:6379"), Notes()
    assert fitting_runners(4, {"CPU": 1, "GPU": 0}, cluster, notes, gpus_per_runner=0.5) == 4
    assert notes.said == []
    assert fitting_runners(6, {"CPU": 1, "GPU": 1}, cluster, notes, gpus_per_runner=0.5) == 2
    assert notes.said[0].endswith("need 7 CPUs and 4 GPUs; in all there are 8 and 2: training goes on with 2 env runners")
    with pytest.raises(ClusterError, match="too little room"):
        fitting_runners(1, {"CPU": 1, "GPU": 3}, cluster, notes, gpus_per_runner=0.5)
    with pytest.raises(ClusterError, match="this machine has too little room"):
        fitting_runners(6, {"CPU": 0, "GPU": 0}, RaySession("local"), notes, gpus_per_runner=0.5)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_runners_that_share_a_gpu_play_what_this_process_plays(tmp_path: Path) -> None:
    survives(PLAYS, tmp_path, timeout_s=1200)
