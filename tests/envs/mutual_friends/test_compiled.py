"""Corpora of chats: what is generated, read, compiled and opened again, and what is wrong with files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.mutual_friends.compiled import (
    EMBEDDED_FRIENDS,
    FileChats,
    FriendsCorpus,
    ScriptedChats,
    friend_corpora,
    load_friends,
    open_friends,
    write_chats,
)
from parley.envs.mutual_friends.game import Mention
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scripted.bots import FRIENDS_SCHEMA, friends_forms, scripted_chats

SMALL: ScriptedChats = replace(friend_corpora.get(EMBEDDED_FRIENDS), sizes=(20, 5, 5))
REAL = Path(os.environ.get("PARLEY_DATA", "nowhere")) / "mutualfriends"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> FriendsCorpus:
    return open_friends(SMALL, cache=tmp_path_factory.mktemp("cache"))


def test_chats_are_opened_as_they_were_generated(corpus: FriendsCorpus) -> None:
    chats = scripted_chats(FRIENDS_SCHEMA, corpus.linker, range(30))
    assert [len(split) for split in corpus.splits.values()] == [20, 5, 5]
    assert [chat for split in corpus.splits.values() for chat in split] == chats
    train = corpus.splits["train"]
    assert train[3] == chats[3]
    assert train[-1] == chats[19]
    assert train[2:4] == chats[2:4]
    with pytest.raises(IndexError, match="20 of 20"):
        train[20]


def test_schema_spellings_and_words_come_along(corpus: FriendsCorpus) -> None:
    assert corpus.schema == FRIENDS_SCHEMA
    assert sorted(corpus.forms) == sorted(friends_forms())
    plain = [
        word
        for chat in corpus.splits["train"]
        for event in chat.events
        for word in event.tokens
        if not isinstance(word, Mention)
    ]
    assert set(corpus.words) == set(plain)
    counts = [plain.count(word) for word in corpus.words]
    assert counts == sorted(counts, reverse=True)


def test_another_process_opens_the_same_folder(tmp_path: Path) -> None:
    first = open_friends(SMALL, cache=tmp_path)
    assert open_friends(SMALL, cache=tmp_path).folder == first.folder
    assert open_friends(replace(SMALL, seed=1), cache=tmp_path).folder != first.folder


def published(folder: Path) -> FileChats:
    """A corpus in published files."""
    folder.mkdir()
    values = {kind: list(values) for kind, values in FRIENDS_SCHEMA.values.items()}
    listed = [{"name": each.name, "value_type": each.type, "unique": False} for each in FRIENDS_SCHEMA.attributes]
    (folder / "schema.json").write_text(json.dumps({"attributes": listed, "values": values}))
    lines = [f"{entity.value}\t{' '.join(words)}\t{entity.type}\n" for entity, words in friends_forms()]
    (folder / "inverse_lexicon_data.txt").write_text("".join(lines))
    source = FileChats(
        name="mine", summary="", licence="", obtain="", place=folder, wanted=friend_corpora.get("mutualfriends").wanted
    )
    for i, name in enumerate(source.splits.values()):
        chats = scripted_chats(FRIENDS_SCHEMA, EntityLinker(FRIENDS_SCHEMA, friends_forms()), range(4 * i, 4 * i + 4))
        write_chats(folder / name, chats)
    return source


def test_published_files_are_a_corpus(tmp_path: Path) -> None:
    source = published(tmp_path / "mine")
    opened = open_friends(source, cache=tmp_path)
    assert [len(split) for split in opened.splits.values()] == [4, 4, 4]
    chats = scripted_chats(FRIENDS_SCHEMA, opened.linker, range(4))
    assert [chat.events for chat in opened.splits["train"]] == [chat.events for chat in chats]
    (tmp_path / "mine" / "dev.json").unlink()
    with pytest.raises(DataError, match=r"not complete[\s\S]*dev.json"):
        open_friends(source, cache=tmp_path)


def test_broken_files_are_named(tmp_path: Path) -> None:
    source = published(tmp_path / "mine")
    (tmp_path / "mine" / "train.json").write_text('[{"events": []}]')
    with pytest.raises(DataError, match=r"no scenario[\s\S]*train.json: chat 0"):
        open_friends(source, cache=tmp_path)
    (tmp_path / "mine" / "train.json").write_text("[]")
    with pytest.raises(DataError, match="without chats to train on"):
        open_friends(source, cache=tmp_path)


def test_an_unknown_corpus_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no corpus of chats[\s\S]*did you mean 'friends'"):
        load_friends("frends")


def test_schema_and_lexicon_of_others_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not complete[\s\S]*schema.json"):
        load_friends("mutualfriends_scripted", tmp_path)


@pytest.mark.skipif(not REAL.is_dir(), reason="the files of MutualFriends are not there")
def test_human_chats_are_linked(tmp_path: Path) -> None:
    """Figures on the 15 chats that people had: outcomes as published, and mentions that stand in a table."""
    corpus = load_friends("mutualfriends_sample", REAL.parent, cache=tmp_path)
    chats = [chat for split in corpus.splits.values() for chat in split]
    assert len(chats) == 15
    published = [
        bool(entry["outcome"]["reward"])
        for split in ("train", "dev", "test")
        for entry in json.loads((REAL / f"human_sample_{split}.json").read_text())
    ]
    assert [chat.agreed for chat in chats] == published
    mentions = [
        (token.entity, chat.scenario.mentionable, event.side)
        for chat in chats
        for event in chat.events
        for token in event.tokens
        if isinstance(token, Mention)
    ]
    assert len(mentions) >= 55
    own = sum(entity in tables[side] for entity, tables, side in mentions)
    either = sum(entity in tables[0] | tables[1] for entity, tables, _ in mentions)
    assert own / len(mentions) > 0.9
    assert either / len(mentions) > 0.95
