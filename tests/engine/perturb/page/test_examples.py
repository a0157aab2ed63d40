"""Evaluations under perturbations on the page: tables, a plot by strategy, examples side by side, hostile words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from parley.engine.core.page import plots
from parley.engine.core.page.content import Report, Run
from parley.engine.core.page.page import collect_run, headed_tables
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.perturb.metrics.table import robustness_metrics, table_4
from parley.engine.perturb.page import NUM_SHOWN, Perturbations, example, touched
from parley.engine.perturb.strategy import Expectation
from parley.engine.perturb.verbs.config import ROBUSTNESS, RobustnessConfig
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS, STRATEGIES, UNSCORED
from tests.engine.core.page.pages import HOSTILE, Outline, assert_brief, assert_harmless, page_of, run_of, words
from tests.engine.perturb.metrics.robustness_rows import asked, failed, replied

SWAP, ANTONYM = "random-swap", "antonym"
EXPECTED = {SWAP: Expectation.SHOULD_NOT_CHANGE.value, ANTONYM: Expectation.SHOULD_CHANGE.value}
CONTEXT = "is it on <eou> yes <eot> turn it on now"


def perturbed(strategy: str, text: str, num_changed: int = 1) -> dict[str, Any]:
    return {"strategy": strategy, "text": text, "changed": bool(num_changed), "num_changed": num_changed}


def a_row(key: str, *, swapped: bool = True, same: bool = False, text: str = "", **changes: Any) -> dict[str, Any]:
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


def section(*rows: dict[str, Any], more: dict[str, Estimate] | None = None, **changes: Any) -> Run:
    found = rows or (a_row("a"), a_row("b", same=True), a_row("c", swapped=False, same=True))
    metrics = robustness_metrics(found, num_resamples=100) | (more or {})
    settings: dict[str, Any] = {"heading": "desk", STRATEGIES: EXPECTED, UNSCORED: "", "config": RobustnessConfig()}
    return run_of("evaluate-robustness", found, metrics, **settings | changes)


def page(*runs: Run) -> str:
    return page_of(Report(title="robustness", found={"robustness": runs}))


def read(run: Run, strategy: str) -> str:
    """The first example of a strategy."""
    return str(example(next(touched(run, strategy)), strategy, EXPECTED[strategy]).body)


def test_a_page_of_an_evaluation() -> None:
    text = page(section(description="Three examples.", **{UNSCORED: "there are no tables"}))
    outline = Outline(text)
    assert outline.headings == [("h1", "robustness"), ("h2", "Perturbations"), ("h2", "Items"), ("h2", "The run")]
    shown = words(text)
    assert "Table: Change and similarity" in shown
    assert "Activities and entities are not scored: there are no tables." in shown
    swap = "random-swap: a good model answers as before; 2 of 3 contexts were changed; the base answers 1 of these otherwise."
    antonym = "antonym: a good model answers otherwise; 3 of 3 contexts were changed; the base answers 0 of these otherwise."
    assert [*Perturbations().notes(section())] == [swap, antonym]
    assert swap in shown
    assert antonym in shown
    assert re.findall(r"<figcaption><strong>(.*?)</strong>", text) == ["Activity F1", "Entity F1", "Changed replies"]


def test_changed_words_are_marked_on_the_side_that_has_them() -> None:
    swap, antonym = read(section(a_row("a")), SWAP), read(section(a_row("a")), ANTONYM)
    clean = '<p class="words" dir="auto">is it on \N{PILCROW SIGN} yes</p>'
    assert f'{clean}<p class="words" dir="auto">turn it <del>on</del> now</p>' in antonym
    assert f'{clean}<p class="words" dir="auto">turn it <mark>off</mark> now</p>' in antonym
    assert "1 word changed" in antonym
    assert "2 words changed" in swap
    text = page(section(a_row("a")))
    assert "<del>on</del>" in text
    assert "<mark>off</mark>" in text


def test_replies_stand_side_by_side_before_and_after_training() -> None:
    found = words(read(section(a_row("a")), SWAP))
    assert "reply it works \N{PILCROW SIGN} thanks no idea trained against random-swap fine fine" in found
    assert found.endswith("truth what \N{PILCROW SIGN} it was on")


def test_failures_of_the_model_come_first_and_untouched_contexts_not_at_all() -> None:
    rows = [a_row(f"{number:03d}", same=number != 7, swapped=number != 3) for number in range(NUM_SHOWN + 5)]
    swap, antonym = (list(items) for _, items in Perturbations().items(section(*rows)))
    assert (swap[0].key, swap[0].tags) == ("007", ("unlike a good model", "another reply"))
    keys = [each.key for each in swap]
    assert len(keys) == NUM_SHOWN
    assert "003" not in keys
    assert keys[1:] != sorted(keys[1:]), "neighbours of a dialogue would tell the same story"
    assert {each.tags[0] for each in antonym} == {"unlike a good model"}, "the same reply is wrong where it should change"


def test_nothing_said_is_said_so() -> None:
    row = a_row("a", truth="")
    row["replies"][0]["reply"] = ""
    assert read(section(row), SWAP).count("(says nothing)") == 2


def test_hostile_words_stay_text() -> None:
    evil = " ".join(HOSTILE.split())
    row = a_row(HOSTILE, context=f"{evil} \u202ex", text=f"{evil} y", truth=evil)
    row["perturbations"] = row["perturbations"][:1]
    row["replies"] = [replied(reply=evil), replied(strategy=SWAP, reply=evil)]
    text = page(section(row, failed(HOSTILE) | {"error": HOSTILE}, heading=HOSTILE, description=HOSTILE, **{UNSCORED: HOSTILE}))
    outline = assert_harmless(text)
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
    svg = plots.drawn(plots.dots("Changed replies", "", "% of replies", [*EXPECTED], series, 100.0)).svg
    for shown in (SWAP, ANTONYM, "perturbed", "trained", "% of replies"):
        assert f">{shown}</text>" in svg
    assert ">clean</text>" not in svg
    assert "var(--series-1)" in svg
    assert "var(--series-0)" not in svg


def test_a_run_becomes_a_section(tmp_path: Path) -> None:
    rows = [a_row("a"), a_row("b", same=True)]
    config = RobustnessConfig(strategies=f"{SWAP},{ANTONYM}")
    with RunFolder.open(tmp_path, config, job=EVALUATE_ROBUSTNESS.name, schema=ROBUSTNESS) as run:
        run.write_shard("00000", rows)
        assert headed_tables(Perturbations(), collect_run(tmp_path).found["robustness"]) == [], "not measured yet"
        about = {"title": "robust", "description": "Two examples.", STRATEGIES: EXPECTED, UNSCORED: "no tables"}
        run.write_summary(robustness_metrics(rows, num_resamples=100), about)
    data = collect_run(tmp_path)
    assert (data.title, data.lead, [*data.found]) == ("robust", "Two examples.", ["robustness"])
    (found,) = data.found["robustness"]
    assert (found.heading, found.description, found.summary[STRATEGIES]) == ("robust", "", EXPECTED)
    assert list(found.rows) == rows
    assert [*found.tables] == ["Activity and entity F1", "Change and similarity"]
    assert "Perturbations" in page_of(data)


def test_a_run_without_rows_has_no_section(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, RobustnessConfig(), job=EVALUATE_ROBUSTNESS.name, schema=ROBUSTNESS).close()
    data = collect_run(tmp_path)
    assert data.found == {}
    assert "This run holds no results yet." in page_of(data)


def said(*rows: dict[str, Any], gain: float | None = None, control: float | None = None) -> str:
    """The verdict of an evaluation, its trained model changing replies by so much more than the base, its control so many."""
    name = f"change_rate_gain.{SWAP}.{SWAP}"
    changed = {} if gain is None else {name: Estimate(gain, gain - 0.1, gain + 0.1, 40)}
    if control is not None:
        changed[f"change_rate_touched.none.{SWAP}"] = Estimate(control, control, control, 40)
    verdict = Perturbations().verdict([section(*rows, more=changed)])
    assert verdict is not None
    assert_brief(verdict)
    return " ".join([verdict.sentence, *verdict.details, *verdict.cautions])


def test_the_verdict_says_what_changed_and_whether_training_helped() -> None:
    rows = [a_row(str(number), same=number > 30, context=f"{CONTEXT} {number}") for number in range(40)]
    first = "Random-swap changes 77.5 % of the replies that should stay."
    second = "Antonym changes 0.0 % of the replies that should change."
    meanings = "random-swap: neighbouring words change places. antonym: one word by its opposite."
    told = f"{first} {second} {meanings} Training against it brings that to 0.0 %"
    assert said(*rows).replace("\xa0", " ").startswith(told)
    assert "(it helped)" in said(*rows, gain=-0.3)
    beside = "(it helped; as much training on clean contexts alone: 12.0 %)"
    assert beside in said(*rows, gain=-0.3, control=0.12).replace("\xa0", " ")
    assert "(no certain gain)" in said(*rows, gain=0.05)
    assert "(it is worse)" in said(*rows, gain=0.3)
    assert "Few contexts (3): do not lean on it." in said(*rows[:3])


def test_the_control_is_no_training_against_a_strategy() -> None:
    """A control that stands first, as in the commands of niu2018, once lent its figure to what the training brought."""
    rows = []
    for number in range(40):
        row = a_row(str(number), context=f"{CONTEXT} {number}")
        row["replies"][3:] = [
            *(replied("none", strategy, reply="fine", same=True) for strategy in ("", *EXPECTED)),
            *(replied("all", strategy, reply="so", same=True) for strategy in ("", *EXPECTED)),
            *(replied(SWAP, strategy, reply="no", same=False) for strategy in ("", SWAP)),
        ]
        rows.append(row)
    assert "Training against it brings that to 100.0 %" in said(*rows).replace("\xa0", " ")
    found = section(*rows)
    control = "control, trained as long on clean contexts"
    heads = re.findall(r'<th scope="row">(.*?)</th>', read(found, SWAP))
    assert heads[1:-1] == ["reply", control, "trained against all", "trained against random-swap"]
    verdict = Perturbations().verdict([found])
    assert verdict is not None
    assert f"{SWAP}, {control}" in verdict.marks
    assert table_4(found.metrics).note.endswith("Lines of none: the control, trained as long on contexts as they are.")
    assert "control" not in table_4(section().metrics).note


def test_the_verdict_tells_what_the_model_beside_does() -> None:
    beside = {
        **{f"change_rate_touched.beside.{name}": Estimate(0.25, 0.2, 0.3, 40) for name in EXPECTED},
        f"change_rate_gain.beside.{SWAP}": Estimate(-0.5, -0.6, -0.4, 40),
    }
    rows = [a_row(str(number)) for number in range(40)]
    verdict = Perturbations().verdict([section(*rows, more=beside, config={"beside": "runs/pieces"})])
    assert verdict is not None
    told = "Of the replies of pieces: 25.0 % (certainly fewer) and 25.0 % (no certain difference)."
    assert told in [detail.replace("\xa0", " ") for detail in verdict.details]
    assert verdict.marks["random-swap, pieces"].value == 0.25
