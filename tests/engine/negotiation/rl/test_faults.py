"""Remote env runners: the same training as in one process, whether they live, die, die unnoticed or lose their machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import RayError
from torch import Tensor

from parley.engine.core.ray.identity import CODE
from parley.engine.core.ray.session import RaySession
from parley.engine.core.rllib.distributed_rollouts import MAX_REPLAYS
from parley.engine.core.rllib.reproducible import learned_weights
from parley.engine.negotiation.rl.env import ADVERSARY, TARGET
from parley.envs.core.errors import ClusterError
from parley.policies.negotiator.speaker import load_model
from tests.engine.core.ray.own_cluster import survives
from tests.engine.negotiation.rl.trainings import PARTNER, SMALL, Recording, World

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PHASES = ("alive", "killed at work", "restarted", "killed unnoticed")
RESTART_S = 90.0
COLUMNS = ("contexts", "tokens", "lengths", "own", "points", "agreed", "turns", "forced")
NUM_UPDATES = 6
LOSES_A_MACHINE = f"""
import os, sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from parley.engine.core.rllib.reproducible import learned_weights
from parley.engine.core.ray.session import connect
from tests.engine.negotiation.rl.trainings import Recording, World
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, include_dashboard=False))
doomed = cluster.add_node(num_cpus=1)
with connect(cluster.address) as session:
    assert not session.is_local
    world = World(Path(sys.argv[1]))
    cast = world.hardening()
    alone = world.settings(kind=Recording, roster=cast).build_algo()
    spread = world.settings(kind=Recording, roster=cast, env_runners=2).build_algo()
    group = spread.env_runner_group
    machine = lambda runner: ray.get_runtime_context().get_node_id()
    homes = dict(zip(group.healthy_worker_ids(), group.foreach_env_runner(machine, local_env_runner=False)))
    (struck,) = (number for number, home in homes.items() if home == doomed.node_id)
    working = []
    for update in range({NUM_UPDATES}):
        if update == 2:
            # The machine goes down with the runner's share of the dialogues in its queue.
            group._worker_manager.actors()[struck].apply.remote(lambda runner: time.sleep(60))
            threading.Timer(1.0, cluster.remove_node, (doomed,), dict(allow_graceful=False)).start()
        alone.train()
        spread.train()
        working.append(group.num_healthy_remote_workers())
        assert spread.played[-1]["index"].tolist() == alone.played[-1]["index"].tolist()
        assert (spread.played[-1]["tokens"] == alone.played[-1]["tokens"]).all()
        found = learned_weights(spread)
        assert all(value.equal(found[name]) for name, value in learned_weights(alone).items()), update
    assert working == [2, 2, 1, 1, 1, 1], working
    spread.stop()
    alone.stop()
cluster.shutdown()
print("survived")
"""

HAS_TOO_LITTLE_ROOM = """
import sys
from pathlib import Path
from parley.engine.core.ray.session import connect
from tests.engine.negotiation.rl.trainings import Recording, World
from tests.engine.core.ray.own_cluster import start_cluster
cluster = start_cluster(1)
with connect(cluster.address):
    algorithm = World(Path(sys.argv[1])).settings(kind=Recording, env_runners=2).build_algo()
    algorithm.train()
    assert algorithm.env_runner_group.num_healthy_remote_workers() == algorithm.env_runner_group.num_remote_workers() == 1
    algorithm.stop()
