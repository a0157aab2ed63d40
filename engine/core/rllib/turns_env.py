"""The base class of RLlib multi-agent environments in which two agents act in turn, one utterance or choice a step.

RLlib's contract, written for Ray 2.60:

  * Only the agent to act is in the observations, so the sides take turns; both get the final one.
  * Every step returns a reward for both agents, 0.0 before the end: RLlib refuses an agent that acted and has none.
  * RLlib's seeds are not trusted. Its checker resets every sub-environment with seed 42 and, with no seed configured,
    nothing seeds them again; with one, each `sample(num_episodes=...)` gives the same seed again. Here a dialogue is
    named by the configured seed, the stream of its sub-environment, RLlib's last seed and a counter that never goes
    back, so no two sub-environments and no two resets see the same dialogue.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium import spaces
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from parley.engine.core.rllib.distributed_rollouts import own_stream
from parley.envs.core.errors import ScenarioError
from parley.envs.core.seeds import Key

Observed = tuple[dict[str, Any], dict[str, Any]]
"""Observations and information by agent."""


class TurnsMultiAgentEnv(MultiAgentEnv):
    """Two agents that act in turn; an agent's index is its side of the game.

    Attributes:
        sides: names of the agents.
        stream_name: of the dialogues' seeds.

    Args:
        config: RLlib's `env_config`, of which this class reads
            `seed`: master seed, 0 by default.
            `stream`: integers that name one of several environments of the same seed, none by default. An `EnvContext`
            adds its worker and its sub-environment to them.
        observation: space of both sides.
        action: space of both sides.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    sides: ClassVar[tuple[str, str]]
    stream_name: ClassVar[str]

    def __init__(self, config: Mapping[str, Any], observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        super().__init__()
        self._seed, self._stream = config.get("seed", 0), own_stream(config)
        self.possible_agents, self.agents = list(self.sides), list(self.sides)
        self.observation_spaces, self.action_spaces = dict.fromkeys(self.sides, observation), dict.fromkeys(self.sides, action)
        self._last_seed, self._num_dialogues = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Observed:
        """Start the next dialogue.

        Args:
            seed: becomes part of the name of this dialogue and all later ones. Unlike Gymnasium's, the same seed given
                twice does not repeat a dialogue (see the module); a new environment with the same configuration and
                resets does.
            options: ignored; RLlib's checker passes an empty one.

        Returns:
            The observation of the agent to act first, and its empty information.
        """
        if seed is not None:
            self._last_seed = int(seed)
        name: tuple[Key, ...] = (self.stream_name, *self._stream, self._last_seed, self._num_dialogues)
        self._num_dialogues += 1
        self._begin(name)
        return self.first_observation()

    def step(
        self, action_dict: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Carry out the action of the one agent to act.

        Args:
            action_dict: {agent: action} of the agent in the last observations.

        Returns:
            Observations of the next agent to act, or of both at the end; rewards of both agents; terminated and
            truncated of both and "__all__" (never truncated, the game's own limits end it); information of the agents
            observed, empty until the end, then the outcome.

        Raises:
            ScenarioError: the dialogue is over, another agent than the one to act is given, or its action lies outside
                its space.
        """
        side = self._to_act()
        if side is None or set(action_dict) != {self.sides[side]}:
            raise ScenarioError(
                "these are not the actions that the dialogue waits for",
                where=f"step of {type(self).__name__}",
                got=sorted(action_dict),
                fix="call reset() first" if side is None else f"give an action of {self.sides[side]!r} alone",
            )
        self._act(side, action_dict[self.sides[side]])
        following = self._to_act()
        over = following is None
        seen = (0, 1) if following is None else (following,)
        observations = {self.sides[observer]: self._seen(observer) for observer in seen}
        infos = {agent: self._outcome() if over else {} for agent in observations}
        rewards = {agent: self._reward(number) for number, agent in enumerate(self.sides)}
        ended = dict.fromkeys((*self.sides, "__all__"), over)
        return observations, rewards, ended, dict.fromkeys(ended, False), infos

    def first_observation(self) -> Observed:
        """Return the observation of the agent to act first, and its empty information."""
        side = self._to_act()
        assert side is not None, "a dialogue begins with somebody's turn"
        return {self.sides[side]: self._seen(side)}, {self.sides[side]: {}}

    @abstractmethod
    def _begin(self, name: tuple[Key, ...]) -> None:
        """Start the dialogue of that name."""

    @abstractmethod
    def _to_act(self) -> int | None:
        """Return the side to act; None before and after a dialogue."""

    @abstractmethod
    def _seen(self, side: int) -> Any:
        """Return the observation of a side."""

    @abstractmethod
    def _act(self, side: int, action: Any) -> None:
        """Carry out the action of a side."""

    @abstractmethod
    def _reward(self, side: int) -> float:
        """Return the reward of a side; 0 before the end."""

    @abstractmethod
    def _outcome(self) -> dict[str, Any]:
        """Return the outcome at the end."""
