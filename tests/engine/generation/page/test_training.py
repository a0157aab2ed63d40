"""The chapter of generators against discriminators: drawings, coloured words, replies side by side; replies stay text."""

from __future__ import annotations

import pytest

from parley.engine.core.page.content import Item, Run
from parley.engine.core.page.plots import drawn
from parley.engine.core.stats.statistics import Estimate
from parley.engine.generation import page
from parley.engine.generation.metrics.trained import trained_tables
from parley.engine.generation.page import TrainedGenerators, quality_figures
from parley.engine.generation.verbs.config import REWARDS_OF_WORDS
from parley.engine.generation.verbs.table import CONCLUDED, PLACED
from tests.engine.core.page.pages import HOSTILE, assert_brief, run_of

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


def table(**more: Estimate) -> Run:
    summary = {
        CONCLUDED: ["REGS cannot be told from teacher forcing alone.", "svm is a judge no better than a constant (ERE) of it."],
        PLACED: ["REGS lies on the start's temperature curve."],
    }
    run = run_of("evaluate-generation", metrics=METRICS | more, heading="table", **summary)
    run.__dict__["tables"] = trained_tables(METRICS, ["svm"], published=True)
    return run


def training(metrics: dict[str, Estimate]) -> Run:
    rewards = {"reinforce": [0.4, 0.4], "regs-mc": [0.1, 0.9]}
    replies = [{"context": f"who ? {HOSTILE}", "reply": [HOSTILE, "</s>"], "rewards": rewards}]
    return run_of("minmax-replies", metrics=metrics, heading="regs", events=[{"kind": REWARDS_OF_WORDS, "replies": replies}])


def test_the_verdict_is_what_the_table_comes_to() -> None:
    verdict = CHAPTER.verdict([table()])
    assert verdict is not None
    assert_brief(verdict)
    assert verdict.sentence == "REGS cannot be told from teacher forcing alone."
    assert verdict.warnings == ["svm is a judge no better than a constant (ERE) of it."]
    assert list(verdict.marks) == ["REGS, Monte Carlo", "teacher forcing alone", "the start, greedy", "the start, sampled"]
    assert verdict.number == verdict.marks["REGS, Monte Carlo"]


def test_the_marks_of_the_verdict_are_by_the_judge_of_its_sentence() -> None:
    others = {name.replace("-svm", "-knn"): Estimate(0.9, 0.8, 1.0, 100) for name in METRICS if name.endswith("-svm")}
    assert CHAPTER.verdict([table(**others)]) == CHAPTER.verdict([table()]), "the first one"


def test_the_verdict_on_a_training_tells_machine_vs_random_beside_adversuc() -> None:
    told = {"test_adversuc": (0.3, 0.2), "test_random": (0.6, 0.8)}
    metrics = {
        f"{name}{when}": Estimate(value, value - 0.1, value + 0.1, 100)
        for name, values in told.items()
        for when, value in zip(("", "_before"), values, strict=True)
    } | {"adversuc_gain": Estimate(0.1, 0.05, 0.15, 100)}
    verdict = CHAPTER.verdict([training(metrics)])
    assert verdict is not None
    assert_brief(verdict)
    assert verdict.sentence == "regs: AdverSuc rises, from 0.200 to 0.300."
    assert verdict.details == ["Machine-vs-random goes from 0.800 to 0.600."]
    older = CHAPTER.verdict([training({name: each for name, each in metrics.items() if "random" not in name})])
    assert older is not None
    assert older.details == ["Machine-vs-random was not measured."]


def test_tables_and_drawings_hold_every_row() -> None:
    assert list(CHAPTER.notes(table())) == ["REGS lies on the start's temperature curve."]
    rows, compared = CHAPTER.tables(table()).values()
    assert [row[0] for row in rows.rows][-1] == "people"
    (published,) = (row for row in rows.rows if row[0] == "REGS, Monte Carlo")
    assert "0.098 : 0.952" in published
    beside = "+0.020 [-0.010, +0.050] : -0.040* [-0.070, -0.010]"
    assert compared.rows == (("REGS, Monte Carlo", *[beside] * 3),), "never AdverSuc alone"
    first, second = (drawn(figure).svg for figure in CHAPTER.figures(table()))
    assert all(f">{row}<" in first and f">{row}<" in second for row in ROWS)


def test_words_are_coloured_by_what_they_earned_and_replies_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{"context": ["who ?"], "replies": {"people": "me", "regs-mc": f"not {HOSTILE}"}}]
    monkeypatch.setattr(page, "replies_side_by_side", lambda path: entries)
    shown: list[Item] = [item for run in (table(), training({})) for _, items in CHAPTER.items(run) for item in items]
    side_by_side, earned = shown
    assert str(earned.body).count("--earned: 40%") == 2
    assert "--earned: 10%" in earned.body
    assert "--earned: 90%" in earned.body
    assert earned.values == {"largest less smallest reward": pytest.approx(0.8)}
    for item in shown:
        assert item.link
        assert "<script>" not in item.body
        assert "<script>" not in item.summary
    assert "REGS, Monte Carlo" in side_by_side.body


def test_rows_that_lie_on_each_other_are_named_once() -> None:
    places = {"sample": (0.7, 90.0), "sample-0.5": (0.3, 12.0), "people": (0.7, 91.0), "forced": (0.1, 12.0)}
    metrics = {
        f"{row}.{name}": Estimate(value, value, value, 100)
        for row, values in places.items()
        for name, value in zip(("distinct_2", "perplexity"), values, strict=True)
    }
    (figure,) = quality_figures(metrics)
    svg = drawn(figure).svg
    assert all(f">{row}<" in svg for row in ("sample", "sample-0.5", "forced"))
    assert svg.count(">people<") == 1, "in the legend alone"
