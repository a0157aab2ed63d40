"""Reader of DailyDialog++ (Sai et al. 2020): contexts with replies that people wrote, right ones and misleading ones.

    data_positives.jsonl   7,641 contexts of 5 right replies: training, one group for each, whose wrong replies are drawn
    dev.jsonl              1,028 contexts of 5 right, 5 misleading and 5 random replies: validation
    test.jsonl             1,142 of the same: test

A line is a JSON object of "context" (turns, oldest first) and lists of replies. A few wrong replies have the words of a right
one of their context; they are left out (`CandidateText.mended`).
"""

from __future__ import annotations

from pathlib import Path

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import located, read_lines
from parley.envs.corpora.pairs.dailydialog import CONTEXT, FILES, POSITIVE, parse_lists
from parley.envs.ranking.groups import CandidateKind
from parley.envs.ranking.text import Candidate, CandidateText, ListedReply

REPLIES = {
    POSITIVE: CandidateKind.POSITIVE,
    "adversarial_negative_responses": CandidateKind.ADVERSARIAL,
    "random_negative_responses": CandidateKind.RANDOM,
}


def read_dailydialog(folder: Path) -> CandidateText:
    """Reads the three files.

    Args:
        folder: that holds them.
    """
    text = CandidateText()
    for name, file in FILES.items():
        split, path = text.splits[name], folder / file
        split.is_drawn = name == "train"
        for number, line in enumerate(read_lines(path), 1):
            try:
                context, replies = parse_line(line, positives_only=split.is_drawn)
            except DataError as error:
                text.broken.append(located(error, str(path), number))
                continue
            if not split.is_drawn:
                listed = [ListedReply(number, said, kind is CandidateKind.POSITIVE, kind) for said, kind in replies]
                text.listed(name, path, number, context, listed)
                continue
            turns = [split.add(turn) for turn in context]
            for said, kind in replies:
                split.group(turns, [Candidate(split.add(said), True, kind)], dialogue=number)
    return text


def parse_line(line: str, positives_only: bool) -> tuple[list[list[str]], list[tuple[list[str], CandidateKind]]]:
    """Reads one line.

    Args:
        line: a JSON object.
        positives_only: whether it lists right replies alone.

    Returns:
        The words of each turn, and of each reply with its kind.

    Raises:
        DataError: the line has another form, lacks a list, or holds an utterance without a word.
    """
    kinds = {name: kind for name, kind in REPLIES.items() if kind is CandidateKind.POSITIVE or not positives_only}
    context, *lists = parse_lists(line, CONTEXT, *kinds)
    return context, [(said, kind) for kind, listed in zip(kinds.values(), lists, strict=True) for said in listed]
