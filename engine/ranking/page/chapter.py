"""The chapter of evaluations of rankers, and the views that it shares with the chapter of attacks (`searches.py`).

Drawings: first places by rule, by shared words (figure 1) and by kept words (figure 2), and ranks before and after. The viewer
shows attacked contexts: every candidate with its changed words marked, and its rank before and after.

Contexts and replies are hostile text: they are made visible before they are shown, and the page escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from parley.engine.core.page import plots
from parley.engine.core.page.content import (
    Chapter,
    Figure,
    Item,
    Piece,
    Run,
    Section,
    ShownRun,
    Verdict,
    fill,
    line,
    tables_of,
)
from parley.engine.core.page.page import SHARE, caveat, certain_sign, first_marks, number, others_below
from parley.engine.core.stats.statistics import NOTHING, Estimate, Row
from parley.engine.core.tables.table import EstimateTable, figure
from parley.engine.perturb.replies.catalogue import rules as known_rules
from parley.engine.perturb.strategies.texts import ChangeKind, spans
from parley.engine.ranking.metrics.erasure import Bin, figure_1
from parley.engine.ranking.metrics.ranking import CHANGE, CLEAN, RankedRows, describe, first_place, metric_of
from parley.engine.ranking.metrics.searched import expected_ranks, rank_movement
from parley.engine.ranking.verbs.prepared import not_scored
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING, RANKERS, RULES, SEVERAL, SIZE
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible
from parley.envs.ranking.groups import CandidateGroup, CandidateKind

_MOST_RANKERS = 4
"""Rankers of a drawing, one for each colour."""
_LARGEST = 420.0
"""Area of a dot for all replies of a row, in square points."""


@dataclass(frozen=True, kw_only=True)
class RankersRun(ShownRun):
    """A run on rankers; its items are contexts.

    Args:
        estimates: all metrics; the page shows some, the tables show all.
        tables: by heading.
        not_scored: sentences on missing scores.
    """

    unit = "contexts"
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    tables: Mapping[str, EstimateTable] = field(default_factory=dict)
    not_scored: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class RankingRun(RankersRun):
    """A run of an evaluation of rankers.

    Args:
        several: True if a group has several right replies.
        rankers: labels of the named rankers.
        controls: labels of the controls.
    """

    several: bool = False
    rankers: Sequence[str] = ()
    controls: Sequence[str] = ()

    @cached_property
    def ranked(self) -> RankedRows:
        """The rows by ranker and rule."""
        return RankedRows(self.rows)

    @property
    def situations(self) -> dict[str, bool]:
        """No rule and each rule, and True if it keeps labels."""
        return {CLEAN: True, **self.ranked.rules}

    def first_place(self, ranker: str, rule: str, ending: str = "") -> Estimate:
        """Return how often a ranker puts a right reply first under a rule; an ending names another figure."""
        kind = metric_of(first_place(self.several), self.situations[rule])
        return self.estimates.get(f"{kind}{ending}.{ranker}.{rule}", NOTHING)


RankersRunT = TypeVar("RankersRunT", bound=RankersRun)


def measured_section(
    runs: Sequence[RankersRunT],
    figures_of: Callable[[RankersRunT], Sequence[Figure]],
    items_of: Callable[[RankersRunT], Mapping[str, Sequence[Item]]],
) -> Section:
    """Return all runs, and of the finished ones the notes, tables, drawings and items.

    Args:
        runs: of the chapter.
        figures_of: returns the drawings of a run.
        items_of: returns the contexts of a run by heading, the first of each an example.
    """
    done = [run for run in runs if run.done and run.metrics]
    items = {name: contexts for run in done for name, contexts in items_of(run).items()}
    return Section(
        notes=[f"{run.name}: {visible(note)}" for run in done for note in run.not_scored],
        measured=runs,
        tables=tables_of([(run.name, run.tables) for run in done]),
        figures=[figure for run in done for figure in figures_of(run)],
        items=[item for contexts in items.values() for item in contexts],
        chosen={f"{name}: an example": contexts[0] for name, contexts in items.items() if contexts},
    )


def figures_of(run: RankingRun) -> list[Figure]:
    """Return all drawings of an evaluation."""
    rankers = [ranker for ranker in run.rankers if (ranker, CLEAN) in run.ranked.scores][:_MOST_RANKERS]
    if not rankers:
        return []
    figures = [_by_rule(run, rankers), *_by_overlap(run, rankers), *_by_words(run, rankers)]
    return figures + [_movement(run, rankers[0], rule) for rule in run.ranked.rules]


def _by_rule(run: RankingRun, rankers: Sequence[str]) -> Figure:
    series = {
        visible(ranker): {visible(rule): measured for rule in run.situations if (measured := run.first_place(ranker, rule)).n}
        for ranker in rankers
    }
    spoiling = [visible(rule) for rule, keeps in run.ranked.rules.items() if not keeps]
    caption = f"{run.name}, contexts that the rule changed; bars are 95 % intervals"
    caption += f"; under {', '.join(spoiling)} what is left of the right reply" if spoiling else ""
    drawn = plots.dots_svg(f"{run.name}, first places", "% of contexts", list(map(visible, run.situations)), series, 100.0)
    return Figure("Right replies in the first place", caption, Markup(drawn))


def _by_overlap(run: RankingRun, rankers: Sequence[str]) -> list[Figure]:
    """Draw figure 1: first places on clean candidates by alpha, and by beta."""
    groups = _groups(run.ranked)
    dialogues = {str(number): dialogue for number, dialogue in run.ranked.clusters.items()}
    by_alpha, by_beta = dict[str, list[Bin]](), dict[str, list[Bin]]()
    for ranker in rankers:
        metrics = run.ranked.measured(ranker, CLEAN)
        bins = figure_1(groups, replace(metrics, keys=metrics.keys.astype(str)), first_place(run.several), dialogues)
        by_alpha[visible(ranker)], by_beta[visible(ranker)] = bins
    drawings = (
        ("alpha", "words that context and right reply share, of the fewer of the two", by_alpha),
        ("beta", "words that context and a wrong reply share, at most, by those of the right reply", by_beta),
    )
    return [
        Figure(
            f"First places by {name}",
            f"{run.name}, candidates as they are; {name}: {meaning}; bars are 95 % intervals",
            Markup(_binned_svg(f"{run.name}, by {name}", series)),
        )
        for name, meaning, series in drawings
    ]


def _binned_svg(title: str, series: Mapping[str, Sequence[Bin]]) -> str:
    first = next(iter(series.values()))
    names = [f"{part.low:g} or more" if np.isinf(part.high) else f"{part.low:g} to {part.high:g}" for part in first]
    drawn: dict[str, dict[str, Estimate]] = {
        label: {name: part.estimate for name, part in zip(names, bins, strict=True) if part.estimate.n}
        for label, bins in series.items()
    }
    return plots.dots_svg(title, "% of contexts", names, drawn, 100.0)


def _by_words(run: RankingRun, rankers: Sequence[str]) -> list[Figure]:
    """Draw figure 2: first places with only the most important words of right replies, relative to whole replies."""
    points_by_ranker = {visible(ranker): run.ranked.kept_points(ranker) for ranker in rankers}
    series = {
        label: [(point.k, point.relative) for point in points]
        for label, points in points_by_ranker.items()
        if points and points[0].relative.n
    }
    if not series:
        return []
    caption = (
        f"{run.name}, candidates as they are; right replies of which only the words stay whose erasure costs most; "
        "1 is as often first as with whole replies; bands are 95 % intervals"
    )
    title = f"{run.name}, first places by words that stay"
    drawn = plots.budget_svg(title, "words that stay", series, "relative to whole replies")
    return [Figure("First places with a few words alone", caption, Markup(drawn))]


def _groups(ranked: RankedRows) -> list[CandidateGroup]:
    return [
        CandidateGroup(
            str(number),
            tuple(tuple(turn.split()) for turn in row["context"]),
            tuple(tuple(text.split()) for text in row["candidates"]),
            tuple(row["labels"]),
            tuple(map(CandidateKind, row["kinds"])),
            (True,) * len(row["labels"]),
        )
        for number, row in enumerate(ranked.rows)
    ]


def _movement(run: RankingRun, ranker: str, rule: str) -> Figure:
    counts = rank_movement(run.ranked, ranker, rule)
    title = f"{run.name}, ranks under {visible(rule)}"
    caption = f"{run.name}, {visible(ranker)}: {counts.sum():,} changed replies; areas are shares of a rank before"
    drawn = plots.svg((3.6, 3.4), title, lambda axes: draw_movement(axes, counts))
    return Figure(f"Ranks before and after {visible(rule)}", caption, Markup(drawn))


def draw_movement(axes: Axes, counts: np.ndarray) -> None:
    """Draw the number of replies from each rank to each other as dots; replies on the line stayed.

    Args:
        axes: to draw on.
        counts: (n, n) by rank before and after.
    """
    size = len(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    before, after = np.nonzero(counts)
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.plot([1, size], [1, size], color=plots.MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.scatter(after + 1, before + 1, s=_LARGEST * shares[before, after], color=plots.SERIES[1], linewidths=0)
    axes.set_xlim(0.4, size + 0.6)
    axes.set_ylim(size + 0.6, 0.4)
    axes.set_xticks(range(1, size + 1))
    axes.set_yticks(range(1, size + 1))
    axes.set(xlabel="rank after", ylabel="rank before")


NUM_SHOWN = 20
"""Contexts of a rule in the viewer."""
_MOST_WORDS = 8
"""Words of a reply whose importance is shown."""
_NO_WORDS = "(says nothing)"


@dataclass(frozen=True)
class RankedCandidate:
    """A reply under a rule, with its ranks by every named ranker, such as "1" or "1 to 4"."""

    pieces: list[Piece]
    is_right: bool
    is_changed: bool
    ranks: list[str]


@dataclass(frozen=True)
class AttackedContext:
    """A context under one rule or attack, candidates by their new rank.

    Args:
        key: of the context.
        context: its turns.
        rankers: those whose ranks are shown.
        candidates: by the first ranker's rank after the attack.
        before: rank of the attacked reply by the first ranker.
        after: the same after the attack.
        num_changed: changed words of all replies.
        reply: the attacked reply, before the attack.
        fooled: True if a right ranking became wrong, or if the rest of a spoiled right reply is still first.
        remarks: further notes.
        importance: of words of that reply to the first ranker, the most important ones first, each with its figure as text;
            empty if it was not measured.
    """

    key: str
    context: list[str]
    rankers: list[str]
    candidates: list[RankedCandidate]
    before: float
    after: float
    num_changed: int
    reply: str
    fooled: bool
    remarks: Sequence[str] = ()
    importance: Sequence[tuple[str, float, str]] = ()


def example_items(run: RankingRun, rule: str) -> list[Item]:
    """Return contexts that a rule changed and every named ranker scored, those that fooled the first ranker first."""
    examples = [
        example
        for number in range(len(run.ranked.rows))
        if run.ranked.changed[number, rule] and (example := read_example(run, number, rule)) is not None
    ]
    examples.sort(key=lambda example: (not example.fooled, stable_hash("report", example.key)))
    return [context_item(f"{run.name}, {visible(rule)}", example) for example in examples[:NUM_SHOWN]]


def read_example(run: RankingRun, number: int, rule: str) -> AttackedContext | None:
    """Return a context under one rule; None without a right reply, or without scores of a ranker.

    Args:
        run: of the evaluation.
        number: index of the context in its rows.
        rule: that changed it.
    """
    row = run.ranked.rows[number]
    scores = {(entry["model"], entry["rule"]): entry["scores"] for entry in row["ranked"]}
    pairs = [(scores.get((ranker, CLEAN)), scores.get((ranker, rule))) for ranker in run.rankers]
    if not any(row["labels"]) or any(None in pair for pair in pairs):
        return None
    ranks = [(expected_ranks(before or ()), expected_ranks(after or ())) for before, after in pairs]
    before, after = ranks[0]
    (attack,) = (attack for attack in row["attacks"] if attack["rule"] == rule)
    changed = {reply["place"]: reply["text"] for reply in attack["changed"]}
    right = [index for index, label in enumerate(row["labels"]) if label]
    keeps_labels = run.ranked.rules[rule]
    # Of several right replies the one with the best rank; where labels change, the one that was changed.
    relevant = [index for index in right if keeps_labels or index in changed] or right
    about = min(relevant, key=lambda index: before[index])
    return AttackedContext(
        key=visible(str(row["item_key"])),
        context=[shown_text(turn) for turn in row["context"]],
        rankers=[visible(ranker) for ranker in run.rankers],
        candidates=[
            RankedCandidate(
                marked(row["candidates"][index], changed.get(index, row["candidates"][index])),
                index in right,
                index in changed,
                [rank_change(early[index], late[index]) for early, late in ranks],
            )
            for index in sorted(range(len(after)), key=lambda index: (after[index], index))
        ],
        before=float(before[about]),
        after=float(after[about]),
        num_changed=sum(run.ranked.changed[number, rule].values()),
        reply=shown_text(row["candidates"][about]),
        fooled=bool(before[about] == 1 and after[about] > 1) if keeps_labels else bool(after[about] == 1),
        importance=_importance(row, run.rankers[0], about),
    )


def context_item(group: str, example: AttackedContext) -> Item:
    """Return an attacked context as an item of the viewer."""
    ranks = rank_change(example.before, example.after)
    return Item(
        kind="context",
        key=example.key,
        group=group,
        summary=line("rank {}: <q>{}</q>", ranks, example.reply),
        tags=("fooled" if example.fooled else "not fooled",),
        values={"rank before": example.before, "rank after": example.after, "words changed": example.num_changed},
        body=fill("ranking/page/example.html", item=example, moved=ranks),
    )


def _importance(row: Row, ranker: str, index: int) -> list[tuple[str, float, str]]:
    """Return the words of a reply by their importance to a ranker."""
    for reading in row.get("readings") or ():
        if (reading["model"], reading["place"]) == (ranker, index):
            words = sorted(zip(reading["words"], reading["importance"], strict=True), key=lambda pair: -pair[1])
            return [(visible(word), value, figure(value)) for word, value in words[:_MOST_WORDS]]
    return []


def rank_change(before: float, after: float) -> str:
    """Return ranks before and after, such as "1 \N{RIGHTWARDS ARROW} 4"; a tie has half ranks."""
    return f"{before:g}" if before == after else f"{before:g} \N{RIGHTWARDS ARROW} {after:g}"


def shown_text(text: str) -> str:
    """Return a turn or a reply as the page shows it."""
    return visible(text) or _NO_WORDS


def marked(before: str, after: str) -> list[Piece]:
    """Return a reply in pieces, with marks on removed and new words."""
    pieces = []
    for span in spans(((tuple(before.split()),),), ((tuple(after.split()),),)):
        if span.kind is ChangeKind.SAME:
            pieces.append(Piece(visible(" ".join(span.before))))
        else:
            sides = (("before", span.before), ("after", span.after))
            pieces += [Piece(visible(" ".join(words)), side) for side, words in sides if words]
    return pieces


_FIRST = SHARE._replace(
    title="Right reply first", definition="share of the contexts; under a rule the reply as the rule left it"
)

Runs = Sequence[RankingRun]


class Rankings(Chapter[Runs]):
    """The chapter of evaluations of rankers."""

    name, title = "ranking", "Rankers"
    jobs = (EVALUATE_RANKING.name,)
    terms: ClassVar = {
        r"\bR\d*@\d": ("R@k", "share of the right replies at rank k or better; R10@1: first of ten candidates."),
        r"\bA\d*@\d": ("A@k", "the same for what a rule left of the right reply, which is no right one any more."),
        r"\bMAP\b|\bMRR\b|\bAAP\b|\bARR\b": (
            "MAP, MRR",
            "mean average precision; mean of 1 / rank of the first right reply. AAP and ARR: under a rule.",
        ),
        r"[Uu]ntouched": ("Untouched", "contexts in which a rule found nothing to change."),
        r"[Tt]ies": ("Ties", "candidates of one score have no order: figures are means over all of their orders."),
        r"response-only": ("response-only", "the same ranker, which is shown candidates and no context."),
        r"\balpha\b|\bbeta\b": (
            "alpha, beta",
            "how many words the right reply shares with the context; how many more or fewer a wrong one shares.",
        ),
    }

    def collect(self, runs: Sequence[Run]) -> Runs | None:
        return [_evaluation(run) for run in runs if run.rows] or None

    def verdict(self, runs: Runs) -> Verdict | None:
        """Answer for the first evaluation: the best ranker, its costliest rules, and the best control."""
        measured = [run for run in runs if _by_ranker(run, run.rankers)]
        if not measured:
            return None
        first = measured[0]
        clean = _by_ranker(first, first.rankers)
        best = max(clean, key=lambda ranker: clean[ranker].value)
        sentences = [f"{visible(best)} puts a right reply first in {number(SHARE, clean[best].value)} of the contexts"]
        marks, leaned = {f"{visible(best)}, {CLEAN}": clean[best]}, [clean[best]]
        for keeps_labels in (True, False):
            figures = _by_rule_of(first, best, keeps_labels)
            marks |= {f"{visible(best)}, {visible(rule)}": estimate for rule, estimate in figures.items()}
            if worst := _worst(first, best, keeps_labels):
                leaned.append(figures[worst])
                share = number(SHARE, figures[worst].value)
                explained = f"{worst} ({known_rules.summary(worst)})" if worst in set(known_rules) else visible(worst)
                sentences.append(
                    f"under {explained} in {share} of those that it changes"
                    if keeps_labels
                    else f"it still puts first in {share} what {explained} leaves of the right reply"
                )
        controls = _by_ranker(first, first.controls)
        control = max(controls, key=lambda ranker: controls[ranker].value, default=None)
        if control is not None:
            marks[f"{visible(control)}, {CLEAN}"] = controls[control]
            share = number(SHARE, controls[control].value)
            sentences.append(f"the best control, {visible(control)}, is right in {share}")
        return Verdict(
            sentence=f"{'; '.join(sentences)}.{caveat(*leaned, unit='dialogues')}{others_below(measured)}",
            metric=_FIRST,
            marks=first_marks(marks),
        )

    def render(self, runs: Runs) -> Section:
        return measured_section(runs, figures_of, _items_of)


def _items_of(run: RankingRun) -> dict[str, list[Item]]:
    return {f"{run.name}, {visible(rule)}": example_items(run, rule) for rule in run.ranked.rules}


def _evaluation(run: Run) -> RankingRun:
    rankers: Mapping[str, Mapping[str, bool]] = run.summary.get(RANKERS, {})
    named = [label for label, spec in rankers.items() if not spec["is_control"]]
    keeps: Mapping[str, bool] = run.summary.get(RULES, {})
    several = bool(run.summary.get(SEVERAL, False))
    first = first_place(several)
    shown = [f"{first}.{label}.{CLEAN}" for label in rankers]
    shown += [f"{metric_of(first, keeps[rule])}.{label}.{rule}" for label in named for rule in keeps]
    return RankingRun.of(
        run,
        # The tables show all others.
        metrics={name: run.metrics[name] for name in shown if name in run.metrics},
        legend={name: describe(name, run.summary.get(SIZE)) for name in shown},
        estimates=run.metrics,
        tables=EVALUATE_RANKING.tables(run.folder) if run.metrics else {},
        several=several,
        rankers=named,
        controls=[label for label in rankers if label not in named],
        not_scored=not_scored(run.summary),
    )


def _by_ranker(run: RankingRun, rankers: Sequence[str]) -> dict[str, Estimate]:
    """Return how often rankers put a right reply first on clean candidates, without those that have no scores."""
    return {ranker: estimate for ranker in rankers if (estimate := run.first_place(ranker, CLEAN)).n}


def _by_rule_of(run: RankingRun, ranker: str, keeps_labels: bool) -> dict[str, Estimate]:
    """Return how often a ranker puts a right reply first, by rules of one sort."""
    rules = [rule for rule, keeps in run.ranked.rules.items() if keeps is keeps_labels]
    return {rule: estimate for rule in rules if (estimate := run.first_place(ranker, rule)).n}


def _worst(run: RankingRun, ranker: str, keeps_labels: bool) -> str | None:
    """Return the rule that certainly costs a ranker most, or whose spoiled replies it puts first most often."""
    figures = _by_rule_of(run, ranker, keeps_labels)
    if not keeps_labels:
        return max(figures, key=lambda rule: figures[rule].value, default=None)
    changes = {rule: run.first_place(ranker, rule, CHANGE) for rule in figures}
    lowered = [rule for rule, change in changes.items() if certain_sign(change) < 0]
    return min(lowered, key=lambda rule: changes[rule].value, default=None)
