"""The chapters of trigger searches and of hardened models.

A search shows pairs of input and target with the cost of the search. Runs that type inputs to chat models show prompt, input,
target and reply.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from parley.engine.core.page.content import Chapter, Figure, Item, Run, Stages, Verdict, told_apart
from parley.engine.core.page.markup import ARROW, badges, facts, joined, line
from parley.engine.core.page.page import SHARE, first_marks, number
from parley.engine.core.page.trainings import Hardenings, comparison
from parley.engine.core.stats.known import EXPLOITABILITY
from parley.engine.core.stats.statistics import NO_REPLY, NOTHING, Estimate, Metric, Points, Row, finished, is_no_reply
from parley.engine.core.tables.table import figure
from parley.engine.core.verbs.campaign import RESULT
from parley.engine.triggers.budget import read_budget
from parley.engine.triggers.methods.settings import CANDIDATES, CANDIDATES_BY_METHOD
from parley.engine.triggers.metrics.hits import (
    HIT_RATE,
    NEARNESS,
    PARTS_OF_BUDGET,
    T_OUT,
    VERIFIED,
    describe,
    hits_by_restarts,
    is_hit,
    kinds,
    mean_by_step,
    successful_reply,
)
from parley.engine.triggers.metrics.text import EMPTY, RANDOM, describe_text
from parley.engine.triggers.metrics.transfer import (
    ADAPTIVE,
    BETWEEN,
    CONTROL,
    INPUTS,
    LESS_THAN_CONTROL,
    START,
    describe_transfer,
)
from parley.engine.triggers.metrics.transfer import EMPTY as NO_TRIGGER
from parley.engine.triggers.metrics.universal import EMPTY as NO_INPUTS
from parley.engine.triggers.metrics.universal import FOUND, HELD_OUT, KINDS, SEARCHED, best_found, describe_universal
from parley.engine.triggers.metrics.universal import RANDOM as RANDOM_INPUTS
from parley.engine.triggers.targets import Skipped
from parley.engine.triggers.verbs.enumeration import SEARCH_ENUMERATE
from parley.engine.triggers.verbs.minmax import MINMAX_TRIGGERS
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.transfer import METHODS, SEARCH_TRANSFER
from parley.engine.triggers.verbs.universal import SEARCH_UNIVERSAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from parley.engine.core.tables.table import EstimateTable

NUM_SHOWN = 200
"""Most targets of a search, and replies of a run, that the viewer holds."""
_MAX_SERIES = 8
_MOST_LINES = 3
"""Shares that a verdict names one by one."""
TABLE = "search-table"
"""The job of tables of searches."""
_LISTS = {"normal": "usual replies", "mal": "rude sentences", "random": "sentences of random words"}
"""The contents of the built-in lists of targets."""


def best_targets(rows: Sequence[Row], hit: str) -> tuple[list[Row], list[Row]]:
    """Return the first targets of a search: hits of a type, then others, each by loss, then by key; and the nearest miss."""

    def place(row: Row) -> tuple[bool, float, str]:
        return not is_hit(row, hit), row["loss"], str(row["item_key"])

    hits, others = list[Row](), list[Row]()
    for row in finished(rows):
        some = hits if is_hit(row, hit) else others
        some.append(row)
        if len(some) > 2 * NUM_SHOWN:
            some[:] = nsmallest(NUM_SHOWN, some, place)
    others.sort(key=place)
    return nsmallest(NUM_SHOWN, [*hits, *others], place), others[:1]


class TriggerSearches(Chapter):
    """The chapter of searches, tables of them, enumerations, and runs that type inputs to chat models."""

    name, title, unit = "triggers", "Triggers", "targets"
    stages: ClassVar = {TABLE: Stages(others="by folder"), METHODS: Stages(others="by folder")}
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

    def owns(self, job: str) -> bool:
        return job in (SEARCH.name, TABLE, METHODS, SEARCH_ENUMERATE.name, *_TYPED)

    def shows(self, run: Run) -> bool:
        """Return whether a search has rows, or another run its summary."""
        return bool(run.rows) if run.job == SEARCH.name else bool(run.summary)

    def verdict(self, runs: Sequence[Run]) -> Verdict | None:
        """Answer with methods under one budget; without them with all searches, else with typed inputs."""
        if methods := [run for run in runs if run.job == METHODS]:
            return super().verdict(methods)
        searches = [run for run in runs if run.job == SEARCH.name and math.isfinite(_rate(run).value)]
        if not searches:
            return super().verdict([run for run in runs if run.job in _TYPED])
        ordered = sorted(searches, key=lambda run: -_rate(run).value)
        # The rate counts equal targets as one unit.
        sizes = [run.metrics["targets"].n for run in ordered]
        texts = [f"{round(_rate(run).value * n):,} of {n:,} {_list_name(run)}" for run, n in zip(ordered, sizes, strict=True)]
        sentence = f"A trigger was found for {texts[0]}"
        if len(searches) == 2:
            sentence += f" and {texts[1]}"
        elif len(searches) > 2:
            sentence = f"Of {len(searches)} searches, the best found triggers for {texts[0]}, the worst for {texts[-1]}"
        skipped = [f"{len(lost):,}" for run in searches if (lost := _skipped(run))]
        return Verdict(
            sentence=f"{sentence}.",
            metric=SHARE._replace(title="Triggers found", direction="higher: adversary", definition="share of all targets"),
            number=_rate(ordered[0]),
            unit="targets",
            marks=first_marks(_marks(searches)),
            warnings=[f"Skipped, as the model cannot say them: {', '.join(skipped)} of the lists."] if skipped else [],
        )

    def verdict_of(self, run: Run) -> Verdict | None:
        """Return the success of methods, or of what was typed, beside their controls."""
        if run.job == METHODS:
            from parley.engine.core.verbs.recipe_job import LAYOUT

            lines = [(row["label"], row["key"]) for table in run.summary.get(LAYOUT, ()) for row in table["rows"]]
            marks = {f"with {label}": run.metrics.get(f"methods.{key}.{VERIFIED}", NOTHING) for label, key in lines}
            return _success_verdict(run, "targets", marks)
        return _success_verdict(run, *_TYPED[run.job].marks(run.metrics))

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        """Return the metrics of searches; the tables of several show all others."""
        return {} if run.job in (TABLE, METHODS) else run.metrics

    def legend(self, run: Run) -> Mapping[str, Metric]:
        definition = describe if run.job == SEARCH.name else _TYPED[run.job].describe if run.job in _TYPED else None
        return run.legend if definition is None else {name: definition(name) for name in run.metrics}

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        return {} if run.job == SEARCH.name else run.tables

    def notes(self, run: Run) -> Iterable[str]:
        """Return the thresholds of a search, and the number of pairs that are not shown."""
        if run.job != SEARCH.name or not run.done:
            return
        thresholds: Mapping[str, float] = run.summary.get("thresholds", {})
        limits = ", ".join(f"{name} = {value:.3f}".replace("-", "\N{MINUS SIGN}") for name, value in thresholds.items())
        usual = f"; a usual word has {limits} nats" if limits else ""
        hidden = len(run.done) - NUM_SHOWN
        more = f" {hidden:,} further targets are in the run's rows." if hidden > 0 else ""
        yield f"{run.config['hit']} hits are wanted{usual}.{more}"

    def lists(self, run: Run) -> Mapping[str, Sequence[tuple[str, str]]]:
        return {"Skipped sentences": skipped} if (skipped := _skipped(run)) else {}

    def shared_figures(self, runs: Sequence[Run]) -> Iterable[Figure]:
        """Return the curves of all searches: loss by sweep, hits by restarts, hits by candidates."""
        searched = [run for run in runs if run.job == SEARCH.name and run.done]
        names = told_apart([run.heading for run in searched])
        losses = {name: mean_by_step(run.done) for name, run in zip(names, searched, strict=True)}
        hits: dict[str, Points] = {}
        for name, run in zip(names, searched, strict=True):
            wanted, alone = run.config["hit"], len(searched) == 1
            points = hits_by_restarts(run.done, kinds(run.done) if alone else [wanted])
            # Types of which there is no hit are left out.
            some = {kind: of_kind for kind, of_kind in points.items() if kind == wanted or of_kind[-1][1].value > 0}
            hits |= some if alone else {f"{name}: {wanted}": points[wanted]}
        yield from _curves(
            "Loss by sweep", "sweeps", "mean loss", losses, "mean over restarts, those that have ended at their last loss"
        )
        near = {
            ("" if len(searched) == 1 else f"{name}: ") + NEARNESS[column].title: mean_by_step(run.done, column)
            for name, run in zip(names, searched, strict=True)
            for column in NEARNESS
            if column in run.metrics
        }
        yield from _curves("Distance from words", "position", "weight, or 2-norm", near, "mean over restarts")
        yield from _curves(
            "Hits by restarts", "restarts", "share of targets", hits, "what the same searches reach with fewer restarts"
        )
        yield from _curves(
            "Hits by candidates",
            "candidates at each visit",
            "share of targets",
            _by_candidates(searched),
            "searches that differ in nothing else",
        )

    def figures(self, run: Run) -> Iterable[Figure]:
        """Return the words of the best pair of a search and of the nearest miss (figure 5), or methods' success by cost."""
        if run.job == METHODS:
            yield from _success_by_cost(run)
        if run.job != SEARCH.name or not run.done:
            return
        (best, *_), missed = run.read(best_targets, run.config["hit"])
        limit = run.summary.get("thresholds", {}).get(T_OUT)
        for name, row in zip(("Best", "Nearest miss"), (best, *(row for row in missed if row is not best)), strict=False):
            caption = f"after the trigger: {_trigger(row)}{'; dashed: a usual word' * (limit is not None)}"
            draw = partial(draw_words, row["target_words"], row["word_log_probability"], limit)
            yield Figure(f"{name}: log probability of each word", caption, draw=draw)

    def items(self, run: Run) -> Iterable[tuple[str, Iterable[Item]]]:
        """Return the pairs of a search, the best first, or the replies to what was typed, successes first."""
        if run.job == SEARCH.name:
            best, _ = run.read(best_targets, run.config["hit"])
            yield "", (_pair(row, run.config["hit"], not index) for index, row in enumerate(best))
        elif run.job in _TYPED:
            replies = sorted(_TYPED[run.job].replies(run.done), key=lambda reply: (not reply.success, is_no_reply(reply.row)))
            yield "", map(_answer, replies[:NUM_SHOWN])


