"""Campaigns that do not go well: phases that diverge, a disk that fills up, a driver that is killed."""

from __future__ import annotations

import json
import resource
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.campaign import ROUND
from parley.engine.core.verbs.job import Result, Silent
from parley.engine.negotiation.verbs import exploitability, training
from parley.engine.negotiation.verbs.campaign import ROLLED_BACK
from parley.engine.negotiation.verbs.minmax import MINMAX
from parley.envs.core.errors import CheckpointError, RunError
from tests.engine.core.verbs.made_up import (
    REINFORCE,
    Notes,
    assert_equal_weights,
    campaign,
    corpus_vocabulary,
    given,
    iterations,
    kill_at,
    metrics,
    save_negotiator,
)

run = MINMAX.run

pytestmark = pytest.mark.ray

RATE = REINFORCE.learning_rate


@pytest.fixture(scope="module")
def adversary(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A random negotiator that passes for a trained adversary."""
    return save_negotiator(tmp_path_factory.mktemp("adversary") / "checkpoint", seed=4, vocabulary=corpus_vocabulary(root))


def rolled_back(path: Path) -> list[dict[str, Any]]:
    return [event for event in RunFolder.load(path).events() if event["kind"] == ROLLED_BACK]


def rate(path: Path) -> float:
    """The learning rate of a training."""
    return float(RunFolder.load(path).config["reinforce"]["learning_rate"])


def trained(path: Path) -> dict[str, list[int]]:
    """The updates of every training below a campaign's folder."""
    runs = [file.parent for file in path.rglob("environment.json")]
    return {str(one.relative_to(path)): iterations(one) for one in runs if RunFolder.load(one).job.startswith("train")}


@pytest.fixture
def diverging(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of phases whose second update counts as diverged, each as often as it stands here."""
    names: list[str] = []

    def look(self: training._Training, number: int, *_: Any) -> None:
        path = self._folder.path
        name = path.parent.name if path.name == exploitability.ADVERSARY else path.name
        if number == 2 and name in names:
            names.remove(name)
            raise DivergenceError("the learner is made to diverge", where=f"update {number}", got="a made-up perplexity")

    monkeypatch.setattr(training._Training, "_check_language", look)
    return names


def test_a_phase_that_diverges_is_done_again_at_half_the_rate(
    tmp_path: Path, root: Path, trainee: Path, adversary: Path, ray_session: RaySession, diverging: list[str]
) -> None:
    asked, path, notes = given(root, trainee, adversary, rounds=2), tmp_path / "run", Notes()
    diverging += ["01-exploitability", "02-target"]
    result = run(asked, path, notes)
    assert diverging == []
    assert [(event["phase"], event["role"], event["learning_rate"]) for event in rolled_back(path)] == [
        ("01-exploitability", "exploitability", RATE / 2),
        ("02-target", "target", RATE / 2),
    ]
    assert "the learner is made to diverge" in rolled_back(path)[0]["reason"]
    told = [line for line in notes.said if "back to its start" in line]
    reason = f"the learner is made to diverge (a made-up perplexity); back to its start at the rate {RATE / 2:g}"
    assert told == [f"round {number}: {reason}" for number in (1, 2)]
    again = f"01-exploitability-again-1/{exploitability.ADVERSARY}"
    measured = ("00-exploitability", "final-exploitability")
    assert trained(path) == {
        **{f"{name}/{exploitability.ADVERSARY}": [1, 2] for name in measured},
        "01-target": [1, 2],
        f"01-exploitability/{exploitability.ADVERSARY}": [1, 2],
        again: [1, 2],
        "02-target": [1, 2],
        "02-target-again-1": [1, 2],
        f"02-exploitability/{exploitability.ADVERSARY}": [1, 2],
    }
    assert [rate(path / name) for name in ("01-target", "02-target", "02-target-again-1")] == [RATE, RATE, RATE / 2]
    assert rate(path / again) == rate(path / "02-exploitability" / exploitability.ADVERSARY) == RATE / 2
    start = {name: RunFolder.load(path / name).config for name in ("02-target", "02-target-again-1")}
    assert start["02-target"]["target"] == start["02-target-again-1"]["target"] == str(path / "01-target")
    assert start["02-target-again-1"]["adversaries"].endswith(again), "the best response that did not diverge"
    assert RunFolder.load(path / "02-exploitability").config["target"] == str(path / "02-target-again-1")

    # A log that has lost its rounds: all is measured again from what is there, at the rates of then.
    log = path / "events.jsonl"
    kept = [line for line in log.read_text().splitlines() if json.loads(line)["kind"] != ROUND]
    log.write_text("".join(f"{line}\n" for line in kept))
    (path / "summary.json").unlink()
    before = trained(path)
    assert metrics(run(asked, path, Silent())) == metrics(result)
    assert trained(path) == before


@pytest.mark.slow
def test_a_language_that_is_lost_brings_a_phase_back_to_its_start(
    tmp_path: Path, root: Path, trainee: Path, adversary: Path, ray_session: RaySession
) -> None:
    """Nothing is made up here. At the first two rates perplexity goes from 262 to 6e9 and 7e3, whatever digits round to.

    Whether a third phase, at a quarter of the rate, keeps the language is left to the processor (325, the limit is 393).
    """
    steep = replace(REINFORCE, dialogues=12, learning_rate=1.0)
    result = run(given(root, trainee, adversary, defence=steep, perplexity_limit=1.5, retries=9), tmp_path / "run", Silent())
    told = [(event["phase"], event["learning_rate"]) for event in rolled_back(result.run)]
    assert told[:2] == [("01-target", 0.5), ("01-target", 0.25)]
    *lost, kept = "01-target", *(f"01-target-again-{number}" for number in range(1, len(told) + 1))
    limit = 1.5 * result.metrics["perplexity_before"].value
    found = {}
    for name in (*lost, kept):
        events = RunFolder.load(result.run / name).events()
        found[name] = [event["perplexity"] for event in events if event["kind"] == "language"]
    assert all(found[name][-1] > limit for name in lost)
    assert len(found[kept]) == 2
    assert max(found[kept]) < limit
    assert (result.run / kept / "checkpoint").is_dir()
    assert not any((result.run / name / "checkpoint").exists() for name in lost)


@pytest.mark.slow
def test_a_campaign_gives_up_and_goes_on_with_more_retries(
    tmp_path: Path, root: Path, trainee: Path, adversary: Path, ray_session: RaySession, diverging: list[str]
) -> None:
    path = tmp_path / "run"
    diverging += ["01-target", *["01-target-again-1"] * 3, "01-target-again-2"]
    for _ in range(2):
        # The same command again tries the last rate again, and no further one.
        with pytest.raises(DivergenceError, match=r"made to diverge(.|\n)*01-target-again-1(.|\n)*--retries"):
            run(given(root, trainee, adversary, retries=1), path, Silent())
        assert [event["phase"] for event in rolled_back(path)] == ["01-target"]
    assert diverging == ["01-target-again-1", "01-target-again-2"]
    run(given(root, trainee, adversary, retries=3), path, Silent())
    assert [event["learning_rate"] for event in rolled_back(path)] == [RATE / 2, RATE / 4, RATE / 8]
    assert [rate(path / f"01-target{ending}") for ending in ("", "-again-1", "-again-2", "-again-3")] == [
        RATE,
        RATE / 2,
        RATE / 4,
        RATE / 8,
    ]


class Filling(Notes):
    """A reporter at whose word the kernel refuses more bytes in any file, as on a full disk."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def say(self, text: str) -> None:
        super().say(text)
        if text == "round 1: training the target":
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._room, self._before[1]))

    def empty(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


@pytest.fixture
def filling(request: pytest.FixtureRequest) -> Iterator[Filling]:
    reporter = Filling(request.param)
    yield reporter
    reporter.empty()


@pytest.mark.parametrize("filling", [pytest.param(size, marks=pytest.mark.slow) for size in (300, 2000, 8000)], indirect=True)
def test_a_full_disk_is_an_error_and_the_same_command_goes_on(
    tmp_path: Path, root: Path, trainee: Path, adversary: Path, ray_session: RaySession, filling: Filling
) -> None:
    asked, path = given(root, trainee, adversary), tmp_path / "run"
    with pytest.raises((RunError, CheckpointError), match=r"the disk is full|cannot be written"):
        run(asked, path, filling)
    filling.empty()
    assert [event["number"] for event in RunFolder.load(path).events() if event["kind"] == ROUND] == [0]
    notes = Notes()
    again = run(asked, path, notes)
    done = [line for line in notes.said if line.startswith(("stage", "round 0")) or line.endswith("nothing is left to do")]
    assert not any("00-" in line or line.startswith("round 0") for line in done), "what is measured stays measured"
    whole = run(asked, tmp_path / "whole", Silent())
    assert metrics(again) == metrics(whole)
    assert_equal_weights(path, whole.run)


LONG = replace(REINFORCE, dialogues=120)
LONGER: dict[str, Any] = {"save_every": 3, "attack": LONG, "defence": LONG, "budget": 120}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, root: Path, trainee: Path, ray_session: RaySession) -> Result:
    """A campaign that nobody interrupts."""
    return run(campaign(root, trainee, **LONGER), tmp_path_factory.mktemp("whole") / "run", Silent())


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["01-adversary", "02-target", f"01-exploitability/{exploitability.ADVERSARY}"])
def test_a_killed_campaign_goes_on_to_the_same_weights(
    tmp_path: Path, root: Path, trainee: Path, whole: Result, phase: str
) -> None:
    asked, killed = campaign(root, trainee, **LONGER), tmp_path / "killed"
    words = shlex.split(MINMAX.command(asked, killed))[1:]
    kill_at(f'events("killed/{phase}", "iteration") == 5', *words, folder=tmp_path)
    before = trained(killed)
    notes = Notes()
    again = run(asked, killed, notes)
    (resumed,) = [line for line in notes.said if line.startswith("resumed after update ")]
    assert int(resumed.split()[-1]) in (3, 6), "the last saved state"
    assert metrics(again) == metrics(whole)
    for name, made in trained(killed).items():
        assert_equal_weights(killed / name, whole.run / name)
        if name in before and name != phase:
            assert made == before[name], "what was finished is not trained again"
        elif name not in before:
            assert made == list(range(1, 21))
    assert trained(killed).keys() == trained(whole.run).keys()
    assert_equal_weights(killed, whole.run)
