"""Metrics of an evaluation of rankers: every metric of every ranker, clean and under every rule.

Source: Li et al. 2019, section 5.2. A row is a context (`parley.engine.ranking.verbs.prepared.RANKING`); contexts of one
dialogue are drawn together. Metrics are called KIND.MODEL.RULE, the rule being `CLEAN` where there is none: "r@1.smn.iiw" is
R_n@1. Rules that do not keep labels have kinds of their own, "a@1.smn.sow" is A_n@1. What rules do alone is called KIND.RULE.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics
from parley.engine.core.stats.statistics import Estimate, Metric, Row, clustered_rate, count, finished, lost, mean_count
from parley.engine.perturb.strategy import RANDOM_WORDS
from parley.engine.ranking.metrics.erasure import KeptPoint, WordReading, kept_points
from parley.engine.ranking.metrics.ranks import (
    KS,
    MAP,
    MRR,
    PAIRWISE,
    PRECISION,
    GroupMetrics,
    Ties,
    Unranked,
    Untouched,
    attack_metrics,
    compared,
    estimates,
    figures,
    group_metrics,
    recall_at,
    title,
)
from parley.envs.ranking.groups import CandidateKind

CLEAN = "clean"
"""The rule where there is none."""
CONTEXT = -1
"""The place of the context among the changed candidates of a row."""
CHANGE, P_VALUE = "_change", "_p"
"""Endings of `first_place`: minus the value on the same clean contexts, and the p-value of that difference."""
BEYOND, BEYOND_P = "_beyond", "_beyond_p"
"""Endings too: minus the value under the control of a strategy on questions, random words, and the p-value."""
LESS, LESS_P = "_less", "_less_p"
"""Endings too: minus the value of another ranker on the same contexts, and the p-value (`engine/ranking/metrics/table.py`)."""
TIES_RIGHT, TIES_WRONG = "_ties_right", "_ties_wrong"
"""Endings too: ties as right or as wrong answers, if there are ties."""
UNTOUCHED, WORDS, UNRANKED, FAILED = "untouched", "words_changed", "unranked", "failed"
"""Contexts in which a rule changed nothing; words changed of a changed reply; contexts that have not both right and wrong
replies; contexts for which a ranker gave no scores."""

KEPT, KEPT_RELATIVE = "kept@", "kept_relative@"
"""R_n@1 when so many words of right replies stay, those that matter most to the ranker; divided by that of whole replies."""

BY_KIND = (MAP, MRR, PRECISION)
"""Metrics that are also computed for each source of wrong replies, if there are several."""
_ATTACKED = {PAIRWISE: "a2@1", MAP: "aap", MRR: "arr", PRECISION: "ap@1", **{recall_at(k): f"a@{k}" for k in KS}}
_STANDARD = {name: kind for kind, name in _ATTACKED.items()}


@dataclass(frozen=True)
class Ranked:
    """The scores of one ranker under one rule, one entry for each candidate of the contexts that it scored.

    Args:
        keys: places of contexts in the rows (V,) int.
        scores: (V,).
        labels: (V,) bool.
        changed: words that the rule changed (V,) int.
        kinds: where each candidate comes from (V,) str.
        keeps_labels: whether the rule keeps labels.
    """

    keys: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    changed: np.ndarray
    kinds: np.ndarray
    keeps_labels: bool


class RankedRows:
    """Rows of contexts, to be read by ranker and rule.

    Args:
        rows: of a run; a context that failed has no figures, and counts as one for which no ranker gave scores.
        untouched: as in `attack_metrics`.
        unranked: as in `group_metrics`.
        controls: rankers that are not to blame where a context failed.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        untouched: Untouched = "left-out",
        unranked: Unranked = "left-out",
        controls: Collection[str] = (),
    ) -> None:
        self.rows, self._untouched, self._unranked = finished(rows), untouched, unranked
        self.num_contexts = len(rows)
        """Contexts, those that failed included."""
        self._failed, self._controls = {row["item_key"]: str(row["error"]) for row in lost(rows)}, controls
        self.clusters: dict[int, int] = {number: row["dialogue"] for number, row in enumerate(self.rows)}
        """The dialogue of each context, by its place in the rows."""
        self.size = size.pop() if len(size := {len(row["labels"]) for row in self.rows}) == 1 else None
        """Candidates of every group; None where groups differ."""
        self.several = any(sum(row["labels"]) > 1 for row in self.rows)
        """True if a group has several right replies."""

    @cached_property
    def models(self) -> list[str]:
        """The rankers, in the order in which they were asked for."""
        return list(dict.fromkeys(entry["model"] for row in self.rows[:1] for entry in row["ranked"]))

    @cached_property
    def rules(self) -> dict[str, bool]:
        """By rule, True if it keeps labels."""
        return {attack["rule"]: attack["keeps_labels"] for row in self.rows[:1] for attack in row["attacks"]}

    @cached_property
    def errors(self) -> dict[str, list[str]]:
        """By ranker, why it gave no scores: one reason for each context without some."""
        errors = {model: dict(self._failed) for model in self.models if self._failed and model not in self._controls}
        for row in self.rows:
            for entry in row["ranked"]:
                if entry["error"]:
                    errors.setdefault(entry["model"], {}).setdefault(row["item_key"], entry["error"])
        return {model: list(reasons.values()) for model, reasons in errors.items()}

    @cached_property
    def changed(self) -> dict[tuple[int, str], dict[int, int]]:
        """By context and rule the words changed of each changed reply, by its place."""
        return {
            (number, attack["rule"]): {reply["place"]: reply["num_changed"] for reply in attack["changed"]}
            for number, row in enumerate(self.rows)
            for attack in row["attacks"]
        }

    @cached_property
    def scores(self) -> dict[tuple[str, str], list[tuple[int, Sequence[float]]]]:
        """By ranker and rule, or `CLEAN`, the contexts that it scored, and the scores of their replies."""
        scores: dict[tuple[str, str], list[tuple[int, Sequence[float]]]] = {}
        for number, row in enumerate(self.rows):
            for entry in row["ranked"]:
                if entry["error"] is None:
                    scores.setdefault((entry["model"], entry["rule"]), []).append((number, entry["scores"]))
        return scores

    def ranked(self, model: str, rule: str) -> Ranked:
        """Return the scores of a ranker under a rule or `CLEAN`, with the labels and changes of the candidates."""
        scored = self.scores.get((model, rule), [])
        positions = [(number, position) for number, scores in scored for position in range(len(scores))]
        return Ranked(
            np.array([number for number, _ in positions], dtype=np.int64),
            np.array([score for _, scores in scored for score in scores], dtype=np.float64),
            np.array([label for number, _ in scored for label in self.rows[number]["labels"]], dtype=bool),
            np.array([self._num_changed(key, rule, position) for key, position in positions], dtype=np.int64),
            np.array([kind for number, _ in scored for kind in self.rows[number]["kinds"]], dtype=str),
            self.rules.get(rule, True),
        )

    def _num_changed(self, key: int, rule: str, position: int) -> int:
        """Count the changed words of a candidate, or of its context."""
        changed = self.changed.get((key, rule), {})
        return changed.get(CONTEXT) or changed.get(position, 0)

    def measured(self, model: str, rule: str, ties: Ties = "expected") -> GroupMetrics:
        """Compute the metrics of a ranker under a rule or `CLEAN`, one value per context."""
        ranked = self.ranked(model, rule)
        if rule == CLEAN:
            return group_metrics(ranked.keys, ranked.scores, ranked.labels, ties=ties, unranked=self._unranked)
        return attack_metrics(
            ranked.keys,
            ranked.scores,
            ranked.labels,
            ranked.changed,
            keeps_labels=ranked.keeps_labels,
            untouched=self._untouched,
            ties=ties,
            unranked=self._unranked,
        ).groups

    def among(self, model: str, kind: str) -> GroupMetrics:
        """Compute the metrics of a ranker on unchanged candidates, with wrong replies of one kind alone."""
        ranked = self.ranked(model, CLEAN)
        stays = ranked.labels | (ranked.kinds == kind)
        return group_metrics(ranked.keys[stays], ranked.scores[stays], ranked.labels[stays])

    def kept_points(self, model: str) -> list[KeptPoint]:
        """Compute figure 2 for a ranker, on the contexts with erased words; empty if there are none."""
        clean = dict(self.scores.get((model, CLEAN), ()))
        read: dict[int, dict[int, WordReading]] = {}
        for number, row in enumerate(self.rows):
            for reading in row.get("readings") or ():
                if reading["model"] == model and number in clean:
                    importance = dict(zip(reading["words"], reading["importance"], strict=True))
                    read.setdefault(number, {})[reading["place"]] = WordReading(importance, tuple(reading["kept"]))
        if not read:
            return []
        labels, clusters = [self.rows[number]["labels"] for number in read], [self.clusters[number] for number in read]
        return kept_points(labels, [clean[number] for number in read], [*read.values()], clusters=clusters)

    @cached_property
    def wrong_kinds(self) -> list[str]:
        """The sources of wrong replies."""
        kinds = {kind for row in self.rows for kind, label in zip(row["kinds"], row["labels"], strict=True) if not label}
        return [kind for kind in CandidateKind if kind in kinds]

    def untouched(self, rule: str) -> tuple[list[bool], list[int]]:
        """Return for each context that can be ranked whether a rule changed nothing, and its dialogue."""
        numbers = [number for number, row in enumerate(self.rows) if self._unranked == "zero" or _can_rank(row)]
        return [not self.changed[number, rule] for number in numbers], [self.clusters[number] for number in numbers]

    def words_changed(self, rule: str) -> tuple[list[int], list[int]]:
        """Return the number of changed words of each reply that a rule changed, and its dialogue."""
        changes = [
            (num, row["dialogue"]) for number, row in enumerate(self.rows) for num in self.changed[number, rule].values()
        ]
        return [num for num, _ in changes], [dialogue for _, dialogue in changes]


