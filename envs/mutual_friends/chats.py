"""Chats in the published format of MutualFriends: read with their entities linked, and written.

A file is a JSON list of chats: `scenario` (uuid, attributes, two `kbs` of friends as objects, alphas), `events` (action
"message" with a text, or "select" with a friend as an object; agent; time), `outcome` and names of the agents.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parley.envs.core.errors import DataError, ScenarioError
from parley.envs.mutual_friends.events import ChatEvent, FriendsChat
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import FriendsScenario, Item
from parley.envs.mutual_friends.schema import Attribute, Entity, chat_words, read_attributes, read_json

MESSAGE, SELECT = "message", "select"


def read_chats(path: Path, linker: EntityLinker) -> tuple[list[FriendsChat], list[DataError]]:
    """Reads a file of chats.

    Mentions are those that the linker finds with both tables as context, the speaker's first.

    Args:
        path: the file.
        linker: of the schema that the tables were drawn from.

    Returns:
        The good chats, and an error for every broken one that says which chat and which event.

    Raises:
        DataError: the file cannot be read, or is no JSON list.
    """
    content = read_json(path)
    if not isinstance(content, list):
        raise DataError("not a list of chats", where=path, got=type(content).__name__, fix="write a JSON list of chats")
    chats: list[FriendsChat] = []
    broken: list[DataError] = []
    for index, entry in enumerate(content):
        try:
            chats.append(_chat(entry, f"{path}: chat {index}", linker))
        except DataError as error:
            broken.append(error)
    return chats, broken


def write_chats(path: Path, chats: Iterable[FriendsChat]) -> None:
    """Writes chats in the published format; `read_chats` reads them back, words as they were said."""
    entries = [_entry(chat, index) for index, chat in enumerate(chats)]
    path.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")


def _chat(entry: Any, where: str, linker: EntityLinker) -> FriendsChat:
    whole = _part(entry, where, scenario=Mapping, events=list)
    scenario = _scenario(whole["scenario"], f"{where}, scenario", linker)
    contexts = scenario.mentionable
    events: list[ChatEvent] = []
    selections: list[int | None] = [None, None]
    latest = float("-inf")
    for number, event in enumerate(whole["events"]):
        place = f"{where}, event {number}"
        event = _part(event, place, action=str)
        side, time = event.get("agent"), _time(event.get("time"), place)
        # True and 1.0 equal 1, and are no place in a list of two.
        if type(side) is not int or side not in (0, 1):
            raise DataError("no such agent", where=place, got=repr(side)[:80], fix="agent 0 or 1")
        if time is not None and time < latest:
            raise DataError("events out of order", where=place, got=f"time {time} after {latest}", fix="order them by time")
        latest = latest if time is None else time
        if tuple(selections) == scenario.shared:
            raise DataError("an event after agreement", where=place, got=repr(event)[:80], fix="end the chat where both agree")
        if event["action"] == MESSAGE:
            words = chat_words(event["data"]) if isinstance(event.get("data"), str) else ()
            if not words:
                raise DataError("an utterance without words", where=place, got=repr(event.get("data")), fix="leave it out")
            events.append(ChatEvent(side, linker.link(words, contexts[side], contexts[1 - side])))
        elif event["action"] == SELECT:
            item = _item(event.get("data"), scenario.attributes, place)
            lowered = tuple(Entity(value.lower(), each.type) for value, each in zip(item, scenario.attributes, strict=True))
            if lowered not in scenario.entities[side]:
                raise DataError("a selection outside the table", where=place, got=repr(item), fix=f"a friend of agent {side}")
            selections[side] = scenario.entities[side].index(lowered)
            events.append(ChatEvent(side, selected=selections[side], item=scenario.tables[side][selections[side] or 0]))
        else:
            raise DataError("an unknown event", where=place, got=repr(event["action"]), fix=f'action "{MESSAGE}" or "{SELECT}"')
    key = _key(whole, scenario.key, where)
    return FriendsChat(scenario, tuple(events), tuple(events), tuple(selections) == scenario.shared, key)


def _scenario(entry: Any, where: str, linker: EntityLinker) -> FriendsScenario:
    whole = _part(entry, where, attributes=list, kbs=list)
    attributes = read_attributes(whole["attributes"], where)
    names = [attribute.name for attribute in attributes]
    if not names or len(set(names)) < len(names):
        raise DataError("tables need attributes of different names", where=where, got=str(names)[:80], fix="name each once")
    if len(whole["kbs"]) != 2 or not all(isinstance(table, list) for table in whole["kbs"]):
        raise DataError("not two tables", where=where, got=f"{len(whole['kbs'])} kbs", fix="one list of friends for each agent")
    tables = []
    for side, table in enumerate(whole["kbs"]):
        items = [_item(item, attributes, f"{where}, friend {index} of agent {side}") for index, item in enumerate(table)]
        for item in items:
            for value, attribute in zip(item, attributes, strict=True):
                linker.require(Entity(value.lower(), attribute.type), f"{where}, agent {side}")
        tables.append(tuple(items))
    alphas = whole.get("alphas")
    if alphas is not None and not (isinstance(alphas, list) and all(map(_is_number, alphas))):
        raise DataError("alphas are not a list of numbers", where=where, got=repr(alphas)[:80], fix="one for each attribute")
    key = _key(whole, where, where)
    try:
        return FriendsScenario(key, attributes, (tables[0], tables[1]), tuple(map(float, alphas or ())))
    except ScenarioError as error:
        raise DataError(error.what, where=f"{where}: {error.where}", got=error.got, fix=error.fix) from error


def _item(entry: Any, attributes: Sequence[Attribute], where: str) -> Item:
    names = {attribute.name for attribute in attributes}
    if not isinstance(entry, Mapping) or set(entry) != names or not all(isinstance(value, str) for value in entry.values()):
        raise DataError("no friend", where=where, got=repr(entry)[:120], fix=f"texts for {', '.join(sorted(names))}")
    return tuple(entry[attribute.name] for attribute in attributes)


def _part(entry: Any, where: str, **kinds: type) -> Mapping[str, Any]:
    """The entry itself, an object that has these fields."""
    for name, kind in kinds.items():
        if not isinstance(entry, Mapping) or not isinstance(entry.get(name), kind):
            raise DataError(f"no {name}", where=where, got=repr(entry)[:80], fix=f"give it {', '.join(kinds)}")
    whole: Mapping[str, Any] = entry
    return whole


def _key(entry: Mapping[str, Any], otherwise: str, where: str) -> str:
    key = entry.get("uuid", otherwise)
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise DataError("a uuid is not a text", where=where, got=repr(key)[:80], fix="write it as a text, or leave it out")
    return str(key)


def _time(value: Any, where: str) -> float | None:
    """Seconds; the release writes them as texts."""
    try:
        time = None if value is None else float(value) if isinstance(value, str) else value
    except ValueError:
        time = value
    if time is not None and not _is_number(time):
        raise DataError("no time", where=where, got=repr(value)[:80], fix="seconds, or leave it out")
    return time


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _entry(chat: FriendsChat, index: int) -> dict[str, Any]:
    scenario = chat.scenario
    names = [attribute.name for attribute in scenario.attributes]
    listed = [
        {"unique": attribute.unique, "value_type": attribute.type, "name": attribute.name} for attribute in scenario.attributes
    ]
    events = [
        {
            "action": MESSAGE if event.selected is None else SELECT,
            "start_time": None,
            "data": " ".join(event.words) if event.selected is None else dict(zip(names, event.item, strict=True)),
            "agent": event.side,
            "time": f"{number}.0",
        }
        for number, event in enumerate(chat.events)
    ]
    return {
        "uuid": chat.key or f"C_{index}",
        "scenario_uuid": scenario.key,
        "scenario": {
            "uuid": scenario.key,
            "attributes": listed,
            "kbs": [[dict(zip(names, item, strict=True)) for item in table] for table in scenario.tables],
            "alphas": list(scenario.alphas),
        },
        "agents": {"0": "scripted", "1": "scripted"},
        "outcome": {"reward": int(chat.agreed)},
        "events": events,
    }
