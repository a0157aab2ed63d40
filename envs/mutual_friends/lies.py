"""Lies in MutualFriends: a channel that replaces some utterances of a side by false claims about its own friends.

A player, the body, plays the liar's side. For each of its utterances, the partner hears the utterance or a claim instead, in
the phrases of the scripted players. A claim names an entity of the schema that no friend of the liar has; the partner cannot
know that it is false. Nothing else changes: the body remembers its own utterance, and selections stay, because a side that
never selects prevents every agreement without a lie. The channel sees the side's own view, never the other table.

A policy (`policies/dynonet/agent.py`), a chat model (`policies/chat/friend.py`) or chance chooses the lies.

Shapes: n utterances, A actions, F features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import ClassVar, NamedTuple

import numpy as np

from parley.envs.core.config import Configuration, NonNegativeFloat, PositiveInt, PositiveShare, Share
from parley.envs.core.seeds import stream
from parley.envs.mutual_friends.game import (
    ChatEvent,
    FriendsAgent,
    FriendsChat,
    FriendsGame,
    FriendsRules,
    Lying,
    Mention,
    play_friends,
)
from parley.envs.mutual_friends.linker import EntityLinker, Words
from parley.envs.mutual_friends.scenario import Entity, FriendsScenario, pick
from parley.envs.mutual_friends.scripted import bots as phrases
from parley.envs.mutual_friends.scripted.bots import worded

FEATURES = (
    "whether it says what it means to say",
    "whether the partner's newest utterance names the entity",
    "whether an earlier one does",
    "whether the partner selected a friend who has it",
    "whether it has been claimed before",
    "how much the own friends differ in the attribute",
    "whether what it means to say names an entity of the attribute",
    "whether it names any",
    "whether the partner asks",
    "selections of the partner, of three",
    "events so far",
    "lies left",
)
"""The features of an action, each from 0 to 1."""
_SELECTIONS, _MOST_CLAIMED, _NUM_DRAWS, _LINKED = 3, 3, 20, 1 << 14

Choice = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Maps features (n, A, F) float32, masks (n, A) int8 and uniform numbers (n,) to actions (n,); 0 tells no lie."""


@dataclass(frozen=True, kw_only=True)
class LieRules(Configuration):
    """Limits and rewards of a liar."""

    topic: ClassVar[str] = "evaluate collaboration"

    lies: PositiveInt = 3
    """Most lies of a side per chat."""
    claims: PositiveInt = 12
    """Claims to choose from per utterance: the partner's entities, newest first, then random ones."""
    rate: PositiveShare = 0.3
    """Probability of a lie at each chance, for a liar by chance."""
    delay: Share = 0.5
    """Reward of a chat that agrees at its last event; earlier agreement earns less in proportion, no agreement 1."""
    cost: NonNegativeFloat = 0.02
    """Cost of each lie, subtracted from the reward."""

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        return self.claims + 1


class Decisions(NamedTuple):
    """The choices at n utterances."""

    keys: list[str]
    """Keys of the scenarios."""
    seen: np.ndarray
    masks: np.ndarray
    taken: np.ndarray


class Occasion(NamedTuple):
    """An utterance that a lie may replace."""

    row: int
    """Row of the game."""
    meant: ChatEvent
    """The side's own utterance."""
    claims: Sequence[Entity]
    """The possible claims."""


