"""Compiled chats: made or read once, then memory-mapped by every worker.

A compiled corpus is a folder as `envs/corpora/arrow.py` keeps them; its key names the versions of compiler and reader, and the
content of the source.

    train.arrow, val.arrow, test.arrow   one row a chat: key, agreed, scenario, alphas, attributes, values (both tables, item
                                         by item), sizes; side, selected, num_words by event; ids and entities by word
    known.json                           schema, forms of entities with their counts, words of all chats

The entity of a word is -1 where there is none, else 2 * id + 1 for the first word of a mention and 2 * id for those behind it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import pyarrow as pa

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import compiled_folder, is_whole, map_batch, publish, write_batch
from parley.envs.corpora.lines import corpus_named
from parley.envs.corpora.root import data_root as resolve_data_root
from parley.envs.corpora.sources import SPLITS, named_source
from parley.envs.mutual_friends.corpora import friend_corpora
from parley.envs.mutual_friends.events import ChatEvent, FriendsChat, Mention, Token
from parley.envs.mutual_friends.linker import EntityLinker, Form
from parley.envs.mutual_friends.scenario import FriendsScenario, Item
from parley.envs.mutual_friends.schema import Attribute, Entity, FriendsSchema
from parley.envs.mutual_friends.sources import ChatSource, ChatText

COMPILER_VERSION = 1
"""Grows when the same chats would be compiled differently."""
_KNOWN = "known.json"
_FILES = (*(f"{split}.arrow" for split in SPLITS), _KNOWN)
_NONE = -1


class ChatSplit(Sequence[FriendsChat]):
    """Chats of a split, made from the mapped file when they are asked for.

    Args:
        batch: the file.
        entities: of the schema, by id.
        words: of the corpus, by id.
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
        attributes = tuple(Attribute(**each) for each in row["attributes"])
        tables = _tables(row["values"], row["sizes"], len(attributes))
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
            said = self._words[word]
            if entity == _NONE:
                tokens.append(said)
            elif entity % 2:
                tokens.append(Mention(self._entities[entity // 2], (said,)))
            else:
                begun = tokens.pop()
                assert isinstance(begun, Mention), "a mention begins with its first word"
                tokens.append(begun._replace(words=(*begun.words, said)))
        return tuple(tokens)


@dataclass(frozen=True, eq=False)
class FriendsCorpus:
    """A compiled corpus, opened.

    Args:
        name: the registered name.
        folder: the compiled files; its last part is the key of the content.
        schema: what tables are drawn from.
        forms: spellings of entities, as often as they were seen.
        words: plain words of the training chats, those inside mentions left out, most frequent first.
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
        """Finds the schema's entities in words."""
        return EntityLinker(self.schema, self.forms)


def load_friends(name: str, data_root: Path | None = None, *, cache: Path | None = None) -> FriendsCorpus:
    """Opens a corpus, compiling it first when its content has not been compiled before.

    Args:
        name: a registered name, or `path/file.py:NAME`.
        data_root: where the corpora lie; see `parley.envs.corpora.root.data_root` for the default.
        cache: where compiled corpora lie; see `parley.envs.corpora.root.cache_root` for the default.

    Raises:
        ConfigError: no such corpus.
        DataError: files are missing, a chat is broken, or the compiled form cannot be written.
    """
    with corpus_named(name, data_root):
        return open_friends(named_source(friend_corpora, name, "read_text", "fingerprint"), data_root, cache=cache)


def open_friends(source: ChatSource, data_root: Path | None = None, *, cache: Path | None = None) -> FriendsCorpus:
    """The same for a corpus in hand instead of a name."""
    root = resolve_data_root(data_root)
    source.require_files(root)
    folder = compiled_folder(cache, source.name, COMPILER_VERSION, source.name, source.fingerprint(root))
    if not is_whole(folder, _FILES):
        _compile(source.read_text(root).require_whole(), folder)
    known = json.loads((folder / _KNOWN).read_text(encoding="utf-8"))
    schema = FriendsSchema(tuple(Attribute(**each) for each in known["attributes"]), _tupled(known["values"]))
    entities = schema.entities()
    forms = tuple((entities[i], tuple(words)) for i, words, count in known["forms"] for _ in range(count))
    batches = {split: map_batch(folder / f"{split}.arrow") for split in SPLITS}
    splits = {split: ChatSplit(batch, entities, known["words"]) for split, batch in batches.items()}
    return FriendsCorpus(source.name, folder, schema, forms, tuple(known["words"][: known["num_plain"]]), splits)


def _compile(text: ChatText, folder: Path) -> None:
    schema = text.schema
    if schema is None or not text.splits["train"]:
        raise DataError("a corpus without chats to train on", where=folder, fix="give it a schema and chats in train")
    entities = {entity: i for i, entity in enumerate(schema.entities())}
    plain = Counter(token for chat in text.splits["train"] for token in _tokens(chat) if isinstance(token, str))
    frequent = [word for word, _ in sorted(plain.items(), key=lambda item: (-item[1], item[0]))]
    others = {word for chats in text.splits.values() for chat in chats for event in chat.events for word in event.words}
    words = {word: i for i, word in enumerate([*frequent, *sorted(others.difference(plain))])}
    known = {
        "attributes": [vars(attribute) for attribute in schema.attributes],
        "values": dict(schema.values),
        "forms": [(entities[entity], form, count) for (entity, form), count in Counter(text.forms).items()],
        "words": list(words),
        "num_plain": len(frequent),
    }

    def write(draft: Path) -> None:
        for split, chats in text.splits.items():
            write_batch(draft / f"{split}.arrow", _batch(chats, entities, words))
        (draft / _KNOWN).write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")

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
    """The entity of each word of a token."""
    if isinstance(token, str):
        yield _NONE
    else:
        for place in range(len(token.words)):
            yield 2 * entities[token.entity] + (place == 0)


def _tables(values: list[str], sizes: list[int], width: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    items = [tuple(values[at : at + width]) for at in range(0, len(values), width)]
    return tuple(items[: sizes[0]]), tuple(items[sizes[0] :])


def _tupled(values: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(listed) for kind, listed in values.items()}
