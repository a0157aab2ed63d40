"""The chapters of generation: trainings beside their controls, and adversarial evaluations.

Plots show judges (AdverSuc and calibration) and trainings by quality and diversity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from parley.engine.core.page.content import Chapter, CurveSource, Figure, Item, Run, Stages, Verdict, read_curves
from parley.engine.core.page.markup import badges, joined, line, paragraphs, sides
from parley.engine.core.page.page import SHARE, brief_name, certain_sign, first_marks, number
from parley.engine.core.stats.known import BEFORE
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric
from parley.engine.generation.metrics.adversarial import ADVERSUC, ERE, RANDOM, JudgedRows, JudgedScores, describe
from parley.engine.generation.metrics.tables import JudgeSpecs, by_judge, headline_judge
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
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL, NOTES, RETRIEVED, SYSTEMS, VERDICTS, judge_specs
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig
from parley.engine.generation.verbs.config import REWARDS_OF_WORDS
from parley.engine.generation.verbs.minmax import MINMAX_REPLIES
from parley.engine.generation.verbs.table import CONCLUDED, EVALUATE_GENERATION, PLACED, replies_side_by_side
from parley.envs.core.config import from_dict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LARGEST = 160.0
"""Area of a dot that stands for all pairs, in square points."""
_LABEL = (70.0, 11.0)
"""Width and height that a row's name takes, in pixels."""
_ADVERSUC = SHARE._replace(
    title="AdverSuc", definition="share of pairs that a judge takes for the other side's; 50 %: it cannot tell"
)
_NUM_SHOWN = 10
"""Replies of a judge and a system that the viewer holds of either kind."""
_MOST_WORDS = 24
"""Words of a conclusion that a verdict has room for; the whole conclusion is folded."""


