"""What a perturbation changed: the words of a context before and after, aligned, with their boundaries.

A context keeps its utterances, so each is aligned with itself by difflib and boundaries never match words. Of very many words
only the middle is taken as changed, because difflib takes time that grows with the square of their number. How spans are marked
is for screens and pages to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby

from parley.envs.corpora.pairs.turns import EOT, Turns, Utterance
from parley.envs.corpora.pairs.vocabulary import EOU


class ChangeKind(StrEnum):
    """What became of words."""

    SAME = "same"
    REPLACED = "replaced"
    INSERTED = "inserted"
    DELETED = "deleted"


_MOST_WORDS = 500
"""Of an utterance that difflib aligns."""
_KINDS = {"equal": ChangeKind.SAME, "replace": ChangeKind.REPLACED, "insert": ChangeKind.INSERTED, "delete": ChangeKind.DELETED}


@dataclass(frozen=True)
class Span:
    """Neighbouring words with the same fate.

    Args:
        kind: which.
        before: the words as they were; none when inserted.
        after: the words as they are; none when deleted.
    """

    kind: ChangeKind
    before: tuple[str, ...]
    after: tuple[str, ...]


def spans(before: Turns, after: Turns) -> list[Span]:
    """The words of both contexts in order, boundaries among them.

    Args:
        before: the context.
        after: what a strategy made of it; as many utterances in as many turns.
    """
    found: list[Span] = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if number:
            found.append(_boundary(EOT))
        for row, (words, others) in enumerate(zip(old, new, strict=True)):
            if row:
                found.append(_boundary(EOU))
            found.extend(_aligned(words, others))
    return found


def num_changed(found: Sequence[Span]) -> int:
    """How many words changed: of a replacement, those of its longer side."""
    return sum(max(len(span.before), len(span.after)) for span in found if span.kind is not ChangeKind.SAME)


def bracketed(found: Sequence[Span]) -> tuple[str, str]:
    """Both contexts as lines of text, changed words in [brackets]."""
    return _line(found, "before"), _line(found, "after")


def _line(found: Sequence[Span], side: str) -> str:
    pieces = ((span, " ".join(getattr(span, side))) for span in found)
    return " ".join(text if span.kind is ChangeKind.SAME else f"[{text}]" for span, text in pieces if text)


def _boundary(word: str) -> Span:
    return Span(ChangeKind.SAME, (word,), (word,))


def aligned(old: Utterance, new: Utterance) -> Iterator[tuple[ChangeKind, slice, slice]]:
    """What became of which words of an utterance, in order: those before, and those after."""
    if max(len(old), len(new)) <= _MOST_WORDS:
        opcodes: Iterable[tuple[str, int, int, int, int]] = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    elif len(old) == len(new):
        runs = [[*run] for _, run in groupby(range(len(old)), key=lambda i: old[i] == new[i])]
        tags = ("equal" if old[run[0]] == new[run[0]] else "replace" for run in runs)
        opcodes = [(tag, run[0], run[-1] + 1, run[0], run[-1] + 1) for tag, run in zip(tags, runs, strict=True)]
    else:
        first = next((i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new)))
        ends = zip(reversed(old[first:]), reversed(new[first:]), strict=False)
        last = next((i for i, (word, other) in enumerate(ends) if word != other), min(len(old), len(new)) - first)
        i, j = len(old) - last, len(new) - last
        kind = "replace" if first < min(i, j) else "delete" if first < i else "insert"
        opcodes = [("equal", 0, first, 0, first), (kind, first, i, first, j), ("equal", i, len(old), j, len(new))]
    found = ((_KINDS[tag], slice(i, i_end), slice(j, j_end)) for tag, i, i_end, j, j_end in opcodes)
    yield from ((kind, before, after) for kind, before, after in found if old[before] or new[after])


def _aligned(old: Utterance, new: Utterance) -> Iterator[Span]:
    if old == new:
        if old:
            yield Span(ChangeKind.SAME, old, new)
        return
    yield from (Span(kind, old[before], new[after]) for kind, before, after in aligned(old, new))
