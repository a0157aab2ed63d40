"""Both sides of MutualFriends as an RLlib multi-agent environment, one event a step.

Spaces, observations and rewards are those of `envs/mutual_friends/task.py`. Seeds are made as in `env.py`, which says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from ray.rllib.env.multi_agent_env import MultiAgentEnv

from parley.engine.core.rllib.env_config import own_stream, require_known
from parley.envs.core.errors import ScenarioError
from parley.envs.core.seeds import Key, derive_seed, stream
from parley.envs.mutual_friends.game import FriendsGame
from parley.envs.mutual_friends.task import ROW, ChatTask, chat_outcome

SIDES = ("side_0", "side_1")
"""The agents' names; an agent's index is its side of the game."""
_TASK = tuple(field.name for field in fields(ChatTask))
_KEYS = (*_TASK, "seed", "stream")


class MutualFriendsMultiAgentEnv(MultiAgentEnv):
    """The agents "side_0" and "side_1" look for their common friend; both earn the same.

    Args:
        config: RLlib's `env_config`, with the keys
            `linker`, `vocabulary`, `scenarios`, `options`, `rules`, `event_cost`: as `ChatTask` has them, all with defaults.
            `seed`: master seed, 0 by default.
            `stream`: integers that name one of several environments of the same seed, none by default.

    Raises:
        ConfigError: a key is unknown or out of range.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        require_known(config, _KEYS)
        self.task = ChatTask(**{key: config[key] for key in _TASK if config.get(key) is not None})
        self._seed, self._stream = config.get("seed", 0), own_stream(config)
        self.possible_agents = list(SIDES)
        self.agents = list(SIDES)
        self.observation_spaces = dict.fromkeys(SIDES, self.task.spaces.observation)
        self.action_spaces = dict.fromkeys(SIDES, self.task.spaces.action)
        self._last_seed = -1
        self._num_chats = 0
        self._game = FriendsGame(1, self.task.rules)
        self._num_illegal = [0, 0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins the next chat.

        Args:
            seed: becomes part of the name of this chat and all later ones; the same seed given twice repeats none.
            options: ignored; RLlib's checker passes an empty one.

        Returns:
            The observation of the agent to act first, and its empty information.
        """
        if seed is not None:
            self._last_seed = int(seed)
        name: tuple[Key, ...] = ("friends", *self._stream, self._last_seed, self._num_chats)
        self._num_chats += 1
        self._game = FriendsGame(1, self.task.rules)
        self._game.enter(
            [ROW], [self.task.draw(stream(self._seed, "scenario", *name))], [derive_seed(self._seed, "chat", *name)]
        )
        self._num_illegal = [0, 0]
        (side,) = self._to_act()
        return {SIDES[side]: self.task.spaces.observe(self._game, side)}, {SIDES[side]: {}}

    def step(
        self, action_dict: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Carries out the action of the one agent to act.

        Args:
            action_dict: {agent: action} of the agent in the last observations; actions as in `MutualFriendsEnv`.

        Returns:
            Observations of the next agent to act, or of both at the end; rewards of both; terminated and truncated of both and
            "__all__" (never truncated); information of the agents observed, empty until the end
            (`parley.envs.mutual_friends.task.chat_outcome`).

        Raises:
            ScenarioError: the chat is over, another agent than the one to act is given, or its action lies outside its space.
        """
        game, spaces = self._game, self.task.spaces
        waiting = [SIDES[side] for side in self._to_act()]
        if not waiting or list(action_dict) != waiting:
            raise ScenarioError(
                "these are not the actions that the chat waits for",
                where="step of MutualFriendsMultiAgentEnv",
                got=sorted(action_dict),
                fix=f"give an action of {waiting[0]!r} alone" if waiting else "call reset() first",
            )
        (side,) = self._to_act()
        act, illegal = spaces.act(action_dict[SIDES[side]], len(game.scenario(ROW).tables[side]))
        self._num_illegal[side] += illegal
        game.add(ROW, game.event(ROW, side, act))
        over = game.is_over(ROW)
        seen = (0, 1) if over else self._to_act()
        observations = {SIDES[each]: spaces.observe(game, each) for each in seen}
        infos = {agent: chat_outcome(game, self._num_illegal) if over else {} for agent in observations}
        ended = dict.fromkeys((*SIDES, "__all__"), over)
        return observations, dict.fromkeys(SIDES, self.task.reward(game)), ended, dict.fromkeys(ended, False), infos

    def _to_act(self) -> tuple[int, ...]:
        return tuple(side for side in (0, 1) if self._game.rows_to_act(side))
