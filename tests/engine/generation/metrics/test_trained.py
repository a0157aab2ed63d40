"""What a table of trainings comes to in sentences: each verb, and when a judge is not to be leaned on."""

from __future__ import annotations

import math

import pytest

from parley.engine.core.stats.statistics import (
    NOTHING,
    Estimate,
    clustered_rate,
    count,
    mean,
    rate_difference,
    refit_spread,
)
from parley.engine.core.stats.trainings import crossed_difference
from parley.engine.generation.metrics.tables import RELIABILITY
from parley.engine.generation.metrics.trained import (
    ABOVE,
    DISTINCT_2,
    PERPLEXITY,
    TABLE,
    AnsweredRow,
    above_curve,
    conclusions,
    describe,
    placements,
    table_metrics,
    trained_tables,
)

MORE, WITHIN, LESS = Estimate(0.04, 0.01, 0.07, 90), Estimate(0.01, -0.02, 0.04, 90), Estimate(-0.04, -0.07, -0.01, 90)


@pytest.mark.parametrize(
    ("adversuc", "random", "verb"),
    [
        (MORE, MORE, "beats"),
        (MORE, WITHIN, "beats"),
        (MORE, NOTHING, "beats"),
        (MORE, LESS, "deceives more often, and is nearer to random replies, than"),
        (WITHIN, LESS, "cannot be told from"),
        (LESS, MORE, "does worse than"),
    ],
)
def test_a_difference_has_a_verb_and_machine_vs_random_beside_it(adversuc: Estimate, random: Estimate, verb: str) -> None:
    metrics = {"regs-mc less forced.adversuc-svm": adversuc, "regs-mc less forced.random-svm": random}
    (said,) = conclusions(metrics, "svm")
    assert said == f"REGS, Monte Carlo: {verb} teacher forcing alone."


def test_methods_of_one_outcome_share_a_sentence_and_other_judges_have_none() -> None:
    metrics = {
        "regs-mc less constant.adversuc-svm": MORE,
        "regs-mc less forced.adversuc-svm": LESS,
        "reinforce less forced.adversuc-svm": WITHIN,
        "reinforce less greedy.adversuc-svm": MORE,
        "regs-partial less forced.adversuc-svm": WITHIN,
        "regs-partial less greedy.adversuc-svm": MORE,
        "regs-partial less frozen.adversuc-other": MORE,
    }
    first, second = conclusions(metrics, "svm")
    assert first == "REINFORCE / REGS, partial: cannot be told from teacher forcing alone; beats the start."
    assert second == "REGS, Monte Carlo: does worse than teacher forcing alone; beats constant reward."
    assert conclusions({}, "svm") == []


def test_a_judge_no_better_than_a_constant_is_named_with_the_rows_it_is_asked_of() -> None:
    metrics = {"regs-mc less forced.adversuc-svm": MORE}
    (*_, last) = conclusions(metrics, "svm", {"regs-mc", "greedy"})
    assert last == "svm is a judge no better than a constant (ERE) of REGS, Monte Carlo: do not lean on it."
    (*_, last) = conclusions(metrics, "svm", {"regs-mc", "forced", "greedy"})
    assert last == "svm is a judge no better than a constant (ERE) of any of these: do not lean on it."
    assert len(conclusions(metrics, "svm", {"greedy"})) == 1, "greedy is not compared with"


def test_machine_vs_random_is_compared_too_where_it_was_judged() -> None:
    def row(adversuc: float, random: float | None) -> AnsweredRow:
        told = {("adversuc", "svm"): adversuc} | ({} if random is None else {("random", "svm"): random})
        return AnsweredRow({key: {str(n): value for n in range(9)} for key, value in told.items()}, {})

    metrics = table_metrics({"regs-mc": [row(0.3, 0.6)], "forced": [row(0.2, 0.9)], "constant": [row(0.2, None)]}, ["svm"], {})
    assert metrics["regs-mc less forced.random-svm"].value == pytest.approx(-0.3)
    assert "regs-mc less constant.random-svm" not in metrics
    told = describe("regs-mc less forced.random-svm")
    assert (told.form, told.main) == ("number", True)


