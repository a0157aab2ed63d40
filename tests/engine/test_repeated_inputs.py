"""Rows that repeat their inputs tell no more than once: every metric has the interval and units of rows written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from parley.engine.core.stats.pairs import ItemMetrics, Sample, contrast
from parley.engine.core.stats.rows import linked_units
from parley.engine.core.stats.statistics import Estimate, reply_metrics
from parley.engine.perturb.metrics.audit import audit_metrics
from parley.engine.perturb.metrics.table import CONTEXT_ITEMS, robustness_metrics, unknown_shares
from parley.engine.ranking.metrics.campaign import UnderAttack, best_single
from parley.engine.ranking.metrics.ranking import RANKED_ITEMS, RankedRows, ranking_metrics
from parley.engine.ranking.metrics.searched import SEARCHED_ITEMS, SearchedRows, search_metrics
from tests.engine.perturb.metrics.robustness_rows import asked, perturbed, replied
from tests.engine.perturb.metrics.test_audit import ANTONYM, touched
from tests.engine.ranking.metrics.ranked_rows import attacked
from tests.engine.ranking.metrics.searched_rows import attacked_context, search

Rows = list[dict[str, Any]]
RIGHT, WRONG = [3.0, 2.0, 1.0], [1.0, 2.0, 3.0]
SWAP = "random-swap"


def ranked() -> Rows:
    return [attacked(number, WRONG if number % 3 else RIGHT) | {"dialogue": number} for number in range(12)]


def searched() -> Rows:
    spent = [5 + number if number % 3 else None for number in range(9)]
    methods = (("iiw", 0), ("random", 1))
    return [
        attacked_context(number, *(search("m", method, spent[(number + shift) % 9]) for method, shift in methods))
        for number in range(9)
    ]


def answered() -> Rows:
    rows = []
    for number in range(12):
        numbers = {"activity_f1": (number % 3) / 2, "bleu": (number % 4) / 4, "same": number % 3 == 0}
        replies = [replied(), replied("base", SWAP, **numbers), replied(SWAP), replied(SWAP, SWAP, activity_f1=number % 2)]
        replies[1]["kind"] = "refused" if number == 5 else None
        rows.append(asked(f"test-{number}", [perturbed(SWAP, number % 4 != 0)], replies))
    return rows


def audited() -> Rows:
    edits = [[touched(ratio=1.0 + number, kept=number % 2 == 0)] * (number % 3) for number in range(12)]
    about = {"status": "ok", "num_utterances": 2}
    return [
        {**about, "context": f"context {number}", "num_words": 9 + number, "touched": edit} for number, edit in enumerate(edits)
    ]


def under_attack(rows: Rows) -> dict[str, Estimate]:
    one, other = UnderAttack(rows, ["iiw"]), UnderAttack(rows, ["random"])
    figures = {"held": one.held(), "lost": one.lost(), "first": one.first(), "more": one.more_than(other)}
    return figures | {"single": best_single([one, other])}


def times(num: int, rows: Rows) -> Rows:
    """Write rows several times, each time under keys and dialogues of their own."""
    return [
        row | {"item_key": f"{row.get('item_key')} {again}", "dialogue": 1000 * again + row.get("dialogue", 0)}
        for again in range(num)
        for row in rows
    ]


def replied_to() -> Rows:
    sayings = ("yes", "no no", "i do not know")
    return [{"context": f"c{number}", "reply": sayings[number % 3], "truth": sayings[number % 2]} for number in range(12)]


def reply_figures(rows: Rows) -> Mapping[str, Estimate]:
    return reply_metrics(((row["context"], row["reply"].split(), row["truth"].split()) for row in rows), limit=4)


MEASURES: Mapping[str, tuple[Callable[[], Rows], Callable[[Rows], Mapping[str, Estimate]]]] = {
    "evaluate ranking": (ranked, lambda rows: ranking_metrics(RankedRows(rows))),
    "attack ranking": (searched, lambda rows: search_metrics(SearchedRows(rows), 50)),
    "minmax ranking": (searched, under_attack),
    "evaluate robustness": (answered, lambda rows: robustness_metrics(rows, 200, exact=True)),
    "unknown words": (answered, lambda rows: unknown_shares(rows, {"context"})),
    "reply": (replied_to, reply_figures),
    "audit": (audited, lambda rows: audit_metrics(rows, [ANTONYM], 2.0)),
}


@pytest.mark.parametrize("verb", MEASURES)
def test_rows_written_three_times_have_the_intervals_of_rows_written_once(verb: str) -> None:
    make, measure = MEASURES[verb]
    once, thrice = measure(make()), measure(times(3, make()))
    assert once.keys() == thrice.keys()
    intervals = [name for name, estimate in once.items() if estimate.high > estimate.low]
    assert intervals, "nothing is compared"
    for name in intervals:
        one, three = once[name], thrice[name]
        assert (three.value, three.n) == (pytest.approx(one.value), one.n), name
        # Independent rows would have .58 of the width. Units of several trials have more of them, which tells a little.
        assert (three.low, three.high) == pytest.approx((one.low, one.high), abs=0.15 * (one.high - one.low)), name
    for name in (name for name in once if "_p." in name):
        assert thrice[name].value == pytest.approx(once[name].value), name


@pytest.mark.parametrize(
    ("rule", "make", "metric", "config"),
    [
        (RANKED_ITEMS, ranked, "r@1.mine.iiw", {"metrics": {"untouched": "kept", "unranked": "left-out"}}),
        (SEARCHED_ITEMS, searched, "success@10.m.iiw", {"budget": 50}),
        (CONTEXT_ITEMS, answered, "activity_f1.base.random-swap", {}),
    ],
    ids=["evaluate ranking", "attack ranking", "evaluate robustness"],
)
def test_runs_of_rows_written_three_times_differ_as_runs_of_rows_written_once(
    rule: ItemMetrics, make: Callable[[], Rows], metric: str, config: Mapping[str, Any]
) -> None:
    def compared(rows: Sequence[Mapping[str, Any]]) -> Any:
        figures = rule.figures(rows, config)[metric]
        _, units = rule.units([rule.digests(rows[index]) for index in figures.rows])
        before = Sample(figures.tops, figures.bottoms, figures.bottoms > 0, units, "share")
        after = Sample(np.ones_like(figures.tops), figures.bottoms, figures.bottoms > 0, units, "share")
        return contrast([before], [after])

    once, thrice = compared(make()), compared(times(3, make()))
    one, three = once.test.difference, thrice.test.difference
    assert (three.value, three.n) == (pytest.approx(one.value), one.n)
    assert (three.low, three.high) == pytest.approx((one.low, one.high), abs=0.1 * (one.high - one.low))
    assert (thrice.test.p_value, thrice.num_needed) == (pytest.approx(once.test.p_value), once.num_needed)


def test_rows_that_share_an_entry_through_others_are_one_unit() -> None:
    assert linked_units([1, 2, 3, 2], [7, 8, 8, 9]).tolist() == [0, 1, 1, 1]
    # A chain whose middle comes last: 0 and 3 share 5, 3 and 1 share 8.
    assert linked_units([5, 6, 7, 5], [1, 8, 3, 8]).tolist() == [0, 0, 2, 0]
    assert linked_units([4, 4, 2]).tolist() == [0, 0, 2]
    assert linked_units([], []).tolist() == []
    links = np.arange(2000)
    assert not linked_units(links // 2, (links + 1) // 2).any(), "a chain of all rows"