class JudgedSystems(Chapter):
    """The chapter of adversarial evaluations."""

    name, title, unit = "judges", "Judges of generated replies", "fits"
    jobs = (EVALUATE_ADVERSARIAL.name,)
    terms: ClassVar = {
        r"\bAdverSuc\b": ("AdverSuc", "1 less a judge's accuracy of telling people's replies from a system's; .5: it cannot."),
        r"\bERE\b": ("ERE", "evaluator reliability error: how far AdverSuc is from gold where the answer is known."),
        r"machine-vs-random": ("Machine-vs-random", "accuracy of telling a system's replies from human ones to other sources."),
        r"\bcontrol": ("Control", "a judge that knows one property of a reply, such as its length."),
    }

    def verdict_of(self, run: Run) -> Verdict | None:
        sentences = run.summary.get(VERDICTS, [])
        marks = {
            (judge, system): share
            for judge in _judging(run).all_judges
            for system in _judging(run).systems
            if (share := run.metrics.get(f"{ADVERSUC}.{judge}.{system}", NOTHING)).n
        }
        named = {pair: share for pair, share in marks.items() if pair[0] in _judging(run).judges}
        retrieved = run.summary.get(RETRIEVED, [])
        judged = (system for system in _judging(run).systems if system not in retrieved)
        first = next((system for system in judged if any(system == other for _, other in named)), None)
        if not sentences or first is None:
            return None
        judges = [judge for judge, system in named if system == first]
        best = headline_judge(run.metrics, judges), first
        outcome = brief_name(re.sub(r" \([^)]*\)", "", sentences[0]).rstrip("."), _MOST_WORDS - 6)
        doubts = [sentence for sentence in sentences if sentence.startswith("ERE ")]
        doubts += [f"{system} repeats people's replies to other sources: do not read its AdverSuc." for system in retrieved]
        return Verdict(
            sentence=f"{outcome}; AdverSuc {number(SHARE, named[best].value)} {by_judge(run.metrics, judges)}.",
            metric=_ADVERSUC,
            number=named[best],
            unit="sources",
            marks=first_marks({f"{judge}, {system}": share for (judge, system), share in marks.items()}),
            warnings=doubts,
            details=[sentence for sentence in sentences if sentence not in doubts],
        )

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        return {name: share for name, share in run.metrics.items() if name.partition(".")[0] in (ADVERSUC, RANDOM, ERE)}

    def legend(self, run: Run) -> Mapping[str, Metric]:
        judging = _judging(run)
        first = [f"{ADVERSUC}.{judge}.{system}" for judge in judging.judges for system in judging.systems]
        return {name: describe(name) for name in (*first, *run.metrics)}

    def notes(self, run: Run) -> Iterable[str]:
        return [*run.summary.get(VERDICTS, []), *run.summary.get(NOTES, [])]

    def figures(self, run: Run) -> Iterable[Figure]:
        """Draw AdverSuc beside machine-vs-random, and the calibration of each named judge, system by system."""
        from parley.engine.core.page import plots

        judging, scored = _judging(run), run.read(JudgedRows).scored
        for system in judging.systems if run.metrics else ():
            series = {
                title: {
                    judge: share
                    for judge in judging.all_judges
                    if (share := run.metrics.get(f"{kind}.{judge}.{system}", NOTHING)).n
                }
                for title, kind in (("AdverSuc", ADVERSUC), ("machine-vs-random", RANDOM))
            }
            caption = f"{system}: AdverSuc and machine-vs-random by judge; bars are 95 % intervals"
            yield plots.dots("AdverSuc by judge", caption, "% of pairs", judging.all_judges, series, 100.0)
            keys = {judge: (f"{ADVERSUC}.{system}", judge) for judge in judging.judges}
            if judged := {judge: scored[key] for judge, key in keys.items() if key in scored}:
                caption = f"{system}: share of people's replies by the told probability, 1 / (1 + exp(-score))"
                draw = partial(_draw_calibration, judged)
                yield Figure("Calibration of the judges", caption, size=(4.2, 3.6), draw=draw)

    def items(self, run: Run) -> Iterable[tuple[str, Iterable[Item]]]:
        """Return the replies that judges found most human-like, then most machine-like, by judge and system."""
        replies_of: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in run.done if run.metrics else ():
            kind, _, system = row["scenario"].partition(".")
            if kind == ADVERSUC and row["judge"] in _judging(run).judges:
                replies_of.setdefault((system, row["judge"]), []).extend(row["examples"])
        link = "the most human-like reply"
        for (system, judge), replies in replies_of.items():
            order = sorted(replies, key=lambda reply: (-reply["score"], reply["context"], reply["reply"]))
            kinds = {"human-like": order[:_NUM_SHOWN], "machine-like": order[_NUM_SHOWN:][-_NUM_SHOWN:][::-1]}
            chosen = [(kind, place, reply) for kind, shown in kinds.items() for place, reply in enumerate(shown)]
            yield f"{system} by {judge}", [_reply(system, judge, *reply, link * (not i)) for i, reply in enumerate(chosen)]
            link = ""


def _judging(run: Run) -> JudgeSpecs:
    return judge_specs(from_dict(AdversarialConfig, run.config), run.summary.get(SYSTEMS, []))


def _reply(system: str, judge: str, kind: str, place: int, reply: Mapping[str, Any], link: str) -> Item:
    score = reply["score"]
    return Item(
        kind="reply",
        key=f"{system}-{judge}-{kind}-{place:02d}",
        summary=line("{:+.2f}: <q>{}</q>", score, reply["reply"]),
        body=joined(
            [
                paragraphs(reply["context"]),
                sides([], [(system, reply["reply"])]),
                badges([(f"{judge}: score {score:+.2f}, above 0 for people's", score > 0)]),
            ]
        ),
        tags=(f"most {kind}",),
        values={"score": score},
        link=link,
    )


def _draw_calibration(judged: Mapping[str, JudgedScores], axes: Axes) -> None:
    from parley.engine.core.page.plots import short

    axes.grid(True)
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1.0)
    for judge, scored in judged.items():
        bins: Sequence[tuple[float, float, int]] = scored.calibration()
        probability, share, sizes = zip(*bins, strict=True)
        areas = [10 + _LARGEST * size / len(scored.labels) for size in sizes]
        axes.scatter(probability, share, s=areas, alpha=0.7, label=short(judge))
    axes.set(xlabel="told probability of a person", ylabel="share of people's", xlim=(0, 1), ylim=(0, 1))
    axes.legend()


