"""Trigger searches on the page: pairs, curves, hostile words, and what is left out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.content import Report
from parley.engine.core.page.page import collect_run, report_from_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING
from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.methods.settings import CANDIDATES, SearchSettings
from parley.engine.triggers.metrics.hits import describe, search_metrics
from parley.engine.triggers.page.chapter import (
    NUM_SHOWN,
    ShownSearch,
    Triggers,
    TriggerSearches,
    note_of,
    ranked,
    read_pair,
    search_figures,
    search_items,
    word_figures,
)
from parley.engine.triggers.verbs.config import TRIGGERS, TriggerConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.envs.core.errors import RunError
from tests.engine.core.page.pages import HOSTILE, Outline, assert_harmless, words
from tests.engine.negotiation.page.dialogues import page_of
from tests.engine.triggers.metrics.searches import KINDS, failed, restart, searched

GREEDY, LIKELY = KINDS
HIT = restart(0, 0.2, (GREEDY, LIKELY), stopped="satisfied")
LIMITS = {"T_out": -3.9, "T_in": -4.1}


def section(*rows: dict[str, Any], **changes: Any) -> ShownSearch:
    """A search whose rows are a hit and two misses."""
    found = rows or (
        searched("far", restart(0, 3.0), restart(1, 3.5)),
        searched("near", restart(0, 1.0), restart(1, 1.5)),
        searched("hit", HIT, input_log_probability=-4.25),
    )
    metrics = search_metrics(found, NOTHING, 1)
    settings: dict[str, Any] = {
        "name": "mal",
        "hit": GREEDY,
        "thresholds": LIMITS,
        "metrics": metrics,
        "legend": {name: describe(name) for name in metrics},
    }
    return ShownSearch(rows=found, **{**settings, **changes})


def page(*sections: ShownSearch) -> str:
    return page_of(Report(title="triggers", found={"triggers": Triggers(searches=sections)}))


def test_a_page_of_a_search() -> None:
    text = page(section(description="Three targets.", skipped=[("zebra crossing", "not in the vocabulary: zebra")]))
    outline = Outline(text)
    assert outline.headings == [("h1", "triggers"), ("h2", "Triggers"), ("h2", "Items"), ("h2", "The run")]
    shown = words(text)
    assert "Hits, o-greedy higher: adversary share of all targets that are o-greedy hits 33.3 %" in shown
    assert "a usual word has T_out = −3.900, T_in = −4.100 nats." in shown
    assert "Skipped sentences, mal (1) zebra crossing not in the vocabulary: zebra" in shown
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
    assert search_items(section(typed))[0].tags[-1] == "no success"


def test_hits_come_first_then_the_lower_loss() -> None:
    late = searched("late", restart(0, 5.0, (GREEDY,)))
    search = section(*section().rows, late)
    found = [read_pair(row, GREEDY) for row in ranked(search)]
    assert [pair["loss"] for pair in found] == ["0.20", "5.00", "1.00", "3.00"]
    best = found[0]
    assert [(hit["name"], hit["wanted"]) for hit in best["hits"]] == [(GREEDY, True), (LIKELY, False)]
    assert (best["least"], best["mean"], best["input"]) == ("−3.00", "−1.50", "−4.25")
    assert (found[2]["hits"], found[2]["input"]) == ([], "–")
    assert "after the trigger: trigger 0" in word_figures(search)[0].caption
    tags = [item.tags for item in search_items(search)]
    assert tags == [("as wanted", GREEDY, LIKELY), ("as wanted", GREEDY), ("missed",), ("missed",)]


def test_long_lists_are_cut_and_the_rest_is_counted() -> None:
    search = section(*(searched(f"{i:04d}", restart(0, i)) for i in range(NUM_SHOWN + 3)))
    assert len(search_items(search)) == NUM_SHOWN
    assert "3 further targets are in the run's rows." in note_of(search)
    assert [figure.name for figure in word_figures(search)] == ["Best: log probability of each word"], "nothing but misses"


def test_hostile_words_stay_text() -> None:
    evil = restart(0, 0.1, (GREEDY,), words=HOSTILE)
    row = searched(HOSTILE, evil, target=HOSTILE, trigger=HOSTILE, target_words=[HOSTILE, "\u202ex", "</s>"])
    hostile = section(row, failed("f", HOSTILE), name=HOSTILE, description=HOSTILE, skipped=[(HOSTILE, HOSTILE)])
    text = page(hostile)
    outline = assert_harmless(text)
    assert "".join(outline.text).count("<script>alert(1)</script>") >= 7
    assert "\u202e" not in text
    assert "1 of 2 targets ended in an error" in words(text)


def test_a_continuous_input_has_no_words() -> None:
    (row,) = ranked(section(searched("a", restart(0, 1.0, words=None))))
    assert read_pair(row, GREEDY)["trigger"] == "(a continuous input)"


def test_searches_side_by_side_share_their_curves() -> None:
    figures = search_figures([section(name="a"), section(name="b")])
    assert [figure.name for figure in figures] == ["Loss by sweep", "Hits by restarts"]
    assert ">a: o-greedy (few: n = 3)</text>" in figures[1].svg
    alike = search_figures([section(name="a"), section(name="a")])[0]
    assert ">a (2) (few: n = 3)</text>" in alike.svg, "equal names are told apart"
    (alone,) = (figure for figure in search_figures([section()]) if figure.name == "Hits by restarts")
    assert f">{LIKELY} (few: n = 3)</text>" in alone.svg, "of one search every type that occurs has a curve"


def test_searches_that_differ_in_candidates_alone_make_a_curve() -> None:
    def names(*sections: ShownSearch) -> list[str]:
        return [figure.name for figure in search_figures(sections)]

    small, large = section(name="a", candidates=10, alike="x"), section(name="b", candidates=100, alike="x")
    assert "Hits by candidates" in names(small, large)
    assert "Hits by candidates" not in names(small, section(name="b", candidates=100, alike="y"))
    assert "Hits by candidates" not in names(small, section(name="b", candidates=10, alike="x"))


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
    (found,) = data.found["triggers"].searches
    assert (found.name, found.description, found.hit, found.candidates) == ("greedy search", "", GREEDY, 100)
    assert (found.rows, found.thresholds) == (rows, LIMITS)
    assert found.skipped == [("zebra crossing", "not in the vocabulary: zebra, crossing")]
    assert found.metrics["hit_rate.o-greedy"].value == 0.5


RENAMED = {"metrics": {"other": NOTHING.to_json()}}


@pytest.mark.parametrize("change", [RENAMED, {"skipped": [3]}, {"thresholds": []}], ids=str)
def test_a_summary_with_other_parts_is_an_error(tmp_path: Path, change: dict[str, Any]) -> None:
    record(tmp_path, TriggerConfig(hit=GREEDY), searched("a", HIT), title="greedy search", description="", command="")
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | change))
    with pytest.raises(RunError, match="damaged, or of another version"):
        report_from_run(tmp_path)


@pytest.mark.parametrize(("second", "alike"), [({"workers": 2}, True), ({"seed": 2}, False)])
def test_runs_are_alike_when_their_rows_could_be(tmp_path: Path, second: dict[str, Any], alike: bool) -> None:
    record(tmp_path / "a", TriggerConfig(hit=GREEDY), searched("a", HIT))
    record(tmp_path / "b", TriggerConfig(hit=GREEDY, search=SearchSettings(candidates=7), **second), searched("a", HIT))
    first, other = collect_run(tmp_path).found["triggers"].searches
    assert (first.candidates, other.candidates) == (100, 7)
    assert (first.alike == other.alike) == alike


def test_searches_are_drawn_at_the_candidates_of_their_methods(tmp_path: Path) -> None:
    own = {name: searches.get(name).sizes.get("candidates", CANDIDATES) for name in searches}
    for method in own:
        record(tmp_path / method, TriggerConfig(hit=GREEDY, method=method), searched("a", HIT))
    drawn = {method: collect_run(tmp_path / method).found["triggers"].searches[0].candidates for method in own}
    assert drawn == own


def test_a_run_without_rows_has_no_section(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, TriggerConfig(), job=SEARCH.name, schema=TRIGGERS).close()
    data = collect_run(tmp_path)
    assert data.found == {}
    assert "This run holds no results yet." in page_of(data)


def said(*searches: ShownSearch) -> str:
    verdict = TriggerSearches().verdict(Triggers(searches=searches))
    assert verdict is not None
    assert list(verdict.marks.values()) == [search.rate for search in searches]
    return verdict.sentence


def test_the_verdict_counts_triggers_and_what_was_skipped() -> None:
    usual = section(targets="normal")
    rude = section(*section().rows[:2], targets="mal", skipped=[("zebra crossing", "not in the vocabulary: zebra")])
    few = "Few targets (3): do not lean on it."
    assert said(usual) == f"A trigger was found for 1 of 3 usual replies. {few}"
    told = "A trigger was found for 1 of 3 usual replies and 0 of 2 rude sentences."
    skipped = "Skipped, as the model cannot say them: 1 of 3 sentences."
    assert said(rude, usual) == f"{told} {few.replace('3', '2')} {skipped}"
    many = said(*(replace(usual, name=name) for name in "abc"), rude)
    assert "1 of 3 usual replies at most, 0 of 2 rude sentences at least, in 4 searches" in many


def test_nothing_measured_has_no_verdict() -> None:
    assert TriggerSearches().verdict(Triggers(searches=[section(metrics={})])) is None
