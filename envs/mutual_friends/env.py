"""`parley/MutualFriends-v1`: one side of MutualFriends as a Gymnasium environment, with a given player as the other side.

`ChatSpaces` and `ChatTask` hold spaces, observations, actions, scenarios and rewards of both sides; the two-sided form
(`engine/mutual_friends/rl.py`) shares them. `game.py` has the rules.
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
from parley.envs.core.rendering import TextRenderedEnv
from parley.envs.corpora.lines import WordList
from parley.envs.mutual_friends.game import Act, ChatEvent, FriendsAgent, FriendsGame, FriendsRules, FriendsSession
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import (
    Entity,
    FriendsScenario,
    FriendsSchema,
    ScenarioOptions,
    check_schema,
    random_friends,
)
from parley.envs.mutual_friends.scripted.bots import FRIENDS_SCHEMA, FriendsBot, all_words, friends_forms

ROW = 0
"""The row of an environment's only chat."""
EVENT_COST = 0.01
NOTHING, OWN_WORDS, OWN_SELECTION, THEIR_WORDS, THEIR_SELECTION = range(5)
RULES, OPTIONS = FriendsRules(max_words=30), ScenarioOptions()


class ChatVocabulary(WordList):
    """The words of the environments: `<pad>`, `<unk>`, then words."""

    SPECIALS = ("<pad>", "<unk>")
    UNKNOWN_ID = 1

    @classmethod
    def of(cls, words: Iterable[str]) -> ChatVocabulary:
        """Build a vocabulary of these words, sorted."""
        return cls((*cls.SPECIALS, *sorted(set(words).difference(cls.SPECIALS))))


@dataclass(frozen=True)
class ChatSpaces:
    """Observations and actions of a side, as arrays.

    Args:
        vocabulary: words and their ids.
        schema: entities and their ids, from 1; 0 is none.
        rules: limits; M events of up to W words.
        options: bounds of tables; up to N friends with up to C attributes.
    """

    vocabulary: ChatVocabulary
    schema: FriendsSchema
    rules: FriendsRules
    options: ScenarioOptions

    @cached_property
    def entity_ids(self) -> dict[Entity, int]:
        """The id of each entity."""
        return {entity: i for i, entity in enumerate(self.schema.entities(), 1)}

    @cached_property
    def action(self) -> spaces.Dict:
        """The action space of a side; `MutualFriendsEnv` explains the keys."""
        words = np.full(self.rules.max_words, len(self.vocabulary), dtype=np.int64)
        return spaces.Dict({"selection": spaces.Discrete(self.options.max_items + 1), "words": spaces.MultiDiscrete(words)})

    @cached_property
    def observation(self) -> spaces.Dict:
        """The observation space of a side; `MutualFriendsEnv` explains the keys."""
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
        """Return a side's observation of the first row, in new arrays."""
        scenario, boxes = game.scenario(ROW), {name: self.observation[name] for name in ("kinds", "selected", "table", "words")}
        seen = {name: np.zeros(box.shape or (), dtype=np.int64) for name, box in boxes.items()}
        for i, item in enumerate(scenario.entities[side]):
            seen["table"][i, : len(item)] = [self.entity_ids[entity] for entity in item]
        for i, event in enumerate(game.heard[ROW]):
            is_own = event.side == side
            if event.selected is None:
                ids = self.vocabulary.encode(event.words)
                seen["kinds"][i] = OWN_WORDS if is_own else THEIR_WORDS
                seen["words"][i, : len(ids)] = ids
            else:
                chosen = scenario.entities[event.side][event.selected]
                seen["kinds"][i] = OWN_SELECTION if is_own else THEIR_SELECTION
                seen["selected"][i, : len(chosen)] = [self.entity_ids[entity] for entity in chosen]
        return {**seen, "num_events": np.int64(len(game.heard[ROW]))}

    def act(self, action: Mapping[str, Any], num_items: int) -> tuple[Act, int]:
        """Return the act of an action, and 1 if it is illegal and becomes the word `<unk>`.

        Raises:
            ScenarioError: the action lies outside the action space.
        """
        if not self.action.contains(action):
            raise ScenarioError("the action lies outside the action space", got=repr(action), fix="see the action space")
        selection = int(action["selection"])
        if 0 < selection <= num_items:
            return selection - 1, 0
        words = np.asarray(action["words"])
        text = tuple(self.vocabulary.decode(words[words > 0].tolist()))
        return (text, 0) if text and not selection else ((self.vocabulary.words[self.vocabulary.UNKNOWN_ID],), 1)

    def say(self, text: Sequence[str]) -> dict[str, Any]:
        """Return the action that says these words.

        Raises:
            ScenarioError: there are more words than `rules.max_words`.
        """
        if len(text) > self.rules.max_words:
            raise ScenarioError("the utterance is too long", got=f"{len(text)} words", fix=f"at most {self.rules.max_words}")
        words = np.zeros(self.rules.max_words, dtype=np.int64)
        words[: len(text)] = self.vocabulary.encode(text)
        return {"selection": np.int64(0), "words": words}

    def select(self, item: int) -> dict[str, Any]:
        """Return the action that selects a friend of the own table by its index."""
        return {"selection": np.int64(item + 1), "words": np.zeros(self.rules.max_words, dtype=np.int64)}


