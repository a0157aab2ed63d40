"""Hardening a target as a run: what it leaves, mistakes, a language that is lost, and memory over many trainings."""

from __future__ import annotations

import gc
import math
import resource
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import LEARNING
from parley.engine.core.verbs.job import Silent
from parley.engine.core.verbs.supervised import STATE
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.verbs.agents import judge_of
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TRAIN_TARGET
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.core.checkpoint import Checkpoint, load_state
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.settings import KIND
from tests.engine.core.verbs.made_up import (
    REINFORCE,
    assert_equal_weights,
    corpus_vocabulary,
    hardening,
    iterations,
    save_negotiator,
)
from tests.engine.core.verbs.made_up import training as against

pytestmark = pytest.mark.ray

STEEP = replace(REINFORCE, learning_rate=0.35)
"""A rate at which the small network's perplexity goes from 262 to 272 in one update, and above 600 in the second."""
STATM = Path("/proc/self/statm")


@pytest.fixture(scope="module")
def adversaries(tmp_path_factory: pytest.TempPathFactory, root: Path) -> str:
    """Two random negotiators of the made-up corpus' words."""
    folder, words = tmp_path_factory.mktemp("adversaries"), corpus_vocabulary(root)
    return ", ".join(str(save_negotiator(folder / str(seed), seed=seed, vocabulary=words)) for seed in (4, 5))


def test_it_leaves_a_target_that_has_moved(
    tmp_path: Path, root: Path, trainee: Path, adversaries: str, ray_session: RaySession
) -> None:
    asked = hardening(root, trainee, adversaries, opponents=OpponentConfig(partner_share=0.5))
    result = TRAIN_TARGET.run(asked, tmp_path / "run", Silent())
    assert list(result.metrics) == list(LEARNING)
    stored = Checkpoint.load(tmp_path / "run" / "checkpoint", KIND, Vocabulary)
    assert {name: stored.provenance[name] for name in ("role", "target", "adversaries")} == {
        "role": "target",
        "target": str(trainee),
        "adversaries": adversaries.split(", "),
    }
    assert judge_of("", [str(tmp_path / "run")]) == str(trainee)
    started = Checkpoint.load(trainee, KIND, Vocabulary).weights
    assert any(not stored.weights[name].equal(value) for name, value in started.items())
    assert iterations(tmp_path / "run") == [1, 2, 3, 4]
    for event in RunFolder.load(tmp_path / "run").events():
        assert event["kind"] != "iteration" or math.isfinite(event["plain_score"]), "it plays with its partner too"
    assert [shlex.split(command)[:3] for command in result.next_commands] == [["parley", "evaluate", "exploitability"]]
    assert result.title == f"{trainee} against {adversaries.split(', ')[-1]} and 1 earlier"


def test_the_paper_meets_the_latest_adversary_alone(
    tmp_path: Path, root: Path, trainee: Path, adversaries: str, ray_session: RaySession
) -> None:
    TRAIN_TARGET.run(hardening(root, trainee, adversaries), tmp_path / "both", Silent())
    TRAIN_TARGET.run(hardening(root, trainee, adversaries.split(", ")[-1]), tmp_path / "latest", Silent())
    events = [event for event in RunFolder.load(tmp_path / "both").events() if event["kind"] == "iteration"]
    assert not any("plain_score" in event for event in events)
    assert_equal_weights(tmp_path / "both", tmp_path / "latest")


def test_stalling_costs_it_what_was_set(
    tmp_path: Path, root: Path, trainee: Path, adversaries: str, ray_session: RaySession
) -> None:
    def rewards(penalty: float) -> list[tuple[float, float]]:
        rule = replace(REINFORCE, dialogues=6, max_turns=2, stalling_penalty=penalty)
        TRAIN_TARGET.run(hardening(root, trainee, adversaries, reinforce=rule), tmp_path / str(penalty), Silent())
        events = RunFolder.load(tmp_path / str(penalty)).events()
        return [(event["reward"], event["forced"]) for event in events if event["kind"] == "iteration"]

    ((free, forced),), ((fined, same),) = rewards(0.0), rewards(5.0)
    assert forced == same > 0
    assert fined == pytest.approx(free - 5.0 * forced)


