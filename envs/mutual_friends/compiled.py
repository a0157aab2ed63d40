"""Corpora of MutualFriends chats: the published format, the registered sources, and the compiled form.

A published file is a JSON list of chats: `scenario` (uuid, attributes, two `kbs` of friends as objects, alphas), `events`
(action "message" with a text, or "select" with a friend as an object; agent; time), `outcome` and names of the agents.

Sources are published files or scripted players. For a corpus of your own, write `CORPUS = FileChats(name="mine", ...)` into a
file and name it `path/file.py:CORPUS`, or let an installed package offer it under the entry point group `parley.friends`.

A compiled corpus is a folder of `envs/corpora/arrow.py`. Its key contains the versions of compiler and reader, and the content
of the source.

    train.arrow, val.arrow, test.arrow   one row a chat: key, agreed, scenario, alphas, attributes, values (both tables, item
                                         by item), sizes; side, selected, num_words by event; ids and entities by word
    known.json                           schema, forms of entities with their counts, words of all chats

The entity of a word is -1 for none, else 2 * id + 1 for the first word of a mention and 2 * id for its other words.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, overload, runtime_checkable

import pyarrow as pa

from parley.envs import mutual_friends
from parley.envs.core.errors import DataError, ScenarioError
from parley.envs.core.registry import Registry
from parley.envs.corpora.arrow import compiled_folder, is_whole, map_batch, publish, write_batch
from parley.envs.corpora.arrow import data_root as resolve_data_root
from parley.envs.corpora.files import CorpusFolder, GeneratedFolder
from parley.envs.corpora.lines import SPLITS, ReadText, WantingSource, content_digest, corpus_named, fingerprint, named_source
from parley.envs.mutual_friends.game import ChatEvent, FriendsChat, Mention, Token
from parley.envs.mutual_friends.linker import EntityLinker, Form, read_lexicon
from parley.envs.mutual_friends.scenario import (
    Attribute,
    Entity,
    FriendsScenario,
    FriendsSchema,
    Item,
    chat_words,
    read_attributes,
    read_json,
    read_schema,
)

MESSAGE, SELECT = "message", "select"


def read_chats(path: Path, linker: EntityLinker) -> tuple[list[FriendsChat], list[DataError]]:
    """Read a file of chats.

    The linker finds the mentions, with both tables as context, the speaker's first.

    Args:
        path: the file.
        linker: of the schema of the tables.

    Returns:
        The good chats, and an error with chat and event for every broken one.

    Raises:
        DataError: the file cannot be read, or is not a JSON list.
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
    """Write chats in the published format; `read_chats` reads them back with the same words."""
    entries = [_entry(chat, index) for index, chat in enumerate(chats)]
    path.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")


def _chat(entry: Any, where: str, linker: EntityLinker) -> FriendsChat:
    chat = _part(entry, where, scenario=Mapping, events=list)
    scenario = _scenario(chat["scenario"], f"{where}, scenario", linker)
    contexts = scenario.mentionable
    events: list[ChatEvent] = []
    selections: list[int | None] = [None, None]
    latest = float("-inf")
    for number, event in enumerate(chat["events"]):
        at = f"{where}, event {number}"
        event = _part(event, at, action=str)
        side, time = event.get("agent"), _time(event.get("time"), at)
        # True and 1.0 equal 1, but are no index of a side.
        if type(side) is not int or side not in (0, 1):
            raise DataError("no such agent", where=at, got=repr(side)[:80], fix="agent 0 or 1")
        if time is not None and time < latest:
            raise DataError("events out of order", where=at, got=f"time {time} after {latest}", fix="order them by time")
        latest = latest if time is None else time
        if tuple(selections) == scenario.shared:
            raise DataError("an event after agreement", where=at, got=repr(event)[:80], fix="end the chat where both agree")
        if event["action"] == MESSAGE:
            words = chat_words(event["data"]) if isinstance(event.get("data"), str) else ()
            if not words:
                raise DataError("an utterance without words", where=at, got=repr(event.get("data")), fix="leave it out")
            events.append(ChatEvent(side, linker.link(words, contexts[side], contexts[1 - side])))
        elif event["action"] == SELECT:
            item = _item(event.get("data"), scenario.attributes, at)
            lowered = tuple(Entity(value.lower(), column.type) for value, column in zip(item, scenario.attributes, strict=True))
            if lowered not in scenario.entities[side]:
                raise DataError("a selection outside the table", where=at, got=repr(item), fix=f"a friend of agent {side}")
            selections[side] = scenario.entities[side].index(lowered)
            events.append(ChatEvent(side, selected=selections[side], item=scenario.tables[side][selections[side] or 0]))
        else:
            raise DataError("an unknown event", where=at, got=repr(event["action"]), fix=f'action "{MESSAGE}" or "{SELECT}"')
    key = _key(chat, scenario.key, where)
    return FriendsChat(scenario, tuple(events), tuple(events), tuple(selections) == scenario.shared, key)


