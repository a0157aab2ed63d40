"""The tables of an evaluation under perturbations as text, in the layout of the paper."""

from __future__ import annotations

from parley.engine.core.stats.statistics import Estimate, count, rate
from parley.engine.core.tables.table import read_published
from parley.engine.perturb import catalogue
from parley.engine.perturb.metrics.table import PUBLISHED, robustness_metrics, table_2, table_4, trained_models
from tests.engine.perturb.metrics.robustness_rows import asked, perturbed, replied


def score(value: float, n: int = 100) -> Estimate:
    """An F1 with an interval of a hundredth on either side."""
    return Estimate(value, value - 0.01, value + 0.01, n)


METRICS = {
    "perturbed_share.random-swap": rate(90, 100),
    "perturbed_share.antonym": rate(50, 100),
    "activity_f1.base.clean": score(0.08),
    "entity_f1.base.clean": score(0.04),
    "activity_f1.base.random-swap": score(0.06),
    "entity_f1.base.random-swap": score(0.03),
    "activity_f1.base.antonym": score(0.07),
    "entity_f1.base.antonym": score(0.035),
    "change_rate.base.random-swap": rate(60, 100),
    "change_rate_touched.base.random-swap": rate(60, 90),
    "context_similarity.base.random-swap": score(0.9),
    "reply_similarity.base.random-swap": score(0.5),
    "change_rate.base.antonym": rate(20, 100),
    "activity_f1.random-swap.clean": score(0.085),
    "activity_f1_p.random-swap.clean": count(0.05, 100),
    "activity_f1.random-swap.random-swap": score(0.09),
    "activity_f1_p.random-swap.random-swap": count(0.049, 100),
    "entity_f1.random-swap.random-swap": score(0.05),
    "entity_f1_p.random-swap.random-swap": count(0.2, 100),
    "change_rate.random-swap.random-swap": rate(10, 100),
    "activity_f1.should-not-change.clean": score(0.1),
    "activity_f1_p.should-not-change.clean": count(0.001, 100),
    "activity_f1.should-not-change.random-swap": score(0.11),
    "change_rate.should-not-change.random-swap": rate(5, 100),
    "activity_f1.constant-use": score(0.1),
    "entity_f1.constant-use": score(0.05),
    "activity_f1.truth": score(1.0),
    "entity_f1.truth": score(0.5),
}


def test_table_2_has_a_line_for_each_strategy_and_the_published_one_below() -> None:
    rows = table_2(METRICS, "niu2018").rows
    assert rows == (
        ("normal input", "8.00\n[7.00, 9.00]", "4.00\n[3.00, 5.00]", "–", "–", "–", "–", "100"),
        ("published", "5.94", "3.52", "–", "–", "–", "–", ""),
        ("constant use", "10.00\n[9.00, 11.00]", "5.00\n[4.00, 6.00]", "–", "–", "–", "–", "100"),
        ("true replies", "100.00\n[99.00, 101.00]", "50.00\n[49.00, 51.00]", "–", "–", "–", "–", "100"),
        (
            "random-swap",
            "6.00\n[5.00, 7.00]",
            "3.00\n[2.00, 4.00]",
            "9.00*\n[8.00, 10.00]",
            "5.00\n[4.00, 6.00]",
            "8.50\n[7.50, 9.50]",
            "–",
            "100",
        ),
        ("published", "6.10", "3.42", "6.47", "3.64", "6.42", "3.74", ""),
        ("antonym", "7.00\n[6.00, 8.00]", "3.50\n[2.50, 4.50]", "–", "–", "–", "–", "100"),
        ("published", "5.85", "3.56", "5.43", "3.43", "5.98", "3.56", ""),
        ("should-not-change", "–", "–", "–", "–", "10.00*\n[9.00, 11.00]", "–", "100"),
        ("published", "–", "–", "–", "–", "6.74", "3.97", ""),
        (
            "should-not-change, random-swap",
            "6.00\n[5.00, 7.00]",
            "3.00\n[2.00, 4.00]",
            "11.00\n[10.00, 12.00]",
            "–",
            "–",
            "–",
            "100",
        ),
    )


def test_table_2_without_published_figures_or_scores() -> None:
    table = table_2(METRICS)
    assert all(row[0] != "published" for row in table.rows)
    assert "Published" not in table.note
    unscored = {name: each for name, each in METRICS.items() if "_f1" not in name}
    assert table_2(unscored, "niu2018").rows == ()


def test_a_published_cell_that_is_not_known_is_a_dash() -> None:
    table = table_2({**METRICS, "perturbed_share.stopword-dropout": rate(1, 100)}, "niu2018-rl")
    place = next(number for number, row in enumerate(table.rows) if row[0] == "stopword-dropout")
    assert table.rows[place + 1] == ("published", "5.51", "4.09", "–", "–", "–", "–", "")
    assert "reranking RL" in table.note


def test_table_4_tells_the_models_apart() -> None:
    table = table_4(METRICS, "niu2018")
    assert [row[0] for row in table.rows] == [
        "random-swap",
        "published",
        "antonym",
        "published",
        "random-swap trained",
        "should-not-change trained, random-swap",
    ]
    first, published, *_ = table.rows
    assert first[1:3] == ("0.90\n[0.89, 0.91]", "0.50\n[0.49, 0.51]")
    assert first[4:] == ("60.0 %\n[50.2, 69.1]", "66.7 %\n[56.4, 75.5]", "90.0 %\n[82.6, 94.5]", "100")
    assert published[1:3] == ("1.00", "0.71")


def test_names_of_strategies_may_hold_dots() -> None:
    dotted, end = "typo-0.2", "2"
    replies = [replied(*each) for each in (("base",), ("base", dotted), ("base", end), (dotted,), (dotted, dotted))]
    metrics = robustness_metrics([asked("test-000000", [perturbed(dotted), perturbed(end)], replies)], num_resamples=100)
    assert trained_models(metrics) == [dotted]
    assert [row[0] for row in table_4(metrics).rows] == [dotted, end, f"{dotted} trained"]


def test_table_4_stars_change_rates_that_training_moved() -> None:
    rows = [
        asked(
            f"test-{number:06d}",
            [perturbed("random-swap")],
            [
                replied(),
                replied("base", "random-swap", same=number % 2 == 0),
                replied("random-swap"),
                replied("random-swap", "random-swap", same=True),
            ],
        )
        for number in range(40)
    ]
    changed = [row[4] for row in table_4(robustness_metrics(rows, num_resamples=500)).rows]
    assert changed[0].startswith("50.0 %\n[")
    assert changed[1].startswith("0.0 %*\n[")


def test_published_figures_are_of_the_paper_s_strategies() -> None:
    strategies = (*catalogue.SHOULD_NOT_CHANGE, *catalogue.SHOULD_CHANGE)
    figures = read_published("parley.engine.perturb.metrics", "niu2018.csv")
    for name in PUBLISHED:
        rows = figures[f"{name} F1"]
        assert set(rows) <= {"normal input", *strategies, *catalogue.GROUPS}
        assert {row for row, columns in rows.items() if "N-train/A-test entity" in columns} == {"normal input", *strategies}
        assert tuple(figures[f"{name} similarity"]) == strategies