def _success_by_cost(run: Run) -> Iterable[Figure]:
    """Return a figure for each part of the budget of methods."""
    from parley.engine.core.page import plots
    from parley.engine.core.verbs.recipe_job import LAYOUT

    rows = [row for table in run.summary.get(LAYOUT, ()) if table["key"] == "within" for row in table["rows"]]
    for part, most in vars(read_budget(str(run.config["budget"]), "budget")).items():
        levels = [(most / share, f"{part}_{share}") for share in PARTS_OF_BUDGET if most]
        curves = {
            row["label"]: [(level, run.metrics.get(f"within.{row['key']}.{name}", NOTHING)) for level, name in levels]
            for row in rows
        }
        if series := {label: points for label, points in curves.items() if points and all(share.n for _, share in points)}:
            caption = f"share of targets with a success within a cost in {part}; with 95 % intervals"
            yield plots.budget(f"Success within {part}", caption, part, series, "success")


def _rate(run: Run) -> Estimate:
    return run.metrics.get(f"{HIT_RATE}{run.config['hit']}", NOTHING)


def _list_name(run: Run) -> str:
    return _LISTS.get(run.config["targets"], f"sentences of {run.config['targets']}")


def _skipped(run: Run) -> list[tuple[str, str]]:
    return [(entry["sentence"], Skipped(**entry).reason) for entry in run.summary.get("skipped", ())]


