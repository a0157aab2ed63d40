"""Chapters of bots that look for their common friend: evaluations, and campaigns that harden bots against liars.

The viewer shows chats: both tables, and every utterance as said beside the utterance as heard, changed words marked. The words
of bots are hostile text: they are made visible before they are shown, and the page escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from markupsafe import Markup

from parley.engine.core.page.content import (
    Chapter,
    Figure,
    Item,
    Piece,
    Run,
    Section,
    ShownRun,
    Stages,
    Verdict,
    fill,
    line,
)
from parley.engine.core.page.page import SHARE, caveat, certain_sign, number, others_below
from parley.engine.core.page.trainings import CurveSource, Hardenings, certainly
from parley.engine.core.stats.known import EXPLOITABILITY
from parley.engine.core.stats.statistics import NOTHING, Estimate, Row
from parley.engine.core.tables.table import EstimateTable
from parley.engine.mutual_friends.metrics.chats import (
    BELIEVED,
    CHANGE,
    MODEL,
    NORMAL,
    by_condition,
    completed_by,
    of,
)
from parley.engine.mutual_friends.metrics.chats import COMPLETION as CHAT_COMPLETION
from parley.engine.mutual_friends.metrics.lying import (
    COMPLETION,
    ENDINGS,
    GAINS,
    HARM,
    HONEST,
    LIARS,
    LYING,
    ON_RANDOM_LIES,
    RANDOM,
    WITHOUT_LIES,
)
from parley.engine.mutual_friends.metrics.table import overview
from parley.engine.mutual_friends.verbs.config import BLIND, SELECTORS, Condition, tells_lies
from parley.engine.mutual_friends.verbs.evaluate import ATTRIBUTES, CONDITIONS, EVALUATE_MUTUAL_FRIENDS, PAIRS
from parley.engine.mutual_friends.verbs.minmax import MINMAX_FRIENDS
from parley.engine.perturb.strategies.texts import ChangeKind, aligned
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible

NUM_SHOWN = 12
"""Chats of a condition in the viewer."""
_STYLES = ("adversary", "target")
"""Colours of side 0 and of side 1."""


def chat_items(rows: Sequence[Row], group: str, limit: int = NUM_SHOWN) -> list[Item]:
    """Choose chats of a condition: those without agreement first, then in a fixed shuffle.

    Args:
        rows: finished chats.
        group: name of the condition.
        limit: the most chats.
    """
    order = sorted(rows, key=lambda row: (bool(row["agreed"]), stable_hash("report", row["scenario"])))
    return [_item(row, group) for row in order[:limit]]


def read_chat(row: Row) -> dict[str, Any]:
    """Return a chat as the fields of `chats.html`: outcome, remarks, the tables of both sides, and events."""
    speakers = [f"side {side}, {visible(name)}" for side, name in enumerate(row["agents"])]
    lies, num = _lies(row), len(row["events"])
    remarks = [f"selections: {sum(row['num_selections'])}"]
    if lies:
        remarks.append(f"entities replaced: {len(lies)}, believed: {sum(bool(lie['believed']) for lie in lies)}")
    return {
        "seed": int(row["seed"]),
        "agreed": bool(row["agreed"]),
        "outcome": f"agreed after {num} events" if row["agreed"] else f"no agreement in {num} events",
        "remarks": remarks,
        "attributes": list(map(visible, row["attributes"])),
        "tables": [
            {
                "title": speakers[side],
                "style": _STYLES[side],
                "friends": [
                    {"cells": list(map(visible, friend)), "shared": index == row["shared"][side]}
                    for index, friend in enumerate(table)
                ],
            }
            for side, table in enumerate(row["tables"])
        ],
        "events": [_event(row, event, speakers) for event in row["events"]],
    }


def _event(row: Row, event: Row, speakers: Sequence[str]) -> dict[str, Any]:
    side = int(event["side"])
    fields: dict[str, Any] = {"speaker": speakers[side], "style": _STYLES[side]}
    if event["selected"] is not None:
        friend = ", ".join(map(visible, row["tables"][side][event["selected"]]))
        return fields | {"selects": friend, "right": event["selected"] == row["shared"][side]}
    as_said, as_heard = _marked(str(event["said"]), str(event["heard"]))
    return fields | {"selects": "", "said": as_said, "heard": as_heard, "changed": event["said"] != event["heard"]}


def _marked(as_said: str, as_heard: str) -> tuple[list[Piece], list[Piece]]:
    """Split both texts into pieces, with marks on the words that the other text lacks."""
    old, new = tuple(as_said.split()), tuple(as_heard.split())
    before, after = [], []
    for kind, old_span, new_span in aligned(old, new):
        same = kind is ChangeKind.SAME
        if words := old[old_span]:
            before.append(Piece(visible(" ".join(words)), "" if same else "before"))
        if words := new[new_span]:
            after.append(Piece(visible(" ".join(words)), "" if same else "after"))
    return before, after


def _lies(row: Row) -> list[Row]:
    mentions = (mention for event in row["events"] for mention in event["mentions"])
    return [mention for mention in mentions if mention["heard"] not in (None, mention["said"])]


def _item(row: Row, group: str) -> Item:
    chat, lies = read_chat(row), _lies(row)
    first = next((event["said"] for event in row["events"] if event["said"]), "")
    tags = ["agreed" if chat["agreed"] else "no agreement"]
    tags += ["a lie is believed"] if any(lie["believed"] for lie in lies) else []
    return Item(
        kind="chat",
        key=visible(str(row["item_key"])),
        group=group,
        summary=line("{}: <q>{}</q>", chat["outcome"], visible(first)),
        tags=tags,
        values={"events": len(chat["events"]), "selections": sum(row["num_selections"]), "entities replaced": len(lies)},
        body=fill("mutual_friends/page/chats.html", item=chat),
    )


_COMMON_FRIEND = SHARE._replace(title="Common friend found", definition="share of chats in which both sides select it")
OVERVIEW = "At a glance"
"""Heading of the table of the strategies' effects."""
_FEW_SHOWN = 3
"""Chats of a control condition in the viewer."""
_MOST_POINTS = 24