def _scenario(entry: Any, where: str, linker: EntityLinker) -> FriendsScenario:
    scenario = _part(entry, where, attributes=list, kbs=list)
    attributes = read_attributes(scenario["attributes"], where)
    names = [attribute.name for attribute in attributes]
    if not names or len(set(names)) < len(names):
        raise DataError("tables need attributes of different names", where=where, got=str(names)[:80], fix="name each once")
    if len(scenario["kbs"]) != 2 or not all(isinstance(table, list) for table in scenario["kbs"]):
        raise DataError(
            "not two tables", where=where, got=f"{len(scenario['kbs'])} kbs", fix="one list of friends for each agent"
        )
    tables = []
    for side, table in enumerate(scenario["kbs"]):
        items = [_item(item, attributes, f"{where}, friend {index} of agent {side}") for index, item in enumerate(table)]
        for item in items:
            for value, attribute in zip(item, attributes, strict=True):
                linker.require(Entity(value.lower(), attribute.type), f"{where}, agent {side}")
        tables.append(tuple(items))
    alphas = scenario.get("alphas")
    if alphas is not None and not (isinstance(alphas, list) and all(map(_is_number, alphas))):
        raise DataError("alphas are not a list of numbers", where=where, got=repr(alphas)[:80], fix="one for each attribute")
    key = _key(scenario, where, where)
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
    """Return the entry if it is an object with these fields."""
    for name, kind in kinds.items():
        if not isinstance(entry, Mapping) or not isinstance(entry.get(name), kind):
            raise DataError(f"no {name}", where=where, got=repr(entry)[:80], fix=f"give it {', '.join(kinds)}")
    mapping: Mapping[str, Any] = entry
    return mapping


def _key(entry: Mapping[str, Any], otherwise: str, where: str) -> str:
    key = entry.get("uuid", otherwise)
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise DataError("a uuid is not a text", where=where, got=repr(key)[:80], fix="write it as a text, or leave it out")
    return str(key)


def _time(value: Any, where: str) -> float | None:
    """Return the time in seconds; the release writes it as a text."""
    try:
        time = None if value is None else float(value) if isinstance(value, str) else value
    except ValueError:
        time = value
    if time is not None and not _is_number(time):
        raise DataError("no time", where=where, got=repr(value)[:80], fix="seconds, or leave it out")
    return time


def _is_number(value: Any) -> bool:
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


READER_VERSION = 2
"""Grows when the same files would be read differently; compiled corpora are keyed by it."""
SCHEMA_FILE, LEXICON_FILE = "schema.json", "inverse_lexicon_data.txt"
_MAKERS = ("game", "linker", "scenario")
"""Modules that scripted chats depend on, those of the players apart."""
PUBLISHED = {"train": "train.json", "val": "dev.json", "test": "test.json"}
"""Published files of the splits."""


