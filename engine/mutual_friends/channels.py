"""Channels that change utterances on their way to the listener: the strategies of Niu & Bansal 2018, section 3.2, in play.

The paper releases no code for them. A strategy is a `Channel` of `envs/mutual_friends/game.py`: it takes the new utterances of
some rows of a game, sees both tables, and draws from the chat and the event alone. Selections pass unchanged.

- Random Inputs: every word by a random one. Paper: from which words is not said. Ours: any of `spare_words`, each as likely.
- Random with Kept Entities: the same, but the words of entities stay.
- Confusing Entity: every entity by another one of its category in the listener's table that is not in the common friend. Where
  there is none the entity stays, and is counted. Ours: each different one is as likely, however many friends have it; one that
  is called as an entity of another category in the common friend is none. Forms of the published lexicon such as "and
  studied" may make words around a new name those of an entity of the common friend: then all entities of the utterance stay.

`engine/perturb/strategies/entities.py` draws words and entities, as for recorded dialogues. Our controls: no word is heard
(`MuteChannel`), entities become entities of neither table (`UnknownWordChannel`), and every other strategy on dialogues
(`PerturbedChannel`), none of which had an effect in the paper.

Bots that only select (`RandomSelector`) show how far selections alone lead: Niu & Bansal 2018 publish .82 completion where no
word is understood. A selection shows an item to the other side, which needs only to look whether it has it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from parley.engine.perturb.strategies.entities import Matches, other_entities, random_words
from parley.engine.perturb.strategies.texts import Edits, FlatContexts
from parley.engine.perturb.strategy import Strategy
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.mutual_friends.game import Act, ChatEvent, FriendsGame, FriendsView, Mention, Token, plain_words
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import Entity, FriendsScenario, FriendsSchema, chat_words


class RandomSelector:
    """A bot that selects new friends of its table at random, and all of them again after the last.

    Args:
        answers: whether it selects a friend next that the other side selected and that it has too.
    """

    def __init__(self, *, answers: bool = False) -> None:
        self.name, self._answers = "selector" if answers else "blind-selector", answers

    def join(self, view: FriendsView) -> _Selecting:
        """Take a side."""
        return _Selecting(view, self._answers)


class _Selecting:
    """The session of a `RandomSelector`: the friends left, and a match with the other side's selection, by row."""

    def __init__(self, view: FriendsView, answers: bool) -> None:
        self._view, self._answers = view, answers
        self._left: dict[int, list[int]] = {}
        self._matches: dict[int, int] = {}

    def enter(self, rows: list[int]) -> None:
        for row in rows:
            self._left[row] = list(range(len(self._view.table(row))))
            self._matches.pop(row, None)

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        for row, event in zip(rows, events, strict=True):
            if event.selected is None:
                continue
            if event.side == self._view.side:
                left = [item for item in self._left[row] if item != event.selected]
                self._left[row] = left or list(range(len(self._view.table(row))))
            elif self._answers and event.item in self._view.table(row):
                self._matches[row] = self._view.table(row).index(event.item)

    def act(self, rows: list[int]) -> Sequence[Act]:
        return [self._matches[row] if row in self._matches else self._drawn(row) for row in rows]

    def _drawn(self, row: int) -> int:
        left = self._left[row]
        return left[int(self._view.generator(row).integers(len(left)))]


def blind_selector() -> RandomSelector:
    """Make a selector that ignores the other side."""
    return RandomSelector()


def selector() -> RandomSelector:
    """Make a selector that answers the other side's selections."""
    return RandomSelector(answers=True)


RANDOM, KEPT, CONFUSING = "random-inputs", "random-inputs-kept-entities", "confusing-entity"
STRANGE, UNHEARD = "random-inputs-strange-entities", "unheard"
_FEWEST_WORDS = 20