def ranking_metrics(ranked: RankedRows) -> dict[str, Estimate]:
    """Compute every metric of some rows, with intervals."""
    metrics: dict[str, Estimate] = {}
    if ranked.rows:
        num_unranked = sum(not _can_rank(row) for row in ranked.rows)
        metrics[UNRANKED] = count(num_unranked, len(ranked.rows))
    for rule in ranked.rules:
        metrics[f"{UNTOUCHED}.{rule}"] = clustered_rate(*ranked.untouched(rule))
        metrics[f"{WORDS}.{rule}"] = mean_count(*ranked.words_changed(rule))
    at_first = first_place(ranked.several)
    for model in ranked.models:
        metrics[f"{FAILED}.{model}"] = count(len(ranked.errors.get(model, ())), ranked.num_contexts)
        clean = ranked.measured(model, CLEAN)
        for point in ranked.kept_points(model):
            metrics[f"{KEPT}{point.k}.{model}"] = point.accuracy
            metrics[f"{KEPT_RELATIVE}{point.k}.{model}"] = point.relative
        for kind in ranked.wrong_kinds if len(ranked.wrong_kinds) > 1 else ():
            for name, estimate in estimates(ranked.among(model, kind), ranked.clusters).items():
                if name in BY_KIND:
                    metrics[f"{name}{among(kind)}.{model}.{CLEAN}"] = estimate
        for rule in (CLEAN, *ranked.rules):
            keeps_labels = ranked.rules.get(rule, True)
            first = metric_of(at_first, keeps_labels)
            values = figures(partial(ranked.measured, model, rule), ranked.clusters)
            for name, figure in values.items():
                metrics[f"{metric_of(name, keeps_labels)}.{model}.{rule}"] = figure.estimate
            _, wrong, right = values[at_first]
            for ending, value in ((TIES_RIGHT, right), (TIES_WRONG, wrong)):
                if value is not None:
                    metrics[f"{first}{ending}.{model}.{rule}"] = count(value, values[at_first].estimate.n)
            if rule != CLEAN:
                here, before = (only(of_groups, at_first) for of_groups in (ranked.measured(model, rule), clean))
                test = compared(here, before, ranked.clusters)[at_first]
                metrics[f"{first}{CHANGE}.{model}.{rule}"] = test.difference
                metrics[f"{first}{P_VALUE}.{model}.{rule}"] = count(test.p_value, test.difference.n)
                if (control := f"{rule}{RANDOM_WORDS}") in ranked.rules:
                    beside = only(ranked.measured(model, control), at_first)
                    test = compared(here, beside, ranked.clusters)[at_first]
                    metrics[f"{first}{BEYOND}.{model}.{rule}"] = test.difference
                    metrics[f"{first}{BEYOND_P}.{model}.{rule}"] = count(test.p_value, test.difference.n)
    return metrics


