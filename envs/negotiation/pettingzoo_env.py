"""Both sides of the negotiation game as PettingZoo environments in which agents act in turn (AEC): by words, and by acts.

Spaces, observations and rewards come from `env.py` and `acts.py`, PettingZoo's interface from `envs/core/turns_aec.py`;
`parallel_acts` is the parallel form. The library is an extra:
`pip install --constraint constraints.txt --editable ".[pettingzoo]"`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from parley.envs.core.errors import ScenarioError
from parley.envs.core.turns_aec import TurnsAEC
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
    side_to_act,
)
from parley.envs.negotiation.game import SELECT, NegotiationGame, Rules, render_dialogue
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

PLAYERS = ("player_0", "player_1")
"""The agents' names; an agent's index is its side of the game."""


class NegotiationAEC(TurnsAEC):
    """Two agents divide items by talking, one utterance or selection per step.

    `agent_selection` is the agent to act: the side to speak, and after the talk side 0 and side 1 to choose, unseen by the
    other. Both get their reward after both have chosen. `infos` are empty until then, and have the outcome afterwards
    (`env.outcome`). `speak_action` and `choose_action` of `env.py` write actions.

    Args:
        vocabulary: the words of both; None for the scripted bargainers' words.
        scenarios: the list to draw from; None draws from all legal scenarios.
        reward: "points" or "advantage".
        rules: limits and options of the game.
        render_mode: "ansi" returns text from `render()`; "human" writes it to standard error after every move.

    Raises:
        ConfigError: an argument is out of range.
    """

    metadata: ClassVar[dict[str, Any]] = {**TurnsAEC.metadata, "name": "negotiation_v1"}

    def __init__(
        self,
        vocabulary: Vocabulary | None = None,
        scenarios: Sequence[Scenario] | None = None,
        reward: str = "points",
        rules: Rules | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_arguments("NegotiationAEC", reward, scenarios)
        self.vocabulary = vocabulary or bargainer_vocabulary()
        self.scenarios, self.reward, self.rules = scenarios, reward, rules or Rules()
        observations, actions = (
            (make(self.vocabulary, self.rules), make(self.vocabulary, self.rules)) for make in (observation_space, action_space)
        )
        super().__init__(PLAYERS, observations, actions, render_mode)
        self._words = action_space(self.vocabulary, self.rules)

    def _begin(self, rng: np.random.Generator) -> NegotiationGame:
        dialogue_seed = int(rng.integers(2**63))
        scenario = draw_scenario(rng, self.scenarios, self.vocabulary.domain)
        return NegotiationGame([scenario], [dialogue_seed], self.vocabulary, self.rules)

    def _side_to_act(self) -> int | None:
        return side_to_act(self._game)

    def _seen(self, side: int) -> Any:
        return observe(self._game, side)

    def _act(self, side: int, action: Any) -> None:
        act(self._game, side, action or {}, self._words)

    def _reward(self, side: int) -> float:
        return side_reward(self._game, side, self.reward)

    def _outcome(self) -> dict[str, Any]:
        return outcome(self._game)

    def _text(self) -> str:
        return render_dialogue(self._game, 0)


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
