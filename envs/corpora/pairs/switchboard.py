"""Reader of the Switchboard dialogues with dialogue acts (Jurafsky et al. 1997), as text: one file a dialogue.

`train`, `val` and `test` hold files of lines "speaker|text|act". Neighbouring lines of one speaker are a turn, which is the
utterance here, and neighbouring turns of a dialogue are pairs: 95,329 in train, 1,466 in val, 2,119 in test.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.pairs.text import PairText
from parley.envs.corpora.pairs.tokens import tokenise


def read_switchboard(folder: Path) -> PairText:
    """Reads every dialogue below the folder.

    Args:
        folder: holds `train`, `val` and `test`.
    """
    text = PairText()
    for name, split in text.splits.items():
        for path in sorted((folder / name).glob("*.txt")):
            rows = [split.add(turn) for turn in _turns(path, text.broken)]
            for source, reply in pairwise(rows):
                split.link(source, reply)
    return text


def parse_line(line: str) -> tuple[str, list[str]]:
    """Reads one line.

    Returns:
        Its speaker, A or B, and its words, of which there may be none.

    Raises:
        DataError: the line is not "A|text|act" or "B|text|act".
    """
    require_utf8(line)
    fields = line.split("|")
    if len(fields) != 3 or fields[0] not in ("A", "B"):
        raise broken_rule("a line is A or B, text and act, with | between them", line)
    return fields[0], tokenise(fields[1])


def _turns(path: Path, broken: list[DataError]) -> list[list[str]]:
    turns: list[list[str]] = []
    before = ""
    for number, line in enumerate(read_lines(path), 1):
        try:
            speaker, words = parse_line(line)
        except DataError as error:
            broken.append(located(error, str(path), number))
            continue
        if speaker != before:
            turns.append([])
        turns[-1] += words
        before = speaker
    return [turn for turn in turns if turn]
