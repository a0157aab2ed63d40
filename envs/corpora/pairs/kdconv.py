"""Reader of KdConv (Zhou et al. 2020): Chinese conversations about films, music and travel.

Each of the three folders holds JSON lists of dialogues, {"name": ..., "messages": [{"message": text, ...}, ...]}. Messages come
without blanks and are cut into words by jieba. A message is an utterance here, neighbouring ones of a dialogue are pairs.

Where a folder has no `train.json`, its `dev.json` serves for training, but for every tenth dialogue, which validates. Of the
900 dialogues in the `dev.json` and `test.json`, with two turns of context or more: 8,421 and 8,837 replies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.lines import broken_rule, located, require_utf8
from parley.envs.corpora.pairs.chinese import cut, cutter_version
from parley.envs.corpora.pairs.sources import FilePairs
from parley.envs.corpora.pairs.text import PairText
from parley.envs.corpora.root import read_file

DOMAINS = ("film", "music", "travel")
TRAIN, DEV, TEST = "train.json", "dev.json", "test.json"
_HELD_OUT = 10
"""Of so many dialogues of a `dev.json` that serves for training, one validates."""


def read_kdconv(folder: Path) -> PairText:
    """Reads every dialogue below the folder.

    Args:
        folder: holds `film`, `music` and `travel`.

    Raises:
        ConfigError: jieba is not installed.
    """
    text = PairText()
    for domain in (folder / name for name in DOMAINS):
        trained = (domain / TRAIN).is_file()
        _read(domain / TEST, text, "test")
        _read(domain / DEV, text, "val" if trained else None)
        if trained:
            _read(domain / TRAIN, text, "train")
    return text


def parse_dialogue(record: Any) -> list[list[str]]:
    """The words of each message of a dialogue.

    Raises:
        DataError: the record has another form, or a message has no word.
    """
    messages = record.get("messages") if isinstance(record, dict) else None
    if not isinstance(messages, list):
        raise broken_rule('a dialogue has "messages"', json.dumps(record, ensure_ascii=False))
    return [_words(message) for message in messages]


def _words(message: Any) -> list[str]:
    said = message.get("message") if isinstance(message, dict) else None
    words = cut(said) if isinstance(said, str) else []
    if not words:
        raise broken_rule('a message has a "message" of a word or more', json.dumps(message, ensure_ascii=False))
    return words


def _read(path: Path, text: PairText, only: str | None) -> None:
    """Reads a file into one split, or each dialogue into that of training or validation which its words name."""
    for line, record in _records(path, text.broken):
        try:
            said = parse_dialogue(record)
        except DataError as error:
            text.broken.append(located(error, str(path), line))
            continue
        held_out = stable_hash("validation", *(" ".join(words) for words in said)) % _HELD_OUT == 0
        split = text.splits[only or ("val" if held_out else "train")]
        for source, reply in pairwise([split.add(words) for words in said]):
            split.link(source, reply)


def _records(path: Path, broken: list[DataError]) -> Iterator[tuple[int, Any]]:
    """The entries of a JSON list, and the lines that they begin in."""
    content = read_file(path).decode("utf-8", errors="surrogateescape")
    decoder, place, line, separator = json.JSONDecoder(), 0, 1, "["
    try:
        require_utf8(content)
        while True:
            start = _next(content, place)
            line, place = line + content.count("\n", place, start), start
            if content[place : place + 1] != separator:
                break
            start = _next(content, place + 1)
            line, place = line + content.count("\n", place, start), start
            record, end = decoder.raw_decode(content, place)
            yield line, record
            line, place, separator = line + content.count("\n", place, end), end, ","
        if separator == "[" or content[place:].strip() != "]":
            raise broken_rule("the file is one JSON list", content[place : place + 80])
    except json.JSONDecodeError as error:
        broken.append(located(broken_rule("the file is one JSON list", error.msg), str(path), error.lineno))
    except DataError as error:
        broken.append(located(error, str(path), line))


def _next(content: str, place: int) -> int:
    """Where blanks end."""
    while content[place : place + 1].isspace():
        place += 1
    return place


KDCONV = FilePairs(
    name="kdconv",
    summary="1,500 Chinese conversations each about films, music and travel (KdConv, Zhou et al. 2020); needs jieba",
    licence="Apache-2.0",
    obtain="github.com/thu-coai/KdConv, folder data",
    vocabulary=15_000,
    wanted=(("*/train.json", "*/dev.json"), *((f"{domain}/{name}",) for domain in DOMAINS for name in (DEV, TEST))),
    reader=read_kdconv,
    tools=(cutter_version(),),
)
