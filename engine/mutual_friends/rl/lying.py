"""Lies about friends, which a policy learns to choose against a frozen player of MutualFriends (`choosing.py`).

Shapes: N chats, M steps in all, a step being an utterance of the liar's side while it may still lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gymnasium import spaces

from parley.engine.core.rllib.action_reinforce import ChoiceRunner, ChooserModule
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.mutual_friends.events import FriendsChat
from parley.envs.mutual_friends.lies import FEATURES, Choice, Decisions, LyingGame, num_lies
from parley.envs.mutual_friends.scenario import FriendsScenario, ScenarioOptions, random_friends
from parley.policies.chat.model import NoReplyError
from parley.policies.dynonet.liar import Liar, load_liar


@dataclass(frozen=True)
class LyingChats:
    """What is played.

    Args:
        game: with its players.
        tables: how scenarios are drawn.
    """

    game: LyingGame
    tables: ScenarioOptions

    @property
    def observation_space(self) -> spaces.Dict:
        """What is seen of actions, and which are allowed."""
        num = self.game.rules.num_actions
        seen = spaces.Box(0.0, 1.0, (num, len(FEATURES)), np.float32)
        return spaces.Dict({"actions": seen, "action_mask": spaces.Box(0, 1, (num,), np.int8)})

    @property
    def action_space(self) -> spaces.Discrete:
        """What is meant, or a claim."""
        return spaces.Discrete(self.game.rules.num_actions)

    def chats(self, seed: int, what: str, indices: Sequence[int]) -> list[tuple[FriendsScenario, int]]:
        """Scenarios and chat seeds; the key of a scenario is its place.

        Args:
            seed: master seed.
            what: the chats are for, a stream of its own.
            indices: of the chats.
        """
        schema = self.game.linker.schema
        drawn = [random_friends(schema, stream(seed, what, index), self.tables) for index in indices]
        return [
            (replace(scenario, key=str(place)), derive_seed(seed, what, index))
            for place, (scenario, index) in enumerate(zip(drawn, indices, strict=True))
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
                played = self.game.play([chats[place] for place in left], choose, noted.append)
                return dict(zip(left, played, strict=True)), noted
            except NoReplyError as error:
                going = [place for number, place in enumerate(left) if number not in error.rows]
                if not going or len(going) == len(left):
                    raise
                left = going


class LiarModule(ChooserModule):
    """Around a `Liar`."""

    def load(self, folder: Path) -> Liar:
        """The liar of a checkpoint."""
        return load_liar(folder)[0]


class LiarRunner(ChoiceRunner):
    """Lies in chats."""

    env: LyingChats

    def play(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """See `ChoiceRunner`; `agreed`, `events` and `lies` (N,) are the figures."""
        game = self.env.game
        chats, noted = self.env.play(self.env.chats(self.config.master_seed, "lied to", indices), self.drawn)
        ended = [chats.get(place) for place in range(len(indices))]
        examples = np.array([int(key) for each in noted for key in each.keys], dtype=np.int64)
        taken = np.concatenate([np.zeros(0, dtype=np.int64), *(each.taken for each in noted)])
        rewards = np.where(taken > 0, -game.rules.cost, 0.0).astype(np.float32)
        steps, told = np.zeros(len(examples), dtype=np.int64), dict[int, int]()
        for at, example in enumerate(examples.tolist()):
            steps[at] = 0 if example not in told else steps[told[example]] + 1
            told[example] = at
        for example, at in told.items():
            rewards[at] += game.harm(chats[example])
        num, width = game.rules.num_actions, len(FEATURES)
        return {
            "actions": np.concatenate([np.zeros((0, num, width), dtype=np.float32), *(each.seen for each in noted)]),
            "action_mask": np.concatenate([np.zeros((0, num), dtype=np.int8), *(each.masks for each in noted)]),
            "taken": taken,
            "rewards": rewards,
            "step": steps,
            "example": examples,
            "tried": np.isin(np.arange(len(ended)), examples),
            "agreed": np.array([chat is not None and chat.agreed for chat in ended]),
            "events": np.array([0 if chat is None else len(chat.events) for chat in ended]),
            "lies": np.array([0 if chat is None else num_lies([chat])[0] for chat in ended]),
        }
