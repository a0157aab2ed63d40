"""An attacker that refines tactics: beside its controls, after a kill, and where it or its target is no such thing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run, load_chapters, render
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.attacks.settings import TacticSettings
from parley.engine.negotiation.verbs.match import SELFPLAY
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC, TacticConfig, played_tactics, written_tactics
from parley.envs.core.errors import CheckpointError, ConfigError, RunError
from tests.engine.core.cli.test_flags import understood
from tests.engine.core.verbs.made_up import Notes, rows

# A target that gives all away to who says its word, and tells the word to everybody: whoever reads a transcript wins.
MINE = """
import json, os, re
import numpy as np
from parley.envs.core.play import Utterances
from parley.policies.chat.model import Access, Answer, ChatTooLongError

class Giver:
    def join(self, view):
        self.view = view
        return self
    def speak(self, rows):
        return Utterances.of([self.view.vocabulary.encode(["i", "want", "book", "<eos>"]) for _ in rows])
    def choose(self, rows):
        return np.array([self.one(row) for row in rows.tolist()])
    def one(self, row):
        counts = tuple(self.view.contexts[row, ::2].tolist())
        heard = any(not own and "i want book" in words for own, words in self.view.turns(row))
        return 0 if heard else self.view.domain.selections(counts).no_agreement - 1

class Player:
    name, access = "player", Access.TEXT
    def answer(self, chats, *, decoding, seeds=()):
        return [self.one(chat) for chat in chats]
    def one(self, chat):
        if any(message.role == "assistant" for message in chat): return Answer("<selection>", "stop", 20, 1)
        told = re.findall("tactic: say (\\\\w+)", chat[0].content)
        return Answer(f"i want {{told[0] if told else 'nothing'}}", "stop", 20, 3)

class Writer:
    name, access = "writer", Access.TEXT
    def answer(self, chats, *, decoding, seeds=()):
        with open({log!r}, "a") as file:
            file.writelines(json.dumps([chat[-1].content, seed]) + "\\n" for chat, seed in zip(chats, seeds))
        return [self.one(chat[-1].content, seed) for chat, seed in zip(chats, seeds)]
    def one(self, asked, seed):
        if {refuses}: return Answer("I'm sorry, but I can't help with that.", "stop", 10, 9)
        if {fails} and not os.path.exists({mended!r}): raise RuntimeError("out of order")
        if len(asked) > {longest}: raise ChatTooLongError("too long")
        read = re.findall("partner: i want (\\\\w+)", asked)
        return Answer(f"**Tactic:** say {{read[0] if read else ['hat', 'ball', 'hats'][seed % 3]}}", "stop", 30, 5)
