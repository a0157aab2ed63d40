"""The chapters of trigger searches and of hardened models: from run folders to sections of the page.

A search shows pairs of input and target with the cost of the search. Inputs and targets are hostile text: it is made visible
before it is shown, and the page escapes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from markupsafe import Markup

from parley.engine.core.page.content import (
    Chapter,
    Figure,
    Item,
    Run,
    Section,
    ShownRun,
    Stages,
    Verdict,
    fill,
    line,
    told_apart,
)
from parley.engine.core.page.page import MOST_MARKS, SHARE, caveat, first_marks, listed, number
from parley.engine.core.page.trainings import Hardenings, certainly
from parley.engine.core.stats.known import EXPLOITABILITY
from parley.engine.core.stats.statistics import NOTHING, Estimate, Points, Row, is_no_reply
from parley.engine.core.tables.table import figure
from parley.engine.triggers.methods.settings import CANDIDATES, CANDIDATES_BY_METHOD
from parley.engine.triggers.metrics.hits import (
    HIT_RATE,
    T_OUT,
    describe,
    hits_by_restarts,
    is_hit,
    kinds,
    loss_by_sweep,
    successful_reply,
)
from parley.engine.triggers.metrics.text import enumeration_table, methods_successes
from parley.engine.triggers.metrics.transfer import ADAPTIVE, CONTROL, INPUTS, LESS_THAN_CONTROL, START
from parley.engine.triggers.page.typed import (
    MOST_SAID,
    TYPED_JOBS,
    ShownTyped,
    shown_typed,
    success_metric,
    typed_items,
    typed_verdict,
)
from parley.engine.triggers.targets import Skipped
from parley.engine.triggers.verbs.enumeration import SEARCH_ENUMERATE
from parley.engine.triggers.verbs.methods import SEARCH_METHODS
from parley.engine.triggers.verbs.minmax import MINMAX_TRIGGERS
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.table import SEARCH_TABLE
from parley.envs.core.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from parley.engine.core.tables.table import EstimateTable

NUM_SHOWN = 200
"""Most targets of a search that the viewer holds."""
_MAX_SERIES = 8
_SUCCESS = {None: (), True: ("success",), False: ("no success",)}
"""Tags by whether the reply to what was typed is a success."""


@dataclass(frozen=True, kw_only=True)
class ShownSearch(ShownRun):
    """One trigger search; its items are targets.

    Args:
        targets: the list of sentences that was searched for.
        hit: the type of hit that was searched for.
        thresholds: log probabilities of usual words, in nats, by name.
        skipped: sentences that no target could be made of, each with the reason.
        candidates: inputs tried at each visit.
        alike: equal for searches that differ in `candidates` alone.
    """

    unit = "targets"
    targets: str = ""
    hit: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    skipped: Sequence[tuple[str, str]] = ()
    candidates: int = 0
    alike: str = ""

    @property
    def rate(self) -> Estimate:
        """Return the share of targets that are hits as wanted."""
        return self.metrics.get(f"{HIT_RATE}{self.hit}", NOTHING)


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """The searches and tables of a page.

    Args:
        searches: one by one.
        tables: of several.
        enumerations: runs of parley search enumerate.
        typed: runs that type inputs to chat models.
        compared: the description of a successful reply, and the share of targets with one by method, under one budget.
    """

    searches: Sequence[ShownSearch] = ()
    tables: Sequence[tuple[str, EstimateTable]] = ()
    enumerations: Sequence[ShownRun] = ()
    typed: Sequence[ShownTyped] = ()
    compared: Sequence[tuple[str, Mapping[str, Estimate]]] = ()


def ranked(search: ShownSearch) -> list[Row]:
    """Return its finished targets: hits as wanted first, then by loss, then by key."""
    return sorted(search.done, key=lambda row: (not is_hit(row, search.hit), row["loss"], str(row["item_key"])))


def note_of(search: ShownSearch) -> str:
    """Return a note on the thresholds of its numbers, and on the number of pairs that are not shown."""
    limits = ", ".join(f"{name} = {value:.3f}".replace("-", "\N{MINUS SIGN}") for name, value in search.thresholds.items())
    usual = f"; a usual word has {limits} nats" if limits else ""
    hidden = len(search.done) - NUM_SHOWN
    more = f" {hidden:,} further targets are in the run's rows." if hidden > 0 else ""
    return f"{search.name}: {search.hit} hits are wanted{usual}.{more}"


def search_items(search: ShownSearch) -> list[Item]:
    """Return the pairs of a search that the viewer holds, the best first.

    Args:
        search: with at least one finished target.
    """
    return [_item(search, row) for row in ranked(search)[:NUM_SHOWN]]


def _item(search: ShownSearch, row: Row) -> Item:
    pair = read_pair(row, search.hit)
    hits = [hit["name"] for hit in pair["hits"]]
    return Item(
        kind="trigger",
        key=visible(str(row["item_key"])),
        group=search.name,
        summary=line(
            '{} <q class="adversary">{}</q> \N{RIGHTWARDS ARROW} <q class="target">{}</q> {}',
            pair["prompt"],
            pair["trigger"],
            # Where no reply was typed, the target stands for it.
            pair["target"] if pair["success"] is None else pair["reply"],
            ", ".join(hits) or "no hit",
        ),
        tags=("as wanted" if any(hit["wanted"] for hit in pair["hits"]) else "missed", *hits, *_SUCCESS[pair["success"]]),
        values={"loss": row["loss"], "mean log probability": float(np.mean(row["word_log_probability"]))},
        body=fill("triggers/page/pair.html", pair=pair),
    )


def search_figures(sections: Sequence[ShownSearch]) -> list[Figure]:
    """Return the curves of all searches of a page: loss by sweep, hits by restarts, hits by candidates."""
    searched = [section for section in sections if section.done]
    names = told_apart([section.name for section in searched])
    losses = {name: loss_by_sweep(section.done) for name, section in zip(names, searched, strict=True)}
    if len(searched) == 1:
        (search,) = searched
        types = [kind for kind in kinds(search.done) if kind == search.hit or any(is_hit(row, kind) for row in search.done)]
        hits = {kind: hits_by_restarts(search.done, kind) for kind in types}
    else:
        hits = {
            f"{name}: {section.hit}": hits_by_restarts(section.done, section.hit)
            for name, section in zip(names, searched, strict=True)
        }
    curves = (
        ("Loss by sweep", "sweeps", "mean loss", losses, "mean over restarts, those that have ended at their last loss"),
        ("Hits by restarts", "restarts", "share of targets", hits, "what the same searches reach with fewer restarts"),
        (
            "Hits by candidates",
            "candidates at each visit",
            "share of targets",
            _by_candidates(searched),
            "searches that differ in nothing else",
        ),
    )
    return [_curve(*curve) for curve in curves if any(len(points) > 1 for points in curve[3].values())]


def read_pair(row: Row, hit_type: str) -> dict[str, Any]:
    """Return the texts and figures of a finished target; numbers as text, in nats.

    Of a chat model also the request, the reply, and whether it is a success; empty, and None, of others.

    Args:
        row: of the target.
        hit_type: the type of hit that was searched for.
    """
    words = row["word_log_probability"]
    return {
        "prompt": visible(row.get("prompt") or ""),
        "trigger": _trigger(row),
        "target": visible(str(row["target"])),
        "reply": f"(no reply: {row['kind']})" if is_no_reply(row) else visible(row.get("reply") or ""),
        "reasoning": visible(row.get("reasoning") or ""),
        "success": row.get("verified"),
        "hits": [{"name": str(hit["type"]), "wanted": hit["type"] == hit_type} for hit in row["hits"] if hit["hit"]],
        "loss": figure(row["loss"]),
        "least": figure(min(words)),
        "mean": figure(float(np.mean(words))),
        "input": figure(row["input_log_probability"]),
    }


def _trigger(row: Row) -> str:
    return "(a continuous input)" if row["trigger"] is None else visible(str(row["trigger"]))


def _by_candidates(sections: Sequence[ShownSearch]) -> dict[str, Points]:
    """Return hit rates by number of candidates, of searches that differ in nothing else."""
    groups: dict[str, list[ShownSearch]] = {}
    for section in sections:
        if f"{HIT_RATE}{section.hit}" in section.metrics:
            groups.setdefault(section.alike, []).append(section)
    return {
        members[0].hit if len(groups) == 1 else members[0].name: sorted(
            (section.candidates, section.metrics[f"{HIT_RATE}{section.hit}"]) for section in members
        )
        for members in groups.values()
        if len({section.candidates for section in members}) == len(members) > 1
    }


def _curve(title: str, x_label: str, y_label: str, series: Mapping[str, Points], what: str) -> Figure:
    # matplotlib takes a second to load.
    from parley.engine.core.page.plots import budget_svg

    drawn = {name: points for name, points in series.items() if len(points) > 1}
    first = dict(list(drawn.items())[:_MAX_SERIES])
    left_out = f"; {len(drawn) - len(first)} further ones are not drawn" if len(drawn) > len(first) else ""
    caption = f"{what}; bands are 95 % intervals{left_out}"
    return Figure(title, caption, Markup(budget_svg(title, x_label, first, y_label)))


def word_figures(search: ShownSearch) -> list[Figure]:
    """Return the words of the best pair, and of the nearest miss (figure 5)."""
    from parley.engine.core.page.plots import svg

    rows = ranked(search)
    missed = [row for row in rows if not is_hit(row, search.hit)]
    chosen: dict[str, Row] = {"Best": rows[0]}
    if is_hit(rows[0], search.hit) and missed:
        chosen["Nearest miss"] = missed[0]
    figures = []
    for name, row in chosen.items():
        words = [visible(str(word)) for word in row["target_words"]]
        title = f"{name}: log probability of each word"
        dashed = "; dashed: a usual word" if T_OUT in search.thresholds else ""
        caption = f"{search.name}, after the trigger: {_trigger(row)}{dashed}"
        draw = partial(draw_words, words, row["word_log_probability"], search.thresholds.get(T_OUT))
        drawing = svg((5.4, 3.2), f"{search.name}, {title}", draw)
        figures.append(Figure(title, caption, Markup(drawing)))
    return figures


def draw_words(words: Sequence[str], log_probabilities: Sequence[float], threshold: float | None, axes: Axes) -> None:
    """Draw the log-probability of each word of a sentence, and as a dashed line that of a usual word.

    Args:
        words: the sentence.
        log_probabilities: nats of each.
        threshold: nats of a usual word; None draws no line.
        axes: the axes to draw on.
    """
    from parley.engine.core.page.plots import MUTED, SERIES, short

    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    axes.plot(range(len(words)), log_probabilities, color=SERIES[0], linewidth=1.9, marker="o", markersize=3.6)
    if threshold is not None:
        axes.axhline(threshold, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xticks(range(len(words)), [short(word) for word in words], rotation=30, ha="right")
    axes.set(ylabel="log probability in nats")
    axes.margins(x=0.06)


_LISTS = {"normal": "usual replies", "mal": "rude sentences", "random": "sentences of random words"}
"""The contents of the built-in lists of targets."""


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
        tables += [(typed_run.name, typed_run.table) for typed_run in typed]
        compared = [(_clause(run), methods_successes(run.metrics)) for run in measured if run.job == SEARCH_METHODS.name]
        triggers = Triggers(searches=searches, tables=tables, enumerations=shown, typed=typed, compared=compared)
        return triggers if searches or tables else None

    def verdict(self, triggers: Triggers) -> Verdict | None:
        if triggers.compared:
            return _methods_verdict(*triggers.compared[0])
        searches = [search for search in triggers.searches if math.isfinite(search.rate.value)]
        if not searches:
            return next(filter(None, map(typed_verdict, triggers.typed)), None)
        ordered = sorted(searches, key=lambda search: -search.rate.value)
        rates = listed([_rate_text(search) for search in ordered])
        if len(searches) > MOST_SAID:
            rates = f"{_rate_text(ordered[0])} at most, {_rate_text(ordered[-1])} at least, in {len(searches)} searches"
        skipped = [f"{len(item.skipped):,} of {len(item.skipped) + len(item.rows):,}" for item in searches if item.skipped]
        words = f" Skipped, as the model cannot say them: {listed(skipped[:MOST_SAID])} sentences." if skipped else ""
        return Verdict(
            sentence=f"A trigger was found for {rates}.{caveat(*(item.rate for item in searches), unit='targets')}{words}",
            metric=SHARE._replace(title="Triggers found", direction="higher: adversary", definition="share of all targets"),
            marks=_marks(searches[:MOST_MARKS]),
        )

    def render(self, triggers: Triggers) -> Section:
        done = [search for search in triggers.searches if search.done]
        items = {search.name: search_items(search) for search in done}
        replies = [item for run in triggers.typed for item in typed_items(run)]
        return Section(
            notes=[note_of(search) for search in done],
            tables=triggers.tables,
            measured=[*triggers.searches, *triggers.enumerations, *triggers.typed],
            figures=[*search_figures(triggers.searches), *(figure for search in done for figure in word_figures(search))],
            lists={
                f"Skipped sentences, {search.name}": [
                    (visible(sentence), visible(reason)) for sentence, reason in search.skipped
                ]
                for search in triggers.searches
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
    given, default = effort.pop("candidates"), CANDIDATES_BY_METHOD.get(run.config["method"], CANDIDATES)
    return ShownSearch.of(
        run,
        legend={name: describe(name) for name in run.metrics},
        targets=run.config["targets"],
        hit=run.config["hit"],
        thresholds=run.summary.get("thresholds", {}),
        skipped=[(entry["sentence"], Skipped(**entry).reason) for entry in run.summary.get("skipped", ())],
        candidates=default if given is None else given,
        alike=json.dumps({**settings, "search": effort}, sort_keys=True),
    )


def _marks(searches: Sequence[ShownSearch]) -> dict[str, Estimate]:
    """Return the hit rates by list and type of hit, and by run if several have these in common."""
    names = [f"{_list_name(search)}, {search.hit}" for search in searches]
    return {
        f"{name} ({search.name})" if names.count(name) > 1 else name: search.rate
        for name, search in zip(names, searches, strict=True)
    }


def _list_name(search: ShownSearch) -> str:
    return _LISTS.get(search.targets, f"sentences of {visible(search.targets)}")


def _rate_text(search: ShownSearch) -> str:
    """Return text such as "28 of 30 usual replies"."""
    return f"{round(search.rate.value * search.rate.n):,} of {search.rate.n:,} {_list_name(search)}"


class HardenedModels(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-models", "Hardened against triggers"
    job = MINMAX_TRIGGERS
    words = INPUTS
    sources: ClassVar = ()
    stages: ClassVar = {MINMAX_TRIGGERS.name: Stages(others="by folder")}
    terms: ClassVar = {r"\bcontrol\b": ("Control", "the same model, trained as long on clean contexts alone.")}

    def verdict_of(self, metrics: Mapping[str, Estimate]) -> Verdict:
        """Return the targets that known inputs reach in the start, the control and the model of the last round."""
        # Where inputs cannot be typed to other models, each is measured by the search of itself alone.
        is_typed = f"{START}.{EXPLOITABILITY}" in metrics
        figure = EXPLOITABILITY if is_typed else ADAPTIVE
        last = [name.partition(".")[0] for name in metrics if name.endswith(f".{figure}") and not name.startswith(CONTROL)][-1]
        marks = {model: metrics[f"{model}.{figure}"] for model in (START, CONTROL, last)}
        shares = {model: number(SHARE, estimate.value) for model, estimate in marks.items()}
        who = "The best of all known inputs makes" if is_typed else "A search of it makes"
        sure = certainly(metrics[f"{last}.{LESS_THAN_CONTROL}"], "more", "fewer") if is_typed else ""
        sentence = (
            f"{who} the hardened model say {shares[last]} of the targets, before the hardening {shares[START]}, "
            f"after as much training on clean contexts alone {shares[CONTROL]}{sure}.{caveat(*marks.values(), unit='targets')}"
        )
        metric = SHARE._replace(title="Targets reached by known inputs" if is_typed else "Targets found anew")
        return Verdict(sentence=sentence, metric=metric, marks=marks)
