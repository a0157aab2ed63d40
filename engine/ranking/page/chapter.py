"""Evaluations of rankers, from run folders to what their report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from parley.engine.core.page.content import Chapter, Item, Section, Verdict
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import SHARE, caveat, certain_sign, first_marks, number, others_below
from parley.engine.core.stats.statistics import Estimate
from parley.engine.perturb.replies.catalogue import rules as known_rules
from parley.engine.ranking.metrics.ranking import CHANGE, CLEAN, describe, first_place, metric_of
from parley.engine.ranking.page.examples import example_items
from parley.engine.ranking.page.sections import ShownRanking, measured_section
from parley.engine.ranking.verbs.prepared import not_scored
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING, RANKERS, RULES, SEVERAL, SIZE
from parley.envs.core.visible import visible

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
        from parley.engine.ranking.page.figures import figures_of

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