def test_intervals_of_judged_rows_count_that_judges_were_fitted() -> None:
    def row(*shares: float) -> AnsweredRow:
        return AnsweredRow({("adversuc", "svm"): {str(n): share for n, share in enumerate(shares)}}, {})

    trained, control = [0.5, 0.5, 0.0, 0.5] * 20, [0.5, 0.0, 0.0, 0.0] * 20
    metrics = table_metrics({"regs-mc": [row(*trained)], "forced": [row(*control)], "greedy": [row(*[0.0] * 80)]}, ["svm"], {})
    assert metrics["regs-mc.adversuc-svm"] == clustered_rate(trained, spread=refit_spread(5)), "as of evaluate adversarial"
    assert metrics["greedy.adversuc-svm"].high > 0, "width at 0"
    less = metrics["regs-mc less forced.adversuc-svm"]
    assert less == rate_difference(trained, control, spread=refit_spread(5))
    several = table_metrics({"regs-mc": [row(*trained)] * 2, "forced": [row(*control), row(*control[::-1])]}, ["svm"], {})
    sources = several["regs-mc.adversuc-svm"]
    assert sources.high - sources.low == pytest.approx(1.5 * (mean(trained).high - mean(trained).low), rel=0.02)
    assert several["regs-mc less forced.adversuc-svm"].low < crossed_difference([trained] * 2, [control, control[::-1]]).low


def figures(distinct: float, nats: float, width: float = 0.1) -> dict[str, Estimate]:
    low, value, high = (math.exp(nats + by) for by in (-width, 0, width))
    return {DISTINCT_2: count(distinct, 100), PERPLEXITY: Estimate(value, low, high, 50)}


CURVE = {"greedy": (0.1, 2.0), "sample-0.5": (0.3, 3.0), "sample": (0.5, 5.0)}


def test_a_row_lies_above_the_temperature_curve_where_equally_various_replies_of_the_start_are_less_likely() -> None:
    curve = [figures(*point) for point in CURVE.values()]
    for points in (curve, curve[::-1]):
        above = above_curve(figures(0.4, 3.5), points)
        assert above.value == pytest.approx(4.0 - 3.5)
        assert above.high - above.value == pytest.approx(math.hypot(0.1, 0.05, 0.05))
    assert above_curve(figures(0.2, 2.5), curve).value == pytest.approx(0), "on it"
    assert above_curve(figures(0.1, 2.5), curve).value == pytest.approx(-0.5), "at its end"
    assert not above_curve(figures(0.09, 2.5), curve).n, "less various than greedy replies"
    assert not above_curve(figures(0.6, 2.5), curve).n
    assert not above_curve(figures(0.1, 2.5), curve[:1]).n, "no curve"


def test_rows_stand_in_the_table_and_in_sentences_by_where_they_lie() -> None:
    def row(*each: Estimate | float) -> AnsweredRow:
        return AnsweredRow({("adversuc", "svm"): {str(n): 0.2 for n in range(9)}}, figures(*each))

    rows = {name: [row(*point)] for name, point in CURVE.items()}
    rows |= {"regs-mc": [row(0.05, 2.0)], "regs-mc-sampled": [row(0.4, 3.5)], "forced": [row(0.4, 4.05)]}
    rows |= {"reinforce": [row(0.3, 3.2), row(0.3, 3.4), row(0.3, 3.3)]}
    metrics = table_metrics(rows, ["svm"], {})
    placed = {name.rpartition(".")[0] for name in metrics if name.endswith(f".{ABOVE}")}
    assert placed == {"regs-mc-sampled", "forced", "reinforce"}
    assert metrics[f"reinforce.{ABOVE}"].value == pytest.approx(-0.3), "each training beside the start that it began from"
    assert metrics[f"reinforce.{ABOVE}"].n == 3
    assert describe(f"reinforce.{ABOVE}").title == "above the temperature curve, REINFORCE"
    table = trained_tables(metrics, ["svm"])[TABLE]
    cells = {line[0]: line[table.columns.index("above the temperature curve")] for line in table.rows}
    assert cells["REGS, Monte Carlo, sampled"] == "+0.500* [+0.378, +0.622]"
    assert cells["teacher forcing alone"] == "-0.050 [-0.172, +0.072]"
    assert cells["the start, greedy"] == cells["REGS, Monte Carlo"] == "\u2013"
    said = placements(metrics)
    assert said[0].startswith("REINFORCE lies below the start's temperature curve (")
    assert said[2] == "More or less various than the start at any temperature that was measured: REGS, Monte Carlo."
    sampled = "REGS, Monte Carlo, sampled lies above the start's temperature curve (+0.500 [+0.378, +0.622] nats a word"
    assert said[1] == f"{sampled} at equal distinct-2)."
    assert not any("curve" in sentence for sentence in conclusions(metrics, "svm"))