@dataclass(frozen=True, kw_only=True)
class MutualFriendsRun(ShownRun):
    """A run of an evaluation.

    Args:
        tables: by heading.
        estimates: all metrics; the tables show them.
        conditions: pair and strategy, in the order of the table.
        pairs: names of pairs.
        attributes: names of categories of entities.
    """

    unit = "chats"
    tables: Mapping[str, EstimateTable] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    conditions: Sequence[Condition] = ()
    pairs: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)

    def completion(self, condition: tuple[str, str]) -> Estimate:
        """Return the share of chats of a condition that find the common friend."""
        return self.estimates[of(CHAT_COMPLETION, *condition)]

    def title(self, condition: Condition) -> str:
        """Return the title of a condition."""
        strategy = visible(condition.strategy)
        return strategy if condition.pair == MODEL else f"{visible(self.pairs[condition.pair])}, {strategy}"

    @property
    def chats(self) -> dict[Condition, list[Row]]:
        """The finished chats by condition."""
        return {Condition(*condition): rows for condition, rows in by_condition(self.rows).items()}


Runs = Sequence[MutualFriendsRun]


class MutualFriendsChapter(Chapter[Runs]):
    """The chapter of evaluations."""

    name, title = "collaboration", "Looking for the common friend"
    jobs = (EVALUATE_MUTUAL_FRIENDS.name,)
    terms: ClassVar = {
        r"\bcompletion\b": ("Completion", "both sides have selected the friend that stands in both tables."),
        r"\bturns\b": ("Turns", "events of a chat: utterances and selections."),
        r"random-inputs": ("random-inputs", "every word of the partner is heard as a random one."),
        r"kept-entities": ("kept-entities", "the same, but names of friends, schools and the like are heard as they are."),
        r"confusing-entity": (
            "confusing-entity",
            "names are heard as others of their category that the listener has, but not the common friend.",
        ),
        r"one-sided": ("one-sided", "the words of side 0 alone are changed."),
        r"strange-entities": ("strange-entities", "random words, and names that stand in neither table."),
        r"unheard": ("unheard", "of the partner nothing is noticed but its selections."),
        r"selectors": ("Selectors", "bots that never speak and select at random; blind ones do not look at the other's."),
    }

    def collect(self, runs: Sequence[Run]) -> Runs | None:
        return [_evaluation(run) for run in runs if run.rows] or None

    def verdict(self, runs: Runs) -> Verdict | None:
        """Answer for the first evaluation: normal inputs, the costliest strategy, and bots that only select."""
        measured = [run for run in runs if (MODEL, NORMAL) in run.conditions]
        if not measured:
            return None
        first = measured[0]
        normal = first.completion((MODEL, NORMAL))
        sentences = [f"{visible(first.pairs[MODEL])} finds the common friend in {number(SHARE, normal.value)} of the chats"]
        strategies = [condition for condition in first.conditions if condition.at_a_glance and condition.strategy != NORMAL]
        changes = {condition: first.estimates[of(CHANGE, *condition)] for condition in strategies}
        lowered = [condition for condition, change in changes.items() if certain_sign(change) < 0]
        leaned = [normal]
        if lowered:
            worst = min(lowered, key=lambda condition: changes[condition].value)
            leaned.append(first.completion(worst))
            sentences.append(f"under {first.title(worst)} in {number(SHARE, leaned[-1].value)}")
        elif strategies:
            sentences.append("no strategy lowers that for certain")
        sentences += [
            f"{visible(first.pairs[condition.pair])}, who never speak, in {number(SHARE, first.completion(condition).value)}"
            for condition in first.conditions
            if condition.pair in (SELECTORS, BLIND)
        ]
        marked = [condition for condition in first.conditions if condition.pair == MODEL or condition.strategy == NORMAL]
        return Verdict(
            sentence=f"{'; '.join(sentences)}.{caveat(*leaned, unit='chats')}{others_below(measured)}",
            metric=_COMMON_FRIEND,
            marks={first.title(condition): first.completion(condition) for condition in marked},
        )

    def render(self, runs: Runs) -> Section:
        done = [run for run in runs if run.done and run.conditions]
        prefixes = [f"{run.name}: " if len(done) > 1 else "" for run in done]
        items = {
            (condition, name): chat_items(rows, name, NUM_SHOWN if condition.pair == MODEL else _FEW_SHOWN)
            for run, prefix in zip(done, prefixes, strict=True)
            for condition, rows in run.chats.items()
            for name in (f"{prefix}{run.title(condition)}",)
        }
        return Section(
            notes=[f"{run.name}: {run.description}" for run in done if run.description],
            measured=runs,
            tables=[
                (f"{prefix}{title}", table)
                for run, prefix in zip(done, prefixes, strict=True)
                for title, table in run.tables.items()
            ],
            figures=[figure for run in done for figure in figures_of(run)],
            items=[item for chats in items.values() for item in chats],
            chosen={f"{name}: an example": chats[0] for (condition, name), chats in items.items() if condition.at_a_glance},
        )


