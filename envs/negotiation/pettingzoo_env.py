"""Both sides of the negotiation game as PettingZoo environments in which agents act in turn (AEC): by words, and by acts.

Spaces, observations and rewards come from `env.py` and `acts.py`; this file has only PettingZoo's interface, and
`parallel_acts`, its parallel form. The library is an extra:
`pip install --constraint constraints.txt --editable ".[pettingzoo]"`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.negotiation.acts import ActsSeat
from parley.envs.negotiation.domain import PAD_ID, Scenario, Vocabulary
from parley.envs.negotiation.env import (
    act,
    action_space,
    check_arguments,
    choose_action,
    draw_scenario,
    observation_space,
    observe,
    outcome,
    side_reward,
)
from parley.envs.negotiation.game import SELECT, NegotiationGame, Rules, render_dialogue
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

PLAYERS = ("player_0", "player_1")
"""The agents' names; an agent's index is its side of the game."""


class NegotiationAEC(AECEnv[str, Any, Any]):
    """Two agents divide items by talking, one utterance or selection per step.

    `agent_selection` is the agent to act: the side to speak, and after the talk side 0 and side 1 to choose, unseen by the
    other. Both get their reward after both have chosen. `infos` are empty until then, and have the outcome afterwards
    (`env.outcome`).

    Args:
        vocabulary: the words of both; None for the scripted bargainers' words.
        scenarios: the list to draw from; None draws from all legal scenarios.
        reward: "points" or "advantage".
        rules: limits and options of the game.
        render_mode: "ansi" returns text from `render()`; "human" writes it to standard error after every move.

    Raises:
        ConfigError: an argument is out of range.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "negotiation_v1",
        "render_modes": ["ansi", "human"],
        "render_fps": 1,
        "is_parallelizable": False,
    }

    def __init__(
        self,
        vocabulary: Vocabulary | None = None,
        scenarios: Sequence[Scenario] | None = None,
        reward: str = "points",
        rules: Rules | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        check_arguments("NegotiationAEC", reward, scenarios)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError("unknown render mode", where="NegotiationAEC", got=repr(render_mode), fix="ansi, human or None")
        self.vocabulary = vocabulary or bargainer_vocabulary()
        self.scenarios, self.reward, self.rules, self.render_mode = scenarios, reward, rules or Rules(), render_mode
        self.possible_agents = list(PLAYERS)
        # One object per agent for its whole life, because it seeds samples.
        self.observation_spaces: dict[str, spaces.Space[Any]] = {
            agent: observation_space(self.vocabulary, self.rules) for agent in PLAYERS
        }
        self.action_spaces: dict[str, spaces.Space[Any]] = {
            agent: action_space(self.vocabulary, self.rules) for agent in PLAYERS
        }
        self._words = action_space(self.vocabulary, self.rules)
        self._rng, _ = seeding.np_random()
        self._game: NegotiationGame | None = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return the observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return the action space of an agent; `speak_action` and `choose_action` of `env.py` write actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a dialogue.

        Args:
            seed: starts the generator of this dialogue and all later ones.
            options: ignored.
        """
        if seed is not None:
            self._rng, _ = seeding.np_random(seed)
        dialogue_seed = int(self._rng.integers(2**63))
        scenario = draw_scenario(self._rng, self.scenarios, self.vocabulary.domain)
        self._game = NegotiationGame([scenario], [dialogue_seed], self.vocabulary, self.rules)
        self.agents = list(PLAYERS)
        self.rewards = dict.fromkeys(PLAYERS, 0.0)
        self._cumulative_rewards = dict.fromkeys(PLAYERS, 0.0)
        self.terminations, self.truncations = dict.fromkeys(PLAYERS, False), dict.fromkeys(PLAYERS, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in PLAYERS}
        self.agent_selection = self._to_act() or PLAYERS[0]

    def observe(self, agent: str) -> Any:
        """Return an agent's observation, from its own perspective.

        Raises:
            ScenarioError: no dialogue has begun.
        """
        return observe(self._open(), PLAYERS.index(agent))

    def step(self, action: Any) -> None:
        """Apply the action of `agent_selection`; None once it has ended.

        Raises:
            ScenarioError: the action is outside the agent's space, or no dialogue has begun.
        """
        game, agent = self._open(), self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        act(game, PLAYERS.index(agent), action or {}, self._words)
        following = self._to_act()
        if following is None:
            self.terminations = dict.fromkeys(PLAYERS, True)
            self.rewards = {player: side_reward(game, side, self.reward) for side, player in enumerate(PLAYERS)}
            self.infos = {player: outcome(game) for player in PLAYERS}
        self.agent_selection = following or PLAYERS[0]
        self._accumulate_rewards()
        if self.render_mode == "human":
            self.render()

    def render(self) -> str | None:
        """Return the dialogue so far as text, with nothing hidden."""
        text = render_dialogue(self._open(), 0)
        if self.render_mode == "ansi":
            return text
        sys.stderr.write(text + "\n\n")
        return None

    def close(self) -> None:
        """Do nothing: there are no resources to close."""

    def _open(self) -> NegotiationGame:
        if self._game is None:
            raise ScenarioError("there has been no dialogue yet", where="NegotiationAEC", fix="call reset() first")
        return self._game

    def _to_act(self) -> str | None:
        game = self._open()
        for side, player in enumerate(PLAYERS):
            if game.rows_to_speak(side).size or game.rows_to_choose(side).size:
                return player
        return None


class NegotiationActsAEC(NegotiationAEC):
    """Two agents divide items by dialogue acts, one act per step; after the talk the deal is chosen for them.

    Acts and features are those of `parley/NegotiationActs-v1` with flat observations. In every step `infos` have
    `action_mask` (n,) int8 and `num_illegal_acts`: acts for which the first legal one was said. In the parallel form
    (`parallel_acts`) both agents give an act in every step, and only that of the agent to move counts.

    Args: as of `NegotiationAEC`.

    Raises:
        ConfigError: an argument is out of range, or the game has no dialogue acts.
        DataError: the vocabulary lacks words of the acts.
    """

    metadata: ClassVar[dict[str, Any]] = {**NegotiationAEC.metadata, "name": "negotiation_acts_v1"}

    def __init__(self, vocabulary: Vocabulary | None = None, **arguments: Any) -> None:
        super().__init__(vocabulary, **arguments)
        self._seats = {player: ActsSeat(self.vocabulary) for player in PLAYERS}
        for player, seat in self._seats.items():
            size = seat.acts.num_features + seat.num_actions
            self.observation_spaces[player] = spaces.Box(0.0, 1.0, (size,), np.float32)
            self.action_spaces[player] = spaces.Discrete(seat.num_actions)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a dialogue; arguments as of `NegotiationAEC.reset`."""
        super().reset(seed, options)
        for side, player in enumerate(PLAYERS):
            self._seats[player].begin(self._open().contexts[side, 0])
        self._read()

    def observe(self, agent: str) -> np.ndarray:
        """Return an agent's observation (F + n,) float32: the features and then the mask.

        Raises:
            ScenarioError: no dialogue has begun.
        """
        self._open()
        return self._seats[agent].flat()

    def step(self, action: Any) -> None:
        """Say the act of `agent_selection`, and choose for both if the talk is over; None once it has ended.

        Raises:
            ScenarioError: there is no such act, or no dialogue has begun.
        """
        game, agent = self._open(), self.agent_selection
        if self.terminations[agent]:
            super().step(action)
            return
        if not self.action_spaces[agent].contains(action):
            fix = f"see {self.action_spaces[agent]}"
            raise ScenarioError("the action lies outside the action space", got=repr(action), fix=fix)
        rng = game.view(PLAYERS.index(agent)).generator(0)
        ids = self._seats[agent].say(int(action), rng)[: self.rules.max_words]
        utterance = np.full(self.rules.max_words, PAD_ID, dtype=np.int64)
        utterance[: len(ids)] = ids
        super().step({"utterance": utterance, "selection": np.int64(0)})
        self._read()
        while game.phase[0] == SELECT:
            super().step(choose_action(self.rules, self._seats[self.agent_selection].acts.selection()))
        self._read()

    def _read(self) -> None:
        """Let both sides read what is new, and give them their masks."""
        game = self._open()
        for side, (player, seat) in enumerate(self._seats.items()):
            seat.read(game.tokens[side, 0], game.num_tokens[0])
            legal = {"action_mask": seat.acts.mask().astype(np.int8), "num_illegal_acts": seat.num_illegal}
            self.infos[player] = {**self.infos[player], **legal}


def parallel_acts(**arguments: Any) -> ParallelEnv[str, Any, Any]:
    """Return `NegotiationActsAEC` in PettingZoo's parallel form; arguments and errors as there."""
    return turn_based_aec_to_parallel(NegotiationActsAEC(**arguments))
