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
from envs.friends.scripted.phrases import Phrase, Wordings

SPELT_OTHERWISE = 0.3
"""How often an entity is not said by its name."""

T = TypeVar("T")


class Draws:
    """The random numbers of one act, one after the other.

    Args:
        uniforms: all of them, from 0 to 1.
    """

    def __init__(self, uniforms: Sequence[float]) -> None:
        self._left = iter(uniforms)

    def below(self, chance: float) -> bool:
        """Whether the next one is below a chance."""
        return next(self._left) < chance

    def one(self, values: Sequence[T]) -> T:
        """One of some values, each as likely."""
        return values[int(next(self._left) * len(values))]

    def weighted(self, shares: dict[Entity, float]) -> Entity:
        """An entity with a probability proportional to its share."""
        bounds = list(accumulate(shares.values()))
        at = bisect_right(bounds, next(self._left) * bounds[-1])
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
            if word == "{n}":
                tokens += phrases.number_words(count, total, spelt)
            elif word == "{friends}":
                tokens.append("friend" if count == 1 else "friends")
            elif word == "{clause}":
                tokens += self._clauses(entities, count, draws, verbs=False)
            elif word == "{does}":
                tokens += self._clauses(entities, count, draws, verbs=True)
            elif word == "{x}":
                tokens += _joined([(self._said(entity, draws),) for entity in entities])
            else:
                tokens.append(word)
        return tuple(tokens)

    def _clauses(self, entities: Sequence[Entity], count: int, draws: Draws, verbs: bool) -> list[Token]:
        said: list[tuple[Token, ...]] = []
        for entity in entities:
            wordings: Wordings = phrases.OF_TYPE.get(entity.type, phrases.ANY_TYPE)
            spoken = wordings.one if count == 1 else wordings.many
            clause = draws.one(spoken if verbs else (*spoken, *wordings.nouns))
            relative = () if verbs or clause in wordings.nouns else (draws.one(phrases.WHO),)
            said.append((*relative, *(self._said(entity, draws) if word == "{x}" else word for word in clause)))
        return _joined(said)

    def _said(self, entity: Entity, draws: Draws) -> Mention:
        forms = self._linker.forms(entity)
        otherwise = len(forms) > 1 and draws.below(SPELT_OTHERWISE)
        return Mention(entity, draws.one(forms[1:]) if otherwise else forms[0])


def _joined(parts: Sequence[tuple[Token, ...]]) -> list[Token]:
    tokens: list[Token] = []
    for i, part in enumerate(parts):
        tokens += ("and", *part) if i else part
    return tokens