class LiesHeard(ABC):
    """A `Channel` that turns a side's utterances into lies; subclasses choose which.

    Args:
        name: in reports.
        linker: finds entities, and knows how they are said.
        rules: limits of lies.
    """

    def __init__(self, name: str, linker: EntityLinker, rules: LieRules) -> None:
        self.name, self.rules, self._linker = name, rules, linker
        self._linked = lru_cache(_LINKED)(self._entities)
        kinds = linker.schema.values
        self._values = {kind: [Entity(value.lower(), kind) for value in values] for kind, values in kinds.items()}

    @abstractmethod
    def chosen(self, game: FriendsGame, occasions: Sequence[Occasion]) -> Sequence[int]:
        """Return the index of the claim for each occasion, from 1; 0 for no lie. Occasions must be independent."""

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """Return the utterances that are heard; without a lie, the event itself."""
        indices = [i for i, row in enumerate(rows) if len(lies_of(game, row, events[i].side)) < self.rules.lies]
        if not indices:
            return list(events)
        occasions = [Occasion(rows[i], events[i], self._claims(game, rows[i], events[i])) for i in indices]
        heard = list(events)
        for i, occasion, action in zip(indices, occasions, self.chosen(game, occasions), strict=True):
            game.note_lying(occasion.row, occasion.meant.side, Lying(chances=1, told=int(action > 0)))
            if action:
                heard[i] = self._claim(game, occasion.row, occasion.meant.side, occasion.claims[action - 1])
        return heard

    def _claims(self, game: FriendsGame, row: int, event: ChatEvent) -> list[Entity]:
        """Return the possible claims: the partner's entities, newest first, then random ones by attribute."""
        scenario, own_entities = game.scenario(row), game.scenario(row).mentionable[event.side]
        kinds = dict.fromkeys(attribute.type for attribute in scenario.attributes)
        named = [entity for entities in reversed(self._of_partner(game, row, event.side)) for entity in entities]
        rng = stream(game.event_seed(row), "claims")
        drawn = []
        for kind in kinds:
            values = self._values[kind]
            order = rng.permutation(len(values))[: self.rules.claims + len(own_entities)].tolist()
            drawn.append([values[i] for i in order])
        candidates = dict.fromkeys([*named, *(entity for turn in zip_longest(*drawn) for entity in turn if entity is not None)])
        return [entity for entity in candidates if entity.type in kinds and entity not in own_entities][: self.rules.claims]

    def _claim(self, game: FriendsGame, row: int, side: int, entity: Entity) -> ChatEvent:
        """Return a claim that some friends have the entity; a yes if the partner has just asked for it."""
        draw = iter(stream(game.event_seed(row), "claim").random(_NUM_DRAWS).tolist()).__next__
        heard = [event for event in game.heard[row] if event.side != side]
        is_asked = heard and phrases.is_question(heard[-1].words) and entity in self._of_partner(game, row, side)[-1]
        template = pick(phrases.YES if is_asked else phrases.INFORMS, draw)
        total = len(game.scenario(row).tables[side])
        count = 1 + pick(range(min(_MOST_CLAIMED, total)), draw)
        return ChatEvent(side, worded(template, (entity,), count, total, 0, self._linker, draw))

    def _of_partner(self, game: FriendsGame, row: int, side: int) -> list[Sequence[Entity]]:
        """Return the entities of each of the partner's events, with those of selected friends."""
        scenario = game.scenario(row)
        own_entities, theirs = scenario.mentionable[side], scenario.entities[1 - side]
        return [
            self._linked(event.words, own_entities) if event.selected is None else theirs[event.selected]
            for event in game.heard[row]
            if event.side != side
        ]

    def _entities(self, words: Words, own_entities: Collection[Entity]) -> tuple[Entity, ...]:
        return tuple(token.entity for token in self._linker.link(words, own_entities) if isinstance(token, Mention))