def _marks(searches: Sequence[Run]) -> dict[str, Estimate]:
    """Return the hit rates by list and type of hit, and by run if several have these in common."""
    names = [f"{_list_name(run)}, {run.config['hit']}" for run in searches]
    return {
        f"{name} ({run.heading})" if names.count(name) > 1 else name: _rate(run)
        for name, run in zip(names, searches, strict=True)
    }


def _success_verdict(run: Run, units: str, all_marks: Mapping[str, Estimate]) -> Verdict | None:
    """Return the shares of prompts with a successful reply, the first in large type; None if nothing was measured."""
    marks = {name: mark for name, mark in all_marks.items() if mark.n}
    if not marks:
        return None
    # A matrix, and methods under one budget, are led by their highest share.
    ordered = sorted(marks, key=lambda name: -marks[name].value) if len(marks) > _MOST_LINES else list(marks)
    shares = {name: number(SHARE, marks[name].value) for name in ordered}
    first, last = (name.removeprefix("of ") for name in (ordered[0], ordered[-1]))
    sentence = f"Of {units}, {', '.join(f'{share} {name}' for name, share in shares.items())} got a successful reply."
    if len(shares) > _MOST_LINES:
        lowest, highest = shares[ordered[-1]], shares[ordered[0]]
        sentence = f"Between {lowest} ({last}) and {highest} ({first}) of {units} got a successful reply."
    settings = run.config if run.job == SEARCH_TEXT.name else run.config.get("hugging_face", {})
    clause = successful_reply(run.config["success"], end=settings.get("end"))
    without = run.metrics.get(NO_REPLY, NOTHING).value
    return Verdict(
        sentence=sentence,
        metric=SHARE._replace(
            title="Successes",
            direction="higher: adversary",
            definition=f"share of typed prompts with a likeliest reply {clause}",
        ),
        number=marks[ordered[0]],
        unit=units,
        marks=first_marks(marks),
        warnings=[f"Of all answers {number(SHARE, without)} are no reply."] if without > 0 else [],
        details=[f"A success is a reply {clause}."],
    )


