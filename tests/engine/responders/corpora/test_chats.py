"""What `parley data` says of corpora of chats, and that an exported one is a corpus again."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.cli.main import main
from parley.engine.core.verbs.api import check_part
from parley.engine.responders.corpora import check_corpus, describe_corpus, find_corpus, get_corpus, list_corpora
from parley.engine.responders.corpus_info import ChatCheck, ChatInfo, describe_split, export_chats
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.mutual_friends.compiled import FileChats, friend_corpora, load_friends
from parley.envs.mutual_friends.game import ChatEvent, FriendsChat, Mention
from parley.envs.mutual_friends.scenario import Entity
from tests.envs.mutual_friends.made_up import SCENARIO

CORPUS = """
from dataclasses import replace
from pathlib import Path
from parley.envs.mutual_friends.compiled import friend_corpora

SMALL = replace(friend_corpora.get("friends"), name="small", sizes=(12, 4, 4))
AGAIN = replace(friend_corpora.get("mutualfriends"), name="again", place=Path(__file__).parent / "exported", obtain="")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "corpus.py"
    path.write_text(CORPUS)
    return path


def test_they_are_listed_and_found() -> None:
    listed = {each.name: each for each in list_corpora() if each.kind == "chats"}
    assert set(listed) == set(friend_corpora)
    assert listed["friends"].present
    assert find_corpus("mutualfriends_scripted").name == "mutualfriends_scripted"


def test_an_exported_corpus_is_read_back(own: Path) -> None:
    files = export_chats(f"{own}:SMALL", own.parent / "exported")
    names = ["train.json", "dev.json", "test.json", "schema.json", "inverse_lexicon_data.txt"]
    assert [Path(file).name for file in files] == names
    small, again = (load_friends(f"{own}:{name}") for name in ("SMALL", "AGAIN"))
    assert again.schema == small.schema
    assert sorted(again.forms) == sorted(small.forms)
    for split, chats in small.splits.items():
        for chat, read in zip(chats, again.splits[split], strict=True):
            assert (read.scenario, read.agreed, read.key) == (chat.scenario, chat.agreed, chat.key)
            assert [event.words for event in read.events] == [event.words for event in chat.events]
    with pytest.raises(ConfigError, match=r"not empty[\s\S]*train.json"):
        export_chats(f"{own}:SMALL", own.parent / "exported")
    source = friend_corpora.get(f"{own}:AGAIN")
    (conformance,) = check_part(source)
    assert conformance.kept
    assert isinstance(source, FileChats)
    assert replace(source, name="other").fingerprint(own.parent) == source.fingerprint(own.parent)


def test_a_corpus_in_numbers(own: Path) -> None:
    info = describe_corpus("friends")
    assert isinstance(info, ChatInfo)
    train = info.splits[0]
    assert [split.num_chats for split in info.splits] == [1000, 100, 100]
    assert train.completion > 0.95
    assert 5 <= train.items.mean <= 12
    assert 0.5 < train.named < 1
    assert 0.5 < train.in_own_table < train.in_a_table <= 1
    assert 0.40 < train.selected_named < 0.47, "people guess: .43"
    assert info.num_entities["hobby"] == 32
    assert get_corpus("friends").compiled == info.compiled


def test_entities_are_looked_for_in_tables_and_before_selections() -> None:
    def said(side: int, *entities: Entity) -> ChatEvent:
        return ChatEvent(side, tuple(Mention(entity, (entity.value,)) for entity in entities))

    cleo, nib, ada, emil = Entity("cleo", "name"), Entity("upper nib", "town"), Entity("ada", "name"), Entity("emil", "name")
    port = Entity("port rosa", "town")
    # Side 0 names what is its own, what is its partner's alone, and what nobody has.
    events = (
        said(0, cleo, ada, port, emil),
        ChatEvent(1, selected=1, item=SCENARIO.tables[1][1]),
        said(1, nib),
        ChatEvent(0, selected=2, item=SCENARIO.tables[0][2]),
    )
    found = describe_split("made", [FriendsChat(SCENARIO, events, events, True)])
    assert found.in_own_table == 3 / 5
    assert found.in_a_table == 4 / 5
    assert found.selected_named == (1 + 2) / 6
    nothing = describe_split("empty", [])
    assert (nothing.in_own_table, nothing.in_a_table, nothing.selected_named) == (0, 0, 0)


def test_missing_and_broken_files_are_counted(own: Path) -> None:
    found = check_corpus("mutualfriends", own.parent)
    assert isinstance(found, ChatCheck)
    assert [Path(problem.file).name for problem in found.problems] == sorted(
        ["dev.json", "inverse_lexicon_data.txt", "schema.json", "test.json", "train.json"]
    )
    export_chats(f"{own}:SMALL", own.parent / "mutualfriends")
    entries = json.loads((own.parent / "mutualfriends" / "dev.json").read_text())
    entries[1]["events"][0]["agent"] = 7
    (own.parent / "mutualfriends" / "dev.json").write_text(json.dumps(entries))
    found = check_corpus("mutualfriends", own.parent)
    assert isinstance(found, ChatCheck)
    assert found.num_chats == {"train": 12, "val": 3, "test": 4}
    (problem,) = found.problems
    assert problem.file.endswith("dev.json: chat 1, event 0")
    (own.parent / "mutualfriends" / "schema.json").write_text("{")
    (problem,) = check_corpus("mutualfriends", own.parent).problems
    assert problem.what == "broken JSON"
    assert problem.file.endswith("schema.json:1")


def test_a_full_disk_leaves_nothing_in_the_way_of_the_next_export(own: Path) -> None:
    folder = own.parent / "exported"
    load_friends(f"{own}:SMALL")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(DataError, match=r"cannot be written[\s\S]*free some space"):
            export_chats(f"{own}:SMALL", folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(folder.iterdir())
    assert all(Path(file).is_file() for file in export_chats(f"{own}:SMALL", folder))


def test_only_chats_are_exported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no corpus of chats is called 'helpdesk'"):
        export_chats("helpdesk", tmp_path)
    with pytest.raises(DataError, match="not complete"):
        export_chats("mutualfriends", tmp_path, tmp_path)


def test_the_command_line_shows_and_exports_them(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "export", f"{own}:SMALL", str(own.parent / "exported"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == 5
    assert main(["data", "check", f"{own}:SMALL"]) == 0
    assert "good chats" in capsys.readouterr().err
    assert main(["data", "info", f"{own}:SMALL"]) == 0
    shown = capsys.readouterr().err
    assert "entities of an utterance" in shown
    assert f"parley data export {own}:SMALL FOLDER" in shown.replace("\n", "")
