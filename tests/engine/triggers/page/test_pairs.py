"""Trigger searches on the page: pairs, curves, hostile words, and what is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.content import Item, Report, Run
from parley.engine.core.page.page import collect_run, report_from_run
from parley.engine.core.page.plots import drawn
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.methods.settings import CANDIDATES, SearchSettings
from parley.engine.triggers.metrics.hits import search_metrics
from parley.engine.triggers.page import NUM_SHOWN, TriggerSearches
from parley.engine.triggers.verbs.config import TRIGGERS, TriggerConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.envs.core.errors import RunError
from tests.engine.core.page.pages import HOSTILE, Outline, assert_brief, assert_harmless, page_of, run_of, words
from tests.engine.triggers.metrics.searches import KINDS, failed, restart, searched

GREEDY, LIKELY = KINDS
HIT = restart(0, 0.2, (GREEDY, LIKELY), stopped="satisfied")
LIMITS = {"T_out": -3.9, "T_in": -4.1}


ZEBRA = {"sentence": "zebra crossing", "unknown": ["zebra"]}


def section(*rows: dict[str, Any], name: str = "mal", search: SearchSettings = SearchSettings(), **changes: Any) -> Run:  # noqa: B008
    """A search whose rows are a hit and two misses."""
    found = rows or (
        searched("far", restart(0, 3.0), restart(1, 3.5)),
        searched("near", restart(0, 1.0), restart(1, 1.5)),
        searched("hit", HIT, input_log_probability=-4.25),
    )
    metrics = changes.pop("metrics", search_metrics(found, NOTHING, 1))
    summary = {"thresholds": LIMITS} | {
        key: changes.pop(key) for key in ("thresholds", "skipped", "description") if key in changes
    }
    config = TriggerConfig(hit=GREEDY, search=search, **changes)
    return run_of("search", found, metrics, heading=name, config=config, **summary)


def page(*runs: Run) -> str:
    return page_of(Report(title="triggers", found={"triggers": runs}))


def items_of(run: Run) -> list[Item]:
    return [item for _, items in TriggerSearches().items(run) for item in items]


def test_a_page_of_a_search() -> None:
    text = page(section(description="Three targets.", skipped=[ZEBRA]))
    outline = Outline(text)
    assert outline.headings == [("h1", "triggers"), ("h2", "Triggers"), ("h2", "Items"), ("h2", "The run")]
    shown = words(text)
    assert "Hits, o-greedy higher: adversary share of all targets that are o-greedy hits 33.3 %" in shown
    assert "a usual word has T_out = −3.900, T_in = −4.100 nats." in shown
    assert "Skipped sentences (1) zebra crossing not in the vocabulary: zebra" in shown
    figures = re.findall(r"<figcaption><strong>(.*?)</strong>", text)
    assert figures == [
        "Loss by sweep",
        "Hits by restarts",
        "Best: log probability of each word",
        "Nearest miss: log probability of each word",
    ]


def test_of_a_chat_model_the_page_has_prompt_and_reply_and_names_no_usual_word() -> None:
    typed = searched("typed", HIT) | {"prompt": "what is the capital", "reply": "it is a secret", "verified": False}
    shown = words(page(section(typed, thresholds={})))
    assert shown.count("what is the capital") == 2, "in the line, and in what it opens to"
    assert "reply to what was typed, no success it is a secret" in shown
    assert "what is the capital trigger 0 \N{RIGHTWARDS ARROW} it is a secret o-greedy" in shown, "the line shows the reply"
    assert "hits are wanted." in shown
    assert "usual word" not in shown
    assert items_of(section(typed))[0].tags[-1] == "no success"


def test_hits_come_first_then_the_lower_loss() -> None:
    late = searched("late", restart(0, 5.0, (GREEDY,)))
    search = section(*section().rows, late)
    items = items_of(search)
    assert [item.values["loss"] for item in items] == [0.2, 5.0, 1.0, 3.0]
    best, other = words(str(items[0].body)), words(str(items[2].body))
    assert f'<span class="note good">{GREEDY}</span><span class="note">{LIKELY}</span>' in str(items[0].body)
    assert "least −3.00, mean −1.50 nats" in best
    assert best.endswith("mean −4.25 nats")
    assert other.startswith("no hit")
    assert other.endswith("mean – nats")
    assert "after the trigger: trigger 0" in next(iter(TriggerSearches().figures(search))).caption
    assert [item.tags for item in items] == [("as wanted", GREEDY, LIKELY), ("as wanted", GREEDY), ("missed",), ("missed",)]


def test_long_lists_are_cut_and_the_rest_is_counted() -> None:
    search = section(*(searched(f"{i:04d}", restart(0, i)) for i in range(NUM_SHOWN + 3)))
    assert len(items_of(search)) == NUM_SHOWN
    (note,) = TriggerSearches().notes(search)
    assert "3 further targets are in the run's rows." in note
    assert [figure.name for figure in TriggerSearches().figures(search)] == ["Best: log probability of each word"], (
        "nothing but misses"
    )


def test_hostile_words_stay_text() -> None:
    evil = restart(0, 0.1, (GREEDY,), words=HOSTILE)
    row = searched(HOSTILE, evil, target=HOSTILE, trigger=HOSTILE, target_words=[HOSTILE, "\u202ex", "</s>"])
    hostile = section(
        row, failed("f", HOSTILE), name=HOSTILE, description=HOSTILE, skipped=[{"sentence": HOSTILE, "unknown": [HOSTILE]}]
    )
    text = page(hostile)
    outline = assert_harmless(text)
    assert "".join(outline.text).count("<script>alert(1)</script>") >= 7
    assert "\u202e" not in text
    assert "1 of 2 targets ended in an error" in words(text)


def test_a_continuous_input_has_no_words() -> None:
    (item,) = items_of(section(searched("a", restart(0, 1.0, words=None))))
    assert "(a continuous input)" in item.body


def figures_of(*runs: Run) -> dict[str, str]:
    """The drawings of searches together, by name."""
    return {figure.name: drawn(figure).svg for figure in TriggerSearches().shared_figures(runs)}


def test_searches_side_by_side_share_their_curves() -> None:
    figures = figures_of(section(name="a"), section(name="b"))
    assert [*figures] == ["Loss by sweep", "Hits by restarts"]
    assert ">a: o-greedy (few: n = 3)</text>" in figures["Hits by restarts"]
    alike = figures_of(section(name="a"), section(name="a"))["Loss by sweep"]
    assert ">a (2) (few: n = 3)</text>" in alike, "equal names are told apart"
    alone = figures_of(section())["Hits by restarts"]
    assert f">{LIKELY} (few: n = 3)</text>" in alone, "of one search every type that occurs has a curve"


def test_one_hot_inputs_have_a_curve_of_their_distance_from_words() -> None:
    near = restart(0, 1.0, largest=[0.9, 1.0], second=[0.1, 0.0], word_change=[0.1, 0.2], state_change=[0.3, 0.4, 0.5])
    relaxed = section(searched("a", near), name="relaxed")
    assert ">change of states (few: n = 1)</text>" in figures_of(relaxed)["Distance from words"]


def test_searches_that_differ_in_candidates_alone_make_a_curve() -> None:
    few, title = SearchSettings(candidates=10), "Hits by candidates"
    assert title in figures_of(section(search=few), section(workers=2))
    assert title not in figures_of(section(search=few), section(seed=2)), "their rows could differ otherwise"
    assert title not in figures_of(section(search=few), section(search=few))


def record(path: Path, config: TriggerConfig, *rows: dict[str, Any], **about: Any) -> None:
    with RunFolder.open(path, config, job=SEARCH.name, schema=TRIGGERS) as run:
        run.write_shard("00000", rows)
        skipped = [{"sentence": "zebra crossing", "unknown": ["zebra", "crossing"]}]
        run.write_summary(search_metrics(rows, NOTHING, 1), {"thresholds": LIMITS, "skipped": skipped, **about})


def test_a_run_becomes_a_section(tmp_path: Path) -> None:
    rows = [searched("a", HIT), searched("b", restart())]
    record(
        tmp_path, TriggerConfig(hit=GREEDY), *rows, title="greedy search", description="Two targets.", command="parley search"
    )
    data = collect_run(tmp_path)
    assert (data.title, data.lead, data.commands) == ("greedy search", "Two targets.", ["parley search"])
    assert [*data.found] == ["triggers"]
    (found,) = data.found["triggers"]
    assert (found.heading, found.description, found.config["hit"]) == ("greedy search", "", GREEDY)
    assert (list(found.rows), found.summary["thresholds"]) == (rows, LIMITS)
    assert TriggerSearches().lists(found) == {
        "Skipped sentences": [("zebra crossing", "not in the vocabulary: zebra, crossing")]
    }
    assert found.metrics["hit_rate.o-greedy"].value == 0.5


RENAMED = {"metrics": {"other": NOTHING.to_json()}}


@pytest.mark.parametrize("change", [RENAMED, {"skipped": [3]}, {"thresholds": []}], ids=str)
def test_a_summary_with_other_parts_is_an_error(tmp_path: Path, change: dict[str, Any]) -> None:
    record(tmp_path, TriggerConfig(hit=GREEDY), searched("a", HIT), title="greedy search", description="", command="")
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | change))
    with pytest.raises(RunError, match="damaged, or of another version"):
        report_from_run(tmp_path)


@pytest.mark.parametrize("method", [*searches])
def test_searches_are_drawn_at_the_candidates_of_their_methods(method: str) -> None:
    own = searches.get(method).sizes.get("candidates", CANDIDATES)
    other = SearchSettings(candidates=own + 1)
    (curve,) = (
        figure
        for figure in TriggerSearches().shared_figures([section(method=method), section(method=method, search=other)])
        if figure.name == "Hits by candidates"
    )
    assert f">{own:,}<" in drawn(curve).svg


def test_a_run_without_rows_has_no_section(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, TriggerConfig(), job=SEARCH.name, schema=TRIGGERS).close()
    data = collect_run(tmp_path)
    assert data.found == {}
    assert "This run holds no results yet." in page_of(data)


def said(*runs: Run) -> str:
    verdict = TriggerSearches().verdict(runs)
    assert verdict is not None
    assert_brief(verdict)
    assert [mark.value for mark in verdict.marks.values()] == [run.metrics[f"hit_rate.{GREEDY}"].value for run in runs]
    return " ".join([verdict.sentence, *verdict.cautions])


def test_the_verdict_counts_triggers_and_what_was_skipped() -> None:
    usual = section(targets="normal")
    rude = section(*section().rows[:2], targets="mal", skipped=[ZEBRA])
    few = "Few targets (3): do not lean on it."
    assert said(usual) == f"A trigger was found for 1 of 3 usual replies. {few}"
    alike = usual.metrics | {f"hit_rate.{GREEDY}": Estimate(1 / 3, 0.0, 1.0, 2), "targets": count(3, 3)}
    assert said(section(targets="normal", metrics=alike)).startswith("A trigger was found for 1 of 3 usual replies."), (
        "two are one unit"
    )
    told = "A trigger was found for 1 of 3 usual replies and 0 of 2 rude sentences."
    skipped = "Skipped, as the model cannot say them: 1 of the lists."
    assert said(rude, usual) == f"{told} {few} {skipped}"
    many = said(*(section(targets="normal", name=name) for name in "abc"), rude)
    assert "Of 4 searches, the best found triggers for 1 of 3 usual replies, the worst for 0 of 2 rude sentences." in many


def test_nothing_measured_has_no_verdict() -> None:
    assert TriggerSearches().verdict([section(metrics={})]) is None