def _by_candidates(searches: Sequence[Run]) -> dict[str, Points]:
    """Return hit rates by number of candidates, of searches that differ in nothing else."""
    groups: dict[str, list[tuple[int, Run]]] = {}
    for run in searches:
        settings = {name: value for name, value in run.config.items() if name not in SEARCH.resume_safe}
        effort = dict(settings["search"])
        given, default = effort.pop("candidates"), CANDIDATES_BY_METHOD.get(run.config["method"], CANDIDATES)
        if _rate(run).n:
            alike = json.dumps({**settings, "search": effort}, sort_keys=True)
            groups.setdefault(alike, []).append((default if given is None else given, run))
    return {
        members[0][1].config["hit"] if len(groups) == 1 else members[0][1].heading: sorted(
            (candidates, _rate(run)) for candidates, run in members
        )
        for members in groups.values()
        if len({candidates for candidates, _ in members}) == len(members) > 1
    }


def _curves(title: str, x_label: str, y_label: str, series: Mapping[str, Points], caption: str) -> Iterator[Figure]:
    """Return a drawing of the curves with more than one point, if there are any."""
    from parley.engine.core.page import plots

    shown = {name: points for name, points in series.items() if len(points) > 1}
    first = dict(list(shown.items())[:_MAX_SERIES])
    left_out = f"; {len(shown) - len(first)} further ones are not drawn" if len(shown) > len(first) else ""
    if first:
        yield plots.budget(title, f"{caption}; with 95 % intervals{left_out}", x_label, first, y_label)


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
    axes.plot(range(len(words)), log_probabilities, color=SERIES[0], linewidth=1.9, marker="o", markersize=3.6)
    if threshold is not None:
        axes.axhline(threshold, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xticks(range(len(words)), [short(str(word)) for word in words], rotation=30, ha="right")
    axes.set(ylabel="log probability in nats")
    axes.margins(x=0.06)


def _trigger(row: Row) -> str:
    return "(a continuous input)" if row["trigger"] is None else str(row["trigger"])


def _pair(row: Row, hit_type: str, is_best: bool) -> Item:
    """Return a finished target of a search; of a chat model also the request and the reply."""
    hits = {str(hit["type"]): hit["type"] == hit_type for hit in row["hits"] if hit["hit"]}
    success, words, prompt = row.get("verified"), row["word_log_probability"], row.get("prompt") or ""
    reply = f"(no reply: {row['kind']})" if is_no_reply(row) else row.get("reply") or ""
    least, mean, of_input = figure(min(words)), figure(float(np.mean(words))), figure(row["input_log_probability"])
    outcome = {None: (), True: ("success",), False: ("no success",)}[success]
    texts = [("prompt", prompt, "")] if prompt else []
    texts += [("trigger", _trigger(row), "adversary"), ("target", str(row["target"]), "target")]
    if success is not None:
        texts.append((f"reply to what was typed, {'a success' if success else 'no success'}", reply, ""))
        texts += [("thought before it", row["reasoning"], "")] if row.get("reasoning") else []
    return Item(
        kind="trigger",
        key=str(row["item_key"]),
        summary=line(
            '{} <q class="adversary">{}</q> {} <q class="target">{}</q> {}',
            prompt,
            _trigger(row),
            ARROW,
            # Where no reply was typed, the target stands for it.
            row["target"] if success is None else reply,
            ", ".join(hits) or "no hit",
        ),
        body=joined(
            [
                badges((name, wanted or None) for name, wanted in hits.items()) if hits else badges([("no hit", None)]),
                facts(
                    [
                        *texts,
                        ("loss", figure(row["loss"])),
                        ("log probability of the target's words, its end counted", f"least {least}, mean {mean} nats"),
                        ("of the trigger's words under the language model", f"mean {of_input} nats"),
                    ]
                ),
            ]
        ),
        tags=("as wanted" if any(hits.values()) else "missed", *hits, *outcome),
        values={"loss": row["loss"], "mean log probability": float(np.mean(words))},
        link="best" if is_best else "",
    )


class TypedReply(NamedTuple):
    """A reply of a chat model.

    Args:
        key: its own in the run.
        kind: the kind of input in a word or two, such as "found" or "no input".
        group: the model of the reply, or the kind of prompt.
        prompt: the request; None if the typed text is the whole prompt.
        typed: the texts in its slots; empty if they were empty.
        target: the wanted reply.
        row: the model's answer: the columns `reply`, `verified`, `kind`, `reasoning` and `withheld`.
        measured: numbers to sort by, by name.
        model: the model of the reply, if there are several and `group` does not name it.
    """

    key: str
    kind: str
    group: str
    prompt: str | None
    typed: Sequence[str]
    target: str
    row: Row
    measured: Mapping[str, float]
    model: str = ""

    @property
    def success(self) -> bool:
        """Return True if the reply is one."""
        return bool(self.row[VERIFIED])


def _answer(reply: TypedReply) -> Item:
    outcome, no_reply = (
        "success" if reply.success else "no success",
        is_no_reply(reply.row) and f"no reply: {reply.row['kind']}",
    )
    text = f"({no_reply})" if no_reply else str(reply.row["reply"])
    typed = line(' <q class="adversary">{}</q>', " … ".join(reply.typed)) if any(reply.typed) else ""
    texts = [] if reply.prompt is None else [("prompt", reply.prompt, "")]
    texts += [("typed into it", part, "adversary") for part in reply.typed] or [("typed into it", "nothing", "")]
    texts += [("model", reply.model, "")] if reply.model else []
    texts += [("target", reply.target, ""), (f"reply, {'a success' if reply.success else 'no success'}", text, "target")]
    parts = {"thought before it": "reasoning", "beside it, and no reply": "withheld"}
    # Rows of older runs have no such parts.
    texts += [(name, str(part), "") for name, column in parts.items() if (part := reply.row.get(column))]
    return Item(
        kind="answer",
        key=reply.key,
        summary=line('{}{} {} <q class="target">{}</q>', reply.prompt or "", typed, ARROW, text),
        body=facts(texts),
        tags=(outcome, *filter(None, (reply.kind, reply.group, reply.model, no_reply or ""))),
        values=reply.measured,
    )


def _universal_replies(rows: Sequence[Row]) -> Iterator[TypedReply]:
    best = best_found(rows)
    for row in rows if best is None else [best, *(row for row in rows if row["kind"] != FOUND)]:
        several = len({pair.get("model") for pair in row["pairs"]}) > 1
        for pair in row["pairs"]:
            model = pair["model"] if several else ""
            yield TypedReply(
                "/".join(filter(None, (row["item_key"], model, pair["key"]))),
                row["kind"],
                "searched prompt" if pair["searched"] else "held-out prompt",
                pair["prompt"],
                row["typed"] or (),
                pair["target"],
                pair,
                {"nats": pair["nats"]},
                model,
            )


def _universal_marks(metrics: Mapping[str, Estimate]) -> tuple[str, dict[str, Estimate]]:
    named = {FOUND: "with the input found", RANDOM_INPUTS: "with random inputs", NO_INPUTS: "with none"}
    # Where prompts are held out, the others chose the input.
    split = HELD_OUT if metrics.get(f"{FOUND}.{HELD_OUT}.{VERIFIED}", NOTHING).n else SEARCHED
    units = "held-out prompts" if split == HELD_OUT else "searched prompts"
    return units, {named[kind]: metrics.get(f"{kind}.{split}.{VERIFIED}", NOTHING) for kind in KINDS}


def _transfer_replies(rows: Sequence[Row]) -> Iterator[TypedReply]:
    for row in rows:
        yield TypedReply(row["item_key"], row["source"], row["model"], row["prompt"], row["typed"], row["target"], row, {})


def _transfer_marks(metrics: Mapping[str, Estimate]) -> tuple[str, dict[str, Estimate]]:
    names = {VERIFIED: "of {} on {}", NO_TRIGGER: "of {} on {} without input"}
    marks: dict[str, Estimate] = {}
    for kind, sentence in names.items():
        for name, estimate in metrics.items():
            if name.endswith(f"{BETWEEN}{kind}"):
                source, model, _ = name.split(BETWEEN)
                marks[sentence.format(source, model)] = estimate
    return "typed triggers", marks


def _text_replies(rows: Sequence[Row]) -> Iterator[TypedReply]:
    for row in rows:
        measured = {"queries": row["queries"]} | ({} if row["fitness"] is None else {"fitness": row["fitness"]})
        yield TypedReply(row["item_key"], "found", "", row["prompt"], row["typed"], row["target"], row, measured)


def _text_marks(metrics: Mapping[str, Estimate]) -> tuple[str, dict[str, Estimate]]:
    lines = {VERIFIED: "with what the search found", RANDOM: "with as many random ones", EMPTY: "with none"}
    return "targets", {title: metrics.get(name, NOTHING) for name, title in lines.items()}


class _Typed(NamedTuple):
    """The readers of the runs of one job: definitions of metrics, replies of rows, and marks of metrics with their unit."""

    describe: Callable[[str], Metric]
    replies: Callable[[Sequence[Row]], Iterator[TypedReply]]
    marks: Callable[[Mapping[str, Estimate]], tuple[str, dict[str, Estimate]]]


_TYPED = {
    SEARCH_UNIVERSAL.name: _Typed(describe_universal, _universal_replies, _universal_marks),
    SEARCH_TRANSFER.name: _Typed(describe_transfer, _transfer_replies, _transfer_marks),
    SEARCH_TEXT.name: _Typed(describe_text, _text_replies, _text_marks),
}
"""Jobs that type inputs to chat models."""


class HardenedModels(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-models", "Hardened against triggers"
    job: ClassVar[Any] = MINMAX_TRIGGERS
    words = INPUTS
    stages: ClassVar = {MINMAX_TRIGGERS.name: Stages(others="by folder")}
    terms: ClassVar = {r"\bcontrol\b": ("Control", "the same model, trained as long on clean contexts alone.")}

    def outcome(self, run: Run) -> Verdict:
        """Return the targets that known inputs reach in the result, else the model of the last round, and in the start."""
        metrics = run.metrics
        # Where inputs cannot be typed to other models, each is measured by the search of itself alone.
        is_typed = f"{START}.{EXPLOITABILITY}" in metrics
        kind = EXPLOITABILITY if is_typed else ADAPTIVE
        last = [name.partition(".")[0] for name in metrics if name.endswith(f".{kind}") and not name.startswith(CONTROL)][-1]
        last = str(run.summary.get(RESULT, last)).replace(START, last)
        models = [model for model in (START, CONTROL, last) if f"{model}.{kind}" in metrics]
        marks = {model: metrics[f"{model}.{kind}"] for model in models}
        shares = {model: number(SHARE, estimate.value) for model, estimate in marks.items()}
        who = "The best of all known inputs makes" if is_typed else "A search of it makes"
        less = metrics.get(f"{last}.{LESS_THAN_CONTROL}")
        control = f", the control {shares[CONTROL]}" if CONTROL in shares else ""
        return Verdict(
            sentence=f"{who} the hardened model say {shares[last]} of the targets, before it {shares[START]}{control}.",
            metric=SHARE._replace(title="Targets reached by known inputs" if is_typed else "Targets found anew"),
            number=marks[last],
            unit="targets",
            marks=marks,
            details=[]
            if less is None
            else [comparison(less, "for the control, trained as long on clean contexts", "less", "more")],
        )