cluster.shutdown()
print("survived")
"""


@dataclass
class History:
    """What happened in each update: the dialogues, and the weights after it in the learner and in every runner."""

    played: list[dict[str, Any]] = field(default_factory=list)
    learned: list[dict[str, Tensor]] = field(default_factory=list)
    spoken_with: list[list[dict[str, dict[str, np.ndarray]]]] = field(default_factory=list)

    def update(self, algorithm: Recording) -> None:
        algorithm.train()
        self.played.append(algorithm.played[-1])
        self.learned.append(learned_weights(algorithm))
        states = algorithm.env_runner_group.foreach_env_runner(lambda runner: runner.get_state()["rl_module"])
        self.spoken_with.append(states)


@pytest.fixture(scope="module")
def alone(world: World, ray_session: RaySession) -> Iterator[History]:
    """As many updates without any runner beside the process itself."""
    algorithm = world.settings(kind=Recording).build_algo()
    history = History()
    for _ in PHASES:
        history.update(algorithm)
    yield history
    algorithm.stop()


@pytest.fixture(scope="module")
def algorithm(world: World, ray_session: RaySession) -> Iterator[Recording]:
    """A training with two remote runners."""
    algorithm = world.settings(kind=Recording, env_runners=2).build_algo()
    yield algorithm
    algorithm.stop()


@pytest.fixture(scope="module")
def troubled(algorithm: Recording) -> History:
    """The updates of `PHASES`, two runners playing and dying."""
    actors = algorithm.env_runner_group._worker_manager.actors()
    history = History()
    history.update(algorithm)
    first = pid(actors[1])
    # The runner dies with its share of the next dialogues in its queue.
    actors[1].apply.remote(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    history.update(algorithm)
    wait_until_restarted(actors[1], first)
    history.update(algorithm)
    second = pid(actors[2])
    os.kill(second, signal.SIGKILL)
    # Restarted before RLlib calls it again, the runner looks as if nothing had happened, and has its first weights.
    wait_until_restarted(actors[2], second)
    assert algorithm.env_runner_group.num_healthy_remote_workers() == 2, "the death was meant to go unnoticed"
    history.update(algorithm)
    return history


def pid(actor: Any) -> int:
    return ray.get(actor.apply.remote(lambda _: os.getpid()), timeout=RESTART_S)


def wait_until_restarted(actor: Any, former: int) -> None:
    deadline = time.monotonic() + RESTART_S
    while time.monotonic() < deadline:
        try:
            if pid(actor) != former:
                return
        except RayError:
            time.sleep(0.2)
    raise TimeoutError("the runner was not restarted")


@pytest.mark.parametrize("number", range(len(PHASES)), ids=PHASES)
def test_no_dialogue_is_lost_or_played_by_old_weights(alone: History, troubled: History, number: int) -> None:
    size = SMALL.dialogues_per_update
    played, expected = troubled.played[number], alone.played[number]
    assert played["index"].tolist() == list(range(number * size, (number + 1) * size))
    for name in COLUMNS:
        np.testing.assert_array_equal(played[name], expected[name], err_msg=name)


@pytest.mark.parametrize("number", range(len(PHASES)), ids=PHASES)
def test_every_update_makes_the_same_weights(alone: History, troubled: History, number: int) -> None:
    for name, value in alone.learned[number].items():
        assert value.equal(troubled.learned[number][name]), name


@pytest.mark.parametrize("number", range(len(PHASES)), ids=PHASES)
def test_all_runners_have_the_learners_newest_weights_and_the_frozen_target(
    world: World, alone: History, troubled: History, number: int
) -> None:
    frozen = load_model(world.folder / TARGET).state_dict()
    start = load_model(world.folder / ADVERSARY).state_dict()
    for history in (alone, troubled):
        for state in history.spoken_with[number]:
            for name, value in history.learned[number].items():
                np.testing.assert_array_equal(state[ADVERSARY][f"net.{name}"], value.numpy(), err_msg=name)
            for name, value in frozen.items():
                np.testing.assert_array_equal(state[TARGET][f"net.{name}"], value.numpy(), err_msg=name)
        moved = history.learned[number]["decoder.weight"] - start["decoder.weight"]
        assert moved.abs().max() > 1e-3


def test_a_dead_runner_comes_back(troubled: History) -> None:
    # This process' own runner and the remote ones in service; the killed one may or may not be back in its own update.
    counts = [len(states) for states in troubled.spoken_with]
    assert counts[1] in (2, 3)
    assert [counts[0], *counts[2:]] == [3, 3, 3]


def test_an_error_of_the_work_itself_ends_the_training_at_once(
    algorithm: Recording, troubled: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm, "_scenario", lambda index: None)
    with pytest.raises(AttributeError, match="context"):
        algorithm.training_step()
    assert algorithm.env_runner_group.num_healthy_remote_workers() == 2


def test_a_runner_of_other_code_ends_the_training(
    world: World, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.engine.core.rllib.reproducible.require", lambda _: None)
    settings = world.settings(kind=Recording, env_runners=1)
    settings.driver = settings.driver | {CODE: "another"}
    algorithm = settings.build_algo()
    with pytest.raises(ClusterError, match=r"other code than this process(.|\n)*instead of another"):
        algorithm.training_step()
    algorithm.stop()


def test_runners_that_keep_failing_are_an_error(algorithm: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def nothing(opponents: dict[int, str]) -> list[dict[str, Any]]:
        attempts.append(len(opponents))
        return []

    monkeypatch.setattr(algorithm, "_dispatch", nothing)
    with pytest.raises(ClusterError, match="keep failing"):
        algorithm.training_step()
    assert attempts == [SMALL.dialogues_per_update] * MAX_REPLAYS


@pytest.mark.parametrize("env_runners", [1, 2])
def test_a_cast_of_several_opponents_plays_the_same_with_any_number_of_runners(
    world: World, ray_session: RaySession, env_runners: int
) -> None:
    histories = []
    for number in (0, env_runners):
        algorithm = world.settings(kind=Recording, roster=world.hardening(), env_runners=number).build_algo()
        histories.append(History())
        for _ in range(5):
            histories[-1].update(algorithm)
        algorithm.stop()
    alone, spread = histories
    for played, expected in zip(spread.played, alone.played, strict=True):
        assert played["opponent"] == expected["opponent"]
        for name in COLUMNS:
            np.testing.assert_array_equal(played[name], expected[name], err_msg=name)
    assert len({name for played in alone.played for name in played["opponent"]} - {PARTNER}) > 1
    for number, learned in enumerate(alone.learned):
        assert all(value.equal(spread.learned[number][name]) for name, value in learned.items())
        assert len(spread.spoken_with[number]) == env_runners + 1
        for state in spread.spoken_with[number]:
            for opponent in algorithm.roster.drawable:
                for name, value in load_model(Path(opponent.checkpoint)).state_dict().items():
                    np.testing.assert_array_equal(state[opponent.name][f"net.{name}"], value.numpy(), err_msg=name)
            for name, value in learned.items():
                np.testing.assert_array_equal(state[TARGET][f"net.{name}"], value.numpy(), err_msg=name)


def test_a_lost_machine_changes_no_dialogue_and_no_weight(tmp_path: Path) -> None:
    """Two machines of one CPU each, a runner on either; one is lost at work, and nothing has room for its runner any more."""
    survives(LOSES_A_MACHINE, tmp_path, timeout_s=550)


def test_a_training_begins_without_the_runners_that_no_machine_has_room_for(tmp_path: Path) -> None:
    """As after the loss of a machine that Ray had not heard of."""
    warned = survives(HAS_TOO_LITTLE_ROOM, tmp_path, timeout_s=550)
    assert "1 of 2 env runners have no place: training goes on without" in warned