@dataclass(frozen=True)
class ChatTask:
    """The tables, words and rewards of an environment.

    Args:
        linker: finds and spells entities, and has the schema of the tables; None for Parley's own.
        vocabulary: words; None for those of the linker and of the scripted players.
        scenarios: the list to draw from; None draws new scenarios.
        options: bounds of tables.
        rules: limits of the game.
        event_cost: cost of each event, subtracted from the reward.

    Raises:
        ConfigError: an empty list of scenarios, one beyond the bounds, a cost that could make a reward negative, or a schema
            with too few values.
        DataError: a scenario has an entity that the schema lacks.
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
        """The linker; Parley's own if none is given."""
        return EntityLinker(FRIENDS_SCHEMA, friends_forms()) if self.linker is None else self.linker

    @cached_property
    def spaces(self) -> ChatSpaces:
        """The spaces of both sides."""
        vocabulary = self.vocabulary or ChatVocabulary.of(all_words() | self.finder.words)
        return ChatSpaces(vocabulary, self.finder.schema, self.rules, self.options)

    def require(self, scenario: FriendsScenario) -> None:
        """Raise unless a scenario fits the spaces.

        Raises:
            ConfigError: its tables are too large.
            DataError: it has an entity that the schema lacks.
        """
        sizes = max(map(len, scenario.tables)), len(scenario.attributes)
        if sizes[0] > self.options.max_items or sizes[1] > self.options.max_attributes:
            got = f"{sizes[0]} friends with {sizes[1]} attributes"
            fix = f"at most {self.options.max_items} with {self.options.max_attributes}, or other options"
            raise ConfigError("a scenario is too large", where=f"scenario {scenario.key}", got=got, fix=fix)
        for entity in scenario.mentionable[0] | scenario.mentionable[1]:
            self.finder.require(entity, f"scenario {scenario.key}")

    def draw(self, rng: np.random.Generator) -> FriendsScenario:
        """Return a random scenario of the list, or a new one."""
        if self.scenarios is None:
            return random_friends(self.spaces.schema, rng, self.options)
        return self.scenarios[int(rng.integers(len(self.scenarios)))]

    def reward(self, game: FriendsGame) -> float:
        """Return the reward of both sides in the first row: 0 before they agree."""
        return 1.0 - self.event_cost * len(game.events[ROW]) if game.agreed[ROW] else 0.0


def chat_outcome(game: FriendsGame, num_illegal: Sequence[int]) -> dict[str, Any]:
    """Return the outcome of the chat of the first row; pairs are by side."""
    chat = game.chat(ROW)
    return {
        "agreed": chat.agreed,
        "num_events": len(chat.events),
        "num_selections": (chat.num_selections(0), chat.num_selections(1)),
        "num_illegal": tuple(num_illegal),
        "transcript": [(event.side, shown(event)) for event in chat.events],
    }


def shown(event: ChatEvent) -> str:
    """Return an event as a line of text."""
    return " ".join(event.words) if event.selected is None else f"<select> {' | '.join(event.item)}"


