"""Evaluations under perturbations on the page: tables, a plot by strategy, examples side by side, hostile words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from engine.jobs.perturb.config import RobustnessConfig
from engine.jobs.perturb.robustness import EVALUATE_ROBUSTNESS, STRATEGIES, UNSCORED
from engine.jobs.perturb.rows import ROBUSTNESS
from engine.metrics.perturb.robustness import robustness_metrics
from engine.metrics.perturb.table import table_4
from engine.perturb.strategy import Expectation
from engine.report.collect import collect_run
from engine.report.content import ReportData, RobustnessSection
from engine.report.page import render
from engine.report.perturb.examples import NUM_FOLDED, NUM_SHOWN, Piece, Reply, read_robustness
from engine.report.plots import strategies_svg
from engine.store.run_folder import RunFolder
from tests.engine.metrics.perturb.robustness_rows import asked, failed, replied
from tests.engine.report.test_page import HOSTILE, Outline, words

SWAP, ANTONYM = "random-swap", "antonym"
EXPECTED = {SWAP: Expectation.SHOULD_NOT_CHANGE.value, ANTONYM: Expectation.SHOULD_CHANGE.value}
CONTEXT = "is it on <eou> yes <eot> turn it on now"


def perturbed(strategy: str, text: str, num_changed: int = 1) -> dict[str, Any]:
    return {"strategy": strategy, "text": text, "changed": bool(num_changed), "num_changed": num_changed}


def example(key: str, *, swapped: bool = True, same: bool = False, text: str = "", **changes: Any) -> dict[str, Any]:
    """An example whose words were swapped and replaced; the trained model answers as before."""
    found = asked(
        key,
        [
            perturbed(SWAP, text or (CONTEXT.replace("turn it", "it turn") if swapped else CONTEXT), 2 * swapped),
            perturbed(ANTONYM, CONTEXT.replace("turn it on", "turn it off")),
        ],
        [
            replied(reply="it works <eou> thanks"),
            replied(strategy=SWAP, reply="no idea", same=same),
            replied(strategy=ANTONYM, reply="it works <eou> thanks", same=True),
            replied(SWAP, reply="fine"),
            replied(SWAP, SWAP, reply="fine", same=True),
        ],
    )
    return {**found, "context": CONTEXT, "truth": "what <eou> it was on", **changes}


def section(*rows: dict[str, Any], **changes: Any) -> RobustnessSection:
    found = rows or (example("a"), example("b", same=True), example("c", swapped=False, same=True))
    metrics = robustness_metrics(found, num_resamples=100)
    settings: dict[str, Any] = {
        "name": "desk",
        "metrics": metrics,
        "strategies": EXPECTED,
        "tables": {"Change and similarity": table_4(metrics)},
    }
    return RobustnessSection(rows=found, **{**settings, **changes})


def page(*sections: RobustnessSection) -> str:
    return render(ReportData(title="robustness", robustness=sections))


def test_a_page_of_an_evaluation() -> None:
    text = page(section(description="Three examples.", unscored="there are no tables"))
    outline = Outline(text)
    assert outline.headings == [
        ("h1", "robustness"),
        ("h2", "Robustness"),
        ("h3", "desk"),
        ("h4", "Change and similarity"),
        ("h4", "random-swap: a good model answers as before"),
        ("h4", "antonym: a good model answers otherwise"),
    ]
    shown = words(text)
    assert "Activities and entities are not scored: there are no tables." in shown
    assert "2 of 3 contexts were changed; the base answers 1 of these otherwise." in shown
    assert "3 of 3 contexts were changed; the base answers 0 of these otherwise." in shown
    assert re.findall(r"<figcaption><strong>(.*?)</strong>", text) == ["Activity F1", "Entity F1", "Changed replies"]


def test_changed_words_are_marked_on_the_side_that_has_them() -> None:
    (swap, antonym) = read_robustness(section(example("a"))).groups
    (found,) = antonym.shown
    same = [Piece("is it on"), Piece("\N{PILCROW SIGN}"), Piece("yes")]
    assert found.before == [same, [Piece("turn it"), Piece("on", "before"), Piece("now")]]
    assert found.after == [same, [Piece("turn it"), Piece("off", "after"), Piece("now")]]
    assert (found.changed, swap.shown[0].changed) == ("1 word changed", "2 words changed")
    text = page(section(example("a")))
    assert "<del>on</del>" in text
    assert "<mark>off</mark>" in text


def test_replies_stand_side_by_side_before_and_after_training() -> None:
    (found, _) = read_robustness(section(example("a"))).groups
    assert found.shown[0].replies == [
        Reply("reply", "it works \N{PILCROW SIGN} thanks", "no idea"),
        Reply("trained against random-swap", "fine", "fine"),
    ]
    assert found.shown[0].truth == "what \N{PILCROW SIGN} it was on"


def test_failures_of_the_model_come_first_and_untouched_contexts_not_at_all() -> None:
    rows = [example(f"{number:03d}", same=number != 7, swapped=number != 3) for number in range(NUM_SHOWN + NUM_FOLDED + 5)]
    swap, antonym = read_robustness(section(*rows)).groups
    assert (swap.shown[0].key, swap.shown[0].good, swap.shown[0].verdict) == ("007", False, "another reply")
    keys = [each.key for each in (*swap.shown, *swap.more)]
    assert (len(swap.shown), len(keys)) == (NUM_SHOWN, NUM_SHOWN + NUM_FOLDED)
    assert "003" not in keys
    assert keys[1:] != sorted(keys[1:]), "neighbours of a dialogue would tell the same story"
    assert not any(each.good for each in antonym.shown), "the same reply is wrong where it should change"


def test_nothing_said_is_said_so() -> None:
    row = example("a", truth="")
    row["replies"][0]["reply"] = ""
    (swap, _) = read_robustness(section(row)).groups
    assert (swap.shown[0].replies[0].before, swap.shown[0].truth) == ("(says nothing)",) * 2


def test_hostile_words_stay_text() -> None:
    evil = " ".join(HOSTILE.split())
    row = example(HOSTILE, context=f"{evil} \u202ex", text=f"{evil} y", truth=evil)
    row["perturbations"] = row["perturbations"][:1]
    row["replies"] = [replied(reply=evil), replied(strategy=SWAP, reply=evil)]
    text = page(section(row, failed(HOSTILE) | {"error": HOSTILE}, name=HOSTILE, description=HOSTILE, unscored=HOSTILE))
    outline = Outline(text)
    assert {tag for tag, _ in outline.tags} & {"script", "img", "iframe", "object", "embed", "link", "base"} == set()
    assert not [name for _, attrs in outline.tags for name in attrs if name.startswith("on")]
    assert "".join(outline.text).count("<script>alert(1)</script>") >= 9
    assert "\u202e" not in text
    assert "1 of 2 examples ended in an error" in words(text)


def test_the_plot_names_strategies_and_series() -> None:
    metrics = section().metrics
    series = {
        "clean": {},
        "perturbed": {name: metrics[f"change_rate.base.{name}"] for name in EXPECTED},
        "trained": {SWAP: metrics[f"change_rate.{SWAP}.{SWAP}"]},
    }
    svg = strategies_svg("Changed replies", "% of replies", [*EXPECTED], series)
    for shown in (SWAP, ANTONYM, "perturbed", "trained", "% of replies"):
        assert f">{shown}</text>" in svg
    assert ">clean</text>" not in svg
    assert "var(--series-1)" in svg
    assert "var(--series-0)" not in svg


def test_a_run_becomes_a_section(tmp_path: Path) -> None:
    rows = [example("a"), example("b", same=True)]
    config = RobustnessConfig(strategies=f"{SWAP},{ANTONYM}")
    with RunFolder.open(tmp_path, config, job=EVALUATE_ROBUSTNESS.name, schema=ROBUSTNESS) as run:
        run.write_shard("00000", rows)
        assert collect_run(tmp_path).robustness[0].tables == {}, "not measured yet"
        about = {"title": "robust", "description": "Two examples.", STRATEGIES: EXPECTED, UNSCORED: "no tables"}
        run.write_summary(robustness_metrics(rows, num_resamples=100), about)
    data = collect_run(tmp_path)
    assert (data.title, data.lead, data.sections, data.searches) == ("robust", "Two examples.", [], [])
    (found,) = data.robustness
    assert (found.name, found.description, found.strategies, found.unscored) == ("robust", "", EXPECTED, "no tables")
    assert found.rows == rows
    assert [*found.tables] == ["Activity and entity F1", "Change and similarity"]
    assert "Robustness" in render(data)


def test_a_run_without_rows_has_no_section(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, RobustnessConfig(), job=EVALUATE_ROBUSTNESS.name, schema=ROBUSTNESS).close()
    data = collect_run(tmp_path)
    assert (data.robustness, data.sections) == ([], [])
    assert "This run holds no results yet." in render(data)