class LyingChannel(LiesHeard):
    """Lies chosen by the features of each claim.

    Args:
        name: in reports.
        linker: finds entities, and knows how they are said.
        rules: limits of lies.
        choose: which lies are told.
        noted: is told of all decisions.
    """

    def __init__(
        self,
        name: str,
        linker: EntityLinker,
        rules: LieRules,
        choose: Choice,
        noted: Callable[[Decisions], None] = lambda decisions: None,
    ) -> None:
        super().__init__(name, linker, rules)
        self._choose, self._noted = choose, noted

    def chosen(self, game: FriendsGame, occasions: Sequence[Occasion]) -> Sequence[int]:
        seen = np.stack([self._sight(game, *occasion) for occasion in occasions])
        num_allowed = np.array([len(occasion.claims) for occasion in occasions])
        masks = (np.arange(self.rules.num_actions) <= num_allowed[:, None]).astype(np.int8)
        uniforms = np.array([stream(game.event_seed(occasion.row), "lie").random() for occasion in occasions])
        taken = self._choose(seen, masks, uniforms)
        self._noted(Decisions([game.scenario(occasion.row).key for occasion in occasions], seen, masks, taken))
        actions: list[int] = taken.tolist()
        return actions

    def _sight(self, game: FriendsGame, row: int, event: ChatEvent, claims: Sequence[Entity]) -> np.ndarray:
        """Return the features of each action (A, F) float32."""
        scenario, rules = game.scenario(row), self.rules
        own_entities = scenario.mentionable[event.side]
        heard = [earlier_event for earlier_event in game.heard[row] if earlier_event.side != event.side]
        named = self._of_partner(game, row, event.side)
        newest = set(named[-1]) if heard and heard[-1].selected is None else set()
        selected = {
            entity for entities, its in zip(named, heard, strict=True) if its.selected is not None for entity in entities
        }
        earlier = {entity for entities in named for entity in entities} - newest - selected
        lies = lies_of(game, row, event.side)
        claimed = {token.entity for lie in lies for token in lie.tokens if isinstance(token, Mention)}
        meant = {entity.type for entity in self._linked(event.words, own_entities)}
        num_items = len(scenario.tables[event.side])
        features = np.zeros((rules.num_actions, len(FEATURES)), dtype=np.float32)
        features[0, 0] = 1
        for action, entity in enumerate(claims, 1):
            features[action, 1:7] = (
                entity in newest,
                entity in earlier,
                entity in selected,
                entity in claimed,
                sum(own_entity.type == entity.type for own_entity in own_entities) / num_items,
                entity.type in meant,
            )
        features[:, 7:] = (
            bool(meant),
            bool(heard) and phrases.is_question(heard[-1].words),
            min(sum(heard_event.selected is not None for heard_event in heard) / _SELECTIONS, 1),
            len(game.events[row]) / game.rules.max_events,
            1 - len(lies) / rules.lies,
        )
        return features.clip(0, 1)


def lies_of(game: FriendsGame, row: int, side: int) -> list[ChatEvent]:
    """Return a side's utterances that were heard as lies."""
    pairs = zip(game.events[row], game.heard[row], strict=True)
    return [heard for meant, heard in pairs if meant.side == side and meant.words != heard.words]


def by_chance(rate: float) -> Choice:
    """Return a choice that lies at random, with all claims equally likely.

    Args:
        rate: probability of a lie, 0 to 1.
    """

    def choose(seen: np.ndarray, masks: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        num_claims = masks.sum(1) - 1
        lies = (uniforms < rate) & (num_claims > 0)
        # Numbers below the rate, divided by the rate, are uniform again.
        which = np.minimum((uniforms / max(rate, 1e-9) * num_claims).astype(np.int64), num_claims - 1)
        return np.where(lies, 1 + which, 0)

    return choose


@dataclass(frozen=True)
class LyingGame:
    """Chats in which side 0 may lie.

    Args:
        linker: of the schema of the tables.
        body: the player of the liar's side.
        target: the player that hears the lies.
        rules: of lies.
        limits: of the game.
    """

    linker: EntityLinker
    body: FriendsAgent
    target: FriendsAgent
    rules: LieRules = field(default_factory=LieRules)
    limits: FriendsRules = field(default_factory=FriendsRules)

    def play(
        self,
        chats: Sequence[tuple[FriendsScenario, int]],
        choose: Choice,
        noted: Callable[[Decisions], None] = lambda decisions: None,
    ) -> list[FriendsChat]:
        """Play chats to their end, as one batch.

        Args:
            chats: scenario and seed of each, as `play_friends` takes them.
            choose: which lies are told.
            noted: is told of all decisions.
        """
        channel = LyingChannel("liar", self.linker, self.rules, choose, noted)
        return play_friends(chats, (self.body, self.target), rules=self.limits, channels=(channel, None))

    def harm(self, chat: FriendsChat) -> float:
        """Return the reward of the liar without the cost of lies: 1 without agreement, else `delay` by its events."""
        return self.rules.delay * len(chat.events) / self.limits.max_events if chat.agreed else 1.0


def num_lies(chats: Iterable[FriendsChat]) -> list[int]:
    """Return the number of lies in each chat."""
    return [sum(meant.words != heard.words for meant, heard in zip(chat.events, chat.heard, strict=True)) for chat in chats]