class TrainedGenerators(Chapter):
    """The chapter of generators that learned from a discriminator."""

    name, title, unit = "generators", "Generators against discriminators", "trainings"
    jobs = (MINMAX_REPLIES.name, EVALUATE_GENERATION.name)
    stages: ClassVar = {
        EVALUATE_GENERATION.name: Stages({f"{row}-1": title for row, title in TRAINED.items()}, others="hidden")
    }
    curves = (
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
    terms: ClassVar = {
        r"\bREINFORCE\b": ("REINFORCE", "every word of a reply earns what the discriminator says of the whole reply."),
        r"\bREGS\b": ("REGS", "reward for every generation step: each word earns what the beginning that it ends is worth."),
        r"\bself-BLEU\b": ("Self-BLEU", "how alike replies are: BLEU of each against all others."),
        r"\boverlap\b": ("Overlap", "of histograms of vectors of replies with people's, as MAUVE; 1: equal."),
    }

    def shows(self, run: Run) -> bool:
        return bool(run.metrics or read_curves(self.curves, [run]))

    def verdict(self, runs: Sequence[Run]) -> Verdict | None:
        tables = [run for run in runs if run.job == EVALUATE_GENERATION.name and run.metrics]
        return super().verdict(tables or runs)

    def verdict_of(self, run: Run) -> Verdict | None:
        if not run.metrics:
            return None
        return _table_verdict(run) if run.job == EVALUATE_GENERATION.name else _training_verdict(run)

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        return run.metrics if run.job == MINMAX_REPLIES.name else {}

    def notes(self, run: Run) -> Iterable[str]:
        placed: Sequence[str] = run.summary.get(PLACED, ())
        return placed

    def figures(self, run: Run) -> Iterable[Figure]:
        return quality_figures(run.metrics) if run.job == EVALUATE_GENERATION.name else ()

    def items(self, run: Run) -> Iterable[tuple[str, Iterable[Item]]]:
        if run.job == EVALUATE_GENERATION.name and run.metrics:
            entries = replies_side_by_side(run.folder.path)
            yield "replies of all rows", (_side_by_side(number, entry) for number, entry in enumerate(entries))
        elif run.job == MINMAX_REPLIES.name:
            events = run.folder.events({REWARDS_OF_WORDS: {"replies": list}})
            replies: Sequence[Mapping[str, Any]] = next(
                (event["replies"] for event in reversed(events) if event["kind"] == REWARDS_OF_WORDS), []
            )
            yield "rewards of words", (_earned(number, reply) for number, reply in enumerate(replies))


def _table_verdict(run: Run) -> Verdict | None:
    """Return the conclusion of a table of trainings, with the first training's AdverSuc by the first judge."""
    names: dict[str, str] = {}
    for name in run.metrics:
        if LESS not in name and f".{ADVERSUC}-" in name:
            names.setdefault(name.rpartition(".")[0], name)
    # Trainings beside their controls first, for there is not room for all rows.
    marks = {row_title(row): run.metrics[names[row]] for row in (*TRAINED, *DECODED) if row in names}
    if not marks:
        return None
    sentences = [str(sentence) for sentence in run.summary.get(CONCLUDED, [])]
    first = sentences[0] if sentences else "No training stands beside a control."
    brief = brief_name(first, _MOST_WORDS)
    doubts = [sentence for sentence in sentences if "(ERE)" in sentence]
    return Verdict(
        sentence=brief,
        metric=_ADVERSUC,
        number=next(iter(marks.values())),
        unit="sources",
        marks=first_marks(marks),
        warnings=doubts,
        details=[sentence for sentence in sentences[brief == first :] if sentence not in doubts],
    )


def _training_verdict(run: Run) -> Verdict:
    """Return whether AdverSuc of a training rises, with machine-vs-random, which always goes with it."""
    metrics = run.metrics
    after, before = (metrics[f"test_{ADVERSUC}{when}"] for when in ("", BEFORE))
    how = {1: "rises", 0: "does not change for certain", -1: "falls"}[certain_sign(metrics[GAIN])]
    now, then = (metrics.get(f"test_{RANDOM}{when}", NOTHING) for when in ("", BEFORE))
    beside = "Machine-vs-random was not measured."
    if now.n and then.n:
        beside = f"Machine-vs-random goes from {then.value:.3f} to {now.value:.3f}."
    return Verdict(
        sentence=f"{brief_name(run.heading)}: AdverSuc {how}, from {before.value:.3f} to {after.value:.3f}.",
        metric=_ADVERSUC,
        number=after,
        unit="contexts",
        marks={"start": before, "after": after},
        details=[beside],
    )


def quality_figures(metrics: Mapping[str, Estimate]) -> Iterator[Figure]:
    """Draw rows of a table of trainings by diversity and quality, with the start at rising temperatures as a line."""
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in metrics if LESS not in name))
    for x_name, y_name in ((DISTINCT_2, PERPLEXITY), (SELF_BLEU, OVERLAP)):
        points = {
            row: (metrics[x].value, metrics[y].value)
            for row in names
            if (x := f"{row}.{x_name}") in metrics and (y := f"{row}.{y_name}") in metrics
        }
        if points:
            x_title, y_title = (QUALITY[name].title for name in (x_name, y_name))
            caption = (
                f"{y_title} by {x_title}; the line is the start, sampled at rising temperatures; named where there is room"
            )
            draw = partial(_draw_quality, points, x_title, y_title)
            yield Figure("Quality and diversity", caption, size=(5.4, 3.8), draw=draw)


