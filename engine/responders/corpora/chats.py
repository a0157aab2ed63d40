"""The part of `parley data` that knows corpora of chats; `data.py` calls it, and the command line calls that."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from parley.engine.responders.corpora.facts import Check, Info, Spread, problem, said_of, spread, where
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.mutual_friends.chats import write_chats
from parley.envs.mutual_friends.compiled import FriendsCorpus, load_friends, open_friends
from parley.envs.mutual_friends.events import ChatEvent, FriendsChat, Mention
from parley.envs.mutual_friends.schema import Entity
from parley.envs.mutual_friends.sources import LEXICON_FILE, PUBLISHED, SCHEMA_FILE, ChatSource


@dataclass(frozen=True, kw_only=True)
class ChatCheck(Check):
    """What `parley data check` found in a corpus of chats."""

    num_chats: dict[str, int]
    """Good chats of each split."""


@dataclass(frozen=True, kw_only=True)
class ChatSplitInfo:
    """One split of a corpus of chats in numbers."""

    name: str
    num_chats: int
    completion: float
    """Share of chats in which both sides select their common friend."""
    events: Spread
    """Utterances and selections of a chat."""
    selections: Spread
    """Selections of a chat, of both sides."""
    words: Spread
    """Words of an utterance."""
    entities: Spread
    """Entities of an utterance."""
    named: float
    """Share of utterances with an entity."""
    in_own_table: float
    """Share of the entities of utterances that stand in the speaker's table."""
    in_a_table: float
    """Share of them that stand in the speaker's or the listener's."""
    selected_named: float
    """Share of the values of selected friends that either side had named before."""
    items: Spread
    """Friends of a table."""


@dataclass(frozen=True, kw_only=True)
class ChatInfo(Info):
    """What `parley data info` tells of a corpus of chats; `num_words` are those of training utterances outside entities."""

    num_entities: dict[str, int]
    """Values of each category of the schema."""
    num_forms: int
    """Different spellings in the lexicon."""
    splits: tuple[ChatSplitInfo, ...]


def check_chats(source: ChatSource, root: Path) -> ChatCheck:
    """Reads every chat of a corpus.

    Returns:
        All that is wrong: missing files and every broken chat.
    """
    try:
        text = source.read_text(root)
        broken, sizes = text.broken, {split: len(chats) for split, chats in text.splits.items()}
    except DataError as error:
        # Without a schema or a lexicon no chat can be read.
        broken, sizes = [error], dict.fromkeys(PUBLISHED, 0)
    problems = tuple(sorted(map(problem, broken), key=lambda each: each.file))
    return ChatCheck(name=source.name, where=where(source.folder(root)), num_chats=sizes, problems=problems)


def describe_chats(source: ChatSource, root: Path) -> ChatInfo:
    """A corpus in numbers, counted on its compiled form.

    Raises:
        DataError: files are missing or broken.
    """
    corpus = open_friends(source, root)
    return ChatInfo(
        **said_of(source, root),
        compiled=str(corpus.folder),
        num_words=len(corpus.words),
        num_entities={kind: len(values) for kind, values in corpus.schema.values.items()},
        num_forms=len(set(corpus.forms)),
        splits=tuple(describe_split(name, list(split)) for name, split in corpus.splits.items()),
    )


def describe_split(name: str, chats: Sequence[FriendsChat]) -> ChatSplitInfo:
    """Chats in numbers."""
    said = [event.tokens for chat in chats for event in chat.events if event.selected is None]
    named = np.array([sum(isinstance(token, Mention) for token in tokens) for tokens in said])
    mentions = [(entity, event.side, chat.scenario) for chat in chats for event in chat.events for entity in _entities(event)]
    return ChatSplitInfo(
        name=name,
        num_chats=len(chats),
        completion=sum(chat.agreed for chat in chats) / max(1, len(chats)),
        events=spread(np.array([len(chat.events) for chat in chats])),
        selections=spread(np.array([chat.num_selections(0) + chat.num_selections(1) for chat in chats])),
        words=spread(np.array([len(event.words) for chat in chats for event in chat.events if event.selected is None])),
        entities=spread(named),
        named=float((named > 0).mean()) if len(named) else 0.0,
        in_own_table=_share([mention in scenario.mentionable[side] for mention, side, scenario in mentions]),
        in_a_table=_share([mention in scenario.all_mentionable for mention, _, scenario in mentions]),
        selected_named=_share([found for chat in chats for found in _selected_named(chat)]),
        items=spread(np.array([len(chat.scenario.tables[0]) for chat in chats])),
    )


def _entities(event: ChatEvent) -> list[Entity]:
    """Of an utterance."""
    return [token.entity for token in event.tokens if isinstance(token, Mention)]


def _selected_named(chat: FriendsChat) -> Iterator[bool]:
    """Of each value of each selected friend: whether anybody had named it."""
    named: set[Entity] = set()
    for event in chat.events:
        if event.selected is not None:
            yield from (entity in named for entity in chat.scenario.entities[event.side][event.selected])
        named.update(_entities(event))


def _share(held: Sequence[bool]) -> float:
    return sum(held) / max(1, len(held))


def export_chats(name: str, folder: Path, data_root: Path | None = None) -> tuple[str, ...]:
    """Writes a corpus of chats in the published format, with schema and lexicon.

    Args:
        name: a registered corpus of chats, or `path/file.py:NAME`.
        folder: where the files go; made where it is not there.
        data_root: where the corpora lie.

    Returns:
        The files written.

    Raises:
        ConfigError: no such corpus of chats, or the folder holds one of the files already.
        DataError: the corpus has missing or broken files, or the folder cannot be written.
    """
    folder = folder.expanduser()
    files = {split: folder / file for split, file in PUBLISHED.items()}
    schema, lexicon = folder / SCHEMA_FILE, folder / LEXICON_FILE
    there = [path.name for path in (*files.values(), schema, lexicon) if path.exists()]
    if there:
        raise ConfigError("the folder is not empty", where=folder, got=", ".join(there), fix="name another folder")
    corpus = load_friends(name, data_root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # All files or none: half of a split would read as a corpus, and its file would be in the way of the next try.
        with TemporaryDirectory(dir=folder, prefix=".export-") as aside:
            for split, path in files.items():
                write_chats(Path(aside, path.name), corpus.splits[split])
            _write_known(corpus, Path(aside, SCHEMA_FILE), Path(aside, LEXICON_FILE))
            for path in (*files.values(), schema, lexicon):
                Path(aside, path.name).replace(path)
    except OSError as error:
        fix = "free some space there, or name a folder that you may write"
        raise DataError("the corpus cannot be written", where=folder, got=error.strerror, fix=fix) from None
    return tuple(str(path) for path in (*files.values(), schema, lexicon))


def _write_known(corpus: FriendsCorpus, schema: Path, lexicon: Path) -> None:
    attributes = [
        {"name": attribute.name, "value_type": attribute.type, "unique": attribute.unique}
        for attribute in corpus.schema.attributes
    ]
    known = {"attributes": attributes, "values": {kind: list(values) for kind, values in corpus.schema.values.items()}}
    schema.write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")
    lines = [f"{entity.value}\t{' '.join(words)}\t{entity.type}\n" for entity, words in corpus.forms]
    lexicon.write_text("".join(lines), encoding="utf-8")