def test_mistakes_are_named_and_no_run_is_made(
    tmp_path: Path, root: Path, trainee: Path, target: Path, adversaries: str
) -> None:
    def fails(kind: type[Exception], message: str, asked: object) -> None:
        with pytest.raises(kind, match=message):
            TRAIN_TARGET.run(asked, tmp_path / "run", Silent())  # type: ignore[arg-type]  # some are wrong on purpose

    fails(ConfigError, r"no adversary to learn from(.|\n)*parley train adversary", hardening(root, trainee, " , "))
    fails(CheckpointError, "--target needs a checkpoint", hardening(root, tmp_path / "nothing", adversaries))
    fails(CheckpointError, "--adversaries needs a checkpoint", hardening(root, trainee, f"{adversaries},{tmp_path}/nothing"))
    fails(CheckpointError, "--partner needs a checkpoint", hardening(root, trainee, adversaries, partner="nothing"))
    fails(ConfigError, "a person cannot be met", hardening(root, trainee, f"{adversaries},human"))
    fails(CheckpointError, "--reference needs a checkpoint", hardening(root, trainee, adversaries, reference="scripted"))
    other = hardening(root, trainee, adversaries, reference=str(target))
    fails(CheckpointError, "--target and --reference speak different vocabularies", other)
    fails(ConfigError, "supervised guard has another vocabulary", hardening(root, target, str(target)))
    unguarded = replace(REINFORCE, supervised_weight=0.0)
    limited = hardening(root, target, str(target), reinforce=unguarded, perplexity_limit=1.5)
    fails(ConfigError, "perplexity_limit=0", limited)
    assert not (tmp_path / "run").exists()


def test_a_language_that_is_lost_is_an_error_and_not_saved(
    tmp_path: Path, root: Path, trainee: Path, adversaries: str, ray_session: RaySession
) -> None:
    asked = hardening(root, trainee, adversaries, reinforce=STEEP, perplexity_limit=2.0)
    for _ in range(2):
        # The second time it goes on from the state that was saved last.
        with pytest.raises(DivergenceError, match=r"losing its language(.|\n)*update 2(.|\n)*the limit is 524"):
            TRAIN_TARGET.run(asked, tmp_path / "run", Silent())
    run = RunFolder.load(tmp_path / "run")
    measured = [(event["number"], event["perplexity"]) for event in run.events() if event["kind"] == "language"]
    assert [number for number, _ in measured] == [1, 2, 2]
    assert measured[0][1] < 524 < measured[1][1] == measured[2][1]
    _, counters = load_state(tmp_path / "run" / STATE)
    assert counters["iteration"] == 1
    assert run.summary() is None
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_perplexity_beyond_all_numbers_is_a_lost_language(
    tmp_path: Path, root: Path, trainee: Path, adversaries: str, ray_session: RaySession
) -> None:
    asked = hardening(root, trainee, adversaries, reinforce=replace(REINFORCE, learning_rate=30.0), perplexity_limit=1e6)
    with pytest.raises(DivergenceError, match="validation perplexity inf"):
        TRAIN_TARGET.run(asked, tmp_path / "run", Silent())
    assert not (tmp_path / "run" / STATE).exists()


def test_without_a_limit_nothing_stops_it(
    tmp_path: Path, root: Path, trainee: Path, adversaries: str, ray_session: RaySession
) -> None:
    result = TRAIN_TARGET.run(hardening(root, trainee, adversaries, reinforce=STEEP), tmp_path / "run", Silent())
    assert result.metrics["perplexity"].value > 1000


@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="the memory of a process is read from Linux' /proc")
def test_memory_stays_flat_over_fifty_trainings(tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession) -> None:
    """A target and an adversary train in turn, in one process, as in a campaign of 25 rounds."""
    rule = replace(REINFORCE, dialogues=6, kl_weight=0.1)
    resident: dict[int, float] = {}
    networks: dict[int, int] = {}
    target = adversary = trainee
    for number in range(1, 51):
        path = tmp_path / str(number)
        if number % 2:
            TRAIN_ADVERSARY.run(against(root, target, learner=str(adversary), reinforce=rule), path, Silent())
            adversary = path
        else:
            TRAIN_TARGET.run(hardening(root, target, str(adversary), reinforce=rule), path, Silent())
            target = path
        resident[number] = int(STATM.read_text().split()[1]) * resource.getpagesize() / 2**20
        networks[number] = sum(type(thing) is Negotiator for thing in gc.get_objects())
    assert set(networks.values()) == {0}, f"networks alive after each training: {networks}"
    assert resident[50] - resident[10] < 10, f"MB after each training: {resident}"
