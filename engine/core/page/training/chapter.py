"""Trainings of any model: their curves, and what was measured at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from parley.engine.core.page.content import Chapter, Section, ShownRun, Verdict
from parley.engine.core.page.curves import CurveSource, curve_figure, read_curves
from parley.engine.core.page.figure import Curve
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import caveat, number
from parley.engine.core.stats.statistics import Metric
from parley.engine.core.stats.tables import TextTable

CURVES = (
    CurveSource("epoch", "words", "perplexity", {"training": "train_perplexity", "validation": "perplexity_reference"}),
    CurveSource("epoch", "selections", "selection perplexity", {"validation": "selection_perplexity"}),
    CurveSource("epoch", "pairs", "nats per pair", {"training": "train_loss", "validation": "validation_loss"}),
    CurveSource("epoch", "ranking", "R@1 of the validation groups", {"validation": "validation_recall_at_1"}),
    CurveSource("epoch", "mixture and likelihood", "nats per word", {"mixture": "mixture", "likelihood": "recorded_nll"}),
    CurveSource("epoch", "reward", "nats per word", {"sampled replies": "reward", "greedy replies": "greedy_reward"}),
    CurveSource("epoch", "what contexts tell replies", "nats per word", {"greedy replies": "specificity"}),
    CurveSource("epoch", "perplexity of replies", "another language model's", {"greedy replies": "reply_ppl"}),
    CurveSource("epoch", "length", "words of a reply", {"greedy replies": "reply_words"}),
    CurveSource(
        "epoch",
        "variety",
        "share",
        {"distinct-1": "distinct_1", "distinct-2": "distinct_2", "rare words": "rare_words", "<unk>": "unknown_words"},
    ),
    CurveSource("update", "reward of choices", "mean reward of an example", {"reward": "reward"}, smoothed=True),
    CurveSource("iteration", "reward", "mean reward", {"reward": "reward"}, smoothed=True),
    CurveSource("iteration", "agreement", "share of dialogues", {"agreement": "agreement"}, smoothed=True),
    CurveSource(
        "iteration", "points", "points per dialogue", {"adversary": "score_adversary", "target": "score_target"}, smoothed=True
    ),
)
_NUM_SAID = 3


@dataclass(frozen=True, kw_only=True)
class ShownTraining:
    """Some trainings."""

    curves: Sequence[Curve]
    measured: Sequence[ShownRun]
    tables: Sequence[tuple[str, TextTable]] = ()


class Trainings(Chapter[ShownTraining]):
    """The chapter of all jobs that fit a model."""

    name, title = "training", "Training"
    terms: ClassVar = {
        r"perplexity": ("Perplexity", "e to the mean loss in nats per token: how many words a model hesitates between."),
        r"released formula": ("Released formula", "the perplexity as the paper's code computes it, over batches of its own."),
    }

    def owns(self, job: str) -> bool:
        return job.startswith("train-")

    def collect(self, runs: Sequence[Run]) -> ShownTraining | None:
        curves = read_curves(CURVES, runs)
        measured = [each for run in runs if run.shown and ((each := ShownRun.of(run)).metrics or each.failures)]
        tables = [table for run in runs for table in run.trainings]
        return ShownTraining(curves=curves, measured=measured, tables=tables) if curves or measured else None

    def verdict(self, found: ShownTraining) -> Verdict | None:
        """What the first training came to, by the metrics that its job calls the main ones."""
        measured = [each for each in found.measured if each.metrics]
        if not measured:
            return None
        first = measured[0]
        known = {name: first.legend.get(name) or Metric(name.replace("_", " "), "", "") for name in first.metrics}
        main = [name for name in first.metrics if known[name].main] or list(first.metrics)
        said = ", ".join(f"{known[name].title} {number(known[name], first.metrics[name].value)}" for name in main[:_NUM_SAID])
        more = f" {len(measured) - 1} more trainings are below." if len(measured) > 1 else ""
        return Verdict(
            sentence=f"{first.name}: {said}.{caveat(first.metrics[main[0]])}{more}",
            metric=known[main[0]],
            marks={each.name: each.metrics[main[0]] for each in measured if main[0] in each.metrics},
            minor=True,
        )

    def render(self, found: ShownTraining) -> Section:
        drawn = [curve for curve in found.curves if any(curve.series.values())]
        return Section(tables=found.tables, measured=found.measured, figures=[curve_figure(curve) for curve in drawn])
