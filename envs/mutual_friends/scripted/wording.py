"""How scripted players word what they mean: a template filled in with entities, numbers and clauses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from parley.envs.mutual_friends.draws import Draw, one
from parley.envs.mutual_friends.events import Token
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.schema import Entity
from parley.envs.mutual_friends.scripted import phrases
from parley.envs.mutual_friends.scripted.phrases import Phrase

SPELT_OTHERWISE = 0.3
"""How often an entity is not said by its name."""


def worded(
    template: Phrase, entities: Sequence[Entity], count: int, total: int, spelt: int, linker: EntityLinker, draw: Draw
) -> tuple[Token, ...]:
    """A template of `phrases.py`, filled in.

    Args:
        template: words, and what is to be filled in.
        entities: what it is about.
        count: friends that have them, at least 1.
        total: friends of the table.
        spelt: 0 for numbers in figures, 1 for words.
        linker: how entities are spelt.
        draw: random numbers of the act.
    """
    before, slot, after = _counted(template, count, total, spelt)
    tokens: list[Token] = [*before]
    for i, entity in enumerate(entities):
        if i:
            tokens.append("and")
        if slot != "{x}":
            clause, is_relative = one(phrases.clauses(entity.type, count == 1, slot == "{does}"), draw)
            if is_relative:
                tokens.append(one(phrases.WHO, draw))
            tokens += clause
        spellings = linker.mentions(entity)
        is_name = len(spellings) == 1 or draw() >= SPELT_OTHERWISE
        tokens.append(spellings[0] if is_name else spellings[1 + int(draw() * (len(spellings) - 1))])
    return (*tokens, *after)


@cache
def _counted(template: Phrase, count: int, total: int, spelt: int) -> tuple[Phrase, str, Phrase]:
    """What stands before the entities, how these are filled in, and what stands behind."""
    counted = {"{n}": phrases.number_words(count, total, spelt), "{friends}": ("friend" if count == 1 else "friends",)}
    words = [each for word in template for each in counted.get(word, (word,))]
    (at,) = (i for i, word in enumerate(words) if word.startswith("{"))
    return tuple(words[:at]), words[at], tuple(words[at + 1 :])
