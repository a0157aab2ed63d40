"""A scripted player of MutualFriends: greets, tells or asks about one or two entities, answers, selects when it is sure.

After the released rule-based bot (He et al. 2017): entities and friends have weights; what the partner mentions makes
friends with it more likely (+1), entities of the same friend (+2) and of the same column (+0.5) worth mentioning, and what is
denied less so; what one has mentioned oneself is not repeated (-10). The wordings are our own (`phrases.py`).

Departures:
  * # Released: "no" counts against every entity of the utterance. Ours: only against friends that have all of them, so that
    "no friends from A who like B" does not rule out those from A who like something else, and what is denied is certain.
  * # Released: a negative answer always repeats the entity. Ours: it may be "no" alone; the listener remembers what it asked.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from envs.friends.events import ChatEvent, Mention
from envs.friends.game import Act, FriendsView
from envs.friends.linker import EntityLinker
from envs.friends.schema import Entity, entities_of
from envs.friends.scripted import phrases
from envs.friends.scripted.phrases import Phrase
from envs.friends.scripted.wording import Draws, FriendsWording

NUM_DRAWS = 20
"""Random numbers of one act."""
NUM_ACTS = 8
"""Acts that random numbers are drawn for at once."""
TALKATIVE = 0.3
"""How often a bot that is sure goes on talking instead of selecting (released: 0.7)."""
SURE = 2.0
"""Above this weight a friend may be selected (released: 1, which one mention of any of its values reaches)."""
BARE = 0.3
"""How often a negative answer names no entity."""
_NOWHERE: list[int] = []
_HEARD, _DENIED = 1.0, -10.0
_MORE, _BESIDE, _ALIKE = math.exp(_HEARD), math.exp(2.0), math.exp(0.5)
"""By what shares grow of an entity that is heard, of those of the same friends, and of those of the same column."""
_LESS, _BESIDE_DENIED, _OTHER = math.exp(_DENIED), math.exp(-1.0), math.exp(1.0)
"""The same where it is denied; the first also for what one has said oneself."""


@cache
def _first_share(count: int, total: int) -> float:
    return math.exp(count / total)


@dataclass(slots=True)
class _Mind:
    """What a bot knows and wants in one chat."""

    items: tuple[frozenset[Entity], ...]
    places: dict[Entity, list[int]]
    """The friends that have each entity."""
    columns: dict[Entity, int]
    by_column: tuple[frozenset[Entity], ...]
    shares: dict[Entity, float]
    """How much each entity of the table is worth mentioning: the exponential of its weight."""
    item_weights: list[float]
    """How likely each friend is the common one."""
    spelt: int
    generator: np.random.Generator
    uniforms: list[float]
    """Random numbers of this act and later ones; more are drawn when they run out."""
    at: int = 0
    """Where those of the next act begin."""
    greeted: bool = False
    matched: int | None = None
    """The common friend, once it is known."""
    asked_by_partner: tuple[Entity, ...] = ()
    asked: tuple[Entity, ...] = field(default=())
    """What it has asked itself and has not been answered."""

    def having(self, entities: Collection[Entity]) -> list[int]:
        """The friends with all of the entities."""
        if len(entities) == 1:
            (entity,) = entities
            return self.places.get(entity, _NOWHERE)
        return [i for i, item in enumerate(self.items) if item.issuperset(entities)]


class FriendsBot:
    """The scripted player.

    Args:
        linker: how it understands words and spells entities; of the schema that tables are drawn from.
    """

    name = "scripted"

    def __init__(self, linker: EntityLinker) -> None:
        self.linker = linker

    def join(self, view: FriendsView) -> FriendsBotSession:
        """Takes a side."""
        return FriendsBotSession(view, self.linker)


class FriendsBotSession:
    """A scripted player in the rows of a game."""

    def __init__(self, view: FriendsView, linker: EntityLinker) -> None:
        self._view, self._linker, self._wording = view, linker, FriendsWording(linker)
        self._minds: dict[int, _Mind] = {}

    def enter(self, rows: list[int]) -> None:
        """Looks at new tables."""
        for row in rows:
            table = self._view.entities(row)
            places: dict[Entity, list[int]] = defaultdict(list)
            for i, item in enumerate(table):
                for entity in item:
                    places[entity].append(i)
            generator = self._view.generator(row)
            self._minds[row] = _Mind(
                items=tuple(map(frozenset, table)),
                columns={entity: column for item in table for column, entity in enumerate(item)},
                by_column=tuple(map(frozenset, zip(*table, strict=True))),
                places=places,
                shares={entity: _first_share(len(friends), len(table)) for entity, friends in places.items()},
                item_weights=[1.0] * len(table),
                spelt=int(generator.random() < 0.5),
                generator=generator,
                uniforms=generator.random(NUM_DRAWS * NUM_ACTS).tolist(),
            )

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Changes its weights by what is said and selected."""
        for row, event in zip(rows, events, strict=True):
            mind = self._minds[row]
            if event.side == self._view.side:
                self._remember(mind, event)
            elif event.selected is None:
                self._understand(mind, event)
            else:
                own, columns = self._view.entities(row), self._view.attributes(row)
                wanted = tuple([entities_of(column.type)[value] for column, value in zip(columns, event.item, strict=True)])
                mind.matched = own.index(wanted) if wanted in own else mind.matched

    def act(self, rows: list[int]) -> list[Act]:
        """Says or selects something in each row."""
        return [self._act(self._minds[row]) for row in rows]

    def _remember(self, mind: _Mind, event: ChatEvent) -> None:
        mind.at += NUM_DRAWS
        if mind.at == len(mind.uniforms):
            mind.uniforms, mind.at = mind.generator.random(NUM_DRAWS * NUM_ACTS).tolist(), 0
        mind.greeted = True
        if event.selected is not None:
            mind.item_weights[event.selected] = -100.0
            return
        mentions = self._mentions(mind, event)
        for entity in mentions:
            if entity in mind.shares:
                mind.shares[entity] *= _LESS
        mind.asked = mentions if phrases.is_question(event.words) else ()
        mind.asked_by_partner = ()

    def _understand(self, mind: _Mind, event: ChatEvent) -> None:
        words = event.words
        mentions = self._mentions(mind, event)
        if phrases.is_question(words):
            mind.asked_by_partner = mentions
        denied = not phrases.NEGATIONS.isdisjoint(words)
        if denied and not mentions:
            mentions = mind.asked
        if not mentions:
            return
        friends = mind.having(mentions) if denied else [i for entity in mentions for i in mind.places.get(entity, _NOWHERE)]
        for i in friends:
            mind.item_weights[i] += _DENIED if denied else _HEARD
        if denied and len(mentions) > 1:
            return
        shares = mind.shares
        for entity in frozenset().union(*(mind.items[i] for i in friends)).difference(mentions):
            shares[entity] *= _BESIDE_DENIED if denied else _BESIDE
        for column in {mind.columns[entity] for entity in mentions if entity in mind.columns}:
            for entity in mind.by_column[column].difference(mentions):
                shares[entity] *= _OTHER if denied else _ALIKE
        for entity in mentions:
            if entity in shares:
                shares[entity] *= _LESS if denied else _MORE

    def _mentions(self, mind: _Mind, event: ChatEvent) -> tuple[Entity, ...]:
        if event.tokens is event.words:
            found = [mention.entity for _, mention in self._linker.find(event.words, mind.places)]
        else:
            found = [token.entity for token in event.tokens if type(token) is Mention]
        return tuple(dict.fromkeys(found)) if len(found) > 1 else tuple(found)

    def _act(self, mind: _Mind) -> Act:
        if mind.matched is not None:
            return mind.matched
        draws = Draws(mind.uniforms[mind.at : mind.at + NUM_DRAWS])
        if not mind.greeted and not mind.asked_by_partner:
            return draws.one(phrases.GREETINGS)
        if mind.asked_by_partner:
            return self._answer(mind, mind.asked_by_partner[:2], draws)
        most = max(mind.item_weights)
        if most > SURE and not draws.below(TALKATIVE):
            return mind.item_weights.index(most)
        first = draws.weighted(mind.shares)
        chosen: tuple[Entity, ...] = (first,)
        if len(mind.shares) > 1 and draws.below(0.5):
            share, mind.shares[first] = mind.shares[first], 0.0
            second = draws.weighted(mind.shares)
            mind.shares[first] = share
            chosen = (first, second) if mind.columns[first] != mind.columns[second] else chosen
        found = mind.having(chosen)
        if draws.below(0.5):
            return self._phrase(phrases.ASKS, chosen, 2, mind, draws)
        chosen = chosen if found else (first,)
        return self._phrase(phrases.INFORMS, chosen, len(mind.having(chosen)), mind, draws)

    def _answer(self, mind: _Mind, entities: tuple[Entity, ...], draws: Draws) -> Act:
        """Yes, with the number of friends who have all that was asked for; else no, to an entity that nobody has or to all."""
        if found := mind.having(entities):
            return self._phrase(phrases.YES, entities, len(found), mind, draws)
        if draws.below(BARE):
            return draws.one(phrases.BARE_NO)
        absent = [entity for entity in entities if entity not in mind.columns]
        return self._phrase(phrases.NO, tuple(absent[:1]) or entities, 2, mind, draws)

    def _phrase(self, templates: Sequence[Phrase], entities: tuple[Entity, ...], count: int, mind: _Mind, draws: Draws) -> Act:
        return self._wording.phrase(draws.one(templates), entities, count, len(mind.items), mind.spelt, draws)
