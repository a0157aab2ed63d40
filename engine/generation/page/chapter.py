"""The chapter of generation on the page: trainings beside their controls, and adversarial evaluations.

Plots show judges (AdverSuc and calibration) and trainings by quality and diversity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

from markupsafe import Markup
from matplotlib.axes import Axes

from parley.engine.core.page import plots
from parley.engine.core.page.content import (
    Chapter,
    Curve,
    Figure,
    Item,
    Run,
    Section,
    ShownRun,
    Stages,
    Verdict,
    fill,
    line,
    tables_of,
)
from parley.engine.core.page.page import SHARE, caveat, certain_sign, first_marks, others_below
from parley.engine.core.page.trainings import CurveSource, curve_figure, read_curves
from parley.engine.core.stats.known import BEFORE
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.generation.metrics.adversarial import ADVERSUC, ERE, RANDOM, JudgedRows, JudgedScores, describe
from parley.engine.generation.metrics.tables import JudgeSpecs
from parley.engine.generation.metrics.trained import (
    AT,
    BLIND,
    COMMONEST,
    CONTROLS,
    DECODED,
    DISTINCT,
    DISTINCT_2,
    GAIN,
    LESS,
    METHODS,
    OVERLAP,
    PEOPLE,
    PERPLEXITY,
    QUALITY,
    SAMPLED,
    SELF_BLEU,
    TRAINED,
    row_title,
)
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL, NOTES, SYSTEMS, VERDICTS, asked_of
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig
from parley.engine.generation.verbs.config import REWARDS_OF_WORDS
from parley.engine.generation.verbs.minmax import MINMAX_REPLIES
from parley.engine.generation.verbs.table import CONCLUDED, EVALUATE_GENERATION, PLACED, replies_side_by_side
from parley.envs.core.config import from_dict
from parley.envs.core.visible import visible

_LARGEST = 160.0
"""Area of a dot that stands for all pairs, in square points."""
_LABEL = (70.0, 11.0)
"""Width and height that a row's name takes, in pixels."""


def figures_of(
    metrics: Mapping[str, Estimate], asked: JudgeSpecs, scored: Mapping[tuple[str, str], JudgedScores]
) -> list[Figure]:
    """AdverSuc beside machine-vs-random, and the calibration of each judge that was named, system by system."""
    found = []
    for system in asked.systems:
        series = {
            title: {
                visible(judge): estimate
                for judge in asked.all_judges
                if (estimate := metrics.get(f"{kind}.{judge}.{system}")) is not None and estimate.n
            }
            for title, kind in (("AdverSuc", ADVERSUC), ("machine-vs-random", RANDOM))
        }
        names = list(map(visible, asked.all_judges))
        drawn = plots.dots_svg(f"{visible(system)}, AdverSuc", "% of pairs", names, series, 100.0)
        caption = f"{visible(system)}: AdverSuc and machine-vs-random by judge; bars are 95 % intervals"
        found.append(Figure("AdverSuc by judge", caption, Markup(drawn)))
        known = {visible(judge): scored[key] for judge in asked.judges if (key := (f"{ADVERSUC}.{system}", judge)) in scored}
        if known:
            caption = f"{visible(system)}: share of people's replies by the told probability, 1 / (1 + exp(-score))"
            found.append(Figure("Calibration of the judges", caption, Markup(_calibration(visible(system), known))))
    return found


def quality_figures(metrics: Mapping[str, Estimate]) -> list[Figure]:
    """Rows of a table of trainings by diversity and quality, with the start at rising temperatures as a line."""
    found = []
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in metrics if LESS not in name))
    for x_name, y_name in ((DISTINCT_2, PERPLEXITY), (SELF_BLEU, OVERLAP)):
        points = {
            row: (metrics[x].value, metrics[y].value)
            for row in names
            if (x := f"{row}.{x_name}") in metrics and (y := f"{row}.{y_name}") in metrics
        }
        if points:
            x_title, y_title = (QUALITY[name].title for name in (x_name, y_name))
            svg = plots.svg((5.4, 3.8), f"{y_title} by {x_title}", partial(_draw_quality, points, x_title, y_title))
            caption = (
                f"{y_title} by {x_title}; the line is the start, sampled at rising temperatures; named where there is room"
            )
            found.append(Figure("Quality and diversity", caption, Markup(svg)))
    return found


