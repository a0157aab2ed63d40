"""What a listener hears instead of what its partner says: the strategies of Niu & Bansal 2018, section 3.2, in play.

The paper releases no code for them. A strategy is a `Channel` of `envs/mutual_friends/game.py`: it is called with the
utterances that are being said in some rows of a game, sees both tables, and draws from the chat and the event alone. Selections
do not pass it.

- Random Inputs: every word by a random one. Paper: from which words is not said. Ours: any of `spare_words`, each as likely.
- Random with Kept Entities: the same, but the words of entities stay.
- Confusing Entity: every entity by another one of its category in the listener's table that is not in the common friend. Where
  there is none the entity stays, and is counted. Ours: each different one is as likely, however many friends have it; one that
  is called as an entity of another category in the common friend is none. Forms of the published lexicon such as "and
  studied" may make words around a new name those of an entity of the common friend: then all entities of the utterance stay.

How words and entities are drawn is `engine/perturb/strategies/entities.py`, which does the same to recorded dialogues. Others
of ours tell what these come to: nothing is heard (`MuteChannel`), entities give way to ones that nobody has
(`UnknownWordChannel`), and every other strategy on dialogues (`PerturbedChannel`), none of which had an effect in the paper.

Bots that say nothing and select friends of their table: how far selections alone lead.

Niu & Bansal 2018 publish .82 completion where not a word of the other is understood. What a bot without any model reaches so
stands beside it: a selection shows an item to the other side, which needs only to look whether it has it.
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
    """Selects friends that it has not selected yet, each as likely, and all of them again after the last.

    Args:
        answers: whether a friend that the other side selects and that it has too is selected next; else it sees nothing.
    """

    def __init__(self, *, answers: bool = False) -> None:
        self.name, self._answers = "selector" if answers else "blind-selector", answers

    def join(self, view: FriendsView) -> _Selecting:
        """Takes a side."""
        return _Selecting(view, self._answers)


class _Selecting:
    """The friends that are left, and the one that the other side selected, by row."""

    def __init__(self, view: FriendsView, answers: bool) -> None:
        self._view, self._answers = view, answers
        self._left: dict[int, list[int]] = {}
        self._known: dict[int, int] = {}

    def enter(self, rows: list[int]) -> None:
        for row in rows:
            self._left[row] = list(range(len(self._view.table(row))))
            self._known.pop(row, None)

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        for row, event in zip(rows, events, strict=True):
            if event.selected is None:
                continue
            if event.side == self._view.side:
                left = [item for item in self._left[row] if item != event.selected]
                self._left[row] = left or list(range(len(self._view.table(row))))
            elif self._answers and event.item in self._view.table(row):
                self._known[row] = self._view.table(row).index(event.item)

    def act(self, rows: list[int]) -> Sequence[Act]:
        return [self._known[row] if row in self._known else self._drawn(row) for row in rows]

    def _drawn(self, row: int) -> int:
        left = self._left[row]
        return left[int(self._view.generator(row).integers(len(left)))]


def blind_selector() -> RandomSelector:
    """One that sees nothing of the other side."""
    return RandomSelector()


def selector() -> RandomSelector:
    """One that looks whether it has what the other side selects."""
    return RandomSelector(answers=True)


RANDOM, KEPT, CONFUSING = "random-inputs", "random-inputs-kept-entities", "confusing-entity"
STRANGE, UNHEARD = "random-inputs-strange-entities", "unheard"
_FEWEST_WORDS = 20


class ChatKnowledge:
    """The names and words that strategies know.

    Args:
        schema: which entities there are.
        linker: what names them.
        words: what is said beside entities, such as `spoken_words` of a corpus.

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
        """What random words are drawn from (words,) of str objects."""

    def linked(self, scenario: FriendsScenario, event: ChatEvent) -> tuple[Token, ...]:
        """An utterance with its entities: those that its speaker meant, and those that plain words name, both tables seen."""
        known = scenario.all_mentionable
        tokens: list[Token] = []
        plain: list[str] = []
        for token in event.tokens:
            if isinstance(token, str):
                plain.append(token)
            else:
                tokens += (*self.linker.link(plain, known), token)
                plain = []
        return (*tokens, *self.linker.link(plain, known))


def spare_words(words: Iterable[str], linker: EntityLinker) -> list[str]:
    """The words of which none stands in a name or another form of an entity, so that no draw of them makes one.

    Args:
        words: any.
        linker: what forms there are.

    Raises:
        ConfigError: too few are left to draw from.
    """
    taken = linker.words
    spare = [word for word in dict.fromkeys(words) if word not in taken]
    if len(spare) < _FEWEST_WORDS:
        got, fix = f"{len(spare)} words", "name a corpus that says more words, or a lexicon of fewer forms"
        raise ConfigError(f"random inputs need {_FEWEST_WORDS} words that are no part of a name", got=got, fix=fix)
    return spare


class _Laid(NamedTuple):
    """Utterances end to end, with their entities: where these stand, and in which utterance."""

    flat: FlatContexts
    places: Matches
    entities: list[tuple[Entity, FriendsScenario, int]]
    """Each with what the chat is about and who listens."""


