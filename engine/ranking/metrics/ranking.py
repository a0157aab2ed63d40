"""Metrics of an evaluation of rankers: every metric of every ranker, clean and under every rule.

Source: Li et al. 2019, section 5.2. A row is a context (`parley.engine.ranking.verbs.prepared.RANKING`); contexts of one
dialogue, or of dialogues that share a context, are drawn together. Metrics are called KIND.MODEL.RULE, the rule being `CLEAN`
where there is none: "r@1.smn.iiw" is R_n@1. Rules that do not keep labels have kinds of their own, "a@1.smn.sow" is A_n@1. What
rules do alone is called KIND.RULE.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics
from parley.engine.core.stats.rows import Columns, linked_units, selected
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
    together,
)
from parley.envs.core.seeds import stable_hash
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

_CONTEXTS = 8192
"""Contexts whose candidates are measured at a time."""
BY_KIND = (MAP, MRR, PRECISION)
"""Metrics that are also computed for each source of wrong replies, if there are several."""
_ATTACKED = {PAIRWISE: "a2@1", MAP: "aap", MRR: "arr", PRECISION: "ap@1", **{recall_at(k): f"a@{k}" for k in KS}}
_STANDARD = {name: kind for kind, name in _ATTACKED.items()}


class ScoredCandidates(NamedTuple):
    """The scores of one ranker under one rule, one entry for each candidate of the contexts that it scored."""

    keys: np.ndarray
    """Indices of contexts among the rows (V,) int64."""
    scores: np.ndarray
    """(V,) float64."""
    labels: np.ndarray
    """(V,) bool."""
    changed: np.ndarray
    """Words that the rule changed, or that it changed of the context (V,) int64."""
    kinds: np.ndarray
    """Indices into `RankedRows.kinds` (V,) int8."""


class Changes(NamedTuple):
    """The replies that a rule changed, by context."""

    contexts: np.ndarray
    """Indices of contexts among the rows, ascending (V,) int32."""
    places: np.ndarray
    """Indices of replies, `CONTEXT` for the context itself (V,) int32."""
    words: np.ndarray
    """Changed words (V,) int32."""


class ContextScores(NamedTuple):
    """The scores of one ranker under one rule."""

    contexts: np.ndarray
    """Indices of the contexts that it scored, ascending (G,) int32."""
    starts: np.ndarray
    """The first index of the scores of each context, and the number of all (G + 1,) int64."""
    read: Callable[[int, int], np.ndarray]
    """Returns the scores from one index to another (V,) float64."""

    def of(self, number: int) -> np.ndarray | None:
        """Return the scores of a context (C,) float64; None without any."""
        index = int(np.searchsorted(self.contexts, number))
        if index == len(self.contexts) or self.contexts[index] != number:
            return None
        return self.read(*self.starts[index : index + 2].tolist())


class RankedRows:
    """Rows of contexts, to be read by ranker and rule. They are gone through once, and numbers alone are kept.

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
        failed = Counter(str(row["error"]) for row in selected(lost(rows), "error"))
        self._columns, self._readings = Columns(), dict[str, dict[int, dict[int, WordReading]]]()
        self.models: list[str] = []
        """The rankers, in the order in which they were asked for."""
        self.rules: dict[str, bool] = {}
        """By rule, True if it keeps labels."""
        self.kinds: list[str] = []
        """The sources of replies."""
        self.errors: dict[str, Counter[str]] = {}
        """By ranker, why it gave no scores: reasons, each with its number of contexts."""
        dialogues, contexts, sizes, can_rank = array("q"), array("Q"), array("i"), array("b")
        self.several = False
        """True if a group has several right replies."""
        self._wrong_kinds: set[str] = set()
        columns = ("dialogue", "context", "labels", "kinds", "attacks", "ranked", "readings")
        for number, row in enumerate(selected(self.rows, *columns)):
            if not number:
                self.models = list(dict.fromkeys(entry["model"] for entry in row["ranked"]))
                self.rules = {attack["rule"]: attack["keeps_labels"] for attack in row["attacks"]}
                self.errors = {model: Counter(failed) for model in self.models if failed and model not in controls}
            dialogues.append(row["dialogue"])
            contexts.append(stable_hash(*row["context"]))
            sizes.append(len(row["labels"]))
            num_right = sum(row["labels"])
            can_rank.append(0 < num_right < sizes[-1])
            self.several |= num_right > 1
            self._add(number, row)
        self.num_contexts = len(dialogues) + failed.total()
        """Contexts, those that failed included."""
        self.clusters = linked_units(dialogues, contexts)
        """The unit of each context: dialogues that share a context are one (G,) int64."""
        self.sizes = np.asarray(sizes)
        """The candidates of each context (G,) int32."""
        self.can_rank = np.asarray(can_rank).astype(bool)
        """The contexts with right and wrong replies (G,) bool."""
        self.size = int(sizes[0]) if len({*sizes}) == 1 else None
        """Candidates of every group; None where groups differ."""

    def _add(self, number: int, row: Row) -> None:
        columns, lost_by = self._columns, dict[str, str]()
        columns.add("labels", "b", row["labels"])
        self.kinds += dict.fromkeys(kind for kind in row["kinds"] if kind not in self.kinds)
        columns.add("kinds", "b", map(self.kinds.index, row["kinds"]))
        self._wrong_kinds.update(kind for kind, label in zip(row["kinds"], row["labels"], strict=True) if not label)
        for attack in row["attacks"]:
            if changed := attack["changed"]:
                columns.add(("context", attack["rule"]), "i", [number] * len(changed))
                columns.add(("place", attack["rule"]), "i", [reply["place"] for reply in changed])
                columns.add(("words", attack["rule"]), "i", [reply["num_changed"] for reply in changed])
        for entry in row["ranked"]:
            if entry["error"] is None:
                columns.add(("scored", entry["model"], entry["rule"]), "i", [number])
                columns.add(("scores", entry["model"], entry["rule"]), "d", entry["scores"])
            if entry["error"]:
                lost_by.setdefault(entry["model"], entry["error"])
        for model, error in lost_by.items():
            self.errors.setdefault(model, Counter())[error] += 1
        for reading in row.get("readings") or ():
            importance = dict(zip(reading["words"], reading["importance"], strict=True))
            of_model = self._readings.setdefault(reading["model"], {})
            of_model.setdefault(number, {})[reading["place"]] = WordReading(importance, tuple(reading["kept"]))

    def changes(self, rule: str, start: int = 0, stop: int | None = None) -> Changes:
        """Return the replies that a rule changed, all of them or a slice."""
        return Changes(*(self._columns.get((name, rule), "i", start, stop) for name in ("context", "place", "words")))

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def labels_of(self, number: int) -> np.ndarray:
        """Return whether each reply of a context is right (C,) bool."""
        return self._columns.get("labels", "b", *self._starts[number : number + 2].tolist()).astype(bool)

    def has_scores(self, model: str, rule: str) -> bool:
        """Return whether a ranker scored a context under a rule or `CLEAN`."""
        return ("scored", model, rule) in self._columns

    def scores(self, model: str, rule: str) -> ContextScores:
        """Return the scores of a ranker under a rule or `CLEAN`."""
        scored = self._columns.get(("scored", model, rule), "i")
        starts = np.concatenate([[0], np.cumsum(self.sizes[scored])])
        return ContextScores(scored, starts, partial(self._columns.get, ("scores", model, rule), "d"))

    def candidates(self, model: str, rule: str) -> Iterator[ScoredCandidates]:
        """Yield the candidates that a ranker scored under a rule or `CLEAN`, some contexts at a time; once at least."""
        get, of_ranker = self._columns.get, (model, rule)
        at_context = at_label = at_score = at_change = 0
        for first in range(0, max(len(self.sizes), 1), _CONTEXTS):
            sizes = self.sizes[first : first + _CONTEXTS]
            num, behind = int(sizes.sum()), first + len(sizes)
            scored = get(("scored", *of_ranker), "i", at_context, at_context + len(sizes))
            scored = scored[: np.searchsorted(scored, behind)]
            is_scored = np.zeros(len(sizes), dtype=bool)
            is_scored[scored - first] = True
            stays = np.repeat(is_scored, sizes)
            keys = np.repeat(np.arange(first, behind), sizes)[stays]
            # Each candidate of a context is changed at most once, and the context itself.
            changes = self.changes(rule, at_change, at_change + num + len(sizes))
            num_changes = int(np.searchsorted(changes.contexts, behind))
            changes = Changes(*(column[:num_changes] for column in changes))
            yield ScoredCandidates(
                keys,
                get(("scores", *of_ranker), "d", at_score, at_score + len(keys)),
                get("labels", "b", at_label, at_label + num).astype(bool)[stays],
                _changed(changes._replace(contexts=changes.contexts - first), sizes)[stays],
                get("kinds", "b", at_label, at_label + num)[stays],
            )
            at_context, at_label = at_context + len(scored), at_label + num
            at_score, at_change = at_score + len(keys), at_change + num_changes

    def measured(self, model: str, rule: str, ties: Ties = "expected") -> GroupMetrics:
        """Compute the metrics of a ranker under a rule or `CLEAN`, one value per context."""
        if rule == CLEAN:
            return together(
                group_metrics(some.keys, some.scores, some.labels, ties=ties, unranked=self._unranked)
                for some in self.candidates(model, rule)
            )
        keeps_labels = self.rules.get(rule, True)
        return together(
            attack_metrics(
                some.keys,
                some.scores,
                some.labels,
                some.changed,
                keeps_labels=keeps_labels,
                untouched=self._untouched,
                ties=ties,
                unranked=self._unranked,
            )
            for some in self.candidates(model, rule)
        )

    def among(self, model: str, kind: str) -> GroupMetrics:
        """Compute the metrics of a ranker on unchanged candidates, with wrong replies of one kind alone."""
        number = self.kinds.index(kind)
        stays = ((some, some.labels | (some.kinds == number)) for some in self.candidates(model, CLEAN))
        return together(group_metrics(some.keys[those], some.scores[those], some.labels[those]) for some, those in stays)

    def kept_points(self, model: str) -> list[KeptPoint]:
        """Compute figure 2 for a ranker, on the contexts with erased words; empty if there are none."""
        if model not in self._readings:
            return []
        scores = self.scores(model, CLEAN)
        clean = {number: of_context for number in self._readings[model] if (of_context := scores.of(number)) is not None}
        if not clean:
            return []
        read = {number: self._readings[model][number] for number in clean}
        labels, clusters = [self.labels_of(number).tolist() for number in read], [int(self.clusters[number]) for number in read]
        return kept_points(labels, [*clean.values()], [*read.values()], clusters=clusters)

    @property
    def wrong_kinds(self) -> list[str]:
        """The sources of wrong replies."""
        return [kind for kind in CandidateKind if kind in self._wrong_kinds]

    def untouched(self, rule: str) -> tuple[np.ndarray, np.ndarray]:
        """Return for each context that can be ranked whether a rule changed nothing (G,) bool, and its dialogue (G,)."""
        is_same = np.ones(len(self.sizes), dtype=bool)
        is_same[self.changes(rule).contexts] = False
        counted = self.can_rank | (self._unranked == "zero")
        return is_same[counted], self.clusters[counted]

    def words_changed(self, rule: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of changed words of each reply that a rule changed (V,), and its dialogue (V,)."""
        changes = self.changes(rule)
        return changes.words, self.clusters[changes.contexts]


def _changed(changes: Changes, sizes: np.ndarray) -> np.ndarray:
    """Return the changed words of each candidate of contexts of these sizes, or of its context (V,) int64."""
    words, of_context = np.zeros(sizes.sum(), dtype=np.int64), np.zeros(len(sizes), dtype=np.int64)
    is_whole = changes.places == CONTEXT
    of_context[changes.contexts[is_whole]] = changes.words[is_whole]
    words[(np.cumsum(sizes) - sizes)[changes.contexts[~is_whole]] + changes.places[~is_whole]] = changes.words[~is_whole]
    return np.where(np.repeat(of_context, sizes) > 0, np.repeat(of_context, sizes), words)


def ranking_metrics(ranked: RankedRows) -> dict[str, Estimate]:
    """Compute every metric of some rows, with intervals."""
    metrics: dict[str, Estimate] = {}
    if len(ranked.sizes):
        metrics[UNRANKED] = count(int((~ranked.can_rank).sum()), len(ranked.sizes))
    for rule in ranked.rules:
        metrics[f"{UNTOUCHED}.{rule}"] = clustered_rate(*ranked.untouched(rule))
        metrics[f"{WORDS}.{rule}"] = mean_count(*ranked.words_changed(rule))
    at_first = first_place(ranked.several)
    for model in ranked.models:
        metrics[f"{FAILED}.{model}"] = count(ranked.errors.get(model, Counter()).total(), ranked.num_contexts)
        before = only(ranked.measured(model, CLEAN), at_first)
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
                here = only(ranked.measured(model, rule), at_first)
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
        changes = ranked.changes(rule)
        entries = zip(changes.contexts.tolist(), changes.words.tolist(), repeat(1.0))
        figures[f"{WORDS}.{rule}"] = ItemFigures.of(entries, "count")
    return figures


def context_task(row: Row) -> tuple[Any, ...]:
    """Return the task of a row: its context, candidates and labels."""
    return row["context"], row["candidates"], row["labels"]


dialogue_and_context = itemgetter("dialogue", "context")
"""Returns what makes rows one unit."""
RANKED_ITEMS = ItemMetrics(
    "dialogues",
    ranked_figures,
    # P@1 is R_n@1 where a context has one right reply; it is shown if it is named.
    lambda name: describe(name)._replace(main=name.startswith(f"{recall_at(1)}.")),
    links=dialogue_and_context,
    content=context_task,
    # Controls stand behind the rankers that were asked for.
    subjects=lambda rows, config: RankedRows(rows[:1]).models[: len(config["model"].split(","))],
)
"""Figures of single contexts; dialogues that share a context are one unit."""