def among(kind: str) -> str:
    """Return the ending of a metric of `BY_KIND` that keeps wrong replies of one kind alone."""
    return f"_among_{kind}"


def first_place(several: bool) -> str:
    """Return the name of the metric of first place; R_n@1 alone would miss several right replies.

    Args:
        several: whether a group has several right replies.
    """
    return PRECISION if several else recall_at(1)


def only(metrics: GroupMetrics, name: str) -> GroupMetrics:
    """Keep one metric of several."""
    return replace(metrics, values={name: metrics.values[name]})


def describe(name: str, size: int | None = None) -> Metric:
    """Return the title and the definition of a metric.

    Args:
        name: of it.
        size: candidates of every group; None where groups differ.
    """
    kind, _, rest = name.partition(".")
    of = f", {rest.replace('.', ', ')}" if rest else ""
    base, at, num = kind.partition("@")
    if kept_kind := _KEPT.get(f"{base}{at}"):
        return kept_kind._replace(title=f"{kept_kind.title} {num} {'word' if num == '1' else 'words'} kept{of}")
    if kind in _ALONE:
        return _ALONE[kind]._replace(title=f"{_ALONE[kind].title}{of}")
    base, ending = next(((kind.removesuffix(end), end) for end in _ENDINGS if kind.endswith(end)), (kind, ""))
    name_of = title(_STANDARD.get(base, base), size, adversarial=base in _STANDARD)
    metric = _ENDINGS.get(ending)
    if metric is not None:
        return metric._replace(title=f"{name_of}{metric.title}{of}")
    definition = f"{_DEFINITIONS[_STANDARD.get(base, base)]}, 0 to 1, mean over contexts"
    if base in _STANDARD:
        definition += "; relevant is what the rule left of the right reply"
        return Metric(f"{name_of}{of}", "lower: better", definition, "rate")
    return Metric(f"{name_of}{of}", "higher: better", definition, "rate", main=base in (recall_at(1), PRECISION))


