"""How scripted players word what they mean: a template filled in with entities, numbers and clauses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import TypeVar

from envs.friends.events import Mention, Token
from envs.friends.linker import EntityLinker
from envs.friends.schema import Entity
from envs.friends.scripted import phrases
from envs.friends.scripted.phrases import Phrase

SPELT_OTHERWISE = 0.3
"""How often an entity is not said by its name."""

T = TypeVar("T")


class Draws:
    """The random numbers of one act, one after the other.

    Args:
        uniforms: all of them, from 0 to 1.
    """

    def __init__(self, uniforms: Sequence[float]) -> None:
        self._next = iter(uniforms).__next__

    def below(self, chance: float) -> bool:
        """Whether the next one is below a chance."""
        return self._next() < chance

    def one(self, values: Sequence[T]) -> T:
        """One of some values, each as likely."""
        return values[int(self._next() * len(values))]

    def weighted(self, shares: dict[Entity, float]) -> Entity:
        """An entity with a probability proportional to its share."""
        bounds = list(accumulate(shares.values()))
        at = bisect_right(bounds, self._next() * bounds[-1])
        return next(islice(shares, min(at, len(bounds) - 1), None))


class FriendsWording:
    """Words utterances.

    Args:
        linker: how entities are spelt.
    """

    def __init__(self, linker: EntityLinker) -> None:
        self._linker = linker

    def phrase(
        self, template: Phrase, entities: Sequence[Entity], count: int, total: int, spelt: int, draws: Draws
    ) -> tuple[Token, ...]:
        """A template of `phrases.py`, filled in.

        Args:
            template: words, and what is to be filled in.
            entities: what it is about.
            count: friends that have them, at least 1.
            total: friends of the table.
            spelt: 0 for numbers in figures, 1 for words.
            draws: random numbers of the act.
        """
        tokens: list[Token] = []
        for word in template:
            if word[0] != "{":
                tokens.append(word)
            elif word == "{n}":
                tokens += phrases.number_words(count, total, spelt)
            elif word == "{friends}":
                tokens.append("friend" if count == 1 else "friends")
            else:
                for i, entity in enumerate(entities):
                    if i:
                        tokens.append("and")
                    if word != "{x}":
                        clause, is_relative = draws.one(phrases.clauses(entity.type, count == 1, word == "{does}"))
                        if is_relative:
                            tokens.append(draws.one(phrases.WHO))
                        tokens += clause
                    tokens.append(self._said(entity, draws))
        return tuple(tokens)

    def _said(self, entity: Entity, draws: Draws) -> Mention:
        name, *others = self._linker.mentions(entity)
        return draws.one(others) if others and draws.below(SPELT_OTHERWISE) else name
