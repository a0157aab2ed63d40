"""What white-box presets see and may say, and mistakes that are named before a run is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.attacks import choices, replacement
from parley.engine.negotiation.attacks.settings import AttackKind
from parley.engine.negotiation.verbs.whitebox import JOBS, FixedTurnConfig, TransferSettings
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.negotiation.dealornodeal_rules import MAX_SELECTIONS
from parley.policies.negotiator import inference
from tests.engine.negotiation.verbs.whitebox import asked, attack, save_hasty, save_speaker, save_target
from tests.policies.negotiator.made_up import never_screened


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_hasty(tmp_path_factory.mktemp("hasty"))


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_speaker(tmp_path_factory.mktemp("speaker"))


def scrambled(scores: Tensor) -> Tensor:
    """Scores with the same best selection and all others shuffled and shrunk."""
    generator = torch.Generator().manual_seed(len(scores))
    other = scores.clone()
    for row, chosen in enumerate(scores.argmax(1).tolist()):
        legal = scores[row].isfinite()
        legal[chosen] = False
        rest = scores[row, legal]
        other[row, legal] = scores[row, chosen] - 0.01 * (1 + torch.rand(len(rest), generator=generator))
    return other


@pytest.fixture
def clouded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search sees of the target no more than its choice and whether it ends the talk; no gradient at all."""
    scores, gaps, generator = choices.selection_scores, replacement.end_gaps, torch.Generator().manual_seed(0)

    def clouded_gaps(logits: Tensor) -> Tensor:
        return gaps(logits).sign() * (1 + torch.rand(len(logits), generator=generator))

    monkeypatch.setattr(choices, "selection_scores", lambda *asked: scrambled(scores(*asked)))
    monkeypatch.setattr(replacement, "end_gaps", clouded_gaps)
    monkeypatch.setattr(replacement, "word_changes", lambda *_: pytest.fail("a gradient was asked for"))
    # Which choices are plain is told from all scores, so nothing is decided roughly first.
    monkeypatch.setattr(inference, "of_machine", lambda *_: never_screened())


@pytest.mark.usefixtures("clouded")
@pytest.mark.parametrize("preset", ["decision-based", "cheng2019"])
def test_only_the_decision_based_search_does_without_scores(
    tmp_path: Path, hasty: Path, speaker: Path, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked("reactive", hasty, speaker, preset, dialogues=16, candidates=300)
    less = attack("reactive", config, tmp_path / "clouded")
    monkeypatch.undo()
    clear = attack("reactive", config, tmp_path / "clear")
    assert (less == clear) == (preset == "decision-based")
    assert sum(len(attempt["replaced"]) for row in clear for attempt in row["attempts"]) >= 3, "what it saw made a difference"


def test_the_scrambled_scores_keep_the_choice_alone() -> None:
    scores = torch.randn(6, MAX_SELECTIONS, generator=torch.Generator().manual_seed(0))
    scores[:, 30:] = -torch.inf
    other = scrambled(scores)
    assert torch.equal(other.argmax(1), scores.argmax(1))
    assert torch.equal(other.isfinite(), scores.isfinite())
    assert not torch.equal(other.argsort(1), scores.argsort(1))


def test_the_released_search_may_say_what_is_no_word(tmp_path: Path, hasty: Path, speaker: Path) -> None:
    config = asked("reactive", hasty, speaker, "released", dialogues=2, max_replacements=3, goal=8.0)
    played = attack("reactive", config, tmp_path / "run")
    attempts = [attempt for row in played for attempt in row["attempts"]]
    assert max(attempt["special"] for attempt in attempts) > 0
    assert all(step["feasible"] for attempt in attempts for step in attempt["steps"]), "a soft constraint is never broken"
    said = {word for row in played for turn in row["turns"] for word in turn["words"].split()}
    assert not said & {"YOU:", "THEM:", "<pad>"}, "the game lets nobody forge a transcript"


MISTAKES: dict[str, tuple[AttackKind, dict[str, Any], type[Exception], str]] = {
    "a scripted target": ("reactive", {"target": "scripted"}, CheckpointError, "--target needs a checkpoint"),
    "a scripted speaker": ("preemptive", {"speaker": "scripted"}, CheckpointError, "--speaker needs a checkpoint"),
    "no judge": ("reactive", {"judge": "scripted"}, CheckpointError, "--judge needs a checkpoint"),
    "no sentence": ("ra-pa-ta", {"transfer": TransferSettings()}, ConfigError, "one source of sentences"),
    "two sources": (
        "ra-pa-ta",
        {"transfer": TransferSettings(sentence="deal .", source="runs/attack-rl")},
        ConfigError,
        "one source of sentences",
    ),
    "an unknown word": ("ra-pa-ta", {"transfer": TransferSettings(sentence="flibber")}, ConfigError, "does not know"),
    "no such scenarios": ("ra-pa-da", {"scenarios": "embeded"}, ConfigError, "did you mean 'embedded'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_no_run_is_made(tmp_path: Path, target: Path, speaker: Path, mistake: str) -> None:
    kind, changes, error, message = MISTAKES[mistake]
    config = replace(asked(kind, target, speaker), **changes)
    with pytest.raises(error, match=message):
        JOBS[kind].run(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_both_sides_need_one_vocabulary(tmp_path: Path, target: Path, trainee: Path) -> None:
    with pytest.raises(CheckpointError, match=r"speak different vocabularies(.|\n)*words"):
        JOBS["reactive"].run(asked("reactive", target, trainee), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_an_attack_outside_the_dialogue_is_refused() -> None:
    for turn in (-1, 20):
        with pytest.raises(ConfigError, match="at least 0, below max_turns"):
            FixedTurnConfig(turn=turn)
    with pytest.raises(ConfigError, match="below max_turns"):
        replace(JOBS["ra-pa-ta"].presets["cheng2019"](), max_turns=3)
