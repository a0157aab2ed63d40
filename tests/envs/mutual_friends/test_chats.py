"""Chats in the published format: what is read, what is broken and where, and that what is written is read back."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.mutual_friends.compiled import read_chats, write_chats
from parley.envs.mutual_friends.game import ChatEvent, Mention
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import Entity, ScenarioOptions, random_friends
from tests.envs.mutual_friends.made_up import SCHEMA

LINKER = EntityLinker(SCHEMA, [(Entity("rock climbing", "hobby"), ("climbing",))] * 3)


def friend(name: str, town: str, hobby: str) -> dict[str, str]:
    return {"Name": name, "Town": town, "Hobby": hobby}


CHAT: dict[str, Any] = {
    "uuid": "C_1",
    "scenario": {
        "uuid": "S_1",
        "alphas": [1.0, 0.3, 3.0],
        "attributes": [{"name": name, "value_type": name.lower(), "unique": False} for name in ("Town", "Name", "Hobby")],
        "kbs": [
            [friend("Ada", "Nib", "Chess"), friend("Ben", "Nib", "Rock climbing")],
            [friend("Ben", "Nib", "rock climbing"), friend("Cleo", "Rosa", "Chess")],
        ],
    },
    "events": [
        {"action": "message", "agent": 1, "data": "Anyone who likes climbing?", "time": "1.5"},
        {"action": "message", "agent": 1, "data": "In Rosa...", "time": "2.5"},
        {"action": "select", "agent": 0, "data": friend("Ben", "Nib", "Rock climbing"), "time": "3"},
        {"action": "select", "agent": 1, "data": friend("Ben", "Nib", "rock climbing"), "time": "3"},
    ],
    "outcome": {"reward": 1},
    "agents": {"0": "human", "1": "human"},
}


def read(tmp_path: Path, *chats: Any) -> tuple[list[Any], list[DataError]]:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(list(chats)))
    return read_chats(path, LINKER)


def test_a_published_chat_is_read(tmp_path: Path) -> None:
    (chat,), broken = read(tmp_path, CHAT)
    assert not broken
    assert chat.agreed
    assert chat.key == "C_1"
    assert chat.scenario.tables[0] == (("Nib", "Ada", "Chess"), ("Nib", "Ben", "Rock climbing"))
    assert chat.scenario.shared == (1, 0)
    assert chat.events[0] == ChatEvent(
        1, ("anyone", "who", "likes", Mention(Entity("rock climbing", "hobby"), ("climbing",)), "?")
    )
    assert chat.events[1].tokens[1] == Mention(Entity("rosa", "town"), ("rosa",)), "the speaker's table decides"
    assert [event.selected for event in chat.events] == [None, None, 1, 0]


def changed(**changes: Any) -> dict[str, Any]:
    """The chat with something else in its first event, in its scenario, or at its top."""
    chat = deepcopy(CHAT)
    for name, value in changes.items():
        part = chat["events"][0] if name in {"action", "agent", "data", "time"} else chat["scenario"]
        part = chat if name in {"events", "scenario", "key"} else part
        part["uuid" if name == "key" else name] = value
    return chat


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ("chat", "no scenario"),
        (changed(events=None), "no events"),
        (changed(action=None), r"no action[\s\S]*chat 1, event 0"),
        (changed(action="wave"), r"unknown event[\s\S]*chat 1, event 0[\s\S]*'wave'"),
        (changed(agent=2), r"no such agent[\s\S]*event 0"),
        (changed(agent=1.0), r"no such agent[\s\S]*event 0[\s\S]*1.0"),
        (changed(agent=True), r"no such agent[\s\S]*event 0[\s\S]*True"),
        (changed(agent=[0]), r"no such agent[\s\S]*event 0"),
        (changed(data=" "), r"without words[\s\S]*event 0"),
        (changed(data=None), r"without words[\s\S]*event 0"),
        (changed(time="9"), r"out of order[\s\S]*event 1[\s\S]*time 2.5 after 9"),
        (changed(time="noon"), r"no time[\s\S]*event 0"),
        (changed(time="nan"), r"no time[\s\S]*event 0[\s\S]*'nan'"),
        (changed(time=float("inf")), r"no time[\s\S]*event 0"),
        (changed(time=10**400), r"no time[\s\S]*event 0"),
        (changed(time=True), r"no time[\s\S]*event 0"),
        (changed(time=[1]), r"no time[\s\S]*event 0"),
        (changed(key=["C_1"]), r"uuid is not a text[\s\S]*C_1"),
        (changed(key=None), "uuid is not a text"),
        (changed(uuid={}), r"uuid is not a text[\s\S]*chat 1, scenario"),
        (changed(alphas=3), r"alphas are not[\s\S]*chat 1, scenario[\s\S]*3"),
        (changed(alphas=["x"]), r"alphas are not[\s\S]*'x'"),
        (changed(alphas=[float("nan")]), "alphas are not"),
        (changed(alphas={}), "alphas are not"),
        (changed(attributes=[], kbs=[[{}], [{}]]), r"attributes of different names[\s\S]*chat 1, scenario"),
        (changed(attributes=[{"name": "Town", "value_type": "town"}] * 2), r"attributes of different names[\s\S]*Town"),
        (changed(action="select", data=friend("Cleo", "Nib", "Chess")), r"outside the table[\s\S]*event 0"),
        (changed(action="select", data={"Name": "Ben"}), r"no friend[\s\S]*event 0[\s\S]*Hobby, Name, Town"),
        (changed(events=[*CHAT["events"], CHAT["events"][0] | {"time": "9"}]), r"after agreement[\s\S]*event 4"),
        (changed(kbs=[[]]), r"not two tables[\s\S]*1 kbs"),
        (changed(kbs=[[friend("Ada", "Nib", "Chess")], [{"Name": "Ada"}]]), r"no friend[\s\S]*friend 0 of agent 1"),
        (changed(kbs=[[friend("Ada", "Nib", "Chess")], [friend("Ben", "Nib", "Chess")]]), "exactly one common friend"),
        (changed(kbs=[[friend("Zoe", "Nib", "Chess")]] * 2), r"does not have the entity[\s\S]*'zoe' \(name\)"),
        (changed(attributes=[{"name": "Town", "value_type": "place"}], kbs=[[{"Town": "Nib"}]] * 2), r"'nib' \(place\)"),
    ],
)
def test_a_broken_chat_is_named_and_the_others_are_read(tmp_path: Path, chat: Any, message: str) -> None:
    chats, (error,) = read(tmp_path, CHAT, chat, CHAT)
    assert len(chats) == 2
    with pytest.raises(DataError, match=message):
        raise error
    assert "chats.json: chat 1" in str(error)


def test_a_file_is_a_list(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text("{}")
    with pytest.raises(DataError, match="not a list of chats"):
        read_chats(path, LINKER)


def test_a_chat_needs_neither_times_nor_alphas_nor_names(tmp_path: Path) -> None:
    chat = changed(alphas=None, key=7, time=None)
    del chat["scenario"]["uuid"]
    (found,), broken = read(tmp_path, chat)
    assert not broken
    assert (found.key, found.scenario.alphas) == ("7", ())
    assert found.scenario.key.endswith("chats.json: chat 0, scenario")


@pytest.mark.parametrize("text", ["[" * 100_000, "[" + "1" * 5000 + "]"])
def test_json_beyond_what_python_reads_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "chats.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"cannot be read[\s\S]*chats.json"):
        read_chats(path, LINKER)


def test_half_of_a_character_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"half of a character[\s\S]*chats.json[\s\S]*hi .+ there"):
        read(tmp_path, changed(data="hi \ud83d there"))


def test_long_chats_of_symbols_are_read(tmp_path: Path) -> None:
    (chat,), _ = read(tmp_path, changed(data="\U0001f600 " * 250))
    assert chat.events[0].words == ("\U0001f600",) * 250


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    chats, _ = read(tmp_path, CHAT)
    scenario = random_friends(SCHEMA, stream(0, "chats"), ScenarioOptions(max_attributes=3, max_items=8), "S_2")
    chats.append(type(chats[0])(scenario, (), (), False, "C_2"))
    write_chats(tmp_path / "again.json", chats)
    assert read_chats(tmp_path / "again.json", LINKER) == (chats, [])
    entry = json.loads((tmp_path / "again.json").read_text())[0]
    assert entry["scenario"]["kbs"] == CHAT["scenario"]["kbs"]
    assert entry["outcome"] == {"reward": 1}
