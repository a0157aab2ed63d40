"""Metrics of chats against figures counted by hand, and the tables that show them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from parley.engine.core.stats.statistics import mean_count, rate
from parley.engine.mutual_friends.metrics.chats import (
    AGAIN,
    AGAIN_NORMAL,
    ANY,
    BELIEVED,
    CHANGE,
    COMPLETION,
    FIRST,
    IF_NORMAL,
    IF_REPLACED,
    LEFT,
    LIE_RATE,
    LIE_REPAIRS,
    LIES,
    LIES_NO_REPLY,
    LIES_UNREAD,
    MENTIONING,
    NO_REPLY,
    NORMAL,
    ONE_SIDED,
    P_VALUE,
    PERPLEXITY,
    REPLACED,
    SELECTIONS,
    TOUCHED,
    TURNS,
    WITHIN,
    by_condition,
    chat_metrics,
    completed_by,
    condition_names,
    describe,
    of,
)
from parley.engine.mutual_friends.metrics.table import TABLE_8, allowed_table, lies_table, lying_table, overview, table_8
from parley.envs.mutual_friends.game import Lying
from parley.policies.chat.model import NO_REPLIES

CONFUSING = "confusing-entity"
AGAINS = {("chess", "chess"): True, ("ada", "ada"): True, ("chess", "golf"): True, ("nib", "oslo"): False}
"""Whether the listener asks again, by what was said and heard."""


def said(words: str, heard: str | None = None, *mentions: tuple[str, str, str | None, bool | None]) -> dict[str, Any]:
    keys = ("type", "said", "heard", "believed", "again")
    found = [dict(zip(keys, (*mention, AGAINS.get(mention[1:3])), strict=True)) for mention in mentions]
    return {"side": 0, "said": words, "heard": heard or words, "selected": None, "mentions": found}


def selects(item: int) -> dict[str, Any]:
    return {"side": 1, "said": None, "heard": None, "selected": item, "mentions": []}


def chat(scenario: str, strategy: str, events: list[dict[str, Any]], agreed: bool, right: bool | None = None) -> dict[str, Any]:
    num = sum(event["selected"] is not None for event in events)
    return {
        "status": "ok",
        "pair": "model",
        "strategy": strategy,
        "scenario": scenario,
        "events": events,
        "agreed": agreed,
        "num_selections": [0, num],
        "first_selection_right": right,
    }


ROWS = [
    chat("0", NORMAL, [said("hi"), said("any chess ?", None, ("hobby", "chess", "chess", None)), selects(1)], True, True),
    chat("1", NORMAL, [said("hi"), selects(0), selects(2), selects(1)], True, False),
    chat("2", NORMAL, [said("hi")], False),
    chat(
        "0",
        CONFUSING,
        [
            said("any chess in nib ?", "any golf in oslo ?", ("hobby", "chess", "golf", True), ("town", "nib", "oslo", False)),
            said("ada ?", None, ("name", "ada", "ada", None)),
            selects(0),
        ],
        False,
        False,
    ),
    chat("1", CONFUSING, [said("golf ?", "chess ?", ("hobby", "golf", "chess", None)), selects(1)], True, True),
    chat("2", CONFUSING, [said("hi")], False),
    {"status": "error", "pair": None, "strategy": None, "scenario": None},
]


def test_figures_are_those_counted_by_hand() -> None:
    found = chat_metrics(ROWS)
    assert found[of(COMPLETION, "model", NORMAL)] == rate(2, 3)
    assert found[of(COMPLETION, "model", CONFUSING)] == rate(1, 3)
    assert found[of(TURNS, "model", NORMAL)] == mean_count([3.0, 4.0, 1.0])
    assert [found[of(WITHIN[num], "model", NORMAL)].value for num in (1, 2, 3)] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert found[of(SELECTIONS, "model", NORMAL)].value == pytest.approx(4 / 3)
    assert found[of(FIRST, "model", NORMAL)] == rate(1, 2)
    assert found[of(MENTIONING, "model", NORMAL)].value == 1 / 4
    assert found[of(TOUCHED, "model", NORMAL)].value == 0
    assert found[of(TOUCHED, "model", CONFUSING)].value == 1 / 2
    assert found[of(CHANGE, "model", CONFUSING)].value == pytest.approx(-1 / 3)
    assert 0 < found[of(P_VALUE, "model", CONFUSING)].value <= 1
    assert of(CHANGE, "model", NORMAL) not in found


def test_lies_are_counted_by_attribute_and_those_that_nobody_answers_are_not_believed() -> None:
    found = chat_metrics(ROWS)
    replaced = {kind: found[of(REPLACED, "model", CONFUSING, kind)] for kind in ("hobby", "town", ANY)}
    assert {kind: (estimate.value, estimate.n) for kind, estimate in replaced.items()} == {
        "hobby": (2, 2),
        "town": (1, 1),
        ANY: (3, 2),
    }
    assert [found[of(LEFT, "model", CONFUSING, kind)].value for kind in ("hobby", "town", ANY)] == [0, 0, 1]
    assert [found[of(BELIEVED, "model", CONFUSING, kind)].value for kind in ("hobby", "town", ANY)] == [1, 0, 0.5]
    assert found[of(IF_REPLACED, "model", CONFUSING, "hobby")] == rate(1, 2)
    assert found[of(IF_NORMAL, "model", CONFUSING, "hobby")] == rate(2, 2)
    assert [found[of(AGAIN, "model", CONFUSING, kind)].value for kind in ("hobby", "town", ANY)] == [1, 0, 0.5]
    assert [found[of(AGAIN_NORMAL, "model", CONFUSING, kind)].n for kind in ("hobby", "town", ANY)] == [1, 0, 1]
    assert not any(name.startswith(f"{REPLACED}.model.{NORMAL}") for name in found)


def test_what_the_other_side_says_is_not_left_by_a_strategy_for_one_side() -> None:
    other = {**said("chess ?", None, ("hobby", "chess", "chess", None)), "side": 1}
    strategy = f"{ONE_SIDED}{CONFUSING}"
    told = [said("chess ?", "golf ?", ("hobby", "chess", "golf", True)), other]
    found = chat_metrics([chat("0", NORMAL, [ROWS[0]["events"][1], other], True), chat("0", strategy, told, True)])
    assert [found[of(kind, "model", strategy, ANY)].value for kind in (REPLACED, LEFT)] == [1, 0]
    assert found[of(AGAIN_NORMAL, "model", strategy, ANY)].n == 1


def test_every_condition_has_the_metrics_that_are_promised() -> None:
    conditions = list(by_condition(ROWS))
    assert conditions == [("model", NORMAL), ("model", CONFUSING)]
    assert set(condition_names(conditions)) <= set(chat_metrics(ROWS))
    assert all(describe(name).definition for name in chat_metrics(ROWS))


def test_completion_grows_with_events() -> None:
    found = completed_by(by_condition(ROWS)["model", NORMAL], (0, 2, 3, 4))
    assert found == [(0, rate(0, 3)), (2, rate(0, 3)), (3, rate(1, 3)), (4, rate(2, 3))]


def test_tables_stand_in_the_layout_of_the_paper() -> None:
    metrics, conditions = chat_metrics(ROWS), [("model", NORMAL), ("model", CONFUSING)]
    table = table_8(metrics, conditions, {"model": "runs/dynonet"}, published=True)
    assert [row[0] for row in table.rows] == [NORMAL, "published", CONFUSING, "published"]
    assert [row[1:3] for row in table.rows if row[0] == "published"] == [("0.94", "16.06"), ("0.77", "24.11")]
    assert table.rows[0][1].startswith("0.67\n[0.21, 0.94]")
    assert "do not lean on" in table.note
    named = table_8(metrics, conditions, {"other": "x", "model": "runs/dynonet"}, published=True)
    assert [row[0] for row in named.rows] == [f"runs/dynonet: {NORMAL}", f"runs/dynonet: {CONFUSING}"]
    assert [row[0] for row in overview(metrics, conditions).rows] == [NORMAL, CONFUSING]
    assert [row[1].split("\n")[0] for row in allowed_table(metrics, conditions, {"model": "x"}).rows] == ["0.33", "0.33"]
    lies = lies_table(metrics, "model", CONFUSING, {"hobby": "Hobby"})
    assert lies is not None
    assert [row[0] for row in lies.rows] == ["Hobby", "town", ANY]
    assert [row[lies.columns.index("asks again")].split("\n")[0] for row in lies.rows] == ["1.00", "0.00", "0.50"]
    assert lies_table(metrics, "model", NORMAL, {}) is None
    assert set(TABLE_8) == {NORMAL, "random-inputs", "random-inputs-kept-entities", CONFUSING}


def test_nothing_is_estimated_from_nothing() -> None:
    silent = [chat("0", NORMAL, [said("hi")], False)]
    assert math.isnan(chat_metrics(silent)[of(FIRST, "model", NORMAL)].value)
    assert chat_metrics([ROWS[-1]]) == {}


def test_perplexity_is_of_all_words_that_are_heard_and_absent_where_nobody_judged() -> None:
    judged = [ROWS[0] | {"nll": [3.0, 1.0], "num_words": [3, 1]}, ROWS[1] | {"nll": [0.0, 8.0], "num_words": [0, 4]}]
    found = chat_metrics(judged)
    name = of(PERPLEXITY, "model", NORMAL)
    assert found[name].value == pytest.approx(math.exp(12 / 8))
    assert name in condition_names([("model", NORMAL)], judged=True)
    assert name not in condition_names([("model", NORMAL)])
    pairs = {"model": "bots"}
    assert "perplexity" in table_8(found, [("model", NORMAL)], pairs, published=True).columns
    without = chat_metrics([row | {"nll": [None, None], "num_words": [3, 1]} for row in ROWS])
    assert name not in without
    assert "perplexity" not in table_8(without, [("model", NORMAL)], pairs, published=True).columns
    mute = chat_metrics([ROWS[0] | {"nll": [0.0, 0.0], "num_words": [0, 0]}])
    assert mute[name].n == 0


def test_lies_are_counted_by_chat_and_by_chance_and_what_was_not_read_of_chat_models_alone() -> None:
    nobody = Lying()._asdict()
    lies = [nobody | {"chances": 4, "told": 1}, nobody | {"chances": 6, "told": 3}]
    rows = [ROWS[0] | {"lying": [lies[0], None]}, ROWS[1] | {"lying": [lies[1], lies[0]]}]
    at = [("model", NORMAL)]
    found = chat_metrics(rows)
    assert found[of(LIES, *at[0])].value == (1 + 4) / 2
    assert found[of(LIE_RATE, *at[0])].value == pytest.approx(5 / 14)
    assert of(LIE_REPAIRS, *at[0]) not in found
    table = lying_table(found, at, {"model": "bots"})
    assert table is not None
    assert table.columns == ("condition", "lies", "rate")
    asked = chat_metrics(
        [rows[0] | {"lying": [lies[0] | {"asked": 4, "repairs": 2, "unread": 1, "answers": 8, "filtered": 2}, None]}, rows[1]]
    )
    assert asked[of(LIES_NO_REPLY, *at[0])].value == 0.25
    assert (asked[of(LIE_REPAIRS, *at[0])].value, asked[of(LIES_UNREAD, *at[0])].value) == (1, 0.5)
    table = lying_table(asked, at, {"model": "bots"})
    assert table is not None
    assert table.columns[3:] == ("asked", "by scores", "asked again", "unread", "cut", "no reply")
    assert lying_table(chat_metrics(ROWS), at, {"model": "bots"}) is None
    assert all(describe(name).title for name in asked)


def test_a_condition_of_which_every_chat_was_lost_stays_and_its_answers_count() -> None:
    lost = {kind.column: 0 for kind in NO_REPLIES} | {"filtered": 1}
    failed = ROWS[0] | {"status": "error", "strategy": "kept", "answers": [4, None], "no_reply": [lost, None]}
    rows = [*ROWS, failed]
    found = chat_metrics(rows)
    assert ("model", "kept") in by_condition(rows)
    assert found[of(COMPLETION, "model", "kept")].n == 0
    assert found[of(NO_REPLY, "model", "kept")].value == 0.25