class NoisyChannel(ABC):
    """The base of what changes words and entities of utterances.

    Args:
        knowledge: of names and words.
    """

    name: str

    def __init__(self, knowledge: ChatKnowledge) -> None:
        self.knowledge = knowledge

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """What is heard (`parley.envs.mutual_friends.game.Channel`); where nothing changes, the event itself."""
        scenarios = [game.scenario(row) for row in rows]
        said = [self.knowledge.linked(scenario, event) for scenario, event in zip(scenarios, events, strict=True)]
        edits = self.edits(_laid(said, scenarios, events), [game.event_seed(row) for row in rows])
        spans = zip(edits.ends.tolist(), edits.replacements, strict=True)
        instead = dict(zip(edits.starts.tolist(), spans, strict=True))
        heard, place = [], 0
        for tokens, event in zip(said, events, strict=True):
            others, place = self._heard(tokens, place, instead)
            heard.append(event if plain_words(others) == event.words else ChatEvent(event.side, others))
        return heard

    @abstractmethod
    def edits(self, laid: _Laid, seeds: Sequence[int]) -> Edits:
        """Return the replacements of words and entities; `seeds` has one seed for each utterance."""

    def _heard(
        self, tokens: Sequence[Token], place: int, instead: Mapping[int, tuple[int, Utterance]]
    ) -> tuple[tuple[Token, ...], int]:
        """The tokens of an utterance that begins at a place, as edits leave them, and where it ends."""
        heard: list[Token] = []
        for token in tokens:
            end = place + (1 if isinstance(token, str) else len(token.words))
            if place not in instead:
                heard.append(token)
            elif not isinstance(token, str) and (token.entity.type, instead[place][1]) in self.knowledge.entities:
                words = instead[place][1]
                heard.append(Mention(self.knowledge.entities[token.entity.type, words], words))
            else:
                heard += chain.from_iterable(instead[at][1] for at in range(place, end))
            place = end
        return tuple(heard), place


class RandomChannel(NoisyChannel):
    """Random Inputs, and Random with Kept Entities.

    Args:
        knowledge: of names and words.
        keeps: whether entities stay.
    """

    def __init__(self, knowledge: ChatKnowledge, *, keeps: bool = False) -> None:
        super().__init__(knowledge)
        self.name, self._keeps = KEPT if keeps else RANDOM, keeps

    def edits(self, laid: _Laid, seeds: Sequence[int]) -> Edits:
        return random_words(laid.flat, seeds, self.name, self.knowledge.spare, laid.places if self._keeps else None)


class ConfusedEntityChannel(NoisyChannel):
    """Confusing Entity."""

    name = CONFUSING

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """What is heard; an utterance whose new words would name what the common friend has stays as it is."""
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
        found = self.knowledge.linker.find(heard.words, scenario.mentionable[listener])
        return any(mention.entity in common and mention.entity not in put for _, mention in found)

    def edits(self, laid: _Laid, seeds: Sequence[int]) -> Edits:
        choices = [confusing(entity, scenario, listener) for entity, scenario, listener in laid.entities]
        names = [[self.knowledge.names[each] for each in few] for few in choices]
        return other_entities(laid.flat, seeds, self.name, laid.places, names)


class UnknownWordChannel(NoisyChannel):
    """Random words, and where an entity was named one of its category that is in neither table: linked to nothing.

    A category of which every entity is in a table gives way to random words.

    Args:
        knowledge: of names and words.
    """

    name = STRANGE

    def edits(self, laid: _Laid, seeds: Sequence[int]) -> Edits:
        names = [self._strange(entity.type, scenario) for entity, scenario, _ in laid.entities]
        replaced = laid.places.where(np.fromiter(map(bool, names), dtype=bool, count=len(names)))
        entities = other_entities(laid.flat, seeds, f"{self.name}: entities", laid.places, names)
        words = random_words(laid.flat, seeds, self.name, self.knowledge.spare, replaced)
        order = np.argsort(np.concatenate([words.starts, entities.starts]), kind="stable")
        starts, ends = (np.concatenate(both)[order] for both in zip(words[:2], entities[:2], strict=True))
        others = [*words.replacements, *entities.replacements]
        return Edits(starts, ends, [others[i] for i in order.tolist()])

    def _strange(self, category: str, scenario: FriendsScenario) -> list[Utterance]:
        known = scenario.all_mentionable
        return [name for entity, name in self.knowledge.by_category[category].items() if entity not in known]


class MuteChannel:
    """Selections alone are heard: of an utterance not a word."""

    name = UNHEARD

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """Utterances without words."""
        return [ChatEvent(event.side) for event in events]


class PerturbedChannel:
    """A strategy on recorded dialogues, on each utterance as it is said.

    Args:
        strategy: what it does to a context of one utterance.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.name, self._strategy = strategy.name, strategy

    def __call__(self, game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        """What is heard, without the entities that were meant."""
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
    names = {each.value for each in scenario.entities[listener][scenario.shared[listener]]}
    others = scenario.alternatives[listener].get(entity.type, ())
    return [each for each in others if each != entity and each.value not in names]


def _laid(said: Sequence[Sequence[Token]], scenarios: Sequence[FriendsScenario], events: Sequence[ChatEvent]) -> _Laid:
    starts, ends, entities, place = [], [], [], 0
    for tokens, scenario, event in zip(said, scenarios, events, strict=True):
        for token in tokens:
            end = place + (1 if isinstance(token, str) else len(token.words))
            if not isinstance(token, str):
                starts.append(place)
                ends.append(end)
                entities.append((token.entity, scenario, 1 - event.side))
            place = end
    places = Matches(*(np.array(each, dtype=np.int64) for each in (starts, ends, range(len(starts)))))
    return _Laid(FlatContexts([((event.words,),) for event in events]), places, entities)
