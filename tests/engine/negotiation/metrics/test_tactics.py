"""What tactics gain: which one is chosen, what it cost, and what is said where nothing came to its end."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from parley.engine.negotiation.attacks.tactics import BLIND, NONE, REFINED, WrittenTactic
from parley.engine.negotiation.metrics.dialogues import LEGEND, TacticResults, tactics_table
from parley.policies.chat.model import ChatMoves
from tests.engine.negotiation.page.dialogues import error_row, row

MOVES = ChatMoves(answers=3, tokens_in=40, tokens_out=5, cut=2, repairs=1).__dict__


def played(number: int, dialogue: int, gain: int, held_out: bool = False) -> dict[str, Any]:
    """A dialogue with a tactic, in which both sides share ten points."""
    key = f"{'held' if held_out else 'dev'}-{number}-{dialogue}"
    about = {"tactic": f"tactic {number}", "tactic_number": number, "held_out": held_out, "dialogue": dialogue}
    return {**row(key, (5 + gain, 5 - gain)), **about, "chat_adversary": MOVES}


def written(arm: str, number: int, round_: int) -> WrittenTactic:
    return WrittenTactic(arm, 1, round_, number, f"tactic {number}", "" if number else "it refuses", 2, 100, 10)


WRITTEN = [written(REFINED, 1, 1), written(REFINED, 2, 2), written(REFINED, 1, 3), written(REFINED, 0, 4), written(BLIND, 0, 1)]
DEVELOPMENT = [
    *(played(number, dialogue, gain) for number, gain in enumerate((0, 2, -1)) for dialogue in (0, 1)),
    {**played(2, 2, 5), **error_row("dev-2-2", "broken")},
]
HELD_OUT = [played(number, dialogue, gain, True) for dialogue in (2, 3) for number, gain in ((0, dialogue), (1, dialogue + 1))]


def test_the_best_of_development_is_chosen_and_each_attacker_bears_its_own_costs() -> None:
    found = TacticResults([*DEVELOPMENT, *HELD_OUT], WRITTEN, {NONE: 0, REFINED: 1, BLIND: 0})
    assert (found.best(REFINED), found.best(REFINED, 1), found.best(BLIND), found.best(NONE)) == (1, 1, 0, 0)
    metrics = found.metrics(REFINED)
    assert {f"{REFINED}.{name}" for name in metrics} <= set(LEGEND)
    values = {name: estimate.value for name, estimate in metrics.items()}
    assert (values["advantage"], values["development"], values["over_none"], values["over_blind"]) == (7, 4, 2, 2)
    assert metrics["over_none"].value == 2
    assert metrics["over_none"].low < 0, "two pairs that are alike prove nothing"
    assert values["broken_adversary"] == 3
    assert values["broken_target"] == 0
    # Two tactics in two finished dialogues each, and four questions of two answers.
    assert (values["tactics"], values["dialogues"], values["unusable"], values["calls"]) == (2, 4, 1, 8 + 4 * 3)
    assert (values["tokens_in"], values["tokens_out"]) == (400 + 4 * 40, 40 + 4 * 5)
    assert [(at, one.value) for at, one in found.curve(REFINED)] == [(0, 0), (2, 4), (4, 4), (4, 4), (4, 4)]
    assert "over_none" not in found.metrics(NONE)


def test_a_tactic_that_makes_dialogues_fail_is_not_chosen_for_those_that_are_left() -> None:
    failed = [{**played(2, dialogue, 0), **error_row(f"dev-2-{dialogue}", "broken")} for dialogue in (1, 2, 3)]
    steady = [played(1, dialogue, 1) for dialogue in range(4)]
    rows = [played(0, 0, -4), *steady, played(2, 0, 3), *failed, *HELD_OUT]
    found = TacticResults(rows, WRITTEN, {NONE: 0, REFINED: 1, BLIND: 2})
    assert found.gain(2).value == 6, "of the one that came to its end"
    assert found.score(1) == 2
    assert found.score(2) == (6 + 3 * -8) / 4
    assert found.best(REFINED) == 1
    metrics = found.metrics(BLIND)
    assert (metrics["failed"].value, metrics["failed"].n, found.metrics(REFINED)["failed"].value) == (3, 4, 0)
    table = tactics_table({f"{BLIND}.{name}": figure for name, figure in metrics.items()})
    assert dict(zip(table.columns, table.rows[0], strict=True))["failed"] == "3"


def test_the_table_has_a_line_for_each_and_no_costs_of_nothing() -> None:
    found = TacticResults([*DEVELOPMENT, *HELD_OUT], WRITTEN, {NONE: 0, REFINED: 1, BLIND: 0})
    metrics = {f"{arm}.{name}": each for arm in found.chosen for name, each in found.metrics(arm).items()}
    table = tactics_table(metrics)
    assert [line[0] for line in table.rows] == ["no tactic", "refined from transcripts", "drawn blind, best of all"]
    none, refined, blind = (dict(zip(table.columns, line, strict=True)) for line in table.rows)
    assert none["dialogues"] == none["calls"] == "–"
    assert (refined["dialogues"], refined["calls"], refined["without"], refined["n"]) == ("4", "20", "1", "2 few")
    assert (blind["dialogues"], blind["calls"], blind["more than no tactic"].split()[0]) == ("0", "2", "0.00")
    assert len(tactics_table(metrics, brief=True).columns) < len(table.columns)


def test_models_that_report_no_tokens_have_no_count_of_them() -> None:
    silent = {**MOVES, "tokens_in": 0, "tokens_out": 0}
    rows = [{**row, "chat_adversary": silent} for row in DEVELOPMENT]
    asked = [replace(answer, tokens_in=0, tokens_out=0) for answer in WRITTEN]
    found = TacticResults(rows, asked, {NONE: 0, REFINED: 1})
    metrics = {f"{arm}.{name}": figure for arm in found.chosen for name, figure in found.metrics(arm).items()}
    assert metrics[f"{REFINED}.calls"].value > 0
    assert metrics[f"{REFINED}.tokens_in"].n == metrics[f"{REFINED}.tokens_out"].n == 0
    shown = dict(zip(tactics_table(metrics).columns, tactics_table(metrics).rows[-1], strict=True))
    assert shown["tokens in"] == shown["tokens out"] == "–"


def test_where_nothing_came_to_its_end_nothing_is_said() -> None:
    broken = [{**played(number, 0, 0), **error_row(f"dev-{number}-0", "broken")} for number in (0, 1)]
    found = TacticResults(broken, WRITTEN[:1], {NONE: 0, REFINED: 0})
    assert found.best(REFINED) == 0
    assert math.isnan(found.gain(1).value)
    assert found.curve(REFINED) == []
    assert math.isnan(found.metrics(REFINED)["over_none"].value)
    assert tactics_table({f"{REFINED}.{name}": each for name, each in found.metrics(REFINED).items()}).rows[0][1] == "–"


@pytest.mark.parametrize("arm", [REFINED, BLIND])
def test_a_run_that_has_not_chosen_has_no_held_out_dialogues(arm: str) -> None:
    assert TacticResults(DEVELOPMENT, WRITTEN).held_out(arm) == []