def _draw_quality(points: Mapping[str, tuple[float, float]], x_title: str, y_title: str, axes: Axes) -> None:
    axes.grid(True)
    axes.set_axisbelow(True)
    warmth = {row: 1.0 if row == "sample" else float(row.removeprefix(AT)) for row in points if row.startswith(("sample", AT))}
    line = [points[row] for row in sorted(warmth, key=lambda row: warmth[row])]
    if line:
        axes.plot(*zip(*line, strict=True), color="0.6", linewidth=1.4, marker=".", zorder=1)
    kinds: dict[str, list[str]] = {"the start": [*warmth], "controls": [], "trained": [], "people": []}
    for row in (row for row in points if row not in warmth):
        kinds[_kind(row)].append(row)
    for (kind, rows), colour in zip(kinds.items(), plots.SERIES, strict=False):
        if rows:
            axes.plot(*zip(*(points[row] for row in rows), strict=True), "o", color=colour, markersize=5, label=kind, zorder=2)
    axes.set(xlabel=x_title, ylabel=y_title)
    if y_title == QUALITY[PERPLEXITY].title:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.margins(0.12)
    axes.legend(fontsize=7)
    axes.autoscale_view()
    taken: list[tuple[float, float]] = []
    for row in (row for kind in ("the start", "people", "trained", "controls") for row in kinds[kind]):
        x, y = axes.transData.transform(points[row])
        # Rows that lie on each other would hide what they are; the table has all of them.
        if not any(abs(x - other_x) < _LABEL[0] and abs(y - other_y) < _LABEL[1] for other_x, other_y in taken):
            axes.annotate(visible(row), points[row], xytext=(4, 3), textcoords="offset points", fontsize=7)
            taken.append((x, y))


def _kind(row: str) -> str:
    """Return the kind of a row's dot, in words of the key."""
    known = row.removesuffix(SAMPLED)
    if known in METHODS:
        return "trained"
    if known in (*CONTROLS, BLIND):
        return "controls"
    return "people" if row == PEOPLE else "the start"


def _calibration(system: str, judged: Mapping[str, JudgedScores]) -> str:
    def draw(axes: Axes) -> None:
        axes.grid(True)
        axes.set_axisbelow(True)
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1.0)
        for judge, scored in judged.items():
            bins: Sequence[tuple[float, float, int]] = scored.calibration()
            told, share, sizes = zip(*bins, strict=True)
            areas = [10 + _LARGEST * size / len(scored.labels) for size in sizes]
            axes.scatter(told, share, s=areas, alpha=0.7, label=plots.short(judge))
        axes.set(xlabel="told probability of a person", ylabel="share of people's", xlim=(0, 1), ylim=(0, 1))
        axes.legend()

    return plots.svg((4.2, 3.6), f"{system}, calibration", draw)


_ADVERSUC = SHARE._replace(
    title="AdverSuc", definition="share of pairs that a judge takes for the other side's; 50 %: it cannot tell"
)
_SHOWN = (ADVERSUC, RANDOM, ERE)
"""Metrics that do not stand in the tables alone."""
_NUM_SHOWN = 10
"""Replies of a judge and a system that the viewer holds of either kind."""


class ShownReply(NamedTuple):
    """A system's reply that a judge found most human-like or most machine-like."""

    system: str
    judge: str
    context: list[str]
    reply: str
    score: float


@dataclass(frozen=True, kw_only=True)
class ShownJudging(ShownRun):
    """One adversarial evaluation; its items are fits of judges.

    Args:
        asked: who judged what.
        tables: what was measured, by heading.
        verdicts: what it comes to, in sentences.
        notes: what was left out.
    """

    unit = "fits"
    asked: JudgeSpecs
    tables: Mapping[str, EstimateTable] = field(default_factory=dict)
    verdicts: Sequence[str] = ()
    notes: Sequence[str] = ()

    @cached_property
    def scored(self) -> Mapping[tuple[str, str], JudgedScores]:
        """Return the judges' scores, by scenario and judge."""
        return JudgedRows(self.rows).scored


class JudgedSystems(Chapter[Sequence[ShownJudging]]):
    """The chapter of adversarial evaluations."""

    name, title = "judges", "Judges of generated replies"
    jobs = (EVALUATE_ADVERSARIAL.name,)
    terms: ClassVar = {
        r"\bAdverSuc\b": ("AdverSuc", "1 less a judge's accuracy of telling people's replies from a system's; .5: it cannot."),
        r"\bERE\b": ("ERE", "evaluator reliability error: how far AdverSuc is from gold where the answer is known."),
        r"machine-vs-random": ("Machine-vs-random", "accuracy of telling a system's replies from human ones to other sources."),
        r"\bcontrol": ("Control", "a judge that knows one property of a reply, such as its length."),
    }

    def collect(self, runs: Sequence[Run]) -> Sequence[ShownJudging] | None:
        return [_evaluation(run) for run in runs if run.rows] or None

    def verdict(self, found: Sequence[ShownJudging]) -> Verdict | None:
        """On the first evaluation, in the words of its summary."""
        measured = [each for each in found if each.verdicts]
        if not measured:
            return None
        first = measured[0]
        marks: dict[str, Estimate] = {}
        for judge in first.asked.all_judges:
            for system in first.asked.systems:
                if (estimate := first.metrics.get(f"{ADVERSUC}.{judge}.{system}")) is not None and estimate.n:
                    marks[visible(f"{judge}, {system}")] = estimate
        said = " ".join(map(visible, first.verdicts))
        return Verdict(
            sentence=f"{said}{caveat(*marks.values(), unit='sources')}{others_below(measured)}",
            metric=_ADVERSUC,
            marks=first_marks(marks),
        )

    def render(self, found: Sequence[ShownJudging]) -> Section:
        # matplotlib costs a second, which readers of the verdict need not pay.

        done = [each for each in found if each.metrics]
        items = {each.name: list(_items(each)) for each in done}
        return Section(
            notes=[visible(note) for each in done for note in (*each.verdicts, *each.notes)],
            measured=found,
            tables=tables_of([(each.name, each.tables) for each in done]),
            figures=[drawn for each in done for drawn in _drawn(each, figures_of(each.metrics, each.asked, each.scored))],
            items=[item for shown in items.values() for item in shown],
            chosen={f"{name}: the most human-like reply": shown[0] for name, shown in items.items() if shown},
        )


