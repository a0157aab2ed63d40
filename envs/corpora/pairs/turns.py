"""Dialogue as turns: what perturbations change and response models read.

An utterance is a tuple of words, a turn the utterances that one person says in a row, and a dialogue's context its last turns,
the oldest first. As a line of text, utterances of a turn are separated by `<eou>` and turns by `<eot>`; the published forms
`__eou__` and `__eot__`, which end utterances and turns there, are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from parley.envs.corpora.pairs import vocabulary
from parley.envs.corpora.pairs.tokens import normalised, origins, tokenise, tokenise_where
from parley.envs.corpora.pairs.vocabulary import EOU

EOT = vocabulary.EOT
"""Separates turns, see there."""

Utterance = tuple[str, ...]
Turn = tuple[Utterance, ...]
Turns = tuple[Turn, ...]

_UTTERANCE_END = re.compile(r"<eou>|__eou__")
_TURN_END = re.compile(r"<eot>|__eot__")


@dataclass(frozen=True)
class Example:
    """One thing said in a recorded dialogue, and what came before it.

    Args:
        key: unique in its corpus, such as "test-000123"; sorts in the order of the corpus.
        context: the turns before, oldest first; at least one.
        reply: the turn that followed.
        after: the turn that followed the reply, the first of several; None where the corpus has none.
    """

    key: str
    context: Turns
    reply: Turn
    after: Turn | None = field(default=None, compare=False)


def parse_turns(line: str) -> Turns:
    """Reads a line of text.

    Args:
        line: turns and utterances with their marks; marks at the very end of a turn or of the line end what is before them.

    Returns:
        The turns; an utterance or a turn without a word stays, as an empty one, so that boundaries keep their places.
    """
    # Marks are found in what tokens are made of, so that no token is one.
    turns = [_UTTERANCE_END.split(turn) for turn in _without_end(_TURN_END.split(normalised(line)))]
    return tuple(tuple(tuple(tokenise(utterance)) for utterance in _without_end(turn)) for turn in turns)


def tokens_where(line: str) -> list[tuple[str, int, int]] | None:
    """The words of a line of text, and where in it each begins and ends; marks are between them. None: it holds no mark."""
    read = normalised(line)
    if not (_TURN_END.search(read) or _UTTERANCE_END.search(read)):
        return None
    found, where = [], origins(line)
    for turn in _between(_TURN_END, read, 0, len(read)):
        for start, end in _between(_UTTERANCE_END, read, *turn):
            first = where[start]
            found += [(token, first + i, first + j) for token, i, j in tokenise_where(line[first : where[end]])]
    return found


def turn_words(turn: Turn) -> list[str]:
    """The words of a turn, `<eou>` between its utterances."""
    words: list[str] = []
    for number, utterance in enumerate(turn):
        if number:
            words.append(EOU)
        words.extend(utterance)
    return words


def context_words(turns: Sequence[Turn]) -> list[str]:
    """The words of several turns, `<eot>` between them."""
    words: list[str] = []
    for number, turn in enumerate(turns):
        if number:
            words.append(EOT)
        words.extend(turn_words(turn))
    return words


def turn_of(words: Sequence[str]) -> Turn:
    """The turn that `turn_words` wrote."""
    utterances: list[list[str]] = [[]]
    for word in words:
        if word == EOU:
            utterances.append([])
        else:
            utterances[-1].append(word)
    return tuple(map(tuple, utterances))


def format_turns(turns: Turns) -> str:
    """The line of text that `parse_turns` reads back, words joined by blanks."""
    return " ".join(context_words(turns))


def _between(mark: re.Pattern[str], text: str, start: int, end: int) -> list[tuple[int, int]]:
    """What stretches of a part of a text marks leave."""
    marks = list(mark.finditer(text, start, end))
    return list(zip([start, *(each.end() for each in marks)], [*(each.start() for each in marks), end], strict=True))


def _without_end(pieces: list[str]) -> list[str]:
    """Published lines end every piece with its mark, so that nothing stands behind the last one."""
    return pieces[:-1] if len(pieces) > 1 and not pieces[-1].strip() else pieces
