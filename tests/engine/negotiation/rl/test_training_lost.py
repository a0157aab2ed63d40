"""Trainings whose learner, or its machine, is lost: they end with the same weights, or say why not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from parley.engine.core.ray.session import RaySession
from parley.engine.core.rllib import reproducible as state
from parley.engine.core.rllib.distributed_rollouts import LearnerLostError
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs import composite as placement
from parley.engine.core.verbs.composite import fitting_runners
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.rl.algorithm import DialogueReinforce
from parley.engine.negotiation.rl.env import ADVERSARY, TARGET
from parley.engine.negotiation.verbs import training
from parley.engine.negotiation.verbs.training import MAX_LEARNERS, TRAIN_ADVERSARY, TrainReinforceConfig
from parley.envs.core.errors import ClusterError
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.settings import KIND
from tests.engine.core.ray.own_cluster import survives
from tests.engine.core.verbs.made_up import Notes
from tests.engine.negotiation.rl.trainings import CORPUS, GUARDED, World, equal_weights, kill_learner

pytestmark = pytest.mark.ray

UPDATES = 8
LOSES_ITS_MACHINE = """
import sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs import training
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY
from tests.engine.core.verbs.made_up import Notes
from tests.engine.negotiation.rl.test_training_lost import assert_equal_results, config
from tests.engine.negotiation.rl.trainings import World

folder = Path(sys.argv[1])
world = World(folder)
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, include_dashboard=False))
doomed = cluster.add_node(num_cpus=1)
built, make = [], training._build

def building(*arguments):
    built.append(make(*arguments))
    return built[-1]

class Removing(Notes):
    def advance(self, done, note=""):
        super().advance(done, note)
        if done == 3 and len(built) == 1:
            (actor,) = built[0].learner_group._workers
            home = ray.get(actor.apply.remote(lambda _: ray.get_runtime_context().get_node_id()))
            assert home == doomed.node_id, "the learner was meant to be on the other machine"
            # The machine goes down with the next update in the learner's queue.
            actor.apply.remote(lambda _: time.sleep(60))
            threading.Timer(1.0, cluster.remove_node, (doomed,), dict(allow_graceful=False)).start()

    def say(self, text):
        super().say(text)
        if text.startswith("the learner is gone") and RETURNS:
            cluster.add_node(num_cpus=1)

training._build = building
asked = config(world, env_runners=1, remote_learner=True, address=cluster.address)
notes = Removing()
TRAIN_ADVERSARY.run(asked, folder / "lost", notes)
said = ["the learner is gone; another one goes on", "training goes on with 0 env runners", "resumed after update 2"]
if RETURNS:
    del said[1]
