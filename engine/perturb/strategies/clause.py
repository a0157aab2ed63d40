"""A clause of an utterance, and what comes into it where it is negated (`clauses.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from parley.engine.perturb.lexicon import clause_words as of


class Place(NamedTuple):
    """What stands instead of some words of an utterance.

    Args:
        start: of the words that go.
        end: of the words that go; equal to `start` where words are only added.
        words: what comes; "n't" as the tokeniser cuts it.
    """

    start: int
    end: int
    words: tuple[str, ...]


class Clause(NamedTuple):
    """The words of an utterance from one mark or coordinator to the next.

    Args:
        words: of the utterance.
        tags: theirs.
        start: of the clause.
        end: of the clause.
        base_of: the base form of a verb; None where it is unknown.
    """

    words: Sequence[str]
    tags: Sequence[str]
    start: int
    end: int
    base_of: Callable[[str], str | None]

    def word(self, place: int) -> str:
        """The word of a place; none beyond the clause."""
        return self.words[place] if self.start <= place < self.end else ""

    def tag(self, place: int) -> str:
        """The tag of a place; none beyond the clause."""
        return self.tags[place] if self.start <= place < self.end else ""

    def before(self, place: int) -> int:
        """The place before one, adverbs passed over."""
        place -= 1
        while self.word(place) in of.ADVERBS:
            place -= 1
        return place

    def after(self, place: int) -> int:
        """The place behind one, adverbs passed over."""
        place += 1
        while self.word(place) in of.ADVERBS or (self.tag(place) == "RB" and self.word(place) not in of.VERBS):
            place += 1
        return place

    def is_participle(self, place: int) -> bool:
        """Whether "have" before it is an auxiliary."""
        word = self.word(place)
        is_past = self.tag(place) in ("VBN", "VBD") and self.base_of(word) in of.VERBS
        return is_past or word in of.PARTICIPLES or (word.endswith("ed") and len(word) > 3)

    def is_base(self, place: int) -> bool:
        """Whether "do" before it is an auxiliary."""
        return self.word(place) in of.VERBS or self.tag(place) in ("VB", "VBP")
