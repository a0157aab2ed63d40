"""Reader of DailyDialog++ (Sai et al. 2020) as pairs: contexts of several turns, each with five replies that people wrote.

    data_positives.jsonl   7,641 contexts: training
    dev.jsonl              1,028 contexts: validation
    test.jsonl             1,142 contexts: test

A line is a JSON object of "context" (turns, oldest first) and lists of replies. The last turn of a context and each of its
right replies are a pair; the turns before are no pairs, but links of the context. Wrong replies are for the corpus of
candidates (`envs/ranking/dailydialog.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.pairs.text import PairText
from parley.envs.corpora.pairs.tokens import tokenise

FILES = {"train": "data_positives.jsonl", "val": "dev.jsonl", "test": "test.jsonl"}
CONTEXT, POSITIVE = "context", "positive_responses"


def read_dailydialog_pairs(folder: Path) -> PairText:
    """Reads the right replies of the three files."""
    text = PairText()
    for name, file in FILES.items():
        split, path = text.splits[name], folder / file
        for number, line in enumerate(read_lines(path), 1):
            try:
                context, replies = parse_lists(line, CONTEXT, POSITIVE)
            except DataError as error:
                text.broken.append(located(error, str(path), number))
                continue
            turns = [split.add(turn) for turn in context]
            split.follow(turns)
            for reply in replies:
                split.link(turns[-1], split.add(reply))
    return text


def parse_lists(line: str, *names: str) -> list[list[list[str]]]:
    """Reads lists of texts of one line.

    Args:
        line: a JSON object.
        names: of the lists.

    Returns:
        Of each list the words of its texts.

    Raises:
        DataError: the line has another form, lacks a list, or holds a text without a word.
    """
    require_utf8(line)
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise broken_rule(f"a line is a JSON object: {error.msg}", line) from None
    return [_texts(record, name) for name in names]


def _texts(record: Any, name: str) -> list[list[str]]:
    listed = record.get(name) if isinstance(record, dict) else None
    if not isinstance(listed, list) or not listed or not all(isinstance(each, str) for each in listed):
        raise broken_rule(f'a line has a list of texts as "{name}"', json.dumps(record, ensure_ascii=False))
    said = [tokenise(each) for each in listed]
    if not all(said):
        raise broken_rule(f'each text of "{name}" has a word', json.dumps(listed, ensure_ascii=False))
    return said
