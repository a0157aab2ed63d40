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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count

from parley.envs.mutual_friends.draws import Draw, one, weighted
from parley.envs.mutual_friends.events import ChatEvent
from parley.envs.mutual_friends.game import Act, FriendsView
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.schema import Entity, entities_of
from parley.envs.mutual_friends.scripted import phrases
from parley.envs.mutual_friends.scripted.phrases import Phrase
from parley.envs.mutual_friends.scripted.wording import worded

NUM_DRAWS = 20
"""Random numbers of one act."""
NUM_ACTS = 12
"""Acts that random numbers are drawn for at once; most chats are over by then."""
TALKATIVE = 0.3
"""How often a bot that is sure goes on talking instead of selecting (released: 0.7)."""
SURE = 2.0
"""Above this weight a friend may be selected (released: 1, which one mention of any of its values reaches)."""
BARE = 0.3
"""How often a negative answer names no entity."""
_HEARD, _DENIED = 1.0, -10.0
_FACTORS = math.exp(_HEARD), math.exp(2.0), math.exp(0.5)
"""By what shares grow of an entity that is heard, of those of the same friends, and of those of the same column."""
_FACTORS_DENIED = math.exp(_DENIED), math.exp(-1.0), math.exp(1.0)
"""The same where it is denied."""
_LESS = _FACTORS_DENIED[0]
"""The first also for what one has said oneself."""


@cache
def _first_shares(total: int) -> list[float]:
    """By how many of the friends have an entity."""
    return [math.exp(count / total) for count in range(total + 1)]