def _draw_quality(points: Mapping[str, tuple[float, float]], x_title: str, y_title: str, axes: Axes) -> None:
    from parley.engine.core.page.plots import SERIES

    axes.grid(True)
    warmth = {row: 1.0 if row == "sample" else float(row.removeprefix(AT)) for row in points if row.startswith(("sample", AT))}
    curve = [points[row] for row in sorted(warmth, key=lambda row: warmth[row])]
    if curve:
        axes.plot(*zip(*curve, strict=True), color="0.6", linewidth=1.4, marker=".", zorder=1)
    kinds: dict[str, list[str]] = {"the start": [*warmth], "controls": [], "trained": [], "people": []}
    for row in (row for row in points if row not in warmth):
        trained = row.removesuffix(SAMPLED)
        kind = "trained" if trained in METHODS else "controls" if trained in (*CONTROLS, BLIND) else "the start"
        kinds["people" if row == PEOPLE else kind].append(row)
    for (kind, rows), colour in zip(kinds.items(), SERIES, strict=False):
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
        # Labels that overlap would hide each other; the table has all rows.
        if not any(abs(x - other_x) < _LABEL[0] and abs(y - other_y) < _LABEL[1] for other_x, other_y in taken):
            axes.annotate(row, points[row], xytext=(4, 3), textcoords="offset points", fontsize=7)
            taken.append((x, y))


def _side_by_side(place: int, entry: Mapping[str, Any]) -> Item:
    replies = [(row_title(row), reply) for row, reply in entry["replies"].items()]
    return Item(
        kind="context",
        key=f"replies-{place:02d}",
        summary=line("<q>{}</q>", entry["context"][-1]),
        body=joined([paragraphs(entry["context"]), sides([], replies)]),
        link="an example" * (not place),
    )


def _earned(place: int, reply: Mapping[str, Any]) -> Item:
    """Return a reply with its words coloured by rewards, for each method."""
    rows = []
    for method, values in reply["rewards"].items():
        words = joined(
            (
                line('<span class="earned" style="--earned: {:.0f}%" title="{:.3f}">{}</span>', 100 * value, value, word)
                for word, value in zip(reply["reply"], values, strict=True)
            ),
            " ",
        )
        rows += [(METHODS[method], words), ("", " ".join(f"{value:.2f}" for value in values))]
    about = "What each word earned, 0 to 1: the darker the ground, the more like a person's."
    return Item(
        kind="reward",
        key=f"rewards-{place:02d}",
        summary=line("<q>{}</q>", " ".join(reply["reply"])),
        body=joined([paragraphs([reply["context"]]), sides([], rows), line('<p class="muted">{}</p>', about)]),
        values={"largest less smallest reward": max(max(values) - min(values) for values in reply["rewards"].values())},
        link="an example" * (not place),
    )
