"""What the environments of MutualFriends are about: spaces, observations and actions of both sides, scenarios and rewards.

`parley/MutualFriends-v1` (`env.py`) and its two-sided form (`engine/mutual_friends/rl/friends_env.py`) share them; `game.py`
has the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from parley.envs.core.config import check
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.corpora.words import WordList
from parley.envs.mutual_friends.events import ChatEvent
from parley.envs.mutual_friends.game import Act, FriendsGame, FriendsRules
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import FriendsScenario, ScenarioOptions, check_schema, random_friends
from parley.envs.mutual_friends.schema import Entity, FriendsSchema
from parley.envs.mutual_friends.scripted.phrases import all_words
from parley.envs.mutual_friends.scripted.schema import FRIENDS_SCHEMA, friends_forms

ROW = 0
"""The row of the one chat of an environment."""
EVENT_COST = 0.01
NOTHING, OWN_WORDS, OWN_SELECTION, THEIR_WORDS, THEIR_SELECTION = range(5)
RULES, OPTIONS = FriendsRules(max_words=30), ScenarioOptions()


class ChatVocabulary(WordList):
    """The words that may be said and heard in the environments: `<pad>`, `<unk>`, then words."""

    SPECIALS = ("<pad>", "<unk>")
    UNKNOWN_ID = 1

    @classmethod
    def of(cls, words: Iterable[str]) -> ChatVocabulary:
        """Of these words, in alphabetical order."""
        return cls((*cls.SPECIALS, *sorted(set(words).difference(cls.SPECIALS))))


@dataclass(frozen=True)
class ChatSpaces:
    """What sides see and do, as arrays.

    Args:
        vocabulary: words and their ids.
        schema: entities and their ids, which begin at 1; 0 stands for none.
        rules: limits; M events of up to W words.
        options: bounds of tables; up to N friends with up to C attributes.
    """

    vocabulary: ChatVocabulary
    schema: FriendsSchema
    rules: FriendsRules
    options: ScenarioOptions

    @cached_property
    def entity_ids(self) -> dict[Entity, int]:
        """From entity to id."""
        return {entity: i for i, entity in enumerate(self.schema.entities(), 1)}

    @cached_property
    def action(self) -> spaces.Dict:
        """What a side may do; the keys are explained in `MutualFriendsEnv`."""
        words = np.full(self.rules.max_words, len(self.vocabulary), dtype=np.int64)
        return spaces.Dict({"selection": spaces.Discrete(self.options.max_items + 1), "words": spaces.MultiDiscrete(words)})

    @cached_property
    def observation(self) -> spaces.Dict:
        """What a side sees; the keys are explained in `MutualFriendsEnv`."""
        events, entities = self.rules.max_events, len(self.entity_ids)
        table = (self.options.max_items, self.options.max_attributes)
        return spaces.Dict(
            {
                "kinds": spaces.Box(NOTHING, THEIR_SELECTION, (events,), np.int64),
                "num_events": spaces.Discrete(events + 1),
                "selected": spaces.Box(0, entities, (events, table[1]), np.int64),
                "table": spaces.Box(0, entities, table, np.int64),
                "words": spaces.Box(0, len(self.vocabulary) - 1, (events, self.rules.max_words), np.int64),
            }
        )

    def observe(self, game: FriendsGame, side: int) -> dict[str, Any]:
        """That side's observation of the first row, in fresh arrays."""
        scenario, boxes = game.scenario(ROW), {name: self.observation[name] for name in ("kinds", "selected", "table", "words")}
        seen = {name: np.zeros(box.shape or (), dtype=np.int64) for name, box in boxes.items()}
        for i, item in enumerate(scenario.entities[side]):
            seen["table"][i, : len(item)] = [self.entity_ids[entity] for entity in item]
        for at, event in enumerate(game.heard[ROW]):
            own = event.side == side
            if event.selected is None:
                ids = self.vocabulary.encode(event.words)
                seen["kinds"][at] = OWN_WORDS if own else THEIR_WORDS
                seen["words"][at, : len(ids)] = ids
            else:
                chosen = scenario.entities[event.side][event.selected]
                seen["kinds"][at] = OWN_SELECTION if own else THEIR_SELECTION
                seen["selected"][at, : len(chosen)] = [self.entity_ids[entity] for entity in chosen]
        return {**seen, "num_events": np.int64(len(game.heard[ROW]))}

    def act(self, action: Mapping[str, Any], num_items: int) -> tuple[Act, int]:
        """The act that an action stands for, and 1 where it is not legal and stands for the word `<unk>`.

        Raises:
            ScenarioError: the action lies outside the action space.
        """
        if not self.action.contains(action):
            raise ScenarioError("the action lies outside the action space", got=repr(action), fix="see the action space")
        selection = int(action["selection"])
        if 0 < selection <= num_items:
            return selection - 1, 0
        words = np.asarray(action["words"])
        said = tuple(self.vocabulary.decode(words[words > 0].tolist()))
        return (said, 0) if said and not selection else ((self.vocabulary.words[self.vocabulary.UNKNOWN_ID],), 1)

    def say(self, text: Sequence[str]) -> dict[str, Any]:
        """The action that says these words.

        Raises:
            ScenarioError: there are more words than `rules.max_words`.
        """
        if len(text) > self.rules.max_words:
            raise ScenarioError("the utterance is too long", got=f"{len(text)} words", fix=f"at most {self.rules.max_words}")
        words = np.zeros(self.rules.max_words, dtype=np.int64)
        words[: len(text)] = self.vocabulary.encode(text)
        return {"selection": np.int64(0), "words": words}

    def select(self, item: int) -> dict[str, Any]:
        """The action that selects a friend of the own table by its index."""
        return {"selection": np.int64(item + 1), "words": np.zeros(self.rules.max_words, dtype=np.int64)}