@lru_cache(1 << 13)
def _friends_in(mask: int) -> list[int]:
    """The friends that a mask of bits names."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


@dataclass(slots=True)
class _Mind:
    """What a bot knows and wants in one chat. Different entities of its table are numbered in order."""

    entities: list[Entity]
    numbers: dict[Entity, int]
    masks: list[int]
    """The friends that have each entity, a bit for each."""
    columns: list[range]
    """The entities of the column that each stands in; of the first where it stands in several."""
    shares: list[float]
    """How much each entity is worth mentioning: the exponential of its weight."""
    item_weights: list[float]
    """How likely each friend is the common one."""
    spelt: int
    uniforms: memoryview[float]
    """Random numbers of this act and others; one more of the first decided how numbers are spelt."""
    at: int = 0
    """Where those of the next act begin."""
    parts: int = 1
    """How often random numbers were drawn."""
    greeted: bool = False
    matched: int | None = None
    """The common friend, once it is known."""
    asked_by_partner: tuple[Entity, ...] = ()
    asked: tuple[Entity, ...] = ()
    """What it has asked itself and has not been answered."""

    def having(self, entities: Iterable[Entity]) -> int:
        """A mask of the friends with all of the entities, of which there is at least one."""
        found = -1
        for number in map(self.numbers.get, entities):
            if number is None:
                return 0
            found &= self.masks[number]
        return found


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
        self._view, self._linker = view, linker
        self._minds: dict[int, _Mind] = {}

    def enter(self, rows: list[int]) -> None:
        """Looks at new tables."""
        for row in rows:
            table = self._view.entities(row)
            masks: dict[Entity, int] = {}
            columns: list[range] = []
            for column in zip(*table, strict=True):
                for i, entity in enumerate(column):
                    masks[entity] = masks.get(entity, 0) | 1 << i
                columns += [range(len(columns), len(masks))] * (len(masks) - len(columns))
            uniforms = self._view.uniforms(row, 0, NUM_DRAWS * NUM_ACTS + 1)
            first = _first_shares(len(table))
            self._minds[row] = _Mind(
                entities=list(masks),
                numbers=dict(zip(masks, count(), strict=False)),
                masks=list(masks.values()),
                columns=columns,
                shares=[first[mask.bit_count()] for mask in masks.values()],
                item_weights=[1.0] * len(table),
                spelt=int(uniforms[-1] < 0.5),
                uniforms=uniforms,
            )

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Changes its weights by what is said and selected."""
        minds, side = self._minds, self._view.side
        for row, event in zip(rows, events, strict=True):
            mind = minds[row]
            if event.side == side:
                mind.at += NUM_DRAWS
                if mind.at == NUM_DRAWS * NUM_ACTS:
                    mind.uniforms, mind.at = self._view.uniforms(row, mind.parts, mind.at), 0
                    mind.parts += 1
                self._remember(mind, event)
            elif event.selected is None:
                self._understand(mind, event)
            else:
                own, columns = self._view.entities(row), self._view.attributes(row)
                wanted = tuple([entities_of(column.type)[value] for column, value in zip(columns, event.item, strict=True)])
                mind.matched = own.index(wanted) if wanted in own else mind.matched

    def act(self, rows: list[int]) -> list[Act]:
        """Says or selects something in each row."""
        minds = self._minds
        return [self._act(minds[row]) for row in rows]

    def _remember(self, mind: _Mind, event: ChatEvent) -> None:
        mind.greeted = True
        if event.selected is not None:
            mind.item_weights[event.selected] = -100.0
            return
        numbers, mentions = mind.numbers, self._mentions(mind, event)
        for entity in mentions:
            if entity in numbers:
                mind.shares[numbers[entity]] *= _LESS
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
        numbers, masks, columns, shares, weights = mind.numbers, mind.masks, mind.columns, mind.shares, mind.item_weights
        own = [numbers[entity] for entity in mentions if entity in numbers]
        if not own:
            return
        if denied:
            (of_own, of_beside, of_others), friends = _FACTORS_DENIED, mind.having(mentions)
            for i in _friends_in(friends):
                weights[i] += _DENIED
            if len(mentions) > 1:
                return
        else:
            (of_own, of_beside, of_others), friends = _FACTORS, 0
            for mask in [masks[number] for number in own]:
                friends |= mask
                for i in _friends_in(mask):
                    weights[i] += _HEARD
        after = [(number, shares[number] * of_own) for number in own]
        mind.shares = shares = [
            share * of_beside if mask & friends else share for share, mask in zip(shares, masks, strict=True)
        ]
        for column in {columns[number] for number in own} if len(own) > 1 else (columns[own[0]],):
            for number in column:
                shares[number] *= of_others
        for number, share in after:
            shares[number] = share

    def _mentions(self, mind: _Mind, event: ChatEvent) -> tuple[Entity, ...]:
        if event.mentions:
            found = [mention.entity for mention in event.mentions]
        else:
            found = [mention.entity for _, mention in self._linker.find(event.words, mind.numbers)]
        return tuple(dict.fromkeys(found))

    def _act(self, mind: _Mind) -> Act:
        if mind.matched is not None:
            return mind.matched
        draw = iter(mind.uniforms[mind.at : mind.at + NUM_DRAWS]).__next__
        if not mind.greeted and not mind.asked_by_partner:
            return one(phrases.GREETINGS, draw)
        if mind.asked_by_partner:
            return self._answer(mind, mind.asked_by_partner[:2], draw)
        most = max(mind.item_weights)
        if most > SURE and draw() >= TALKATIVE:
            return mind.item_weights.index(most)
        shares, entities = mind.shares, mind.entities
        first = weighted(shares, draw)
        chosen: tuple[Entity, ...] = (entities[first],)
        if len(shares) > 1 and draw() < 0.5:
            share, shares[first] = shares[first], 0.0
            second = weighted(shares, draw)
            shares[first] = share
            chosen = (*chosen, entities[second]) if mind.columns[first] != mind.columns[second] else chosen
        if draw() < 0.5:
            return self._phrase(phrases.ASKS, chosen, 2, mind, draw)
        found = mind.having(chosen)
        if not found:
            chosen, found = chosen[:1], mind.masks[first]
        return self._phrase(phrases.INFORMS, chosen, found.bit_count(), mind, draw)

    def _answer(self, mind: _Mind, entities: tuple[Entity, ...], draw: Draw) -> Act:
        """Yes, with the number of friends who have all that was asked for; else no, to an entity that nobody has or to all."""
        if found := mind.having(entities):
            return self._phrase(phrases.YES, entities, found.bit_count(), mind, draw)
        if draw() < BARE:
            return one(phrases.BARE_NO, draw)
        absent = [entity for entity in entities if entity not in mind.numbers]
        return self._phrase(phrases.NO, tuple(absent[:1]) or entities, 2, mind, draw)

    def _phrase(self, templates: Sequence[Phrase], entities: tuple[Entity, ...], count: int, mind: _Mind, draw: Draw) -> Act:
        return worded(one(templates, draw), entities, count, len(mind.item_weights), mind.spelt, self._linker, draw)
