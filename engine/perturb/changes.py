"""What a perturbation changed: the words of a context before and after, aligned, with their boundaries.

A context keeps its utterances, so each is aligned with itself by difflib and boundaries never match words. How spans are marked
is for screens and pages to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from envs.pairs.turns import EOT, Turns, Utterance
from envs.pairs.vocabulary import EOU


class ChangeKind(StrEnum):
    """What became of words."""

    SAME = "same"
    REPLACED = "replaced"
    INSERTED = "inserted"
    DELETED = "deleted"


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


def _aligned(old: Utterance, new: Utterance) -> Iterator[Span]:
    if old == new:
        if old:
            yield Span(ChangeKind.SAME, old, new)
        return
    for tag, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield Span(_KINDS[tag], old[i:i_end], new[j:j_end])
