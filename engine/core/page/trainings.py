"""Chapters on trainings, hardening campaigns and all other runs.

`Trainings` shows the curves and final figures of any model. `Hardenings` shows campaigns that harden models by rounds; a system
derives its own chapter and names its job. `Measurements` shows runs that no other chapter knows, such as a job of another
version.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from parley.engine.core.page.content import Chapter, CurveSource, Figure, Run, Verdict, read_curves, told_apart
from parley.engine.core.page.page import brief_name, certain_sign, number
from parley.engine.core.stats.known import AdversaryWords, known_of
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.campaign import RESULT, START
from parley.engine.core.verbs.job import UNCHANGED, Job, noted


class Hardenings(Chapter):
    """A chapter of campaigns."""

    unit = "rounds"
    in_tables = True
    noted = False
    job: ClassVar[Job[Any, Any, Any]]
    words: ClassVar[AdversaryWords]
    """The words in which known adversaries are shown."""
    unhelped: ClassVar[str] = ""
    """The sentence if the start is the result."""

    @abstractmethod
    def outcome(self, run: Run) -> Verdict:
        """Return the verdict on a finished campaign; its first mark is the start, its last one the result."""

    def owns(self, job: str) -> bool:
        return job == self.job.name

    def shows(self, run: Run) -> bool:
        return bool(self.tables(run) or read_curves(self.curves, [run]))

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        return noted(self.job.tables(run.folder), self.job.note(run.folder))

    def verdict_of(self, run: Run) -> Verdict | None:
        """Return the outcome with its best adversary and the number of those that learned nothing."""
        if not run.metrics:
            return None
        verdict, known = self.outcome(run), known_of(run.summary, self.words)
        if known is None:
            return verdict
        before, *_, after = verdict.marks
        gains = dict(zip(known.targets, known.gains_TA, strict=True))
        is_start = gains[before] == gains[after] and verdict.marks[before] == verdict.marks[after]
        if RESULT in run.summary:
            is_start = run.summary[RESULT] == START
        unhelped = [f"{self.unhelped[:1].upper()}{self.unhelped[1:]}."] if is_start and self.unhelped else []
        warnings = [*unhelped, *filter(None, [run.summary.get(UNCHANGED)]), *verdict.warnings]
        return replace(verdict, warnings=warnings, details=[*verdict.details, known.best_and_idle(after)])


def certainly(gain: Estimate, less: str, more: str) -> str:
    """Return the certainty of a gain over an earlier model: " (certainly LESS)", " (certainly MORE)" or nothing."""
    return {1: f" (certainly {less})", 0: "", -1: f" (certainly {more})"}[certain_sign(gain)]


def comparison(gain: Estimate, other: str, more: str = "more", less: str = "less") -> str:
    """Return the sentence that a share is MORE or LESS than in another model, by a gain over it, or not certainly either."""
    than = {1: f"certainly {more} than", 0: "not certainly other than", -1: f"certainly {less} than"}
    return f"That is {than[certain_sign(gain)]} {other}."


_NUM_MAIN = 3


class Trainings(Chapter):
    """The chapter of all jobs that fit a model."""

    name, title, unit = "training", "Training", "items"
    noted = False
    curves = (
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
            "iteration",
            "points",
            "points per dialogue",
            {"adversary": "score_adversary", "target": "score_target"},
            smoothed=True,
        ),
    )
    terms: ClassVar = {
        r"perplexity": ("Perplexity", "e to the mean loss in nats per token: how many words a model hesitates between."),
        r"released formula": ("Released formula", "the perplexity as the paper's code computes it, over batches of its own."),
    }

    def owns(self, job: str) -> bool:
        return job.startswith("train-")

    def shows(self, run: Run) -> bool:
        return bool((run.shown and (run.metrics or run.failed)) or run.trainings or read_curves(self.curves, [run]))

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        return dict(run.trainings)

    def verdict_of(self, run: Run) -> Verdict | None:
        if not run.metrics or not run.shown:
            return None
        legend = {name: run.legend.get(name) or Metric(name.replace("_", " "), "", "") for name in run.metrics}
        main = [name for name in run.metrics if legend[name].main] or list(run.metrics)
        first, *others = [f"{legend[name].title} {number(legend[name], run.metrics[name].value)}" for name in main[:_NUM_MAIN]]
        return Verdict(
            sentence=f"{brief_name(run.heading)}: {first}.",
            metric=legend[main[0]],
            number=run.metrics[main[0]],
            marks={run.heading: run.metrics[main[0]]},
            details=[f"{', '.join(others)}."] if others else [],
            rank=2,
        )


class Measurements(Chapter):
    """The chapter of all other runs: the metric that matters is unknown, so there is no verdict."""

    name, title = "measurements", "Measurements"
    noted = False

    def owns(self, job: str) -> bool:
        return True

    def shows(self, run: Run) -> bool:
        return run.shown and bool(run.metrics or run.failed)

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        return {}


class Recipes(Chapter):
    """The chapter of recipes: their claims and tables; the stages have chapters of their own."""

    name, title = "recipe", "Tables of the recipe"
    in_tables = open_tables = True

    def owns(self, job: str) -> bool:
        return job == "compare" or job.startswith("reproduce-")

    def shows(self, run: Run) -> bool:
        return bool(run.metrics)

    def verdict_of(self, run: Run) -> Verdict | None:
        """Return the outcome of the first claim with the figure that decides it, and of the others folded; None without any."""
        from parley.engine.core.verbs.compare import LAYOUT
        from parley.engine.core.verbs.recipe_job import CLAIMS, outcome_of

        claims = run.summary.get(CLAIMS, {}).get("claims", [])
        if not claims:
            return None
        sentences = [f"{claim['says'][:1].upper()}{claim['says'][1:]}: {outcome_of(claim)}." for claim in claims]
        figures = {name: Estimate.from_json(values) for name, values in claims[0]["figures"].items()}
        name, figure = next(iter(figures.items()))
        metric = run.legend.get(name, Metric(name, "", ""))
        labels = {
            f"{table['key']}.{row['key']}.{column['key']}": f"{row['label']}, {column['heading']}: {table['title']}"
            for table in run.summary.get(LAYOUT, ())
            for row in table["rows"]
            for column in table["columns"]
        }
        # The stages have verdicts of their own, each on one training.
        return Verdict(
            sentence=sentences[0],
            metric=metric,
            number=figure,
            marks=figures,
            label=labels.get(name, name),
            details=sentences[1:],
            rank=-1,
        )

    def figures(self, run: Run) -> Iterable[Figure]:
        from parley.engine.core.page import plots
        from parley.engine.core.verbs.compare import LAYOUT

        for table in run.summary.get(LAYOUT, ()):
            rows = table["rows"]
            printed = [column for column in table["columns"] if any(column["key"] in row["published"] for row in rows)]
            for column in printed[:1]:
                measured, published = dict[str, Estimate](), dict[str, Estimate]()
                for label, row in zip(told_apart([row["label"] for row in rows]), rows, strict=True):
                    if (estimate := run.metrics.get(f"{table['key']}.{row['key']}.{column['key']}")) is not None:
                        measured[label] = estimate
                        if (value := row["published"].get(column["key"])) is not None:
                            published[label] = Estimate(value, value, value, 1)
                if published:
                    caption, unit = "bars: 95 % intervals of what is measured here", 100.0 if column["form"] == "share" else 1.0
                    series = {"measured": measured, "published": published}
                    yield plots.dots(table["title"], caption, column["heading"], list(measured), series, unit)
