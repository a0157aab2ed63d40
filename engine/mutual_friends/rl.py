"""Lies about friends, which a policy learns to choose against a frozen player of MutualFriends.

Shapes: N chats, M steps in all, a step being an utterance of the liar's side while it may still lie.

Both sides of MutualFriends as an RLlib multi-agent environment, one event a step.

Spaces, observations and rewards are those of `envs/mutual_friends/env.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from parley.engine.core.rllib.distributed_rollouts import require_known
from parley.engine.core.rllib.reproducible import ActionRunner, ChooserModule
from parley.engine.core.rllib.turns_env import TurnsMultiAgentEnv
from parley.envs.core.seeds import Key, derive_seed, stream
from parley.envs.mutual_friends.env import ROW, ChatTask, chat_outcome
from parley.envs.mutual_friends.game import FriendsChat, FriendsGame
from parley.envs.mutual_friends.lies import FEATURES, Choice, Decisions, LyingGame, num_lies
from parley.envs.mutual_friends.scenario import FriendsScenario, ScenarioOptions, random_friends
from parley.policies.chat.model import NoReplyError
from parley.policies.dynonet.agent import Liar, load_liar

SIDES = ("side_0", "side_1")
"""The agents' names; an agent's index is its side of the game."""
_TASK = tuple(field.name for field in fields(ChatTask))
_KEYS = (*_TASK, "seed", "stream")


class MutualFriendsMultiAgentEnv(TurnsMultiAgentEnv):
    """The agents "side_0" and "side_1" look for their common friend; both earn the same.

    Args:
        config: RLlib's `env_config`, with the keys
            `linker`, `vocabulary`, `scenarios`, `options`, `rules`, `event_cost`: as `ChatTask` has them, all with defaults.
            `seed`, `stream`: as in `TurnsMultiAgentEnv`.

    Raises:
        ConfigError: a key is unknown or out of range.
    """

    sides: ClassVar[tuple[str, str]] = SIDES
    stream_name = "friends"

    def __init__(self, config: Mapping[str, Any]) -> None:
        require_known(config, _KEYS)
        self.task = ChatTask(**{key: config[key] for key in _TASK if config.get(key) is not None})
        super().__init__(config, self.task.spaces.observation, self.task.spaces.action)
        self._game = FriendsGame(1, self.task.rules)
        self._num_illegal = [0, 0]

    def _begin(self, name: tuple[Key, ...]) -> None:
        self._game = FriendsGame(1, self.task.rules)
        self._game.enter(
            [ROW], [self.task.draw(stream(self._seed, "scenario", *name))], [derive_seed(self._seed, "chat", *name)]
        )
        self._num_illegal = [0, 0]

    def _to_act(self) -> int | None:
        return next((side for side in (0, 1) if self._game.rows_to_act(side)), None)

    def _seen(self, side: int) -> dict[str, Any]:
        return self.task.spaces.observe(self._game, side)

    def _act(self, side: int, action: Any) -> None:
        act, illegal = self.task.spaces.act(action, len(self._game.scenario(ROW).tables[side]))
        self._num_illegal[side] += illegal
        self._game.add(ROW, self._game.event(ROW, side, act))

    def _reward(self, side: int) -> float:
        return self.task.reward(self._game)

    def _outcome(self) -> dict[str, Any]:
        return chat_outcome(self._game, self._num_illegal)


@dataclass(frozen=True)
class LyingChats:
    """The chats that are played.

    Args:
        game: with its players.
        tables: how scenarios are drawn.
    """

    game: LyingGame
    tables: ScenarioOptions

    @property
    def observation_space(self) -> spaces.Dict:
        """Return the space of the features of actions and the mask of allowed ones."""
        num = self.game.rules.num_actions
        seen = spaces.Box(0.0, 1.0, (num, len(FEATURES)), np.float32)
        return spaces.Dict({"actions": seen, "action_mask": spaces.Box(0, 1, (num,), np.int8)})

    @property
    def action_space(self) -> spaces.Discrete:
        """Return the space of actions: the truth, or a claim."""
        return spaces.Discrete(self.game.rules.num_actions)

    def chats(self, seed: int, what: str, indices: Sequence[int]) -> list[tuple[FriendsScenario, int]]:
        """Draw scenarios and chat seeds; the key of a scenario is its number.

        Args:
            seed: master seed.
            what: the chats are for, a stream of its own.
            indices: of the chats.
        """
        schema = self.game.linker.schema
        drawn = [random_friends(schema, stream(seed, what, index), self.tables) for index in indices]
        return [
            (replace(scenario, key=str(number)), derive_seed(seed, what, index))
            for number, (scenario, index) in enumerate(zip(drawn, indices, strict=True))
        ]

    def play(
        self, chats: Sequence[tuple[FriendsScenario, int]], choose: Choice
    ) -> tuple[dict[int, FriendsChat], list[Decisions]]:
        """Play chats to their end, without those in which a chat model gave no reply.

        Args:
            chats: scenario and seed of each, as `chats` gives them.
            choose: which lies are told.

        Returns:
            The chats that came to their end, by their place; and all decisions in them.

        Raises:
            AgentError: a player fails, or gave no reply in any chat.
        """
        left = list(range(len(chats)))
        while True:
            noted: list[Decisions] = []
            try:
                played = self.game.play([chats[index] for index in left], choose, noted.append)
                return dict(zip(left, played, strict=True)), noted
            except NoReplyError as error:
                going = [index for number, index in enumerate(left) if number not in error.rows]
                if not going or len(going) == len(left):
                    raise
                left = going


class LiarModule(ChooserModule):
    """The RLModule around a `Liar`."""

    def load(self, folder: Path) -> Liar:
        return load_liar(folder)[0]


class LiarRunner(ActionRunner):
    """Lies in chats."""

    env: LyingChats

    def play(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """See `ActionRunner`; `agreed`, `events` and `lies` (N,) are the figures."""
        game = self.env.game
        chats, noted = self.env.play(self.env.chats(self.config.master_seed, "lied to", indices), self.drawn)
        ended = [chats.get(index) for index in range(len(indices))]
        examples = np.array([int(key) for decisions in noted for key in decisions.keys], dtype=np.int64)
        taken = np.concatenate([np.zeros(0, dtype=np.int64), *(decisions.taken for decisions in noted)])
        rewards = np.where(taken > 0, -game.rules.cost, 0.0).astype(np.float32)
        steps, last_step = np.zeros(len(examples), dtype=np.int64), dict[int, int]()
        for at, example in enumerate(examples.tolist()):
            steps[at] = 0 if example not in last_step else steps[last_step[example]] + 1
            last_step[example] = at
        for example, at in last_step.items():
            rewards[at] += game.harm(chats[example])
        num, width = game.rules.num_actions, len(FEATURES)
        return {
            "actions": np.concatenate([np.zeros((0, num, width), dtype=np.float32), *(decisions.seen for decisions in noted)]),
            "action_mask": np.concatenate([np.zeros((0, num), dtype=np.int8), *(decisions.masks for decisions in noted)]),
            "taken": taken,
            "rewards": rewards,
            "step": steps,
            "example": examples,
            "tried": np.isin(np.arange(len(ended)), examples),
            "agreed": np.array([chat is not None and chat.agreed for chat in ended]),
            "events": np.array([0 if chat is None else len(chat.events) for chat in ended]),
            "lies": np.array([0 if chat is None else num_lies([chat])[0] for chat in ended]),
        }