def _drawn(evaluation: ShownJudging, figures: Sequence[Figure]) -> Iterator[Figure]:
    for each in figures:
        yield Figure(each.name, f"{evaluation.name}, {each.caption}", each.svg)


def _evaluation(run: Run) -> ShownJudging:
    config = from_dict(AdversarialConfig, run.config)
    asked = asked_of(config, run.summary.get(SYSTEMS, []))
    shown = [f"{ADVERSUC}.{judge}.{system}" for judge in asked.judges for system in asked.systems]
    return ShownJudging.of(
        run,
        # All others stand in the tables.
        metrics={name: estimate for name, estimate in run.metrics.items() if name.partition(".")[0] in _SHOWN},
        legend={name: describe(name) for name in (*shown, *run.metrics)},
        asked=asked,
        tables=EVALUATE_ADVERSARIAL.tables(run.folder) if run.metrics else {},
        verdicts=run.summary.get(VERDICTS, []),
        notes=run.summary.get(NOTES, []),
    )


def _items(evaluation: ShownJudging) -> Iterator[Item]:
    """Replies that judges found most human-like, then those that they found most machine-like, by judge and system."""
    found: dict[tuple[str, str], list[ShownReply]] = {}
    for row in evaluation.done:
        kind, _, system = row["scenario"].partition(".")
        if kind == ADVERSUC and row["judge"] in evaluation.asked.judges:
            for each in row["examples"]:
                context = [visible(turn) for turn in each["context"]]
                reply = ShownReply(visible(system), visible(row["judge"]), context, visible(each["reply"]), each["score"])
                found.setdefault((system, row["judge"]), []).append(reply)
    for replies in found.values():
        order = sorted(replies, key=lambda each: (-each.score, each.context, each.reply))
        human, machine = order[:_NUM_SHOWN], order[_NUM_SHOWN:][-_NUM_SHOWN:][::-1]
        for kind, shown in (("human-like", human), ("machine-like", machine)):
            for number, each in enumerate(shown):
                yield Item(
                    kind="reply",
                    key=f"{each.system}-{each.judge}-{kind}-{number:02d}",
                    group=f"{evaluation.name}, {each.system} by {each.judge}",
                    summary=line("{:+.2f}: <q>{}</q>", each.score, each.reply),
                    tags=(f"most {kind}",),
                    values={"score": each.score},
                    body=fill("generation/page/reply.html", item=each, said=f"score {each.score:+.2f}, above 0 for people's"),
                )


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
_ADVERSUC_TRAINING = SHARE._replace(title="AdverSuc", definition="share of pairs that a judge takes for the other side's")


@dataclass(frozen=True, kw_only=True)
class ShownGenerators:
    """The runs of the chapter.

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
    tables: Sequence[tuple[str, EstimateTable]]
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
            return Verdict(sentence=sentence, metric=_ADVERSUC_TRAINING, marks=first_marks(chosen))
        if not found.trainings:
            return None
        first = found.trainings[0]
        after, before = (first.metrics[f"test_{ADVERSUC}{when}"] for when in ("", BEFORE))
        how = {1: "rises", 0: "does not change for certain", -1: "falls"}[certain_sign(first.metrics[GAIN])]
        said = f"{first.name}: AdverSuc {how}, from {before.value:.3f} to {after.value:.3f}; {_beside(first.metrics)}."
        return Verdict(
            sentence=f"{said}{caveat(after, unit='contexts')}",
            metric=_ADVERSUC_TRAINING,
            marks={"start": before, "after": after},
        )

    def render(self, found: ShownGenerators) -> Section:
        # matplotlib costs a second, which readers of the verdict need not pay.

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
