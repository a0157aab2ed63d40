"""Adversarial evaluations, from run folders to what their report shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

from parley.engine.core.page.content import Chapter, Item, Section, ShownRun, Verdict, tables_of
from parley.engine.core.page.figure import Figure
from parley.engine.core.page.markup import fill, line
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import SHARE, caveat, first_marks, others_below
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.stats.tables import TextTable
from parley.engine.generation.metrics.adversarial import ERE, JudgedRows, JudgedScores, describe
from parley.engine.generation.metrics.scenarios import ADVERSUC, RANDOM
from parley.engine.generation.metrics.tables import AskedJudges
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL, NOTES, SYSTEMS, VERDICTS, asked_of
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig
from parley.envs.core.config import from_dict
from parley.envs.core.visible import visible

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
    asked: AskedJudges
    tables: Mapping[str, TextTable] = field(default_factory=dict)
    verdicts: Sequence[str] = ()
    notes: Sequence[str] = ()

    @cached_property
    def scored(self) -> Mapping[tuple[str, str], JudgedScores]:
        """What judges said, by scenario and judge."""
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
        from parley.engine.generation.page.figures import figures_of

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