"""
SEARCH = TacticSettings(rounds=3, streams=2)


def config(folder: Path, refuses: str = "False", fails: str = "False", longest: int = 10**6, **changes: Any) -> TacticConfig:
    names = {"log": str(folder / "asked.jsonl"), "mended": str(folder / "mended")}
    (folder / "mine.py").write_text(MINE.format(**names, refuses=refuses, fails=fails, longest=longest))
    mine = {name: f"{folder}/mine.py:{name.capitalize()}" for name in ("giver", "player", "writer")}
    sides = {"attacker": mine["writer"], "speaker": mine["player"], "target": mine["giver"]}
    settings: dict[str, Any] = {**sides, "dialogues": 4, "held_out": 6, "search": SEARCH, **changes}
    return TacticConfig(**settings)


def asked(folder: Path) -> list[tuple[str, int]]:
    return [tuple(json.loads(line)) for line in (folder / "asked.jsonl").read_text().splitlines()]


def test_who_reads_transcripts_gains_and_the_controls_do_not(tmp_path: Path) -> None:
    result = ATTACK_TACTIC.run(config(tmp_path), tmp_path / "run", Silent())
    found = {name: estimate.value for name, estimate in result.metrics.items()}
    assert found["refined.advantage"] == found["refined.development"] == 10
    assert found["none.advantage"] == found["gains.advantage"] == found["blind.advantage"] == -10
    assert found["refined.over_none"] == found["refined.over_gains"] == found["refined.over_blind"] == 20
    assert result.metrics["refined.over_none"].n == 6
    read = [question for question, _ in asked(tmp_path) if "Game 1" in question]
    assert len(read) == SEARCH.streams * (SEARCH.rounds - 1), "nobody else is shown a dialogue"
    assert all("gain -10.00: say" in question for question in read)
    played = rows(tmp_path / "run")
    assert {row["dialogue"] for row in played if row["held_out"]} == set(range(4, 10)), "dialogues that chose nothing"
    # Costs are each attacker's own: every tactic of its own in each development dialogue, two answers a dialogue.
    own = [each for each in written_tactics(RunFolder.load(tmp_path / "run")) if each.arm == "refined"]
    num = len({each.text for each in own})
    assert len(own) == 6
    assert (found["refined.tactics"], found["refined.dialogues"]) == (num, num * 4)
    assert found["refined.calls"] == 6 + 2 * num * 4
    assert found["refined.tokens_in"] == 6 * 30 + 2 * num * 4 * 20
    assert not result.failure


def test_the_match_that_is_proposed_is_the_held_out_dialogues_once_more(tmp_path: Path) -> None:
    result = ATTACK_TACTIC.run(config(tmp_path), tmp_path / "run", Silent())
    again = understood(result.next_commands[1]).config
    SELFPLAY.run(again, tmp_path / "again", Silent())
    tactic = again.tactic
    held_out = [row for row in rows(tmp_path / "run") if row["held_out"] and row["tactic"] == tactic]
    names = ("seed", "counts", "values_adversary", "turns", "points_adversary")
    assert tactic
    first, second = ([[row[name] for name in names] for row in found] for found in (held_out, rows(tmp_path / "again")))
    assert first == second


def test_a_run_that_was_broken_off_asks_nothing_twice_and_ends_alike(tmp_path: Path) -> None:
    whole = ATTACK_TACTIC.run(config(tmp_path), tmp_path / "whole", Silent())
    questions = asked(tmp_path)
    (tmp_path / "asked.jsonl").unlink()
    broken = config(tmp_path, fails="'Game 1' in asked and asked.count('gain ') > 2")
    with pytest.raises(ConfigError, match="out of order"):
        ATTACK_TACTIC.run(broken, tmp_path / "run", Silent())
    assert len(written_tactics(RunFolder.load(tmp_path / "run"))) == 12, "two rounds"
    before = asked(tmp_path)
    (tmp_path / "mended").touch()
    # A kill may also leave a part of the rows behind the tactics that were noted.
    last = max((tmp_path / "run" / "rows").glob("*.parquet"))
    last.unlink()
    result = ATTACK_TACTIC.run(broken, tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert result.metrics == whole.metrics
    told = Notes()
    ATTACK_TACTIC.run(broken, tmp_path / "run", told)
    assert "nothing is left to do" in told.said[0]
    again = asked(tmp_path)[len(before) :]
    assert again == before[-len(again) :], "the round that broke off, and nothing else"
    assert set(before) == set(questions)


@pytest.mark.usefixtures("workers_here")
def test_rows_are_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    small = config(tmp_path, search=replace(SEARCH, rounds=2))
    ATTACK_TACTIC.run(small, tmp_path / "alone", Silent())
    ATTACK_TACTIC.run(replace(small, workers=2), tmp_path / "many", Silent())
    assert rows(tmp_path / "alone") == rows(tmp_path / "many")


def test_an_attacker_that_always_refuses_is_a_failure_with_figures(tmp_path: Path) -> None:
    result = ATTACK_TACTIC.run(config(tmp_path, refuses="True"), tmp_path / "run", Silent())
    assert "wrote no tactic in 18 answers" in result.failure
    assert "it refuses" in result.failure
    assert result.metrics["refined.unusable"].value == 6
    assert result.metrics["refined.calls"].value == 12, "each is asked once more"
    assert result.metrics["refined.over_none"].value == 0
    assert "No tactic can be read of that" in asked(tmp_path)[-1][0]
    assert "wrote no tactic that could be tried" in render(collect_run(tmp_path / "run"), load_chapters())


def test_an_attacker_that_gives_no_reply_is_counted_as_such(tmp_path: Path) -> None:
    silent = config(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(path.read_text().replace("if False: return Answer(", "if True: return Answer('', 'content_filter') or ("))
    result = ATTACK_TACTIC.run(silent, tmp_path / "run", Silent())
    assert "it is no reply: filtered" in result.failure
    assert result.metrics["refined.unusable"].value == result.metrics["refined.no_reply"].value == 6
    writer = result.chat_usage["models"][silent.attacker]
    assert writer["kinds"] == {"filtered": writer["asked"]}
    assert writer["no_reply_share"] == 1


def test_a_small_context_is_asked_with_fewer_transcripts(tmp_path: Path) -> None:
    longest = 900
    ATTACK_TACTIC.run(config(tmp_path, longest=longest), tmp_path / "run", Silent())
    answered = [question for question, _ in asked(tmp_path) if len(question) <= longest]
    assert max(map(len, (question for question, _ in asked(tmp_path)))) > longest
    assert any("Game 1" in question and "Game 3" not in question for question in answered)
    with pytest.raises(ConfigError, match="too long"):
        ATTACK_TACTIC.run(config(tmp_path, longest=10, seed=2), tmp_path / "other", Silent())


def test_the_page_shows_the_tactics_and_no_markup_of_theirs(tmp_path: Path) -> None:
    settings = config(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(path.read_text().replace("**Tactic:** say {", "**Tactic:** <script>bad()</script> say {"))
    ATTACK_TACTIC.run(settings, tmp_path / "run", Silent())
    report = collect_run(tmp_path / "run")
    page = render(report, load_chapters())
    assert "<script>bad()" not in page
    assert "&lt;script&gt;bad()&lt;/script&gt; say" in page
    assert "Gain by dialogues with the target" in page
    assert "Tactics, drawn blind, best of all" in page
    arms = [run.heading for run in report.found["tactics"] if run.arm != "all"]
    assert arms[:2] == ["No tactic", "Refined from transcripts"]
    assert "gains 0.00 points more than no tactic" in page, "for the player looks for its word elsewhere"
    assert next(at for at, _ in played_tactics(RunFolder.load(tmp_path / "run")).curve("blind")) == 0


def test_a_target_that_always_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    settings = config(tmp_path, search=replace(SEARCH, rounds=2))
    path = tmp_path / "mine.py"
    path.write_text(path.read_text().replace("        counts =", "        raise KeyError('no price')\n        counts ="))
    result = ATTACK_TACTIC.run(settings, tmp_path / "run", Silent())
    assert "every item failed" in result.failure
    assert "no price" in result.failure
    assert "gain unknown, no game came to its end" in asked(tmp_path)[-1][0] + asked(tmp_path)[-3][0]
    assert "no price" in render(collect_run(tmp_path / "run"), load_chapters())


def test_tactics_of_another_run_are_played_with_another_target(tmp_path: Path) -> None:
    settings = config(tmp_path)
    own = ATTACK_TACTIC.run(settings, tmp_path / "own", Silent())
    mine = (tmp_path / "mine.py").read_text()
    (tmp_path / "deaf.py").write_text(mine.replace("i want book", "i want everything"))
    before, other = asked(tmp_path), f"{tmp_path}/deaf.py:Giver"
    moved = replace(settings, target=other, attacker="", source=str(tmp_path / "own"))
    result = ATTACK_TACTIC.run(moved, tmp_path / "moved", Silent())
    assert asked(tmp_path) == before, "no tactic is written"
    assert result.metrics["refined.advantage"].value == -10 < own.metrics["refined.advantage"].value
    played, first = rows(tmp_path / "moved"), [row for row in rows(tmp_path / "own") if row["held_out"]]
    told = ("item_key", "seed", "tactic", "dialogue", "counts", "values_target")
    assert [[row[name] for name in told] for row in played] == [[row[name] for name in told] for row in first]
    for cost in ("tactics", "dialogues", "calls", "tokens_in"):
        assert result.metrics[f"refined.{cost}"] == own.metrics[f"refined.{cost}"], "what it took to find them"
    summary = RunFolder.load(tmp_path / "moved").summary()
    assert summary is not None
    assert f"Tactics of {tmp_path}/own, refined against {settings.target}; " in summary["description"]
    notes = Notes()
    ATTACK_TACTIC.run(moved, tmp_path / "moved", notes)
    assert "nothing is left to do" in notes.said[0]
    assert "tactics beside their controls" in render(collect_run(tmp_path / "moved"), load_chapters()).lower()
    with pytest.raises(RunError, match=r"same dialogues, scenarios, seed(.|\n)*--source"):
        ATTACK_TACTIC.run(replace(moved, seed=2), tmp_path / "no", Silent())
    with pytest.raises(RunError, match="no run here"):
        ATTACK_TACTIC.run(replace(moved, source=str(tmp_path / "nothing")), tmp_path / "no", Silent())
    assert not (tmp_path / "no").exists()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nobody writes": ({"attacker": ""}, "no attacker is named to write"),
    "no chat model writes": ({"attacker": "scripted"}, "no chat model is called so"),
    "nothing is at the address": ({"attacker": "hf:nowhere"}, "needs a folder and there is none"),
    "no chat model plays": ({"speaker": "scripted"}, "a tactic needs a chat model"),
    "the target is no agent": ({"target": "nobody"}, "needs a checkpoint and there is none"),
    "the target is a person": ({"target": "human"}, "a person cannot be met"),
    "the target cannot join": ({"target": "{folder}/mine.py:json"}, "no agent|no method join|makes no"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_before_there_is_a_run(tmp_path: Path, what: str) -> None:
    changes, message = WRONG[what]
    given = {name: value.replace("{folder}", str(tmp_path)) for name, value in changes.items()}
    with pytest.raises((ConfigError, CheckpointError), match=message):
        ATTACK_TACTIC.run(config(tmp_path, **given), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_settings_that_do_not_fit_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no control is called 'gain', did you mean 'gains'"):
        config(tmp_path, search=replace(SEARCH, controls="gain"))
    with pytest.raises(ConfigError, match="size divides"):
        config(tmp_path, shard_size=3)
    scenarios = tmp_path / "scenarios.txt"
    scenarios.write_text("1 4 2 3 3 0\n1 1 2 0 3 3\n" * 4)
    with pytest.raises(ConfigError, match="too few scenarios for dialogues that are held out"):
        ATTACK_TACTIC.run(config(tmp_path, scenarios=str(scenarios)), tmp_path / "run", Silent())