class ChatKnowledge:
    """The names and words that strategies know.

    Args:
        schema: which entities there are.
        linker: finds their names.
        words: plain words, such as `spoken_words` of a corpus.

    Raises:
        ConfigError: of the words too few are left to draw from.
    """

    def __init__(self, schema: FriendsSchema, linker: EntityLinker, words: Iterable[str]) -> None:
        self.linker = linker
        self.names = {entity: chat_words(entity.value) for entity in schema.entities()}
        """The words of every entity's name."""
        self.entities = {(entity.type, name): entity for entity, name in self.names.items()}
        """The entities by category and words of the name."""
        self.by_category = {
            kind: {entity: name for entity, name in self.names.items() if entity.type == kind} for kind in schema.values
        }
        """The words of names by category and entity."""
        self.spare = np.array(spare_words(words, linker), dtype=object)
        """The pool of random words (words,) of str objects."""

    def linked(self, scenario: FriendsScenario, event: ChatEvent) -> tuple[Token, ...]:
        """Link an utterance to entities: those that its speaker marks, and those that its plain words name."""
        entities = scenario.all_mentionable
        tokens: list[Token] = []
        plain: list[str] = []
        for token in event.tokens:
            if isinstance(token, str):
                plain.append(token)
            else:
                tokens += (*self.linker.link(plain, entities), token)
                plain = []
        return (*tokens, *self.linker.link(plain, entities))


def spare_words(words: Iterable[str], linker: EntityLinker) -> list[str]:
    """Return the words that are no part of a name or another form of an entity.

    Args:
        words: any.
        linker: knows the forms of names.

    Raises:
        ConfigError: too few are left to draw from.
    """
    taken = linker.words
    spare = [word for word in dict.fromkeys(words) if word not in taken]
    if len(spare) < _FEWEST_WORDS:
        got, fix = f"{len(spare)} words", "name a corpus that says more words, or a lexicon of fewer forms"
        raise ConfigError(f"random inputs need {_FEWEST_WORDS} words that are no part of a name", got=got, fix=fix)
    return spare


class _Joined(NamedTuple):
    """Utterances end to end, with the positions and the utterances of their entities."""

    flat: FlatContexts
    matches: Matches
    entities: list[tuple[Entity, FriendsScenario, int]]
    """Each with the scenario of its chat and the side of its listener."""


class NoisyChannel(ABC):
    """The base of channels that change words and entities of utterances.

    Args:
        knowledge: of names and words.
    """

    name: str

    def __init__(self, knowledge: ChatKnowledge) -> None:
        self.knowledge = knowledge

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """Return the events as they are heard (`parley.envs.mutual_friends.game.Channel`); an unchanged event stays itself."""
        scenarios = [game.scenario(row) for row in rows]
        spoken = [self.knowledge.linked(scenario, event) for scenario, event in zip(scenarios, events, strict=True)]
        edits = self.edits(_joined(spoken, scenarios, events), [game.event_seed(row) for row in rows])
        spans = zip(edits.ends.tolist(), edits.replacements, strict=True)
        replacements = dict(zip(edits.starts.tolist(), spans, strict=True))
        heard, position = [], 0
        for tokens, event in zip(spoken, events, strict=True):
            changed, position = self._heard(tokens, position, replacements)
            heard.append(event if plain_words(changed) == event.words else ChatEvent(event.side, changed))
        return heard

    @abstractmethod
    def edits(self, joined: _Joined, seeds: Sequence[int]) -> Edits:
        """Return the replacements of words and entities; `seeds` has one seed for each utterance."""

    def _heard(
        self, tokens: Sequence[Token], position: int, replacements: Mapping[int, tuple[int, Utterance]]
    ) -> tuple[tuple[Token, ...], int]:
        """Apply edits to the tokens of an utterance at a position; return the new tokens and the end position."""
        heard: list[Token] = []
        for token in tokens:
            end = position + (1 if isinstance(token, str) else len(token.words))
            if position not in replacements:
                heard.append(token)
            elif not isinstance(token, str) and (token.entity.type, replacements[position][1]) in self.knowledge.entities:
                words = replacements[position][1]
                heard.append(Mention(self.knowledge.entities[token.entity.type, words], words))
            else:
                heard += chain.from_iterable(replacements[at][1] for at in range(position, end))
            position = end
        return tuple(heard), position


class RandomChannel(NoisyChannel):
    """Random Inputs, and Random with Kept Entities.

    Args:
        knowledge: of names and words.
        keeps: whether entities stay.
    """

    def __init__(self, knowledge: ChatKnowledge, *, keeps: bool = False) -> None:
        super().__init__(knowledge)
        self.name, self._keeps = KEPT if keeps else RANDOM, keeps

    def edits(self, joined: _Joined, seeds: Sequence[int]) -> Edits:
        return random_words(joined.flat, seeds, self.name, self.knowledge.spare, joined.matches if self._keeps else None)


