"""A person looks for the friend that a bot has too, with lines from a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.mutual_friends.verbs.agents import run_play_friends
from parley.envs.core.seeds import stream
from parley.envs.mutual_friends.compiled import load_friends
from parley.envs.mutual_friends.scenario import random_friends
from tests.engine.core.cli.conftest import Parley, Typed

OWN = """
class Answers:
    name = "answers"

    def join(self, view):
        self.view, self.known = view, {}
        return self

    def enter(self, rows):
        self.known.clear()

    def hear(self, rows, events):
        for row, event in zip(rows, events):
            if event.selected is not None and event.side != self.view.side and event.item in self.view.table(row):
                self.known[row] = self.view.table(row).index(event.item)

    def act(self, rows):
        return [self.known.get(row, ("tell", "me", "more")) for row in rows]
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path / 'own.py'}:Answers"


def test_both_select_the_common_friend(parley: Parley, typed: Typed, own: str) -> None:
    assert run_play_friends.__doc__
    scenario = random_friends(load_friends("friends").schema, stream(1, "scenario", "played"))
    common, other = scenario.shared[0], 1 - min(scenario.shared[0], 1)
    selected = [f"/select {number + 1}" for number in (98, other, common)]
    typed("Hello there!", "", "/help", "/table", "/nothing", "/select", *selected)
    outcome = parley("play", "friends", "--partner", own)
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err.count("your friends:") == 2
    assert "there is no command /nothing; /help lists them" in outcome.err
    assert outcome.err.count(f"give the number of a friend, 1 to {len(scenario.tables[0])}, such as /select 2") == 2
    assert "partner: tell me more" in outcome.err
    friend = ", ".join(scenario.tables[0][common])
    assert "both selected after" in outcome.err
    assert f"; the common friend: {friend}" in outcome.err
    assert outcome.err.endswith(f"next:\n  parley play friends --partner {own} --seed 2\n")


def test_who_leaves_finds_nobody(parley: Parley, typed: Typed) -> None:
    typed("hi", "/quit")
    outcome = parley("play friends --seed 3")
    assert outcome.status == 0
    assert outcome.err.endswith("you left, no friend was found\n")


def test_a_missing_partner_is_named(parley: Parley) -> None:
    outcome = parley("play friends --partner runs/nothing")
    assert outcome.status == 2
    assert "parley train dynonet" in outcome.err
