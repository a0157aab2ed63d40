"""Chats for people to read: both tables, and every utterance as it is said beside what is heard, changed words marked.

What bots say is hostile text: it is made visible before it is shown, and the page escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parley.engine.core.page.content import Item, Piece
from parley.engine.core.page.markup import fill, line
from parley.engine.core.stats.rows import Row
from parley.engine.perturb.strategies.changes import ChangeKind, aligned
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
