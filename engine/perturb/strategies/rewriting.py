"""Edits of words carried over to the text that the words were read from: case, blanks and marks outside the change stay.

A word that enters takes the case of the word that it replaces (Title, UPPER, lower; "I" is no capital); one that only moved
keeps its own, but for the capital at the beginning of a sentence, which stays where it is. A word that is left out takes one
blank with it. Text of new words alone is written as `envs/corpora/pairs/turns.py` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parley.envs.corpora.pairs.turns import CLITICS, CLOSING, OPENING, QUOTES, Utterance, first_half, reads, written

_ENDS = frozenset({".", "?", "!", "..."})
"""Marks behind which a sentence begins."""
_LEADING = OPENING | QUOTES | {"'", "-", "*"}
"""Marks that may stand before the first word of a sentence."""


class Edit(NamedTuple):
    """Other words in the place of those from a start to an end of a text."""

    start: int
    end: int
    replacement: Utterance


class WrittenText:
    """A text as tokens, and as what is written.

    Args:
        words: its N tokens.
        surfaces: what each is written as (N).
        gaps: what stands before each, and behind the last (N + 1): blanks, and the marks between utterances.
    """

    def __init__(self, words: Sequence[str], surfaces: Sequence[str], gaps: Sequence[str]) -> None:
        self._words, self._surfaces, self._gaps = list(words), list(surfaces), list(gaps)
        self._is_new = [False] * len(words)

    def rewritten(self, edits: Sequence[Edit]) -> str:
        """Return the text with these edits, which are in order and do not overlap."""
        moved = {self._words[i]: self._in_sentence(i) for start, end, _ in edits for i in range(start, end)}
        for edit in reversed(edits):
            start, end, new = edit
            if end - start == len(new):
                for position, word in zip(range(start, end), new, strict=True):
                    self._substitute(position, word, moved)
                continue
            # Equal words at both ends stay.
            while start < end and new and self._words[start] == new[0]:
                start, new = start + 1, new[1:]
            while start < end and new and self._words[end - 1] == new[-1]:
                end, new = end - 1, new[:-1]
            if new:
                self._put(start, end, new, moved, behind=start > edit.start)
            else:
                self._leave_out(start, end)
        return "".join(self._pieces())

    def _substitute(self, position: int, other: str, moved: dict[str, str]) -> None:
        if self._words[position] != other:
            self._surfaces[position] = self._cased(position, other, moved)
            self._words[position], self._is_new[position] = other, True

    def _put(self, start: int, end: int, new: Utterance, moved: dict[str, str], *, behind: bool) -> None:
        """Put words in the place of others, before a word, or behind the word before."""
        gaps, written_others = map(list, zip(*written(new), strict=True))
        new = tuple(written_others)
        if behind:
            lost = len(self._words[start - 1]) - len(first_half(self._words[start - 1], new[0]))
            for kept in (self._words, self._surfaces):
                kept[start - 1] = kept[start - 1][: len(kept[start - 1]) - lost]
        shape = start if start < end or not behind else start - 1
        surfaces = [moved.get(other, other) for other in new]
        if shape < len(self._words):
            if _is_upper(self._surfaces[shape]):
                surfaces = [text.upper() for text in surfaces]
            elif (start < end or not behind) and _is_title(self._surfaces[shape]) and (start < end or self._begins(start)):
                surfaces[0] = _capitalised(surfaces[0])
                if start == end:
                    self._surfaces[start] = self._in_sentence(start)
        first = "" if new[0] in CLITICS or new[0] in CLOSING else " "
        if start < end:
            is_cut = self._words[start] in CLITICS and not self._gaps[start] and new[0] not in CLITICS
            gaps = [" " if is_cut else self._gaps[start], *gaps[1:], self._gaps[end]]
        elif behind or start == len(self._words):
            gaps = [first, *gaps[1:], self._gaps[start]]
        else:
            gaps = [self._gaps[start], *gaps[1:], "" if new[-1] in OPENING else " "]
            if self._words[start] in CLITICS and not self._gaps[start]:
                gaps[0] = " "
        self._gaps[start : end + 1] = gaps
        self._words[start:end], self._surfaces[start:end] = new, surfaces
        self._is_new[start:end] = [True] * len(new)
        self._check(start - 1, start + len(new))

    def _leave_out(self, start: int, end: int) -> None:
        begins = self._begins(start) and _is_title(self._surfaces[start])
        self._gaps[start : end + 1] = [self._gap(start, end)]
        del self._words[start:end], self._surfaces[start:end], self._is_new[start:end]
        if begins and start < len(self._words) and not _has_mark(self._gaps[start]):
            self._surfaces[start] = _capitalised(self._surfaces[start])
        self._check(start - 1, start)

    def _check(self, *neighbours: int) -> None:
        """Mark neighbours as changed, so that `_pieces` reads them again."""
        for position in neighbours:
            if 0 <= position < len(self._words):
                self._is_new[position] = True

    def _gap(self, start: int, end: int) -> str:
        """Return the gap that stays where words are left out."""
        before, after = self._gaps[start], self._gaps[end]
        if start == 0:
            return before + after.removeprefix(" ") if after else before.removesuffix(" ")
        if end == len(self._words):
            return before.removesuffix(" ") + after
        if before and after:
            if before.isspace() and "\n" not in before and not after.startswith(" "):
                return after
            if before.endswith(" ") or after.startswith(" "):
                return before[:-1] + after if before.endswith(" ") else before + after[1:]
            return before + after if _has_mark(before + after) else after
        holds = self._words[start - 1] in _LEADING if not before else self._words[end] in CLOSING | QUOTES
        return "" if holds and not _has_mark(before + after) else before + after

    def _pieces(self) -> Iterator[str]:
        """Yield the text piece by piece, with blanks where pieces would read as other words."""
        start = 0
        for end in range(1, len(self._words) + 1):
            if end == len(self._words) or self._gaps[end]:
                surfaces, is_new = self._surfaces[start:end], any(self._is_new[start:end])
                whole = "".join(surfaces)
                yield self._gaps[start]
                yield " ".join(surfaces) if is_new and reads(whole) != self._words[start:end] else whole
                start = end
        yield self._gaps[-1]

    def _cased(self, position: int, other: str, moved: dict[str, str]) -> str:
        """Write a word in the case of the word that it replaces."""
        here = self._surfaces[position]
        if other in moved:
            return _capitalised(moved[other]) if _is_title(here) and self._begins(position) else moved[other]
        if _is_upper(here):
            return other.upper()
        if _is_title(here) and (self._words[position] != "i" or self._begins(position)):
            return _capitalised(other)
        return other

    def _in_sentence(self, position: int) -> str:
        surface = self._surfaces[position]
        is_placed = _is_title(surface) and self._words[position] != "i" and self._begins(position)
        return surface[0].lower() + surface[1:] if is_placed else surface

    def _begins(self, position: int) -> bool:
        """Return whether a sentence begins with this word."""
        while position and not _has_mark(self._gaps[position]) and "\n" not in self._gaps[position]:
            position -= 1
            if self._words[position] not in _LEADING:
                return self._words[position] in _ENDS
        return True


def _has_mark(gap: str) -> bool:
    """Return whether a gap holds more than blanks: two utterances meet there, or an invisible sign stands there."""
    return bool(gap) and not gap.isspace()


def _is_upper(surface: str) -> bool:
    return surface.isupper() and sum(map(str.isalpha, surface)) > 1


def _is_title(surface: str) -> bool:
    return surface[:1].isupper() and not any(map(str.isupper, surface[1:]))


def _capitalised(surface: str) -> str:
    if not surface.replace("'", "").replace("-", "").isalpha():
        # An address, a path, a version: "http" is no word.
        return surface
    first = surface[:1].upper()
    # The letter stays where its capital is several ("ß").
    return first + surface[1:] if len(first) == 1 else surface
