"""Trainings of generators against discriminators, and tables of them beside their controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from parley.engine.core.page.content import Chapter, Item, Section, ShownRun, Stages, Verdict, tables_of
from parley.engine.core.page.curves import CurveSource, curve_figure, read_curves
from parley.engine.core.page.figure import Curve
from parley.engine.core.page.markup import fill, line
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import SHARE, caveat, certain_sign, first_marks
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.stats.training import BEFORE
from parley.engine.generation.metrics.minmax import GAIN
from parley.engine.generation.metrics.scenarios import ADVERSUC, RANDOM
from parley.engine.generation.metrics.trained import DECODED, LESS, METHODS, TRAINED, row_title
from parley.engine.generation.metrics.variety import COMMONEST, DISTINCT, DISTINCT_2
from parley.engine.generation.verbs.minmax import MINMAX_REPLIES
from parley.engine.generation.verbs.table import CONCLUDED, EVALUATE_GENERATION, PLACED, replies_side_by_side
from parley.engine.generation.verbs.word_rewards import REWARDS_OF_WORDS
from parley.envs.core.visible import visible

CURVES = (
    CurveSource("iteration", "discriminator", "accuracy", {"discriminator": "discriminator_accuracy"}, smoothed=True),
    CurveSource(
        "iteration",
        "probability of a person",
        "mean of the discriminator",
        {"the generator's replies": "human", "recorded replies": "human_recorded"},
        smoothed=True,
    ),
    CurveSource(
        "iteration",
        "reward",
        "of a word",
        {"reward, mean": "reward", "reward less baseline, mean size": "advantage"},
        smoothed=True,
    ),
    CurveSource("iteration", "length", "words of a reply", {"the generator's replies": "reply_words"}, smoothed=True),
    CurveSource(
        "iteration",
        "variety",
        "share",
        {"distinct-1": DISTINCT, "distinct-2": DISTINCT_2, "commonest reply": COMMONEST},
        smoothed=True,
    ),
    CurveSource("iteration", "entropy", "nats of a word that it says", {"the generator": "generator_nats"}, smoothed=True),
    CurveSource(
        "check", "AdverSuc on the validation split", "share of pairs", {"AdverSuc": ADVERSUC, "machine-vs-random": RANDOM}
    ),
)
"""What a training says of itself."""
_ADVERSUC = SHARE._replace(title="AdverSuc", definition="share of pairs that a judge takes for the other side's")


@dataclass(frozen=True, kw_only=True)
class ShownGenerators:
    """What the runs of the chapter hold.

    Args:
        trainings: against a discriminator.
        curves: of them.
        tables: of trainings beside controls, by the heading of the run.
        metrics: of the first such run.
        concluded: what it comes to.
        placed: where its trainings lie beside the temperature curve, in sentences.
        rewards: of words, by the heading of the training: context, reply and rewards by method.
        replies: of all rows to some contexts, by the heading of the run.
    """

    trainings: Sequence[ShownRun]
    curves: Sequence[Curve]
    tables: Sequence[tuple[str, TextTable]]
    metrics: Mapping[str, Estimate]
    concluded: str
    rewards: Mapping[str, Sequence[Mapping[str, Any]]]
    replies: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    placed: Sequence[str] = ()


class TrainedGenerators(Chapter[ShownGenerators]):
    """The chapter of generators that learned from a discriminator."""

    name, title = "generators", "Generators against discriminators"
    jobs = (MINMAX_REPLIES.name, EVALUATE_GENERATION.name)
    stages: ClassVar = {
        EVALUATE_GENERATION.name: Stages({f"{row}-1": title for row, title in TRAINED.items()}, others="hidden")
    }
    terms: ClassVar = {
        r"\bREINFORCE\b": ("REINFORCE", "every word of a reply earns what the discriminator says of the whole reply."),
        r"\bREGS\b": ("REGS", "reward for every generation step: each word earns what the beginning that it ends is worth."),
        r"\bself-BLEU\b": ("Self-BLEU", "how alike replies are: BLEU of each against all others."),
        r"\boverlap\b": ("Overlap", "of histograms of vectors of replies with people's, as MAUVE; 1: equal."),
    }

    def collect(self, runs: Sequence[Run]) -> ShownGenerators | None:
        tables = [run for run in runs if run.job == EVALUATE_GENERATION.name and run.metrics]
        trained = [run for run in runs if run.job == MINMAX_REPLIES.name]
        curves = read_curves(CURVES, trained)
        trainings = [each for run in trained if (each := ShownRun.of(run)).metrics]
        if not (tables or curves or trainings):
            return None
        return ShownGenerators(
            trainings=trainings,
            curves=curves,
            tables=tables_of([(run.heading, EVALUATE_GENERATION.tables(run.folder)) for run in tables]),
            metrics=tables[0].metrics if tables else {},
            concluded=" ".join(tables[0].summary.get(CONCLUDED, [])) if tables else "",
            rewards={run.heading: told for run in trained if (told := _rewards(run))},
            placed=tables[0].summary.get(PLACED, ()) if tables else (),
            replies={run.heading: replies_side_by_side(run.folder.path) for run in tables},
        )

    def verdict(self, found: ShownGenerators) -> Verdict | None:
        """On the first table; without one on the first training, after it and before."""
        if found.metrics:
            names: dict[str, str] = {}
            for name in found.metrics:
                if LESS not in name and f".{ADVERSUC}-" in name:
                    # By the first judge, as the sentence and the table.
                    names.setdefault(name.rpartition(".")[0], name)
            # Trainings beside their controls first, for there is not room for all rows.
            rows = [row for row in (*TRAINED, *DECODED) if row in names]
            chosen = {visible(row_title(row)): found.metrics[names[row]] for row in rows}
            sentence = f"{found.concluded or 'No training stands beside a control.'}{caveat(*chosen.values(), unit='sources')}"
            return Verdict(sentence=sentence, metric=_ADVERSUC, marks=first_marks(chosen))
        if not found.trainings:
            return None
        first = found.trainings[0]
        after, before = (first.metrics[f"test_{ADVERSUC}{when}"] for when in ("", BEFORE))
        how = {1: "rises", 0: "does not change for certain", -1: "falls"}[certain_sign(first.metrics[GAIN])]
        said = f"{first.name}: AdverSuc {how}, from {before.value:.3f} to {after.value:.3f}; {_beside(first.metrics)}."
        return Verdict(
            sentence=f"{said}{caveat(after, unit='contexts')}", metric=_ADVERSUC, marks={"start": before, "after": after}
        )

    def render(self, found: ShownGenerators) -> Section:
        # matplotlib costs a second, which readers of the verdict need not pay.
        from parley.engine.generation.page.figures import quality_figures

        earned = [item for heading, told in found.rewards.items() for item in _earned(heading, told)]
        side_by_side = [item for heading, rows in found.replies.items() for item in _side_by_side(heading, rows)]
        return Section(
            notes=[visible(sentence) for sentence in found.placed],
            tables=found.tables,
            measured=found.trainings,
            figures=[*quality_figures(found.metrics), *map(curve_figure, found.curves)],
            items=[*side_by_side, *earned],
            chosen={
                what: items[0]
                for what, items in (("Replies of all rows", side_by_side), ("What each word earned", earned))
                if items
            },
        )


def _beside(metrics: Mapping[str, Estimate]) -> str:
    """Machine-vs-random, without which AdverSuc is never told."""
    after, before = (metrics.get(f"test_{RANDOM}{when}", NOTHING) for when in ("", BEFORE))
    if not (after.n and before.n):
        return "machine-vs-random was not measured"
    return f"machine-vs-random goes from {before.value:.3f} to {after.value:.3f}"


def _rewards(run: Run) -> Sequence[Mapping[str, Any]]:
    events = run.folder.events({REWARDS_OF_WORDS: {"replies": list}})
    return next((event["replies"] for event in reversed(events) if event["kind"] == REWARDS_OF_WORDS), [])


def _earned(heading: str, replies: Sequence[Mapping[str, Any]]) -> Iterator[Item]:
    """Replies whose words are coloured by what they earned, by each method."""
    for number, each in enumerate(replies):
        words = [visible(word) for word in each["reply"]]
        methods = {METHODS[name]: list(zip(words, values, strict=True)) for name, values in each["rewards"].items()}
        spread = max(max(values) - min(values) for values in each["rewards"].values())
        yield Item(
            kind="reward",
            key=f"{heading}-rewards-{number:02d}",
            group=f"{heading}, rewards of words",
            summary=line("<q>{}</q>", " ".join(words)),
            tags=(),
            values={"largest less smallest reward": spread},
            body=fill("generation/page/rewards.html", context=visible(each["context"]), methods=methods),
        )


def _side_by_side(heading: str, contexts: Sequence[Mapping[str, Any]]) -> Iterator[Item]:
    for number, each in enumerate(contexts):
        turns = [visible(turn) for turn in each["context"]]
        replies = [(visible(row_title(row)), visible(reply)) for row, reply in each["replies"].items()]
        yield Item(
            kind="context",
            key=f"{heading}-replies-{number:02d}",
            group=f"{heading}, replies of all rows",
            summary=line("<q>{}</q>", turns[-1]),
            tags=(),
            values={},
            body=fill("generation/page/replies.html", turns=turns, replies=replies),
        )
