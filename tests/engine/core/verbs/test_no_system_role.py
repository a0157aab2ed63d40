"""Negotiation and MutualFriends by a model whose template takes no message of the system."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.verbs.job import TOLD, Result, Silent
from parley.engine.mutual_friends.verbs.evaluate import EVALUATE_MUTUAL_FRIENDS, demo
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.policies.chat.model import FOLDED
from parley.policies.chat.settings import ChatSeat
from tests.engine.core.verbs.made_up import rows

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
SEAT = ChatSeat(max_tokens=4)


@pytest.fixture
def model(tmp_path: Path) -> str:
    from tests.policies.chat.tiny import TEMPLATE, saved

    return f"hf:{saved(tmp_path / 'model', REFUSES + TEMPLATE, positions=2048)}"


def plays_and_says_so(result: Result, run: Path) -> None:
    # A model of drawn weights may end before it says a word; no message is refused.
    assert {(row["error"] or "").partition("\n")[0] for row in rows(run)} <= {"", "no answer (empty)"}
    assert any(row["status"] == "ok" for row in rows(run))
    usage = result.chat_usage
    assert usage["notes"] == {FOLDED: usage["asked"]}
    assert f"Of these: {usage['asked']:,} {FOLDED}." in usage[TOLD]
    assert usage[TOLD].count(FOLDED) == 1


def test_it_negotiates_and_the_run_says_so_once(model: str, tmp_path: Path) -> None:
    config = MatchConfig(adversary="scripted", target=model, dialogues=2, max_turns=6, chat=SEAT, temperature=0.0)
    plays_and_says_so(SELFPLAY.run(config, tmp_path / "run", Silent()), tmp_path / "run")


def test_it_looks_for_friends_and_the_run_says_so_once(model: str, tmp_path: Path) -> None:
    config = replace(demo(), model=model, scenarios=2, strategies="none", max_events=4, chat=SEAT)
    plays_and_says_so(EVALUATE_MUTUAL_FRIENDS.run(config, tmp_path / "run", Silent()), tmp_path / "run")