class MutualFriendsEnv(TextRenderedEnv[dict[str, Any], dict[str, Any]]):
    """Find the one friend that your partner has too, by talking (MutualFriends).

    ## Description
    Both sides have a table of friends, and exactly one friend stands in both. They take turns; a turn is an utterance or the
    selection of a friend. When both sides' last selections are the common friend, the chat ends. You play one side, `partner`
    the other.

    ## Action Space
    A `Dict`:

    | key | space | meaning |
    |---|---|---|
    | selection | `Discrete(N + 1)` | 0 to speak; i + 1 selects friend i of your table |
    | words | `MultiDiscrete` (W,) | ids of what you say, padded with `<pad>`; ignored in a selection |

    `env.unwrapped.spaces.say` and `.select` write such actions. An utterance without words and the selection of a friend that
    your table does not have are said as `<unk>` and counted.

    ## Observation Space
    A `Dict`, always from your own perspective; ids of entities begin at 1, and 0 is none:

    | key | space | meaning |
    |---|---|---|
    | kinds | `Box` int64 (M,) in 0..4 | of each event: none yet, your words, your selection, their words, their selection |
    | num_events | `Discrete(M + 1)` | how many events there have been |
    | selected | `Box` int64 (M, C) | entities of the friend that was selected |
    | table | `Box` int64 (N, C) | your friends, one a row, as entities |
    | words | `Box` int64 (M, W) | ids of what was said |

    ## Starting State
    A scenario, drawn afresh, and a coin that decides who begins. If it is the partner, its first event has happened already.
    `reset(options={"scenario": FriendsScenario(...)})` sets the scenario. One seed gives one episode.

    ## Reward
    0 until the end. Then 1 less `event_cost` for every event if you agree, else 0; always within [0, 1].

    ## Episode End
    Termination: both agree, or `rules.max_events` events have happened. Truncation: never.

    ## Information
    Empty until the end. Then `agreed`, `num_events`, `num_selections`, `num_illegal` and `transcript` (events of side and
    text); pairs are by side.

    ## Arguments
    * `partner`: any `FriendsAgent`; the scripted `FriendsBot` when not given.
    * `side`: 0 or 1, yours.
    * `render_mode`: `"ansi"` returns text from `render()`; `"human"` writes it to standard error after every turn.
    * `linker`, `vocabulary`, `scenarios`, `options`, `rules`, `event_cost`: see `ChatTask`.

    ## References
    * He, Balakrishnan, Eric, Liang (2017). Learning Symmetric Collaborative Dialogue Agents with Dynamic
      Knowledge Graph Embeddings.
    * Niu, Bansal (2018). Adversarial Over-Sensitivity and Over-Stability Strategies for Dialogue Models, section 2.2.

    ## Version History
    * v1: first version.
    """

    option = ("scenario", FriendsScenario)

    def __init__(self, partner: FriendsAgent | None = None, side: int = 0, render_mode: str | None = None, **task: Any) -> None:
        if side not in (0, 1):
            raise ConfigError("there is no such side", where="MutualFriendsEnv", got=repr(side), fix="side 0 or 1")
        super().__init__(render_mode)
        self.task = ChatTask(**task)
        self.partner = partner or FriendsBot(self.task.finder)
        self.side = side
        self.spaces = self.task.spaces
        self.action_space, self.observation_space = self.spaces.action, self.spaces.observation
        self._game: FriendsGame | None = None
        self._session: FriendsSession | None = None
        self._num_illegal = [0, 0]

    def _begin(self, given: FriendsScenario | None) -> tuple[dict[str, Any], dict[str, Any]]:
        chat_seed = int(self.np_random.integers(2**63))
        if given is not None:
            self.task.require(given)
        self._game = FriendsGame(1, self.task.rules)
        self._game.enter([ROW], [given or self.task.draw(self.np_random)], [chat_seed])
        self._session = self.partner.join(self._game.view(1 - self.side))
        self._session.enter([ROW])
        self._num_illegal = [0, 0]
        self._let_partner_act()
        return self.spaces.observe(self._game, self.side), {}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Speak or select, then let the partner act.

        Args:
            action: see the class.

        Raises:
            ScenarioError: no chat is open, or the action lies outside the action space.
        """
        game = self._game
        if game is None or game.is_over(ROW):
            raise ScenarioError("no chat is going on", where="step of MutualFriendsEnv", fix="call reset() first")
        act, illegal = self.spaces.act(action, len(game.scenario(ROW).tables[self.side]))
        self._num_illegal[self.side] += illegal
        self._add(game.event(ROW, self.side, act))
        self._let_partner_act()
        self._show()
        over = game.is_over(ROW)
        info = chat_outcome(game, self._num_illegal) if over else {}
        return self.spaces.observe(game, self.side), self.task.reward(game), over, False, info

    def _text(self) -> str:
        assert self._game is not None
        return _rendered(self._game, self.side)

    def _add(self, event: ChatEvent) -> None:
        assert self._game is not None
        assert self._session is not None
        self._game.add(ROW, event)
        if not self._game.is_over(ROW):
            self._session.hear([ROW], [event if event.side != self.side else event.plain()])

    def _let_partner_act(self) -> None:
        assert self._game is not None
        assert self._session is not None
        if self._game.rows_to_act(1 - self.side):
            (act,) = self._session.act([ROW])
            self._add(self._game.event(ROW, 1 - self.side, act))


def _rendered(game: FriendsGame, side: int) -> str:
    scenario = game.scenario(ROW)
    lines = [" | ".join(attribute.name for attribute in scenario.attributes)]
    lines += [f"{i}: {' | '.join(item)}" for i, item in enumerate(scenario.tables[side])]
    lines += [f"{'you' if event.side == side else 'they'}: {shown(event)}" for event in game.heard[ROW]]
    if game.is_over(ROW):
        lines.append("found" if game.agreed[ROW] else "not found")
    return "\n".join(lines)