@dataclass(kw_only=True)
class ChatText(ReadText):
    """The result of reading a corpus of chats."""

    schema: FriendsSchema | None = None
    forms: list[Form] = field(default_factory=list)
    """Spellings of entities, repeated by their counts."""
    splits: dict[str, list[FriendsChat]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    broken: list[DataError] = field(default_factory=list)


@runtime_checkable
class ChatSource(WantingSource, Protocol):
    """A corpus of chats in the registry."""

    def read_text(self, root: Path) -> ChatText:
        """Return the chats, with errors for broken chats and missing files."""


@dataclass(frozen=True, kw_only=True)
class FileChats(CorpusFolder):
    """Chats in the published format, with schema and lexicon, in one folder."""

    splits: Mapping[str, str] = field(default_factory=lambda: PUBLISHED)
    """The file of each split."""

    READER_VERSION: ClassVar[int] = READER_VERSION
    OWN: ClassVar[str] = "name a folder with schema.json, inverse_lexicon_data.txt, train.json, dev.json and test.json"

    def read_text(self, root: Path) -> ChatText:
        """Read the files, or return only errors if some are missing."""
        text = ChatText(broken=self.missing_files(root))
        if not text.broken:
            folder = self.folder(root)
            text.schema = read_schema(folder / SCHEMA_FILE)
            text.forms = read_lexicon(folder / LEXICON_FILE, text.schema)
            linker = EntityLinker(text.schema, text.forms)
            for split, name in self.splits.items():
                text.splits[split], broken = read_chats(folder / name, linker)
                text.broken += broken
        return text


@dataclass(frozen=True, kw_only=True)
class ScriptedChats(GeneratedFolder):
    """Chats of scripted players about friends of a schema: Parley's own, or that of files."""

    sizes: tuple[int, int, int]
    """Number of chats of train, val and test."""
    seed: int = 0
    """Master seed."""
    guesses: float | None = None
    """Probability that a player who is not sure selects; that of people when not given."""
    slips: float | None = None
    """Probability that a player denies friends whom a question is about; that of people when not given."""

    READER_VERSION: ClassVar[int] = READER_VERSION

    def fingerprint(self, root: Path) -> str:
        """Return a digest of sizes, seed, all code that makes the chats, and the schema's files."""
        # The digest of the source replaces a version number that is easily forgotten.
        folder = Path(mutual_friends.__path__[0])
        code = sorted([*(folder / f"{name}.py" for name in _MAKERS), *(folder / "scripted").glob("*.py")])
        files = super().fingerprint(root) if self.wanted else ""
        rates = f"guesses {self.guesses} slips {self.slips}"
        return fingerprint("generated", READER_VERSION, *self.sizes, self.seed, rates, files, *map(content_digest, code))

    def read_text(self, root: Path) -> ChatText:
        """Generate the chats."""
        from parley.envs.mutual_friends.scripted.bots import FRIENDS_SCHEMA, GUESSES, SLIPS, friends_forms, scripted_chats

        text = ChatText(schema=FRIENDS_SCHEMA, forms=friends_forms())
        if (folder := self.folder(root)) is not None:
            text = ChatText(broken=self.missing_files(root))
            if text.broken:
                return text
            text.schema = read_schema(folder / SCHEMA_FILE)
            text.forms = read_lexicon(folder / LEXICON_FILE, text.schema)
        assert text.schema is not None
        linker = EntityLinker(text.schema, text.forms)
        begin = 0
        guesses = GUESSES if self.guesses is None else self.guesses
        slips = SLIPS if self.slips is None else self.slips
        for split, size in zip(SPLITS, self.sizes, strict=True):
            numbers = range(begin, begin + size)
            text.splits[split] = scripted_chats(text.schema, linker, numbers, self.seed, guesses=guesses, slips=slips)
            begin += size
        return text


friend_corpora = Registry("corpus of chats", "parley.friends")
EMBEDDED_FRIENDS = "friends"
"""The corpus without files."""
_RELEASE = "github.com/stanfordnlp/cocoa, folder mutualfriends/data"
_SAMPLES = {split: f"human_sample_{file}" for split, file in PUBLISHED.items()}

for _about, _corpus in {
    "scripted searches for a common friend, generated": ScriptedChats(
        name=EMBEDDED_FRIENDS,
        summary="chats in which two scripted players look for their common friend, generated on this machine",
        licence="Apache-2.0, as Parley itself",
        sizes=(1_000, 100, 100),
    ),
    "scripted searches with the schema and lexicon of He et al. 2017": ScriptedChats(
        name="mutualfriends_scripted",
        summary="as many scripted chats as MutualFriends has, of its schema and lexicon (He et al. 2017)",
        licence="MIT (schema and lexicon)",
        sizes=(8_967, 1_083, 1_107),
        obtain=_RELEASE,
        wanted=((SCHEMA_FILE,), (LEXICON_FILE,)),
        shares="mutualfriends",
    ),
    "the same without guesses and slips": ScriptedChats(
        name="mutualfriends_faultless",
        summary="scripted chats as mutualfriends_scripted, in which nobody guesses or slips",
        licence="MIT (schema and lexicon)",
        sizes=(8_967, 1_083, 1_107),
        guesses=0.0,
        slips=0.0,
        obtain=_RELEASE,
        wanted=((SCHEMA_FILE,), (LEXICON_FILE,)),
        shares="mutualfriends",
    ),
    "15 human searches for a common friend, He et al. 2017": FileChats(
        name="mutualfriends_sample",
        summary="15 chats of people who look for their common friend (MutualFriends, He et al. 2017)",
        licence="not stated for the chats; MIT (schema and lexicon)",
        obtain=_RELEASE,
        wanted=((SCHEMA_FILE,), (LEXICON_FILE,), *((name,) for name in _SAMPLES.values())),
        splits=_SAMPLES,
        shares="mutualfriends",
    ),
    "11,157 human searches for a common friend, He et al. 2017": FileChats(
        name="mutualfriends",
        summary="11,157 chats of people who look for their common friend (MutualFriends, He et al. 2017)",
        licence="not stated for the chats; MIT (schema and lexicon)",
        obtain=f"{_RELEASE}, and the chats from whoever has the published bundle",
        wanted=((SCHEMA_FILE,), (LEXICON_FILE,), *((name,) for name in PUBLISHED.values())),
    ),
}.items():
    friend_corpora.register(_corpus.name, _about)(_corpus)


COMPILER_VERSION = 1
"""Grows when the compiler changes."""
_KNOWN = "known.json"
_FILES = (*(f"{split}.arrow" for split in SPLITS), _KNOWN)
_NONE = -1


class ChatSplit(Sequence[FriendsChat]):
    """Chats of a split, made from the mapped file on access.

    Args:
        batch: record batch of the file.
        entities: entities of the schema, by id.
        words: words of the corpus, by id.
    """

    def __init__(self, batch: pa.RecordBatch, entities: Sequence[Entity], words: Sequence[str]) -> None:
        self._batch, self._entities, self._words = batch, entities, words

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @overload
    def __getitem__(self, index: int) -> FriendsChat: ...
    @overload
    def __getitem__(self, index: slice) -> list[FriendsChat]: ...
    def __getitem__(self, index: int | slice) -> FriendsChat | list[FriendsChat]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"chat {index} of {len(self)}")
        (row,) = self._batch.slice(index % len(self), 1).to_pylist()
        return self._chat(row)

    def __iter__(self) -> Iterator[FriendsChat]:
        return (self._chat(row) for row in self._batch.to_pylist())

    def _chat(self, row: dict[str, Any]) -> FriendsChat:
        attributes = tuple(Attribute(**column) for column in row["attributes"])
        values, width, size = row["values"], len(attributes), row["sizes"][0]
        items = [tuple(values[start : start + width]) for start in range(0, len(values), width)]
        tables = tuple(items[:size]), tuple(items[size:])
        scenario = FriendsScenario(row["scenario"], attributes, tables, tuple(row["alphas"]))
        events: list[ChatEvent] = []
        begin = 0
        for side, selected, num_words in zip(row["side"], row["selected"], row["num_words"], strict=True):
            end = begin + num_words
            if selected == _NONE:
                events.append(ChatEvent(side, self._tokens(row["word"][begin:end], row["entity"][begin:end])))
            else:
                events.append(ChatEvent(side, selected=selected, item=tables[side][selected]))
            begin = end
        return FriendsChat(scenario, tuple(events), tuple(events), row["agreed"], row["key"])

    def _tokens(self, words: list[int], entities: list[int]) -> tuple[Token, ...]:
        tokens: list[Token] = []
        for word, entity in zip(words, entities, strict=True):
            text = self._words[word]
            if entity == _NONE:
                tokens.append(text)
            elif entity % 2:
                tokens.append(Mention(self._entities[entity // 2], (text,)))
            else:
                mention = tokens.pop()
                assert isinstance(mention, Mention), "a mention begins with its first word"
                tokens.append(mention._replace(words=(*mention.words, text)))
        return tuple(tokens)


@dataclass(frozen=True, eq=False)
class FriendsCorpus:
    """An open compiled corpus.

    Args:
        name: the registered name.
        folder: the compiled files; its last part is the key of the content.
        schema: the schema of the tables.
        forms: spellings of entities, repeated by their counts.
        words: words of the training chats outside of mentions, most frequent first.
        splits: "train", "val" and "test".
    """

    name: str
    folder: Path
    schema: FriendsSchema
    forms: tuple[Form, ...]
    words: tuple[str, ...]
    splits: dict[str, ChatSplit]

    @cached_property
    def linker(self) -> EntityLinker:
        """The linker of the schema's entities."""
        return EntityLinker(self.schema, self.forms)


def load_friends(name: str, data_root: Path | None = None, *, cache: Path | None = None) -> FriendsCorpus:
    """Open a corpus by name, and compile it first if needed.

    Args:
        name: a registered name, or `path/file.py:NAME`.
        data_root: folder of the corpora; None for the default of `parley.envs.corpora.arrow.data_root`.
        cache: folder of compiled corpora; None for the default of `parley.envs.corpora.arrow.cache_root`.

    Raises:
        ConfigError: an unknown corpus.
        DataError: files are missing, a chat is broken, or the compiled form cannot be written.
    """
    with corpus_named(name, data_root):
        return open_friends(named_source(friend_corpora, name, "read_text", "fingerprint"), data_root, cache=cache)


def open_friends(source: ChatSource, data_root: Path | None = None, *, cache: Path | None = None) -> FriendsCorpus:
    """Open a corpus from its source, and compile it first if needed; arguments as of `load_friends`."""
    root = resolve_data_root(data_root)
    source.require_files(root)
    folder = compiled_folder(cache, source.name, COMPILER_VERSION, source.name, source.fingerprint(root))
    if not is_whole(folder, _FILES):
        _compile(source.read_text(root).require_whole(), folder)
    stored = json.loads((folder / _KNOWN).read_text(encoding="utf-8"))
    schema = FriendsSchema(
        tuple(Attribute(**column) for column in stored["attributes"]),
        {kind: tuple(values) for kind, values in stored["values"].items()},
    )
    entities = schema.entities()
    forms = tuple((entities[i], tuple(words)) for i, words, count in stored["forms"] for _ in range(count))
    batches = {split: map_batch(folder / f"{split}.arrow") for split in SPLITS}
    splits = {split: ChatSplit(batch, entities, stored["words"]) for split, batch in batches.items()}
    return FriendsCorpus(source.name, folder, schema, forms, tuple(stored["words"][: stored["num_plain"]]), splits)


def _compile(text: ChatText, folder: Path) -> None:
    schema = text.schema
    if schema is None or not text.splits["train"]:
        raise DataError("a corpus without chats to train on", where=folder, fix="give it a schema and chats in train")
    entities = {entity: i for i, entity in enumerate(schema.entities())}
    plain = Counter(token for chat in text.splits["train"] for token in _tokens(chat) if isinstance(token, str))
    frequent = [word for word, _ in sorted(plain.items(), key=lambda item: (-item[1], item[0]))]
    other_words = {word for chats in text.splits.values() for chat in chats for event in chat.events for word in event.words}
    words = {word: i for i, word in enumerate([*frequent, *sorted(other_words.difference(plain))])}
    stored = {
        "attributes": [vars(attribute) for attribute in schema.attributes],
        "values": dict(schema.values),
        "forms": [(entities[entity], form, count) for (entity, form), count in Counter(text.forms).items()],
        "words": list(words),
        "num_plain": len(frequent),
    }

    def write(draft: Path) -> None:
        for split, chats in text.splits.items():
            write_batch(draft / f"{split}.arrow", _batch(chats, entities, words))
        (draft / _KNOWN).write_text(json.dumps(stored, ensure_ascii=False), encoding="utf-8")

    publish(folder, write)


def _batch(chats: Sequence[FriendsChat], entities: dict[Entity, int], words: dict[str, int]) -> pa.RecordBatch:
    attribute = pa.struct([("name", pa.string()), ("type", pa.string()), ("unique", pa.bool_())])
    kinds = [
        *(("key", pa.string()), ("agreed", pa.bool_()), ("scenario", pa.string()), ("alphas", pa.list_(pa.float64()))),
        *(("attributes", pa.list_(attribute)), ("values", pa.list_(pa.string())), ("sizes", pa.list_(pa.int32()))),
        *(("side", pa.list_(pa.int8())), ("selected", pa.list_(pa.int32())), ("num_words", pa.list_(pa.int32()))),
        *(("word", pa.list_(pa.int32())), ("entity", pa.list_(pa.int32()))),
    ]
    return pa.RecordBatch.from_pylist([_row(chat, entities, words) for chat in chats], schema=pa.schema(kinds))


def _row(chat: FriendsChat, entities: dict[Entity, int], words: dict[str, int]) -> dict[str, Any]:
    scenario = chat.scenario
    coded = [code for token in _tokens(chat) for code in _codes(token, entities)]
    return {
        "key": chat.key,
        "agreed": chat.agreed,
        "scenario": scenario.key,
        "alphas": scenario.alphas,
        "attributes": [vars(attribute) for attribute in scenario.attributes],
        "values": [value for table in scenario.tables for item in table for value in item],
        "sizes": [len(table) for table in scenario.tables],
        "side": [event.side for event in chat.events],
        "selected": [_NONE if event.selected is None else event.selected for event in chat.events],
        "num_words": [len(event.words) for event in chat.events],
        "word": [words[word] for event in chat.events for word in event.words],
        "entity": coded,
    }


def _tokens(chat: FriendsChat) -> Iterable[Token]:
    return (token for event in chat.events for token in event.tokens)


def _codes(token: Token, entities: dict[Entity, int]) -> Iterator[int]:
    """Yield the entity code of each word of a token."""
    if isinstance(token, str):
        yield _NONE
    else:
        for i in range(len(token.words)):
            yield 2 * entities[token.entity] + (i == 0)
