"""Bots that look for the friend both have, from run folders to what their report shows.

Chats for people to read: both tables, and every utterance as it is said beside what is heard, changed words marked.

What bots say is hostile text: it is made visible before it is shown, and the page escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from markupsafe import Markup

from parley.engine.core.page.content import Chapter, Figure, Item, Piece, Run, Section, ShownRun, Verdict, fill, line
from parley.engine.core.page.page import SHARE, caveat, certain_sign, number, others_below
from parley.engine.core.stats.statistics import NOTHING, Estimate, Row
from parley.engine.core.tables.table import EstimateTable
from parley.engine.mutual_friends.metrics.chats import (
    BELIEVED,
    CHANGE,
    COMPLETION,
    MODEL,
    NORMAL,
    by_condition,
    completed_by,
    of,
)
from parley.engine.mutual_friends.metrics.table import overview
from parley.engine.mutual_friends.verbs.config import BLIND, SELECTORS, Condition, tells_lies
from parley.engine.mutual_friends.verbs.evaluate import ATTRIBUTES, CONDITIONS, EVALUATE_COLLABORATION, PAIRS
from parley.engine.perturb.strategies.texts import ChangeKind, aligned
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible

NUM_SHOWN = 12
"""Chats of a condition that the viewer holds."""
_STYLES = ("adversary", "target")
"""Colours of side 0 and of side 1."""


@dataclass(frozen=True)
class ShownFriend:
    """A friend of a table; `shared` is whether both sides have it."""

    values: tuple[str, ...]
    shared: bool


@dataclass(frozen=True)
class ShownTable:
    """The friends of one side."""

    title: str
    style: str
    friends: tuple[ShownFriend, ...]


@dataclass(frozen=True)
class ShownEvent:
    """An utterance as said and as heard, or the selection of a friend."""

    speaker: str
    style: str
    said: Sequence[Piece] = ()
    heard: Sequence[Piece] = ()
    changed: bool = False
    selects: str = ""
    right: bool = False


@dataclass(frozen=True)
class ShownChat:
    """One chat as the page has it."""

    seed: int
    agreed: bool
    outcome: str
    remarks: tuple[str, ...]
    attributes: tuple[str, ...]
    tables: tuple[ShownTable, ...]
    events: tuple[ShownEvent, ...]


def chat_items(rows: Sequence[Row], group: str, limit: int = NUM_SHOWN) -> list[Item]:
    """Some chats of a condition: those that do not end in agreement first, then in a fixed shuffle.

    Args:
        rows: finished chats.
        group: what the condition is called.
        limit: how many at most.
    """
    order = sorted(rows, key=lambda row: (bool(row["agreed"]), stable_hash("report", row["scenario"])))
    return [_item(row, group) for row in order[:limit]]


def read_chat(row: Row) -> ShownChat:
    """A chat, ready to be shown."""
    speakers = [f"side {side}, {visible(name)}" for side, name in enumerate(row["agents"])]
    num = len(row["events"])
    lies = _lies(row)
    believed = sum(bool(lie["believed"]) for lie in lies)
    remarks = [f"selections: {sum(row['num_selections'])}"]
    if lies:
        remarks.append(f"entities replaced: {len(lies)}, believed: {believed}")
    tables = [
        ShownTable(
            speakers[side],
            _STYLES[side],
            tuple(ShownFriend(tuple(map(visible, item)), place == row["shared"][side]) for place, item in enumerate(table)),
        )
        for side, table in enumerate(row["tables"])
    ]
    return ShownChat(
        seed=int(row["seed"]),
        agreed=bool(row["agreed"]),
        outcome=f"agreed after {num} events" if row["agreed"] else f"no agreement in {num} events",
        remarks=tuple(remarks),
        attributes=tuple(map(visible, row["attributes"])),
        tables=tuple(tables),
        events=tuple(_event(row, event, speakers) for event in row["events"]),
    )


def _event(row: Row, event: Row, speakers: Sequence[str]) -> ShownEvent:
    side = int(event["side"])
    if event["selected"] is not None:
        friend = ", ".join(map(visible, row["tables"][side][event["selected"]]))
        return ShownEvent(speakers[side], _STYLES[side], selects=friend, right=event["selected"] == row["shared"][side])
    said, heard = _marked(str(event["said"]), str(event["heard"]))
    return ShownEvent(speakers[side], _STYLES[side], said, heard, event["said"] != event["heard"])


def _marked(said: str, heard: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in stretches, with what the other one does not have marked."""
    old, new = tuple(said.split()), tuple(heard.split())
    before, after = [], []
    for kind, old_place, new_place in aligned(old, new):
        same = kind is ChangeKind.SAME
        if words := old[old_place]:
            before.append(Piece(visible(" ".join(words)), "" if same else "before"))
        if words := new[new_place]:
            after.append(Piece(visible(" ".join(words)), "" if same else "after"))
    return before, after