@dataclass(frozen=True)
class ChatTask:
    """What an environment is about: tables to draw, words to say, rewards.

    Args:
        linker: how entities are found and spelt, and the schema that tables are drawn from; Parley's own when not given.
        vocabulary: words; those of the linker and of the scripted players when not given.
        scenarios: the list that scenarios are drawn from; none draws fresh ones.
        options: bounds of tables.
        rules: limits of the game.
        event_cost: what each event takes from the reward.

    Raises:
        ConfigError: an empty list of scenarios, one beyond the bounds, a cost that could make a reward negative, or a schema
            with too few values.
        DataError: a scenario has an entity that the schema does not have.
    """

    linker: EntityLinker | None = None
    vocabulary: ChatVocabulary | None = None
    scenarios: Sequence[FriendsScenario] | None = None
    options: ScenarioOptions = OPTIONS
    rules: FriendsRules = RULES
    event_cost: float = EVENT_COST

    def __post_init__(self) -> None:
        most = f"0 to {1 / self.rules.max_events:.4f}, which is 1 / max_events"
        check(self, "event_cost", 0 <= self.event_cost * self.rules.max_events <= 1, most)
        if self.scenarios is None:
            check_schema(self.spaces.schema, self.options)
            return
        if not len(self.scenarios):
            raise ConfigError("the list of scenarios is empty", where="MutualFriends", fix="give one at least, or None")
        for scenario in self.scenarios:
            self.require(scenario)

    @cached_property
    def finder(self) -> EntityLinker:
        """The linker, which is Parley's own when none is given."""
        return EntityLinker(FRIENDS_SCHEMA, friends_forms()) if self.linker is None else self.linker

    @cached_property
    def spaces(self) -> ChatSpaces:
        """Spaces of both sides."""
        vocabulary = self.vocabulary or ChatVocabulary.of(all_words() | self.finder.words)
        return ChatSpaces(vocabulary, self.finder.schema, self.rules, self.options)

    def require(self, scenario: FriendsScenario) -> None:
        """Checks that a scenario fits the spaces.

        Raises:
            ConfigError: its tables are too large.
            DataError: it has an entity that the schema does not have.
        """
        sizes = max(map(len, scenario.tables)), len(scenario.attributes)
        if sizes[0] > self.options.max_items or sizes[1] > self.options.max_attributes:
            got = f"{sizes[0]} friends with {sizes[1]} attributes"
            fix = f"at most {self.options.max_items} with {self.options.max_attributes}, or other options"
            raise ConfigError("a scenario is too large", where=f"scenario {scenario.key}", got=got, fix=fix)
        for entity in scenario.mentionable[0] | scenario.mentionable[1]:
            self.finder.require(entity, f"scenario {scenario.key}")

    def draw(self, rng: np.random.Generator) -> FriendsScenario:
        """A scenario of the list, all alike likely, or a fresh one."""
        if self.scenarios is None:
            return random_friends(self.spaces.schema, rng, self.options)
        return self.scenarios[int(rng.integers(len(self.scenarios)))]

    def reward(self, game: FriendsGame) -> float:
        """What both sides earn by the first row: 0 before they agree."""
        return 1.0 - self.event_cost * len(game.events[ROW]) if game.agreed[ROW] else 0.0


def chat_outcome(game: FriendsGame, num_illegal: Sequence[int]) -> dict[str, Any]:
    """How the chat of the first row ended; pairs are by side."""
    chat = game.chat(ROW)
    return {
        "agreed": chat.agreed,
        "num_events": len(chat.events),
        "num_selections": (chat.num_selections(0), chat.num_selections(1)),
        "num_illegal": tuple(num_illegal),
        "transcript": [(event.side, shown(event)) for event in chat.events],
    }


def shown(event: ChatEvent) -> str:
    """An event as a line of text."""
    return " ".join(event.words) if event.selected is None else f"<select> {' | '.join(event.item)}"
