"""Training by reinforcement as a run: what it leaves, that it goes on exactly, and mistakes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import LEARNING
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.agents import judge_of
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TRAIN_RL
from parley.envs.core.errors import CheckpointError, ConfigError, RunError
from parley.envs.negotiation.domain import Vocabulary, domain_of
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.settings import KIND
from tests.engine.core.page.pages import tables_on
from tests.engine.core.verbs.made_up import (
    REINFORCE,
    Notes,
    assert_equal_weights,
    iterations,
    kill_at,
    save_negotiator,
    training,
)

pytestmark = pytest.mark.ray


def test_it_leaves_a_learner_that_has_moved(tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession) -> None:
    notes = Notes()
    result = TRAIN_ADVERSARY.run(training(root, trainee), tmp_path / "run", notes)
    assert list(result.metrics) == list(LEARNING)
    assert notes.stages == [("learning", 4, "updates")]
    assert notes.steps == [1, 2, 3, 4]
    stored = Checkpoint.load(tmp_path / "run" / "checkpoint", KIND, Vocabulary)
    assert (stored.provenance["role"], stored.provenance["target"]) == ("adversary", str(trainee))
    assert judge_of("", [str(tmp_path / "run")]) == str(trainee)
    started = Checkpoint.load(trainee, KIND, Vocabulary).weights
    assert any(not stored.weights[name].equal(value) for name, value in started.items())
    assert iterations(tmp_path / "run") == [1, 2, 3, 4]
    (following,) = result.next_commands
    attack = ["parley", "attack", "rl", "--target", str(trainee), "--speaker", str(tmp_path / "run")]
    assert shlex.split(following) == [*attack, "--data-root", str(root)]


def test_trainings_of_several_seeds_are_one_run(tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession) -> None:
    alone = TRAIN_ADVERSARY.run(training(root, trainee), tmp_path / "alone", Silent())
    result = TRAIN_ADVERSARY.run(training(root, trainee, seeds=2), tmp_path / "run", Silent())
    first, second = (RunFolder.load(result.run / f"training-{number}") for number in (1, 2))
    assert_equal_weights(first.path, alone.run)
    rewards = [one.metrics()["training_reward"].value for one in (first, second)]
    assert result.metrics["training_reward"].value == pytest.approx(sum(rewards) / 2)
    best = max((first, second), key=lambda one: one.metrics()["training_reward"].value)
    assert_equal_weights(result.run, best.path)
    assert judge_of("", [str(result.run)]) == str(trainee), "it can be named as one training can"
    assert Checkpoint.load(result.run / "checkpoint", KIND, Vocabulary).provenance["training"] == best.path.name
    shown = collect_run(result.run)
    assert [title for title, _ in tables_on(shown, "training")] == ["Each training"]
    assert sum(run.shown for run in shown.found["training"]) == 2


def test_a_finished_training_needs_no_ray(tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession) -> None:
    first = TRAIN_RL.run(training(root, trainee), tmp_path / "run", Silent())
    notes = Notes()
    again = TRAIN_RL.run(training(root, trainee, address="127.0.0.1:1"), tmp_path / "run", notes)
    assert str(again) == str(first)
    assert notes.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]


def test_more_updates_than_before_need_another_folder(
    tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession
) -> None:
    TRAIN_ADVERSARY.run(training(root, trainee), tmp_path / "run", Silent())
    with pytest.raises(RunError, match=r"reinforce\.dialogues: 24 -> 30"):
        TRAIN_ADVERSARY.run(training(root, trainee, reinforce=replace(REINFORCE, dialogues=30)), tmp_path / "run", Silent())
    with pytest.raises(RunError, match="another job"):
        TRAIN_RL.run(training(root, trainee), tmp_path / "run", Silent())


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_weights(
    tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession
) -> None:
    asked = training(root, trainee, reinforce=replace(REINFORCE, dialogues=240), save_every=3)
    TRAIN_ADVERSARY.run(asked, tmp_path / "whole", Silent())
    words = shlex.split(TRAIN_ADVERSARY.command(asked, Path("killed")))
    kill_at('events("killed", "iteration") == 5', *words[1:], folder=tmp_path)
    notes = Notes()
    TRAIN_ADVERSARY.run(asked, tmp_path / "killed", notes)
    assert notes.said[0].startswith("resumed after update ")
    assert 1 < notes.steps[0] <= 40, "it goes on from the last saved state"
    assert_equal_weights(tmp_path / "killed", tmp_path / "whole")


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, root: Path, trainee: Path, target: Path) -> None:
    def fails(kind: type[Exception], message: str, asked: object) -> None:
        with pytest.raises(kind, match=message):
            TRAIN_ADVERSARY.run(asked, tmp_path / "run", Silent())  # type: ignore[arg-type]  # a parameter of several types

    fails(CheckpointError, "--target needs a checkpoint", training(root, tmp_path / "nothing"))
    fails(CheckpointError, "--learner needs a checkpoint", training(root, trainee, learner="scripted"))
    fails(CheckpointError, r"no weights(.|\n)*--learner", training(root, Path("scripted")))
    fails(ConfigError, "a person cannot be met", training(root, Path("human"), learner=str(trainee)))
    fails(ConfigError, "did you mean 'scripted'", training(root, Path("scriptd"), learner=str(trainee)))
    fails(CheckpointError, "--learner and --reference speak different", training(root, trainee, reference=str(target)))
    fails(ConfigError, "supervised guard has another vocabulary", training(root, trainee, learner=str(target)))
    fails(ConfigError, "supervised guard has another vocabulary", training(root, target))
    seeker = save_negotiator(tmp_path / "seeker" / "checkpoint", vocabulary=domain_of("interview").vocabulary())
    fails(ConfigError, "the partner plays another game", training(root, seeker, learner=str(trainee)))
    ranker = save_negotiator(tmp_path / "ranker" / "checkpoint", kind="ranker", vocabulary=None)
    fails(CheckpointError, "another kind", training(root, ranker, reinforce=replace(REINFORCE, supervised_weight=0.0)))
    assert not (tmp_path / "run").exists()


def test_both_jobs_store_themselves_under_their_names() -> None:
    assert (TRAIN_RL.name, TRAIN_ADVERSARY.name) == ("train-rl", "train-adversary")