def figures_of(run: MutualFriendsRun) -> list[Figure]:
    """Draw completion over the events of a chat, by strategy and by pair, and the lies believed by attribute."""
    # matplotlib costs a second, which readers of verdicts need not pay.
    from parley.engine.core.page import plots

    chats = run.chats
    by_strategy = {visible(at.strategy): at for at in chats if at.pair == MODEL and not at.one_sided}
    by_pair = {visible(run.pairs[at.pair]): at for at in chats if at.strategy == NORMAL}
    most = max(len(row["events"]) for rows in chats.values() for row in rows)
    budgets = range(0, most + 1, -(-most // _MOST_POINTS))
    figures = []
    for title, chosen in (("Completion by strategy", by_strategy), ("Completion by who plays", by_pair)):
        if len(chosen) > 1:
            series = {name: completed_by(chats[condition], budgets) for name, condition in chosen.items()}
            drawn = plots.budget_svg(f"{run.name}: {title}", "events so far", series, "share of chats in agreement")
            caption = f"{run.name}; share of chats in agreement within so many events; bands are 95 % intervals"
            figures.append(Figure(title, caption, Markup(drawn)))
    believed = {
        visible(condition.strategy): {
            visible(name): share
            for kind, name in run.attributes.items()
            if (share := run.estimates.get(of(BELIEVED, *condition, kind), NOTHING)).n
        }
        for condition in chats
        if condition.pair == MODEL and tells_lies(condition.hearing)
    }
    if names := sorted({name for by_name in believed.values() for name in by_name}):
        title, unit = "Lies believed by attribute", "% of replaced entities"
        drawn = plots.dots_svg(f"{run.name}: {title}", unit, names, {k: v for k, v in believed.items() if v}, 100.0)
        caption = f"{run.name}; the listener next names the new entity or selects an item that has it; 95 % intervals"
        figures.append(Figure(title, caption, Markup(drawn)))
    return figures


def _evaluation(run: Run) -> MutualFriendsRun:
    conditions = [Condition(*names) for names in run.summary.get(CONDITIONS, [])]
    at_a_glance = [condition for condition in conditions if condition.at_a_glance]
    tables = {OVERVIEW: overview(run.metrics, at_a_glance), **EVALUATE_MUTUAL_FRIENDS.tables(run.folder)} if run.metrics else {}
    return MutualFriendsRun.of(
        run,
        # The tables show them.
        metrics={},
        estimates=run.metrics,
        tables=tables,
        conditions=conditions,
        pairs=run.summary.get(PAIRS, {}),
        attributes=run.summary.get(ATTRIBUTES, {}),
    )


class HardenedFriends(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-friends", "Hardened against liars"
    job, unhelped = MINMAX_FRIENDS, MINMAX_FRIENDS.unhelped
    words = LIARS
    sources: ClassVar = (
        CurveSource(
            "round",
            "harm",
            "mean over chats",
            {"fresh liar": HARM, "random lies": f"{HARM}{RANDOM}", "no lies": f"{HARM}{HONEST}"},
        ),
        CurveSource(
            "round", "common friend found", "share of chats", {"fresh liar": COMPLETION, "no lies": f"{COMPLETION}{HONEST}"}
        ),
    )
    stages: ClassVar = {MINMAX_FRIENDS.name: Stages({}, others="hidden")}
    terms: ClassVar = {
        r"\bliars?\b": ("Liar", "a network that chooses when a side claims a friend that nobody of its table is, and which."),
        r"\bharm\b": ("Harm", "1 for a chat without agreement, else less, the sooner it agrees."),
    }

    def verdict_of(self, metrics: Mapping[str, Estimate]) -> Verdict:
        """Return the harm of the best known liar to start, controls and result."""
        # A campaign of an older version was measured by fresh liars alone.
        figure, liar = (EXPLOITABILITY, "best known") if EXPLOITABILITY in metrics else (HARM, "fresh")
        marks = {column: metrics[name] for column, ending in ENDINGS.items() if (name := f"{figure}{ending}") in metrics}
        harms = [f"{number(LYING[HARM], marks['after'].value)} after the hardening"]
        names = {"before": "before it", WITHOUT_LIES: "after as much training without lies", ON_RANDOM_LIES: "on random lies"}
        harms += [
            f"{number(LYING[HARM], marks[column].value)} {names[column]}{certainly(metrics[gain], 'more', 'less')}"
            for column, gain in GAINS.items()
            if gain in metrics
        ]
        sentence = f"The {liar} liar's harm is {', '.join(harms)}.{caveat(*marks.values(), unit='chats')}"
        return Verdict(sentence=sentence, metric=LYING[HARM]._replace(title=f"Harm of the {liar} liar"), marks=marks)