@pytest.mark.parametrize("measured", [(), ("greedy",)])
def test_rows_are_placed_beside_a_curve_alone(measured: tuple[str, ...]) -> None:
    rows = {name: [AnsweredRow({}, figures(*CURVE[name]))] for name in measured}
    rows |= {"regs-mc": [AnsweredRow({}, figures(0.05, 2.0))], "forced": [AnsweredRow({}, figures(0.4, 4.0))]}
    assert not placements(table_metrics(rows, ["svm"], figures(0.6, 4.0)))


def test_trainings_that_are_left_out_leave_the_others_beside_their_own_starts_and_controls() -> None:
    def row(share: float, number: int) -> AnsweredRow:
        told = {("adversuc", "svm"): {str(n): share for n in range(9)}}
        return AnsweredRow(told, figures(0.1, 2.0), number=number, start=number)

    starts = [row(0.1, 1), row(0.2, 2), row(0.6, 3)]
    rows = {"greedy": starts, "regs-mc": [row(0.1, 1), row(0.6, 3)], "constant": [row(0.3, 2), row(0.5, 3)]}
    metrics = table_metrics(rows, ["svm"], {})
    assert metrics["regs-mc less greedy.adversuc-svm"].value == pytest.approx(0), "each is as its start is"
    assert metrics["regs-mc less constant.adversuc-svm"].value == pytest.approx(0.1), "of the third alone"
    varied = [
        AnsweredRow({}, figures(0.3, nats), number=number, start=number) for number, nats in ((1, 3.0), (2, 9.0), (3, 4.0))
    ]
    trained = [AnsweredRow({}, figures(0.3, nats), number=number, start=number) for number, nats in ((1, 3.0), (3, 4.0))]
    above = table_metrics({"greedy": starts, "sample": varied, "regs-mc": trained}, ["svm"], {})[f"regs-mc.{ABOVE}"]
    assert (above.value, above.n) == (pytest.approx(0), 2)


def test_judges_stand_in_a_table_beside_the_constant_one_and_the_published_ones() -> None:
    def row(*errors: float) -> AnsweredRow:
        return AnsweredRow({}, {}, {judge: count(each, 50) for judge, each in zip(("svm", "constant"), errors, strict=True)})

    metrics = table_metrics({"greedy": [row(0.1, 0.2)], "regs-mc": [row(0.2, 0.2), row(0.4, 0.2)]}, ["svm"], {})
    assert metrics["regs-mc.ere-svm"].value == pytest.approx(0.3)
    assert describe("regs-mc.ere-svm").title == "ERE, REGS, Monte Carlo, svm"
    table = trained_tables(metrics, ["svm"], published=True)[RELIABILITY]
    assert table.rows[0] == ("svm", "0.200", "0.100", "the start, greedy", "0.300", "REGS, Monte Carlo", "2")
    assert table.rows[1][:2] == ("constant (control)", "0.200")
    assert table.rows[2][:2] == ("SVM+Unigram, published", "0.232")