def _lies(row: Row) -> list[Row]:
    mentions = (mention for event in row["events"] for mention in event["mentions"])
    return [mention for mention in mentions if mention["heard"] not in (None, mention["said"])]


def _item(row: Row, group: str) -> Item:
    shown, lies = read_chat(row), _lies(row)
    said = next((event["said"] for event in row["events"] if event["said"]), "")
    tags = ["agreed" if shown.agreed else "no agreement"]
    tags += ["a lie is believed"] if any(lie["believed"] for lie in lies) else []
    return Item(
        kind="chat",
        key=visible(str(row["item_key"])),
        group=group,
        summary=line("{}: <q>{}</q>", shown.outcome, visible(said)),
        tags=tags,
        values={"events": len(shown.events), "selections": sum(row["num_selections"]), "entities replaced": len(lies)},
        body=fill("mutual_friends/page/chats.html", item=shown),
    )


_FOUND = SHARE._replace(title="Common friend found", definition="share of chats in which both sides select it")
OVERVIEW = "At a glance"
"""Heading of the table that shows what the strategies come to."""
_FEW_SHOWN = 3
"""Chats of a condition that is there for comparison."""
_MOST_POINTS = 24


@dataclass(frozen=True, kw_only=True)
class ShownCollaboration(ShownRun):
    """One evaluation.

    Args:
        tables: what was measured, by heading.
        estimates: all of them, those that are not shown one by one too.
        conditions: pair and strategy, in the order of the table.
        pairs: what pairs are called.
        attributes: what categories of entities are called.
    """

    unit = "chats"
    tables: Mapping[str, EstimateTable] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    conditions: Sequence[Condition] = ()
    pairs: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)

    def completion(self, condition: tuple[str, str]) -> Estimate:
        """Return the share of chats of a condition that find the common friend."""
        return self.estimates[of(COMPLETION, *condition)]

    def title(self, condition: Condition) -> str:
        """Return the title of a condition."""
        strategy = visible(condition.strategy)
        return strategy if condition.pair == MODEL else f"{visible(self.pairs[condition.pair])}, {strategy}"


Shown = Sequence[ShownCollaboration]


