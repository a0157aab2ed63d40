"""Attacks as matches: the rule, whose sentences are said, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs import whitebox as attack_jobs
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.whitebox import (
    ATTACK_RL,
    ATTACK_TRANSFER,
    AttackConfig,
    TransferConfig,
    TransferSettings,
)
from parley.envs.core.errors import CheckpointError, ConfigError, RunError
from tests.engine.core.verbs.made_up import Notes, rows

SENTENCE = "i want the ball ."


def attack(target: Path, speaker: Path) -> AttackConfig:
    return AttackConfig(target=str(target), speaker=str(speaker), dialogues=6)


def transfer(**settings: object) -> TransferConfig:
    shown = TransferSettings(**settings)  # type: ignore[arg-type]  # settings of any kind, by name
    return TransferConfig(target="scripted-tough", speaker="scripted", dialogues=12, transfer=shown)


def test_the_attack_is_the_match_under_its_rule(tmp_path: Path, target: Path, speaker: Path) -> None:
    ATTACK_RL.run(attack(target, speaker), tmp_path / "attack", Silent())
    match = MatchConfig(adversary=str(speaker), target=str(target), dialogues=6, complementary=True)
    SELFPLAY.run(match, tmp_path / "match", Silent())
    assert rows(tmp_path / "attack") == rows(tmp_path / "match")


def test_the_fixed_sentence_is_said_once_and_not_before_its_turn(tmp_path: Path) -> None:
    ATTACK_TRANSFER.run(transfer(sentence=SENTENCE, turn=2), tmp_path / "run", Silent())
    said = 0
    for row in rows(tmp_path / "run"):
        places = [place for place, turn in enumerate(row["turns"]) if (turn["side"], turn["words"]) == (0, SENTENCE)]
        assert len(places) <= 1
        assert all(place >= 2 for place in places)
        said += len(places)
    assert said > 0


def test_sentences_come_from_the_best_dialogues_of_an_attack(tmp_path: Path) -> None:
    source = MatchConfig(adversary="scripted-tough", target="scripted", dialogues=40)
    SELFPLAY.run(source, tmp_path / "source", Silent())
    won = [row for row in rows(tmp_path / "source") if row["points_adversary"] - row["points_target"] >= 4]
    best = {[turn["words"] for turn in row["turns"] if turn["side"] == 0 and turn["words"] != "<selection>"][-1] for row in won}
    notes = Notes()
    ATTACK_TRANSFER.run(transfer(source=str(tmp_path / "source"), turn=0), tmp_path / "run", notes)
    assert notes.said[0] in {f"to plug in: {words}, and {len(best) - 1} less frequent" for words in best}
    opening = {next(turn["words"] for turn in row["turns"] if turn["side"] == 0) for row in rows(tmp_path / "run")}
    assert opening <= best | {"<selection>"}


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, target: Path) -> None:
    with pytest.raises(CheckpointError, match="--speaker needs a checkpoint"):
        ATTACK_RL.run(AttackConfig(target=str(target), speaker=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="a person cannot be met"):
        ATTACK_RL.run(AttackConfig(target=str(target), speaker="human"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match=r"one source of sentences(.|\n)*--set transfer\.source=RUN"):
        ATTACK_TRANSFER.run(transfer(), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match=r"one source of sentences(.|\n)*--set transfer\.source= to keep the sentence"):
        ATTACK_TRANSFER.run(transfer(sentence=SENTENCE, source="runs/attack-rl"), tmp_path / "run", Silent())
    with pytest.raises(RunError, match="there is no run here"):
        ATTACK_TRANSFER.run(transfer(source=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match=r"does not know(.|\n)*flibber"):
        ATTACK_TRANSFER.run(transfer(sentence="flibber the ball"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_source_without_a_win_is_named(tmp_path: Path) -> None:
    SELFPLAY.run(MatchConfig(adversary="scripted", target="scripted", dialogues=4), tmp_path / "source", Silent())
    asked = transfer(source=str(tmp_path / "source"), min_advantage=11)
    with pytest.raises(ConfigError, match=r"lower transfer\.min_advantage"):
        ATTACK_TRANSFER.run(asked, tmp_path / "run", Silent())


def test_of_a_source_what_the_speaker_can_say_is_plugged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SELFPLAY.run(MatchConfig(adversary="scripted", target="scripted", dialogues=4), tmp_path / "source", Silent())
    asked, notes, found = transfer(source=str(tmp_path / "source"), turn=0), Notes(), ["gimme them mate", SENTENCE]
    monkeypatch.setattr(attack_jobs, "last_sentences", lambda rows, least, limit: found)
    ATTACK_TRANSFER.run(asked, tmp_path / "run", notes)
    assert notes.said[:2] == [
        "left out: 1 of 2 sentences, in words that the speaker does not know",
        f"to plug in: {SENTENCE}",
    ]
    assert any(turn["words"] == SENTENCE for row in rows(tmp_path / "run") for turn in row["turns"])
    found.remove(SENTENCE)
    with pytest.raises(ConfigError, match=r"no sentence that won(.|\n)*gimme(.|\n)*name another speaker"):
        ATTACK_TRANSFER.run(asked, tmp_path / "none", Silent())
