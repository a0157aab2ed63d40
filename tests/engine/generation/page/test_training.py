"""The chapter of generators against discriminators: drawings, coloured words, replies side by side; replies stay text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parley.engine.core.page.content import Section, ShownRun
from parley.engine.core.stats.statistics import Estimate
from parley.engine.generation.metrics.trained import trained_tables
from parley.engine.generation.page.chapter import ShownGenerators, TrainedGenerators, quality_figures
from tests.engine.core.page.pages import HOSTILE

CHAPTER = TrainedGenerators()
ROWS = ("greedy", "sample", "sample-0.5", "regs-mc", "regs-mc-sampled", "forced", "people")
METRICS = {
    f"{row}.{name}": Estimate(value + 0.01 * place, 0.1, 0.9, 100)
    for place, row in enumerate(ROWS)
    for name, value in (("perplexity", 9.0), ("distinct_2", 0.2), ("self_bleu", 0.3), ("overlap", 0.4), ("adversuc-svm", 0.2))
} | {
    f"regs-mc less {row}.{kind}-svm": Estimate(value, value - 0.03, value + 0.03, 100)
    for row in ("greedy", "forced", "constant")
    for kind, value in (("adversuc", 0.02), ("random", -0.04))
}


@pytest.fixture(scope="module")
def shown() -> ShownGenerators:
    word_rewards = {"reinforce": [0.4, 0.4], "regs-mc": [0.1, 0.9]}
    return ShownGenerators(
        trainings=[],
        curves=[],
        tables=list(trained_tables(METRICS, ["svm"], published=True).items()),
        metrics=METRICS,
        concluded="REGS cannot be told from teacher forcing alone.",
        rewards={"regs": [{"context": f"who ? {HOSTILE}", "reply": [HOSTILE, "</s>"], "rewards": word_rewards}]},
        placed=["REGS lies on the start's temperature curve."],
        replies={"table": [{"context": ["who ?"], "replies": {"people": "me", "regs-mc": f"not {HOSTILE}"}}]},
    )


@pytest.fixture(scope="module")
def section(shown: ShownGenerators) -> Section:
    return CHAPTER.render(shown)


def test_the_verdict_is_what_the_table_comes_to(shown: ShownGenerators) -> None:
    verdict = CHAPTER.verdict(shown)
    assert verdict is not None
    assert verdict.sentence.startswith("REGS cannot be told")
    assert "REGS, Monte Carlo" in verdict.marks
    assert list(verdict.marks) == ["REGS, Monte Carlo", "teacher forcing alone", "the start, greedy", "the start, sampled"]


def test_the_marks_of_the_verdict_are_by_the_judge_of_its_sentence(shown: ShownGenerators) -> None:
    others = {name.replace("-svm", "-knn"): Estimate(0.9, 0.8, 1.0, 100) for name in METRICS if name.endswith("-svm")}
    verdict = CHAPTER.verdict(replace(shown, metrics=METRICS | others))
    assert verdict == CHAPTER.verdict(shown), "the first one"


def test_the_verdict_on_a_training_tells_machine_vs_random_beside_adversuc() -> None:
    told = {"test_adversuc": (0.3, 0.2), "test_random": (0.6, 0.8)}
    metrics = {
        f"{name}{when}": Estimate(value, value - 0.1, value + 0.1, 100)
        for name, values in told.items()
        for when, value in zip(("", "_before"), values, strict=True)
    } | {"adversuc_gain": Estimate(0.1, 0.05, 0.15, 100)}
    shown = ShownRun(name="regs", metrics=metrics)
    found = ShownGenerators(trainings=[shown], curves=[], tables=[], metrics={}, concluded="", rewards={})
    verdict = CHAPTER.verdict(found)
    assert verdict is not None
    assert "AdverSuc rises, from 0.200 to 0.300; machine-vs-random goes from 0.800 to 0.600." in verdict.sentence
    older = replace(shown, metrics={name: each for name, each in metrics.items() if "random" not in name})
    verdict = CHAPTER.verdict(replace(found, trainings=[older]))
    assert verdict is not None
    assert "machine-vs-random was not measured" in verdict.sentence


def test_tables_and_drawings_hold_every_row(section: Section) -> None:
    assert list(section.notes) == ["REGS lies on the start's temperature curve."]
    (_, table), (_, compared) = section.tables
    assert [row[0] for row in table.rows][-1] == "people"
    (published,) = (row for row in table.rows if row[0] == "REGS, Monte Carlo")
    assert "0.098 : 0.952" in published
    beside = "+0.020 [-0.010, +0.050] : -0.040* [-0.070, -0.010]"
    assert compared.rows == (("REGS, Monte Carlo", *[beside] * 3),), "never AdverSuc alone"
    first, second = (str(figure.svg) for figure in section.figures)
    assert all(f">{row}<" in first and f">{row}<" in second for row in ROWS)


def test_words_are_coloured_by_what_they_earned_and_replies_are_text(section: Section) -> None:
    side_by_side, earned = section.items
    assert {"Replies of all rows", "What each word earned"} == set(section.chosen)
    assert str(earned.body).count("--earned: 40%") == 2
    assert "--earned: 10%" in earned.body
    assert "--earned: 90%" in earned.body
    assert earned.values == {"largest less smallest reward": pytest.approx(0.8)}
    for item in section.items:
        assert HOSTILE not in item.body
        assert HOSTILE not in item.summary
    assert "REGS, Monte Carlo" in side_by_side.body


def test_rows_that_lie_on_each_other_are_named_once() -> None:
    places = {"sample": (0.7, 90.0), "sample-0.5": (0.3, 12.0), "people": (0.7, 91.0), "forced": (0.1, 12.0)}
    metrics = {
        f"{row}.{name}": Estimate(value, value, value, 100)
        for row, values in places.items()
        for name, value in zip(("distinct_2", "perplexity"), values, strict=True)
    }
    (figure,) = quality_figures(metrics)
    assert all(f">{row}<" in figure.svg for row in ("sample", "sample-0.5", "forced"))
    assert figure.svg.count(">people<") == 1, "in the legend alone"