assert [line.split(": ")[-1] for line in notes.said] == said, notes.said
cluster.shutdown()
TRAIN_ADVERSARY.run(config(world), folder / "whole", Silent())
assert_equal_results(folder / "lost", folder / "whole")
print("survived")
"""


def config(world: World, **changes: Any) -> TrainReinforceConfig:
    rule = replace(GUARDED, dialogues=UPDATES * GUARDED.dialogues_per_update)
    fixed = {"corpus": CORPUS, "data_root": world.folder / "data", "save_every": 2, "reinforce": rule}
    folders = {"target": str(world.folder / TARGET), "learner": str(world.folder / ADVERSARY)}
    return TrainReinforceConfig(**{**fixed, **folders, **changes})


def assert_equal_results(found: Path, wanted: Path) -> None:
    first, second = (Checkpoint.load(path / "checkpoint", KIND, Vocabulary).weights for path in (found, wanted))
    assert equal_weights(first, second)
    numbers, rewards = (
        [[event[name] for event in RunFolder.load(path).events() if event["kind"] == "iteration"] for path in (found, wanted)]
        for name in ("number", "reward")
    )
    assert dict(zip(numbers[0], rewards[0], strict=True)) == dict(zip(numbers[1], rewards[1], strict=True))


class Killing(Notes):
    """Kills the learner of the newest algorithm after some updates, once each."""

    def __init__(self, built: list[DialogueReinforce], after: set[int]) -> None:
        super().__init__()
        self.built, self.after = built, after

    def advance(self, done: float, note: str = "") -> None:
        super().advance(done, note)
        if done in self.after:
            self.after.remove(done)
            kill_learner(self.built[-1])


@pytest.mark.slow
def test_a_training_whose_learners_are_killed_ends_with_the_same_weights(
    world: World, ray_session: RaySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two updates, before a state is saved, while one is put back, and at the end."""
    TRAIN_ADVERSARY.run(config(world), tmp_path / "whole", Silent())
    built: list[DialogueReinforce] = []
    settings = type(DialogueReinforce.get_default_config())
    make, save, restore = settings.build_algo, state.save, state.restore
    killed: list[str] = []

    def building(*arguments: Any) -> DialogueReinforce:
        built.append(make(*arguments))
        return built[-1]

    def once(name: str, number: int, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(algorithm: DialogueReinforce, path: Path) -> Any:
            if name not in killed and algorithm.training_iteration == number:
                killed.append(name)
                kill_learner(algorithm)
            return call(algorithm, path)

        return calling

    monkeypatch.setattr(settings, "build_algo", building)
    monkeypatch.setattr(state, "save", once("save", 4, save))
    monkeypatch.setattr(state, "restore", once("restore", 0, restore))
    notes = Killing(built, {3, 7, UPDATES})
    TRAIN_ADVERSARY.run(config(world, remote_learner=True), tmp_path / "killed", notes)
    assert killed == ["restore", "save"]
    gone, resumed = "the learner is gone; another one goes on", "resumed after update {}".format
    said = [gone, gone, resumed(2), gone, resumed(2), gone, resumed(6), gone, resumed(UPDATES)]
    assert notes.said == said
    assert notes.steps == [1, 2, 3, 3, 3, 4, 5, 6, 7, 7, 8]
    lost = [event for event in RunFolder.load(tmp_path / "killed").events() if event["kind"] == "learner_lost"]
    assert [event["furthest"] for event in lost] == [3, 3, 4, 7, UPDATES]
    assert len(built) == 1 + len(lost)
    assert_equal_results(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("returns", [True, False])
def test_a_training_whose_learner_loses_its_machine_ends_with_the_same_weights(tmp_path: Path, returns: bool) -> None:
    """Two machines of one CPU each, the runner on one and the learner on the other, in a Ray of their own.

    Another machine comes, or the learner takes the place of the runner.
    """
    survives(LOSES_ITS_MACHINE.replace("RETURNS", str(returns)), tmp_path, timeout_s=550)


def losing(monkeypatch: pytest.MonkeyPatch, lost_at: Callable[[int], bool]) -> list[int]:
    """Loses the learner, without any process, wherever it is asked for; returns the updates that were begun."""
    step, begun = DialogueReinforce.training_step, []

    def stepping(algorithm: DialogueReinforce) -> None:
        begun.append(algorithm.training_iteration + 1)
        if lost_at(begun[-1]):
            raise LearnerLostError("the learner is gone")
        step(algorithm)

    monkeypatch.setattr(DialogueReinforce, "training_step", stepping)
    return begun


def test_learners_that_get_no_further_end_the_training(
    world: World, ray_session: RaySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = losing(monkeypatch, lambda update: update == 4)
    with pytest.raises(LearnerLostError):
        TRAIN_ADVERSARY.run(config(world), tmp_path / "run", Silent())
    # The third update is made again each time: that alone is no progress.
    assert begun == [1, 2, 3, 4] + [3, 4] * (MAX_LEARNERS - 1)


def test_learners_that_get_further_may_die_as_often_as_they_like(
    world: World, ray_session: RaySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: set[int] = set()

    def first_time(update: int) -> bool:
        return update not in died and not died.add(update)  # type: ignore[func-returns-value]  # None is false

    losing(monkeypatch, first_time)
    notes = Notes()
    TRAIN_ADVERSARY.run(config(world), tmp_path / "run", notes)
    assert notes.said.count("the learner is gone; another one goes on") == UPDATES > MAX_LEARNERS
    monkeypatch.undo()
    TRAIN_ADVERSARY.run(config(world), tmp_path / "whole", Silent())
    assert_equal_results(tmp_path / "run", tmp_path / "whole")


def test_a_training_for_which_there_is_no_room_is_refused(world: World, ray_session: RaySession, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"too little room(.|\n)*6 CPUs and 0 GPUs; in all there are 4 and"):
        TRAIN_ADVERSARY.run(config(world, env_runners=4, threads=2, remote_learner=True), tmp_path / "run", Silent())


def test_a_cluster_that_cannot_grow_trains_with_the_runners_that_it_has_room_for(
    ray_session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, notes, nothing = RaySession("10.0.0.1:6379"), Notes(), {"CPU": 0, "GPU": 0}
    assert fitting_runners(9, nothing, cluster, notes) == 4
    with pytest.raises(ClusterError, match=r"this cluster has too little room(.|\n)*10 CPUs and 1 GPUs; in all"):
        fitting_runners(9, {"CPU": 1, "GPU": 1}, cluster, notes)
    started = time.monotonic()
    with pytest.raises(ClusterError, match="this cluster has too little room"):
        fitting_runners(0, {"CPU": 5, "GPU": 0}, cluster, notes, wait_s=1.5)
    assert time.monotonic() - started >= 1.5
    monkeypatch.setattr(placement, "can_grow", lambda: True)
    assert fitting_runners(9, nothing, cluster, notes) == 9
    assert [line.split(": ")[1] for line in notes.said] == [
        "training goes on with 4 env runners",
        "waiting 1.5 s for a machine",
        "waiting for machines to join the cluster",
    ]


@pytest.mark.slow
def test_a_learner_of_its_own_computes_with_the_threads_asked_for(world: World, ray_session: RaySession) -> None:
    asked = config(world, remote_learner=True, threads=2)
    met = world.settings(GUARDED).roster
    assert met is not None
    algorithm = training._build(asked, met, world.vocabulary)
    (actor,) = algorithm.learner_group._workers
    assert ray.get(actor.apply.remote(lambda _: torch.get_num_threads())) == 2
    algorithm.stop()
