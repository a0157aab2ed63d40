"""Evaluations of rankers, from run folders to what their report shows.

Drawings of evaluations of rankers: first places by rule, by shared words (figure 1), and ranks before and after.

Attacked contexts for people to read: every candidate with its changed words marked, and its rank before and after.

Contexts and replies are hostile text: they are made visible before they are shown, and the page escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from parley.engine.core.page import plots
from parley.engine.core.page.content import Chapter, Figure, Item, Piece, Run, Section, Verdict, fill, line
from parley.engine.core.page.page import SHARE, caveat, certain_sign, first_marks, number, others_below
from parley.engine.core.stats.statistics import Estimate, Row
from parley.engine.core.tables.table import figure
from parley.engine.perturb.replies.catalogue import rules as known_rules
from parley.engine.perturb.strategies.texts import ChangeKind, spans
from parley.engine.ranking.metrics.erasure import Bin, figure_1
from parley.engine.ranking.metrics.ranking import CHANGE, CLEAN, RankedRows, describe, first_place, metric_of
from parley.engine.ranking.metrics.searched import expected_ranks, rank_movement
from parley.engine.ranking.page.sections import ShownRanking, measured_section
from parley.engine.ranking.verbs.prepared import not_scored
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING, RANKERS, RULES, SEVERAL, SIZE
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible
from parley.envs.ranking.groups import CandidateGroup, CandidateKind

_MOST_RANKERS = 4
"""Rankers of a drawing: as many as there are colours."""
_LARGEST = 420.0
"""Area of a dot that stands for all replies of a row, in square points."""


def figures_of(evaluation: ShownRanking) -> list[Figure]:
    """All drawings of an evaluation."""
    shown = [ranker for ranker in evaluation.rankers if (ranker, CLEAN) in evaluation.ranked.scores][:_MOST_RANKERS]
    if not shown:
        return []
    found = [_by_rule(evaluation, shown), *_by_overlap(evaluation, shown), *_by_words(evaluation, shown)]
    return found + [_movement(evaluation, shown[0], rule) for rule in evaluation.ranked.rules]


def _by_rule(evaluation: ShownRanking, rankers: Sequence[str]) -> Figure:
    situations = {CLEAN: True, **evaluation.ranked.rules}
    series: dict[str, dict[str, Estimate]] = {visible(ranker): {} for ranker in rankers}
    for ranker in rankers:
        for rule, keeps in situations.items():
            measured = evaluation.metrics.get(f"{metric_of(evaluation.first, keeps)}.{ranker}.{rule}")
            if measured is not None and measured.n:
                series[visible(ranker)][visible(rule)] = measured
    others = [visible(rule) for rule, keeps in evaluation.ranked.rules.items() if not keeps]
    caption = f"{evaluation.name}, contexts that the rule changed; bars are 95 % intervals"
    caption += f"; under {', '.join(others)} what is left of the right reply" if others else ""
    drawn = plots.dots_svg(f"{evaluation.name}, first places", "% of contexts", list(map(visible, situations)), series, 100.0)
    return Figure("Right replies in the first place", caption, Markup(drawn))


def _by_overlap(evaluation: ShownRanking, rankers: Sequence[str]) -> list[Figure]:
    """Figure 1: first places on clean candidates by alpha, and by beta."""
    groups = _groups(evaluation.ranked)
    dialogues = {str(number): dialogue for number, dialogue in evaluation.ranked.clusters.items()}
    found: list[dict[str, list[Bin]]] = [{}, {}]
    for ranker in rankers:
        metrics = evaluation.ranked.measured(ranker, CLEAN)
        bins = figure_1(groups, replace(metrics, keys=metrics.keys.astype(str)), evaluation.first, dialogues)
        for series, of_ranker in zip(found, bins, strict=True):
            series[visible(ranker)] = of_ranker
    told = {
        "alpha": "words that context and right reply share, of the fewer of the two",
        "beta": "words that context and a wrong reply share, at most, by those of the right reply",
    }
    return [
        Figure(
            f"First places by {name}",
            f"{evaluation.name}, candidates as they are; {name}: {what}; bars are 95 % intervals",
            Markup(_binned_svg(f"{evaluation.name}, by {name}", series)),
        )
        for (name, what), series in zip(told.items(), found, strict=True)
    ]


def _binned_svg(title: str, series: Mapping[str, Sequence[Bin]]) -> str:
    first = next(iter(series.values()))
    names = [f"{each.low:g} or more" if np.isinf(each.high) else f"{each.low:g} to {each.high:g}" for each in first]
    drawn: dict[str, dict[str, Estimate]] = {
        label: {name: each.estimate for name, each in zip(names, bins, strict=True) if each.estimate.n}
        for label, bins in series.items()
    }
    return plots.dots_svg(title, "% of contexts", names, drawn, 100.0)


def _by_words(evaluation: ShownRanking, rankers: Sequence[str]) -> list[Figure]:
    """Figure 2: first places when only the most important words of right replies stay, by those with whole replies."""
    found = {visible(ranker): evaluation.ranked.kept_points(ranker) for ranker in rankers}
    series = {label: [(point.k, point.relative) for point in points] for label, points in found.items() if points}
    series = {label: points for label, points in series.items() if points[0][1].n}
    if not series:
        return []
    caption = (
        f"{evaluation.name}, candidates as they are; right replies of which only the words stay whose erasure costs most; "
        "1 is as often first as with whole replies; bands are 95 % intervals"
    )
    title = f"{evaluation.name}, first places by words that stay"
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


def _movement(evaluation: ShownRanking, ranker: str, rule: str) -> Figure:
    moved = rank_movement(evaluation.ranked, ranker, rule)
    title = f"{evaluation.name}, ranks under {visible(rule)}"
    caption = f"{evaluation.name}, {visible(ranker)}: {moved.sum():,} changed replies; areas are shares of a rank before"
    drawn = plots.svg((3.6, 3.4), title, lambda axes: draw_movement(axes, moved))
    return Figure(f"Ranks before and after {visible(rule)}", caption, Markup(drawn))


def draw_movement(axes: Axes, moved: np.ndarray) -> None:
    """Draws how many replies went from each rank to each other one, as dots; those on the line stayed.

    Args:
        axes: where to draw.
        moved: (n, n) counts by rank before and after.
    """
    size = len(moved)
    shares = moved / np.maximum(moved.sum(axis=1, keepdims=True), 1)
    before, after = np.nonzero(moved)
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
"""Contexts of a rule that the viewer holds."""
_MOST_WORDS = 8
"""Words of a reply whose importance is shown."""
_NOTHING_SAID = "(says nothing)"


@dataclass(frozen=True)
class ShownCandidate:
    """A reply as a rule left it, with its ranks by every named ranker: such as "1" or "1 to 4"."""

    pieces: list[Piece]
    is_right: bool
    is_changed: bool
    ranks: list[str]


@dataclass(frozen=True)
class AttackedContext:
    """A context under one rule, candidates by their rank under it.

    Args:
        key: of the context.
        context: its turns.
        rankers: those whose ranks are shown.
        candidates: by the first ranker's rank after the attack.
        before: rank by the first ranker of the reply that the attack is about: the right one, or what is left of it.
        after: under the rule.
        num_changed: words in all.
        reply: the reply that it is about, as it was.
        fooled: whether that went wrong which was right, or what is left of the right reply is still first.
        remarks: what else is told.
        importance: of words of that reply to the first ranker, the most important ones first, each with its figure as text;
            empty where nobody asked.
    """

    key: str
    context: list[str]
    rankers: list[str]
    candidates: list[ShownCandidate]
    before: float
    after: float
    num_changed: int
    reply: str
    fooled: bool
    remarks: Sequence[str] = ()
    importance: Sequence[tuple[str, float, str]] = ()


def example_items(evaluation: ShownRanking, rule: str) -> list[Item]:
    """Contexts that a rule changed, of those that every named ranker scored: first where the first one was fooled."""
    found = [
        example
        for number in range(len(evaluation.ranked.rows))
        if evaluation.ranked.changed[number, rule] and (example := read_example(evaluation, number, rule)) is not None
    ]
    found.sort(key=lambda each: (not each.fooled, stable_hash("report", each.key)))
    return [context_item(f"{evaluation.name}, {visible(rule)}", each) for each in found[:NUM_SHOWN]]


def read_example(evaluation: ShownRanking, number: int, rule: str) -> AttackedContext | None:
    """A context under one rule, ready to be shown; None where it has no right reply, or a ranker gave no scores.

    Args:
        evaluation: the run.
        number: place of the context in its rows.
        rule: that changed it.
    """
    row = evaluation.ranked.rows[number]
    told = [(_scores(row, ranker, CLEAN), _scores(row, ranker, rule)) for ranker in evaluation.rankers]
    if not any(row["labels"]) or any(None in each for each in told):
        return None
    ranks = [(expected_ranks(before or ()), expected_ranks(after or ())) for before, after in told]
    (before, after), changed = ranks[0], _changed(row, rule)
    right = [place for place, label in enumerate(row["labels"]) if label]
    keeps_labels = evaluation.ranked.rules[rule]
    # Of several right replies the one that stands first; where labels change, the one that was changed.
    relevant = [place for place in right if keeps_labels or place in changed] or right
    about = min(relevant, key=lambda place: before[place])
    order = sorted(range(len(after)), key=lambda place: (after[place], place))
    return AttackedContext(
        key=visible(str(row["item_key"])),
        context=[said_by(turn) for turn in row["context"]],
        rankers=[visible(ranker) for ranker in evaluation.rankers],
        candidates=[
            ShownCandidate(
                marked(row["candidates"][place], changed.get(place, row["candidates"][place])),
                place in right,
                place in changed,
                [moved(early[place], late[place]) for early, late in ranks],
            )
            for place in order
        ],
        before=float(before[about]),
        after=float(after[about]),
        num_changed=sum(evaluation.ranked.changed[number, rule].values()),
        reply=said_by(row["candidates"][about]),
        fooled=bool(before[about] == 1 and after[about] > 1) if keeps_labels else bool(after[about] == 1),
        importance=_importance(row, evaluation.rankers[0], about),
    )


def context_item(group: str, example: AttackedContext) -> Item:
    """An attacked context as the viewer has it."""
    ranks = moved(example.before, example.after)
    return Item(
        kind="context",
        key=example.key,
        group=group,
        summary=line("rank {}: <q>{}</q>", ranks, example.reply),
        tags=("fooled" if example.fooled else "not fooled",),
        values={"rank before": example.before, "rank after": example.after, "words changed": example.num_changed},
        body=fill("ranking/page/example.html", item=example, moved=ranks),
    )


def _scores(row: Row, ranker: str, rule: str) -> Sequence[float] | None:
    return next((entry["scores"] for entry in row["ranked"] if (entry["model"], entry["rule"]) == (ranker, rule)), None)


def _importance(row: Row, ranker: str, place: int) -> list[tuple[str, float, str]]:
    """Words of a reply by their importance to a ranker."""
    for each in row.get("readings") or ():
        if (each["model"], each["place"]) == (ranker, place):
            found = sorted(zip(each["words"], each["importance"], strict=True), key=lambda pair: -pair[1])
            return [(visible(word), value, figure(value)) for word, value in found[:_MOST_WORDS]]
    return []


def _changed(row: Row, rule: str) -> dict[int, str]:
    """What a rule left of the replies that it changed, by their places."""
    (attack,) = (attack for attack in row["attacks"] if attack["rule"] == rule)
    return {each["place"]: each["text"] for each in attack["changed"]}


def moved(before: float, after: float) -> str:
    """Ranks before and after, such as "1 \N{RIGHTWARDS ARROW} 4"; a tie has half ranks."""
    return f"{before:g}" if before == after else f"{before:g} \N{RIGHTWARDS ARROW} {after:g}"


def said_by(text: str) -> str:
    """A turn or a reply as it is shown."""
    return visible(text) or _NOTHING_SAID


def marked(before: str, after: str) -> list[Piece]:
    """A reply with the words that left and those that came."""
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

Shown = Sequence[ShownRanking]


class Rankings(Chapter[Shown]):
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

    def collect(self, runs: Sequence[Run]) -> Shown | None:
        return [_evaluation(run) for run in runs if run.rows] or None

    def verdict(self, found: Shown) -> Verdict | None:
        """On the first evaluation: the best ranker, the rule that costs it most, what else it finds right, the best control."""
        measured = [each for each in found if _known(each, each.rankers)]
        if not measured:
            return None
        first = measured[0]
        clean = _known(first, first.rankers)
        best = max(clean, key=lambda ranker: clean[ranker].value)
        right = f"{visible(best)} puts a right reply first in {number(SHARE, clean[best].value)} of the contexts"
        marks, leaned = {f"{visible(best)}, {CLEAN}": clean[best]}, [clean[best]]
        told = [right]
        for keeps_labels in (True, False):
            figures = _under_rules(first, best, keeps_labels)
            marks |= {f"{visible(best)}, {visible(rule)}": estimate for rule, estimate in figures.items()}
            if worst := _worst(first, best, keeps_labels):
                leaned.append(figures[worst])
                share = number(SHARE, figures[worst].value)
                told.append(
                    f"under {_explained(worst)} in {share} of those that it changes"
                    if keeps_labels
                    else f"it still puts first in {share} what {_explained(worst)} leaves of the right reply"
                )
        controls = _known(first, first.controls)
        beaten = max(controls, key=lambda ranker: controls[ranker].value, default=None)
        if beaten is not None:
            marks[f"{visible(beaten)}, {CLEAN}"] = controls[beaten]
            told.append(f"the best control, {visible(beaten)}, is right in {number(SHARE, controls[beaten].value)}")
        return Verdict(
            sentence=f"{'; '.join(told)}.{caveat(*leaned, unit='dialogues')}{others_below(measured)}",
            metric=_FIRST,
            marks=first_marks(marks),
        )

    def render(self, found: Shown) -> Section:
        # matplotlib costs a second, which readers of the verdict need not pay.

        return measured_section(found, figures_of, _items_of)


def _items_of(run: ShownRanking) -> dict[str, list[Item]]:
    return {f"{run.name}, {visible(rule)}": example_items(run, rule) for rule in run.ranked.rules}


def _evaluation(run: Run) -> ShownRanking:
    rankers: Mapping[str, Mapping[str, bool]] = run.summary.get(RANKERS, {})
    named = [label for label, each in rankers.items() if not each["is_control"]]
    keeps: Mapping[str, bool] = run.summary.get(RULES, {})
    first = first_place(run.summary.get(SEVERAL, False))
    shown = [f"{first}.{label}.{CLEAN}" for label in rankers]
    shown += [f"{metric_of(first, keeps[rule])}.{label}.{rule}" for label in named for rule in keeps]
    return ShownRanking.of(
        run,
        # All others stand in the tables.
        metrics={name: run.metrics[name] for name in shown if name in run.metrics},
        legend={name: describe(name, run.summary.get(SIZE)) for name in shown},
        tables=EVALUATE_RANKING.tables(run.folder) if run.metrics else {},
        changes={
            (label, rule): estimate
            for label in named
            for rule in keeps
            if (estimate := run.metrics.get(f"{metric_of(first, keeps[rule])}{CHANGE}.{label}.{rule}")) is not None
        },
        first=first,
        rankers=named,
        controls=[label for label in rankers if label not in named],
        not_scored=not_scored(run.summary),
    )


def _known(evaluation: ShownRanking, rankers: Sequence[str]) -> dict[str, Estimate]:
    """How often a right reply is first on clean candidates, of those rankers that have scores."""
    found = {ranker: evaluation.metrics.get(f"{evaluation.first}.{ranker}.{CLEAN}") for ranker in rankers}
    return {ranker: estimate for ranker, estimate in found.items() if estimate is not None and estimate.n}


def _under_rules(evaluation: ShownRanking, ranker: str, keeps_labels: bool) -> dict[str, Estimate]:
    """The same of a ranker, by rule."""
    rules = [rule for rule, keeps in evaluation.ranked.rules.items() if keeps is keeps_labels]
    first = metric_of(evaluation.first, keeps_labels)
    found = {rule: evaluation.metrics.get(f"{first}.{ranker}.{rule}") for rule in rules}
    return {rule: estimate for rule, estimate in found.items() if estimate is not None and estimate.n}


def _worst(evaluation: ShownRanking, ranker: str, keeps_labels: bool) -> str | None:
    """The rule that costs a ranker most for certain, or of whose replies it puts most first; None without such a rule."""
    figures = _under_rules(evaluation, ranker, keeps_labels)
    if not keeps_labels:
        return max(figures, key=lambda rule: figures[rule].value, default=None)
    changes = {rule: evaluation.changes[ranker, rule] for rule in figures}
    lost = [rule for rule, change in changes.items() if certain_sign(change) < 0]
    return min(lost, key=lambda rule: changes[rule].value, default=None)


def _explained(rule: str) -> str:
    """A rule with what it does, where it is one of the catalogue's."""
    return f"{rule} ({known_rules.summary(rule)})" if rule in set(known_rules) else visible(rule)