class Collaborations(Chapter[Shown]):
    """The chapter of collaborating bots."""

    name, title = "collaboration", "Looking for the common friend"
    jobs = (EVALUATE_COLLABORATION.name,)
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

    def collect(self, runs: Sequence[Run]) -> Shown | None:
        return [_evaluation(run) for run in runs if run.rows] or None

    def verdict(self, found: Shown) -> Verdict | None:
        """On the first evaluation: normal inputs, the strategy that costs most, and what bots reach that only select."""
        measured = [each for each in found if (MODEL, NORMAL) in each.conditions]
        if not measured:
            return None
        first = measured[0]
        normal = first.completion((MODEL, NORMAL))
        told = [f"{visible(first.pairs[MODEL])} finds the common friend in {number(SHARE, normal.value)} of the chats"]
        own = [each for each in first.conditions if each.at_a_glance and each.strategy != NORMAL]
        lost = [each for each in own if certain_sign(first.estimates[of(CHANGE, *each)]) < 0]
        leaned = [normal]
        if lost:
            worst = min(lost, key=lambda each: first.estimates[of(CHANGE, *each)].value)
            leaned.append(first.completion(worst))
            told.append(f"under {first.title(worst)} in {number(SHARE, leaned[-1].value)}")
        elif own:
            told.append("no strategy lowers that for certain")
        selecting = [each for each in first.conditions if each.pair in (SELECTORS, BLIND)]
        told += [
            f"{visible(first.pairs[each.pair])}, who never speak, in {number(SHARE, first.completion(each).value)}"
            for each in selecting
        ]
        shown = [each for each in first.conditions if each.pair == MODEL or each.strategy == NORMAL]
        return Verdict(
            sentence=f"{'; '.join(told)}.{caveat(*leaned, unit='chats')}{others_below(measured)}",
            metric=_FOUND,
            marks={first.title(each): first.completion(each) for each in shown},
        )

    def render(self, found: Shown) -> Section:
        done = [each for each in found if each.done and each.conditions]
        names = {id(each): f"{each.name}: " if len(done) > 1 else "" for each in done}
        items = {
            (condition, f"{names[id(each)]}{each.title(condition)}"): rows
            for each in done
            for condition, rows in _chats(each).items()
        }
        shown = {
            (condition, name): chat_items(rows, name, NUM_SHOWN if condition.pair == MODEL else _FEW_SHOWN)
            for (condition, name), rows in items.items()
        }
        return Section(
            notes=[f"{each.name}: {each.description}" for each in done if each.description],
            measured=found,
            tables=[(f"{names[id(each)]}{title}", table) for each in done for title, table in each.tables.items()],
            figures=[figure for each in done for figure in figures_of(each)],
            items=[item for chats in shown.values() for item in chats],
            chosen={f"{name}: an example": chats[0] for (condition, name), chats in shown.items() if condition.at_a_glance},
        )


def figures_of(evaluation: ShownCollaboration) -> list[Figure]:
    """Completion over the events of a chat, by strategy and by who plays, and which attribute confuses most."""
    # matplotlib costs a second, which readers of verdicts need not pay.
    from parley.engine.core.page import plots

    chats = _chats(evaluation)
    own = {visible(each.strategy): each for each in chats if each.pair == MODEL and not each.one_sided}
    pairs = {visible(evaluation.pairs[each.pair]): each for each in chats if each.strategy == NORMAL}
    most = max(len(row["events"]) for rows in chats.values() for row in rows)
    budgets = range(0, most + 1, -(-most // _MOST_POINTS))
    figures = []
    for title, chosen in (("Completion by strategy", own), ("Completion by who plays", pairs)):
        if len(chosen) > 1:
            series = {name: completed_by(chats[each], budgets) for name, each in chosen.items()}
            drawn = plots.budget_svg(f"{evaluation.name}: {title}", "events so far", series, "share of chats in agreement")
            caption = f"{evaluation.name}; share of chats in agreement within so many events; bands are 95 % intervals"
            figures.append(Figure(title, caption, Markup(drawn)))
    believed = {
        strategy: {
            visible(name): share
            for kind, name in evaluation.attributes.items()
            if (share := evaluation.estimates.get(of(BELIEVED, *each, kind), NOTHING)).n
        }
        for strategy, each in {visible(each.strategy): each for each in chats if each.pair == MODEL}.items()
        if tells_lies(each.hearing)
    }
    if names := sorted({name for by_name in believed.values() for name in by_name}):
        title, unit = "Lies believed by attribute", "% of replaced entities"
        drawn = plots.dots_svg(f"{evaluation.name}: {title}", unit, names, {k: v for k, v in believed.items() if v}, 100.0)
        caption = f"{evaluation.name}; the listener next names the new entity or selects an item that has it; 95 % intervals"
        figures.append(Figure(title, caption, Markup(drawn)))
    return figures


def _chats(evaluation: ShownCollaboration) -> dict[Condition, list[Row]]:
    return {Condition(*condition): rows for condition, rows in by_condition(evaluation.rows).items()}


def _evaluation(run: Run) -> ShownCollaboration:
    conditions = [Condition(*each) for each in run.summary.get(CONDITIONS, [])]
    glance = [each for each in conditions if each.at_a_glance]
    return ShownCollaboration.of(
        run,
        # They stand in the tables.
        metrics={},
        estimates=run.metrics,
        tables={OVERVIEW: overview(run.metrics, glance), **EVALUATE_COLLABORATION.tables(run.folder)} if run.metrics else {},
        conditions=conditions,
        pairs=run.summary.get(PAIRS, {}),
        attributes=run.summary.get(ATTRIBUTES, {}),
    )
