"""A reply under edit: its words, where they come from, and what was changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from parley.envs.corpora.pairs.turns import Utterance

NEW = -1
"""The source of a word that stands for none of the original."""


class Change(NamedTuple):
    """One edit of a draft.

    Args:
        move: the name of the move that proposed it.
        start: where the words that go begin.
        end: and end.
        words: what comes in their place.
        tags: of these.
        sources: places in the original of the words that these are or stand for; `NEW` for inserted ones.
    """

    move: str
    start: int
    end: int
    words: Utterance
    tags: tuple[str, ...]
    sources: tuple[int, ...]

    @property
    def cost(self) -> int:
        """Words that it changes."""
        return max(self.end - self.start, len(self.words))


@dataclass(frozen=True)
class Draft:
    """A reply as it is edited so far. No word is edited twice, so that costs add up.

    Args:
        words: of the reply.
        tags: of its words; a word that stands for another has the tag of that.
        sources: for each word the place in the original of what it is or stands for, `NEW` if it was inserted.
        edited: which words are not as they were, or not where they were.
        cost: words changed: replaced, inserted, deleted, two for a swap.
        num_original: words of the original.
        changes: all edits in their order, each with places in the draft that it was made on.
    """

    words: Utterance
    tags: tuple[str, ...]
    sources: tuple[int, ...]
    edited: tuple[bool, ...]
    num_original: int
    cost: int = 0
    changes: tuple[Change, ...] = ()

    @classmethod
    def of(cls, words: Utterance, tags: Sequence[str]) -> Self:
        """A reply that nobody has edited."""
        return cls(words, tuple(tags), tuple(range(len(words))), (False,) * len(words), len(words))

    def may_change(self, start: int, end: int) -> bool:
        """Whether some of its words are as they were."""
        return end <= len(self.words) and not any(self.edited[start:end])

    def after(self, change: Change) -> Draft:
        """The draft with one more edit."""
        start, end = change.start, change.end
        return Draft(
            (*self.words[:start], *change.words, *self.words[end:]),
            (*self.tags[:start], *change.tags, *self.tags[end:]),
            (*self.sources[:start], *change.sources, *self.sources[end:]),
            (*self.edited[:start], *(True for _ in change.words), *self.edited[end:]),
            self.num_original,
            self.cost + change.cost,
            (*self.changes, change),
        )

    def place_of(self, source: int) -> int | None:
        """Where a word of the original, or what stands for it, is now; the original's number of words stands for the end."""
        if source in self.sources:
            return self.sources.index(source)
        return len(self.words) if source == self.num_original else None

    def without(self, place: int) -> Draft:
        """The draft with a word erased, to see how much it matters."""
        return self.after(Change("erasure", place, place + 1, (), (), ()))

    def replaced(self, place: int, word: str, move: str) -> Change:
        """A change of one word."""
        return Change(move, place, place + 1, (word,), (self.tags[place],), (self.sources[place],))
