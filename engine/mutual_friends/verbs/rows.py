"""The rows of chats between two bots that look for the friend both have: one chat under one condition each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from parley.engine.core.runs.schemas import list_of, ok_row, with_base
from parley.engine.mutual_friends.channels.strategies import ChatKnowledge
from parley.envs.mutual_friends.events import ChatEvent, FriendsChat, Lying, Mention
from parley.envs.mutual_friends.schema import Entity
from parley.envs.mutual_friends.scripted.phrases import is_question
from parley.policies.chat.model import NO_REPLIES

_MENTION = pa.struct(
    [
        # Category of the entity; its value as it is said, null where nothing such was; and as it is heard: null where what is
        # heard names none in its place.
        pa.field("type", pa.string()),
        pa.field("said", pa.string()),
        pa.field("heard", pa.string()),
        # Of one that is heard as another: whether the listener next names that one or selects an item that has it; null where
        # the listener does not act any more.
        pa.field("believed", pa.bool_()),
        # Whether the listener next asks something, or names an entity of that category; null where it does not act any more.
        pa.field("again", pa.bool_()),
    ]
)
_EVENT = pa.struct(
    [
        pa.field("side", pa.int8()),
        # Words joined by blanks; null in a selection.
        pa.field("said", pa.string()),
        pa.field("heard", pa.string()),
        # Index into the table of the side; null in an utterance.
        pa.field("selected", pa.int64()),
        pa.field("mentions", list_of(_MENTION)),
    ]
)
_LYING = pa.struct([pa.field(name, pa.int64()) for name in Lying._fields])
_NO_REPLY = pa.struct([pa.field(kind.column, pa.int64()) for kind in NO_REPLIES])
_TABLE = list_of(list_of(pa.string()))
CHATS = with_base(
    [
        # The condition: which pair plays, and what becomes of what it says; "normal" for nothing.
        pa.field("pair", pa.string()),
        pa.field("strategy", pa.string()),
        pa.field("agents", list_of(pa.string())),
        # The scenario: its key, the same in every condition; columns and their categories; both tables; where the common friend
        # stands in each.
        pa.field("scenario", pa.string()),
        pa.field("attributes", list_of(pa.string())),
        pa.field("types", list_of(pa.string())),
        pa.field("tables", list_of(_TABLE)),
        pa.field("shared", list_of(pa.int64())),
        pa.field("events", list_of(_EVENT)),
        # Whether both sides select the common friend in the end; how often each selects; whether the first selection of the
        # chat is the common friend, null where there is none.
        pa.field("agreed", pa.bool_()),
        pa.field("num_selections", list_of(pa.int64())),
        pa.field("first_selection_right", pa.bool_()),
        # Of each side, null of one that cannot: moves that were asked for once more because they could not be read as such,
        # and those that could not be read then either.
        pa.field("repairs", list_of(pa.int64())),
        pa.field("unread", list_of(pa.int64())),
        # Answers that were cut at the most tokens, and selections that named no friend, where scores chose one then.
        pa.field("cut", list_of(pa.int64())),
        pa.field("by_scores", list_of(pa.int64())),
        # Answers that a chat model gave, and those of them that are no reply, by kind. A chat that was lost has them too, its
        # condition and `lying`, as far as it came.
        pa.field("answers", list_of(pa.int64())),
        pa.field("no_reply", list_of(_NO_REPLY)),
        # Of each side, null where nobody could lie for it: `Lying`.
        pa.field("lying", list_of(_LYING)),
        # Of each side: words of its utterances as they are heard; their summed negative log likelihood in nats, null when it
        # was not scored.
        pa.field("num_words", list_of(pa.int64())),
        pa.field("nll", list_of(pa.float64())),
    ]
)
"""One chat per row."""


def chat_row(
    key: str, seed: int, condition: tuple[str, str], agents: tuple[str, str], chat: FriendsChat, knowledge: ChatKnowledge
) -> dict[str, Any]:
    """A chat as a row of `CHATS`.

    Args:
        key: of the item.
        seed: of the chat.
        condition: pair and strategy.
        agents: names of both sides.
        chat: played to its end.
        knowledge: of names, for words of which the speaker does not say what they mean.
    """
    scenario, pair_strategy = chat.scenario, dict(zip(("pair", "strategy"), condition, strict=True))
    said = [_mentions(knowledge, chat, event) for event in chat.events]
    selections = [(event.side, event.selected) for event in chat.events if event.selected is not None]
    return (
        ok_row(key, seed)
        | pair_strategy
        | {
            "agents": list(agents),
            "scenario": chat.key,
            "attributes": [each.name for each in scenario.attributes],
            "types": [each.type for each in scenario.attributes],
            "tables": [[list(item) for item in table] for table in scenario.tables],
            "shared": list(scenario.shared),
            "events": [_event(chat, place, said) for place in range(len(chat.events))],
            "agreed": chat.agreed,
            "num_selections": [chat.num_selections(side) for side in (0, 1)],
            "first_selection_right": selections[0][1] == scenario.shared[selections[0][0]] if selections else None,
            "repairs": [slips and slips.repairs for slips in chat.slips],
            "unread": [slips and slips.unread for slips in chat.slips],
            "cut": [slips and slips.cut for slips in chat.slips],
            "by_scores": [slips and slips.by_scores for slips in chat.slips],
            **_answers_of(chat),
            "num_words": [sum(len(event.words) for event in chat.heard if event.side == side) for side in (0, 1)],
            "nll": [None, None],
        }
    )


def _event(chat: FriendsChat, place: int, said: list[list[Entity]]) -> dict[str, Any]:
    event, heard = chat.events[place], chat.heard[place]
    found: dict[str, Any] = {"side": event.side, "said": None, "heard": None, "selected": event.selected, "mentions": []}
    if event.selected is not None:
        return found
    answer = next((at for at in range(place + 1, len(chat.events)) if chat.events[at].side != event.side), None)
    reaction = None if answer is None else (chat.events[answer], said[answer])
    found["mentions"] = [_mention(entity, other, chat, reaction) for entity, other in _passed_on(said[place], event, heard)]
    return found | {"said": " ".join(event.words), "heard": " ".join(heard.words)}


def _answers_of(chat: FriendsChat) -> dict[str, Any]:
    """Return the columns of what chat models answered for each side."""
    return {
        "answers": [slips and slips.answers for slips in chat.slips],
        "no_reply": [slips and {kind.column: getattr(slips, kind.column) for kind in NO_REPLIES} for slips in chat.slips],
        "lying": [lying and lying._asdict() for lying in chat.lying],
    }


def lost_chat(condition: tuple[str, str], chat: FriendsChat | None = None) -> dict[str, Any]:
    """Return what the row of a chat that was lost has beside its error: its condition, and answers as far as it came."""
    columns = dict(zip(("pair", "strategy"), condition, strict=True))
    return columns if chat is None else columns | _answers_of(chat)


def _mention(
    entity: Entity | None, other: Entity | None, chat: FriendsChat, reaction: tuple[ChatEvent, list[Entity]] | None
) -> dict[str, Any]:
    """One entry of `_MENTION`.

    Args:
        entity: that was said; None where nothing such was.
        other: what is heard in its place.
        chat: they stand in.
        reaction: what the listener does next, and the entities that it names.
    """
    (kind,) = {each.type for each in (entity, other) if each is not None}
    found: dict[str, Any] = {"type": kind, "said": entity and entity.value, "heard": other and other.value}
    found |= {"believed": None, "again": None}
    if reaction is None:
        return found
    event, named = reaction
    if other not in (None, entity):
        found["believed"] = other in {*named, *_selected(chat, event)}
    return found | {"again": is_question(event.words) or any(each.type == kind for each in named)}


def _passed_on(said: list[Entity], event: ChatEvent, heard: ChatEvent) -> Iterator[tuple[Entity | None, Entity | None]]:
    """What was said and what is heard in its place, then what is heard in the place of nothing."""
    names = [token.entity for token in heard.tokens if isinstance(token, Mention)]
    if heard.words == event.words:
        names = said
    if [each.type for each in names] == [each.type for each in said]:
        yield from zip(said, names, strict=True)
        return
    yield from ((entity, entity if entity in names else None) for entity in said)
    yield from ((None, entity) for entity in names if entity not in said)


def _mentions(knowledge: ChatKnowledge, chat: FriendsChat, event: ChatEvent) -> list[Entity]:
    if event.selected is not None:
        return []
    return [token.entity for token in knowledge.linked(chat.scenario, event) if isinstance(token, Mention)]


def _selected(chat: FriendsChat, event: ChatEvent) -> tuple[Entity, ...]:
    return () if event.selected is None else chat.scenario.entities[event.side][event.selected]