class ConfusedEntityChannel(NoisyChannel):
    """Confusing Entity."""

    name = CONFUSING

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """Return the events as they are heard; keep an utterance whose new words would name the common friend."""
        heard = super().__call__(game, rows, events)
        scenarios = map(game.scenario, rows)
        return [
            event if other is not event and self._tells(scenario, other) else other
            for scenario, event, other in zip(scenarios, events, heard, strict=True)
        ]

    def _tells(self, scenario: FriendsScenario, heard: ChatEvent) -> bool:
        """Return True if the listener finds an entity of the common friend that was not put there."""
        listener = 1 - heard.side
        common = set(scenario.entities[listener][scenario.shared[listener]])
        put = {token.entity for token in heard.tokens if not isinstance(token, str)}
        mentions = self.knowledge.linker.find(heard.words, scenario.mentionable[listener])
        return any(mention.entity in common and mention.entity not in put for _, mention in mentions)

    def edits(self, joined: _Joined, seeds: Sequence[int]) -> Edits:
        choices = [confusing(entity, scenario, listener) for entity, scenario, listener in joined.entities]
        names = [[self.knowledge.names[other] for other in few] for few in choices]
        return other_entities(joined.flat, seeds, self.name, joined.matches, names)


class UnknownWordChannel(NoisyChannel):
    """Random words, and where an entity was named one of its category that is in neither table: linked to nothing.

    A category of which every entity is in a table gives way to random words.

    Args:
        knowledge: of names and words.
    """

    name = STRANGE

    def edits(self, joined: _Joined, seeds: Sequence[int]) -> Edits:
        names = [self._strange(entity.type, scenario) for entity, scenario, _ in joined.entities]
        replaced = joined.matches.where(np.fromiter(map(bool, names), dtype=bool, count=len(names)))
        entities = other_entities(joined.flat, seeds, f"{self.name}: entities", joined.matches, names)
        words = random_words(joined.flat, seeds, self.name, self.knowledge.spare, replaced)
        order = np.argsort(np.concatenate([words.starts, entities.starts]), kind="stable")
        starts, ends = (np.concatenate(both)[order] for both in zip(words[:2], entities[:2], strict=True))
        replacements = [*words.replacements, *entities.replacements]
        return Edits(starts, ends, [replacements[i] for i in order.tolist()])

    def _strange(self, category: str, scenario: FriendsScenario) -> list[Utterance]:
        mentionable = scenario.all_mentionable
        return [name for entity, name in self.knowledge.by_category[category].items() if entity not in mentionable]


class MuteChannel:
    """A channel that removes every word and lets selections through."""

    name = UNHEARD

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """Return the utterances without their words."""
        return [ChatEvent(event.side) for event in events]


class PerturbedChannel:
    """A channel of any strategy on dialogues.

    Args:
        strategy: applied to a context of one utterance.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.name, self._strategy = strategy.name, strategy

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """Return the events as they are heard, without the entities that speakers meant."""
        seeds = [game.event_seed(row) for row in rows]
        perturbed = self._strategy.perturb([((event.words,),) for event in events], seeds)
        return [
            event if words == event.words else ChatEvent(event.side, words)
            for event, ((words,),) in zip(events, perturbed, strict=True)
        ]


def confusing(entity: Entity, scenario: FriendsScenario, listener: int) -> list[Entity]:
    """Return the entities that may replace one: of its category in the listener's table, not of the common friend.

    Categories share names (dancing is studied, and is a hobby), and words do not say which of both is meant.
    """
    names = {other.value for other in scenario.entities[listener][scenario.shared[listener]]}
    alternatives = scenario.alternatives[listener].get(entity.type, ())
    return [other for other in alternatives if other != entity and other.value not in names]


def _joined(spoken: Sequence[Sequence[Token]], scenarios: Sequence[FriendsScenario], events: Sequence[ChatEvent]) -> _Joined:
    starts, ends, entities, position = [], [], [], 0
    for tokens, scenario, event in zip(spoken, scenarios, events, strict=True):
        for token in tokens:
            end = position + (1 if isinstance(token, str) else len(token.words))
            if not isinstance(token, str):
                starts.append(position)
                ends.append(end)
                entities.append((token.entity, scenario, 1 - event.side))
            position = end
    matches = Matches(*(np.array(values, dtype=np.int64) for values in (starts, ends, range(len(starts)))))
    return _Joined(FlatContexts([((event.words,),) for event in events]), matches, entities)