def metric_of(name: str, keeps_labels: bool) -> str:
    """Return the name of a metric under a rule, from its name in `GroupMetrics.values`."""
    return name if keeps_labels else _ATTACKED[name]


def _can_rank(row: Row) -> bool:
    return any(row["labels"]) and not all(row["labels"])


_DEFINITIONS: Mapping[str, str] = {
    **{recall_at(k): f"share of the relevant replies at rank {k} or better" for k in KS},
    PAIRWISE: "share of the pairs of a relevant reply and another one in which it is first",
    MAP: "mean average precision",
    MRR: "1 / rank of the first relevant reply",
    PRECISION: "whether the first reply is relevant",
}
_ENDINGS: Mapping[str, Metric] = {
    LESS: Metric(
        ", less that of another", "", "of the first ranker less that of the second in the same contexts, mean over contexts"
    ),
    # Before P_VALUE, which ends it too.
    LESS_P: Metric(", p of the difference", "", "of two rankers, paired bootstrap over dialogues, two-sided"),
    BEYOND: Metric(", beyond random words", "", "less the figure with as many random words in the same questions, mean"),
    BEYOND_P: Metric(", p beyond random words", "", "paired bootstrap over dialogues, two-sided"),
    CHANGE: Metric(", change", "", "less the figure of the same contexts as they are, mean over contexts"),
    P_VALUE: Metric(", p of the change", "", "paired bootstrap over dialogues, two-sided"),
    TIES_RIGHT: Metric(", ties right", "", "if the relevant one of tied replies were always first", "rate"),
    **{
        among(kind): Metric(f", {kind} wrong replies", "higher: better", f"right replies among {kind} wrong ones alone", "rate")
        for kind in CandidateKind
    },
    TIES_WRONG: Metric(", ties wrong", "", "if the relevant one of tied replies were always last", "rate"),
}
_ALONE: Mapping[str, Metric] = {
    UNTOUCHED: Metric("untouched", "", "share of the contexts in which the rule changed nothing", "share"),
    WORDS: Metric("words changed", "", "words that the rule changed of a changed reply, mean"),
    UNRANKED: Metric("nothing to rank", "", "contexts without a right reply or without a wrong one", "count"),
    FAILED: Metric("no scores", "lower: better", "contexts without scores under one rule at least", "count"),
}
_KEPT: Mapping[str, Metric] = {
    KEPT: Metric("right first with", "", "share of contexts when only the most important words of right replies stay", "rate"),
    KEPT_RELATIVE: Metric("relative, with", "", "the same, divided by the share with whole replies"),
}


def ranked_figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    """Return the figures of single contexts, of each ranker under each rule.

    Args:
        rows: contexts that worked.
        config: settings of the run.
    """
    ranked = RankedRows(rows, config["metrics"]["untouched"], config["metrics"]["unranked"])
    figures: dict[str, ItemFigures] = {}
    for model in ranked.models:
        for rule in (CLEAN, *ranked.rules):
            groups = ranked.measured(model, rule)
            for name, values in groups.values.items():
                metric = f"{metric_of(name, ranked.rules.get(rule, True))}.{model}.{rule}"
                figures[metric] = ItemFigures(groups.keys, values, np.ones_like(values), "share")
    for rule in ranked.rules:
        words = [(number, words) for number in range(len(rows)) for words in ranked.changed[number, rule].values()]
        figures[f"{WORDS}.{rule}"] = ItemFigures.of(((number, num, 1.0) for number, num in words), "count")
    return figures


def context_task(row: Row) -> tuple[Any, ...]:
    """Return the task of a row: its context, candidates and labels."""
    return row["context"], row["candidates"], row["labels"]


RANKED_ITEMS = ItemMetrics(
    "dialogues",
    ranked_figures,
    # P@1 is R_n@1 where a context has one right reply; it is shown if it is named.
    lambda name: describe(name)._replace(main=name.startswith(f"{recall_at(1)}.")),
    cluster=lambda row: str(row["dialogue"]),
    content=context_task,
    # Controls stand behind the rankers that were asked for.
    subjects=lambda rows, config: RankedRows(rows).models[: len(config["model"].split(","))],
)
"""Figures of single contexts; contexts of one dialogue are one unit."""
