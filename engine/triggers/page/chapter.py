"""Trigger searches, from run folders to what their report shows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from parley.engine.core.page.content import Chapter, Section, ShownRun, Stages, Verdict
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import MOST_MARKS, SHARE, caveat, first_marks, listed, number
from parley.engine.core.stats.statistics import Estimate
from parley.engine.triggers.methods.settings import CANDIDATES, CANDIDATES_BY_METHOD
from parley.engine.triggers.metrics.enumeration import enumeration_table
from parley.engine.triggers.metrics.hits import describe
from parley.engine.triggers.metrics.methods import methods_successes
from parley.engine.triggers.metrics.successes import successful_reply
from parley.engine.triggers.page.pairs import note_of, search_figures, search_items, word_figures
from parley.engine.triggers.page.sections import ShownSearch, Triggers
from parley.engine.triggers.page.typed import MOST_SAID, TYPED_JOBS, shown_typed, success_metric, typed_items, typed_verdict
from parley.engine.triggers.targets import Skipped
from parley.engine.triggers.verbs.enumeration import SEARCH_ENUMERATE
from parley.engine.triggers.verbs.methods import SEARCH_METHODS
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.table import SEARCH_TABLE
from parley.envs.core.visible import visible

_LISTS = {"normal": "usual replies", "mal": "rude sentences", "random": "sentences of random words"}
"""What the built-in lists of targets hold."""


class TriggerSearches(Chapter[Triggers]):
    """The chapter of searches, tables of them, and enumerations."""

    name, title = "triggers", "Triggers"
    jobs = (SEARCH.name, SEARCH_TABLE.name, SEARCH_METHODS.name, SEARCH_ENUMERATE.name, *TYPED_JOBS)
    stages: ClassVar = {SEARCH_TABLE.name: Stages(others="by folder"), SEARCH_METHODS.name: Stages(others="by folder")}
    terms: ClassVar = {
        r"\bo-greedy": ("o-greedy hit", "the model's likeliest reply, taken word by word, is the target."),
        r"\bio?-?\w*sample|\bo-sample": (
            "o-sample hit",
            "the target is as likely under the model as a usual reply: its mean log probability (avg) or its least likely word "
            "(min) reaches T_out.",
        ),
        r"\bio-": ("io hit", "an o hit whose input is as usual as people's inputs are: its words reach T_in."),
        r"k[12]\b": ("k", "how far below T_out still counts: log k; with k = 2 a word may be half as likely as a usual one."),
        r"T_out": ("T_out", "mean log probability in nats of the words of usual replies, under the model."),
        r"T_in": ("T_in", "mean log probability in nats of the words of usual inputs, under the language model."),
        r"restarts?": ("Restart", "a search of its own from another random input; the best of them is kept."),
        r"sweeps?\b": ("Sweep", "one pass over all places of the input."),
    }

    def collect(self, runs: Sequence[Run]) -> Triggers | None:
        searches = [_search(run) for run in runs if run.job == SEARCH.name and run.rows]
        measured = [run for run in runs if run.summary]
        tables = [
            (run.heading if run.name else "All lists", SEARCH_TABLE.tables(run.folder)[""])
            for run in measured
            if run.job == SEARCH_TABLE.name
        ]
        tables += [
            (run.heading if run.name else "All methods", SEARCH_METHODS.tables(run.folder)[""])
            for run in measured
            if run.job == SEARCH_METHODS.name
        ]
        tried = [run for run in measured if run.job == SEARCH_ENUMERATE.name]
        tables += [(run.heading, enumeration_table(run.metrics, run.summary["attention"])) for run in tried]
        shown = [ShownRun.of(run) for run in tried]
        typed = [shown_typed(run) for run in measured if run.job in TYPED_JOBS]
        tables += [(each.name, each.table) for each in typed]
        compared = [(_clause(run), methods_successes(run.metrics)) for run in measured if run.job == SEARCH_METHODS.name]
        found = Triggers(searches=searches, tables=tables, others=shown, typed=typed, compared=compared)
        return found if searches or tables else None

    def verdict(self, found: Triggers) -> Verdict | None:
        if found.compared:
            return _methods_verdict(*found.compared[0])
        searches = [search for search in found.searches if math.isfinite(search.rate.value)]
        if not searches:
            return next(filter(None, map(typed_verdict, found.typed)), None)
        ordered = sorted(searches, key=lambda search: -search.rate.value)
        said = listed([_told(search) for search in ordered])
        if len(searches) > MOST_SAID:
            said = f"{_told(ordered[0])} at most, {_told(ordered[-1])} at least, in {len(searches)} searches"
        skipped = [f"{len(each.skipped):,} of {len(each.skipped) + len(each.rows):,}" for each in searches if each.skipped]
        words = f" Skipped, as the model cannot say them: {listed(skipped[:MOST_SAID])} sentences." if skipped else ""
        return Verdict(
            sentence=f"A trigger was found for {said}.{caveat(*(each.rate for each in searches), unit='targets')}{words}",
            metric=SHARE._replace(title="Triggers found", direction="higher: adversary", definition="share of all targets"),
            marks=_marks(searches[:MOST_MARKS]),
        )

    def render(self, found: Triggers) -> Section:
        done = [search for search in found.searches if search.done]
        items = {search.name: search_items(search) for search in done}
        replies = [item for run in found.typed for item in typed_items(run)]
        return Section(
            notes=[note_of(search) for search in done],
            tables=found.tables,
            measured=[*found.searches, *found.others, *found.typed],
            figures=[*search_figures(found.searches), *(figure for search in done for figure in word_figures(search))],
            lists={
                f"Skipped sentences, {search.name}": [
                    (visible(sentence), visible(reason)) for sentence, reason in search.skipped
                ]
                for search in found.searches
                if search.skipped
            },
            items=[item for shown in items.values() for item in shown] + replies,
            chosen={f"{name}: best": shown[0] for name, shown in items.items()},
        )


def _methods_verdict(clause: str, shares: Mapping[str, Estimate]) -> Verdict:
    """Return what methods come to under one budget, their controls among them."""
    parts = listed([f"{number(SHARE, share.value)} with {visible(line)}" for line, share in shares.items()])
    sentence = f"Of the targets, {parts} got a reply {clause}.{caveat(*shares.values(), unit='targets')}"
    marks = first_marks({visible(line): share for line, share in shares.items()})
    return Verdict(sentence=sentence, metric=success_metric(clause), marks=marks)


def _clause(run: Run) -> str:
    return successful_reply(run.config["success"], end=run.config["hugging_face"]["end"])


def _search(run: Run) -> ShownSearch:
    settings = {name: value for name, value in run.config.items() if name not in SEARCH.resume_safe}
    effort = dict(settings["search"])
    given, own = effort.pop("candidates"), CANDIDATES_BY_METHOD.get(run.config["method"], CANDIDATES)
    return ShownSearch.of(
        run,
        legend={name: describe(name) for name in run.metrics},
        targets=run.config["targets"],
        hit=run.config["hit"],
        thresholds=run.summary.get("thresholds", {}),
        skipped=[(entry["sentence"], Skipped(**entry).reason) for entry in run.summary.get("skipped", ())],
        candidates=own if given is None else given,
        alike=json.dumps({**settings, "search": effort}, sort_keys=True),
    )


def _marks(searches: Sequence[ShownSearch]) -> dict[str, Estimate]:
    """The hit rates by list and type of hit, and by run where several have these in common."""
    names = [f"{_what(search)}, {search.hit}" for search in searches]
    return {
        f"{name} ({search.name})" if names.count(name) > 1 else name: search.rate
        for name, search in zip(names, searches, strict=True)
    }


def _what(search: ShownSearch) -> str:
    """What its targets are."""
    return _LISTS.get(search.targets, f"sentences of {visible(search.targets)}")


def _told(search: ShownSearch) -> str:
    """Such as "28 of 30 usual replies"."""
    return f"{round(search.rate.value * search.rate.n):,} of {search.rate.n:,} {_what(search)}"
