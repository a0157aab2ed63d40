"""The base class of PettingZoo environments in which two agents act in turn (AEC).

The library is an extra: `pip install --constraint constraints.txt --editable ".[pettingzoo]"`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv

from parley.envs.core.errors import ConfigError, ScenarioError


class TurnsAEC(AECEnv[str, Any, Any]):
    """Two agents act in turn; both get their reward and the outcome at the end.

    `agent_selection` is the agent to act. `infos` are empty until the end, and have the outcome afterwards.

    Args:
        players: names of the agents; an agent's index is its side of the game.
        observation_spaces: of each side.
        action_spaces: of each side.
        render_mode: "ansi" returns text from `render()`; "human" writes it to standard error after every move.

    Raises:
        ConfigError: the mode is unknown.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "human"], "render_fps": 1, "is_parallelizable": False}
    _game: Any

    def __init__(
        self,
        players: tuple[str, str],
        observation_spaces: tuple[spaces.Space[Any], spaces.Space[Any]],
        action_spaces: tuple[spaces.Space[Any], spaces.Space[Any]],
        render_mode: str | None,
    ) -> None:
        super().__init__()
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(
                "unknown render mode", where=type(self).__name__, got=repr(render_mode), fix="ansi, human or None"
            )
        self.players, self.render_mode = players, render_mode
        self.possible_agents = list(players)
        # One object per agent for its whole life, because it seeds samples.
        self.observation_spaces: dict[str, spaces.Space[Any]] = dict(zip(players, observation_spaces, strict=True))
        self.action_spaces: dict[str, spaces.Space[Any]] = dict(zip(players, action_spaces, strict=True))
        self._rng, _ = seeding.np_random()
        self._game = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return the observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return the action space of an agent."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a dialogue.

        Args:
            seed: starts the generator of this dialogue and all later ones.
            options: ignored.
        """
        if seed is not None:
            self._rng, _ = seeding.np_random(seed)
        self._game = self._begin(self._rng)
        self.agents = list(self.players)
        self.rewards = dict.fromkeys(self.players, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.players, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.players, False), dict.fromkeys(self.players, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.players}
        self.agent_selection = self._to_act() or self.players[0]

    def observe(self, agent: str) -> Any:
        """Return an agent's observation, from its own perspective.

        Raises:
            ScenarioError: no dialogue has begun.
        """
        self._open()
        return self._seen(self.players.index(agent))

    def step(self, action: Any) -> None:
        """Apply the action of `agent_selection`; None once it has ended.

        Raises:
            ScenarioError: the action is outside the agent's space, or no dialogue has begun.
        """
        self._open()
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._act(self.players.index(agent), action)
        following = self._to_act()
        if following is None:
            self.terminations = dict.fromkeys(self.players, True)
            self.rewards = {player: self._reward(side) for side, player in enumerate(self.players)}
            self.infos = {player: self._outcome() for player in self.players}
        self.agent_selection = following or self.players[0]
        self._accumulate_rewards()
        if self.render_mode == "human":
            self.render()

    def render(self) -> str | None:
        """Return the dialogue so far as text, with nothing hidden."""
        self._open()
        text = self._text()
        if self.render_mode == "ansi":
            return text
        sys.stderr.write(text + "\n\n")
        return None

    def close(self) -> None:
        """Do nothing: there are no resources to close."""

    def _open(self) -> Any:
        if self._game is None:
            raise ScenarioError("there has been no dialogue yet", where=type(self).__name__, fix="call reset() first")
        return self._game

    def _to_act(self) -> str | None:
        side = self._side_to_act()
        return None if side is None else self.players[side]

    @abstractmethod
    def _begin(self, rng: np.random.Generator) -> Any:
        """Return a new game of one dialogue, drawn from the generator."""

    @abstractmethod
    def _side_to_act(self) -> int | None:
        """Return the side to act; None if the dialogue is over."""

    @abstractmethod
    def _seen(self, side: int) -> Any:
        """Return the observation of a side."""

    @abstractmethod
    def _act(self, side: int, action: Any) -> None:
        """Apply the action of the side to act."""

    @abstractmethod
    def _reward(self, side: int) -> float:
        """Return the reward of a side at the end."""

    @abstractmethod
    def _outcome(self) -> dict[str, Any]:
        """Return the outcome at the end."""

    @abstractmethod
    def _text(self) -> str:
        """Return the dialogue so far, with nothing hidden."""
