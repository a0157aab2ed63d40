"""Dialogue acts instead of words: a wrapper with some dozens of actions and a mask, on which ordinary RL algorithms learn.

Choosing words one by one is hard for them: 100 places of hundreds of words, most of it nonsense. Here an action says what to do
(propose the k-th best deal, accept, walk away, end); the phrases of the game's scripted agents say it, and their ears read what
comes back (`scripted/acts.py`, `interview/acts.py`). Only what can be said in those phrases is an action.

What a game says of its dialogue acts: which there are, what they say, what is chosen when the talk is over.

`acts.py` is the wrapper that plays by them; a game has them by `Domain.acts`. They follow one dialogue from one side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from parley.envs.core.errors import ScenarioError
from parley.envs.negotiation.domain import PAD_ID
from parley.envs.negotiation.env import NegotiationEnv, choose_action
from parley.envs.negotiation.game import SELECT


class GameActs(ABC):
    """Acts of one side in one dialogue at a time: proposals in order of what they are worth to it, then all others.

    Attributes:
        num_proposals: the most deals that may be proposed in any scenario.
        others: what the acts behind the proposals do, in words; the last one ends the talk.
        num_features: of what is seen.
    """

    num_proposals: ClassVar[int]
    others: ClassVar[tuple[str, ...]]
    num_features: ClassVar[int]

    @abstractmethod
    def begin(self, context: np.ndarray) -> None:
        """A new dialogue in a scenario, which this side sees as (2K,): how many of each item, and its points for one."""

    @abstractmethod
    def hear(self, mine: bool, said: Sequence[int]) -> None:
        """Take in an utterance, its token ids without the mark of who spoke."""

    @abstractmethod
    def mask(self) -> np.ndarray:
        """Which acts are legal now (num_proposals + len(others),) bool."""

    @abstractmethod
    def say(self, action: int, chattiness: float, rng: np.random.Generator) -> list[int]:
        """Return an act in words: token ids, closed by `<eos>`, or `<selection>` alone."""

    @abstractmethod
    def selection(self) -> int:
        """What is chosen now that the talk is over: what was agreed, or stands on the table, or else no agreement."""

    @abstractmethod
    def features(self) -> list[float]:
        """What a learner sees (num_features,), each about 0..1."""

    @abstractmethod
    def name(self, action: int) -> str:
        """What an act does, in words."""


class DialogueActs(
    gymnasium.Wrapper[dict[str, np.ndarray], np.int64, dict[str, Any], dict[str, Any]], gymnasium.utils.RecordConstructorArgs
):
    """`parley/Negotiation-v1` by dialogue acts, of whatever game its vocabulary is.

    Actions, `Discrete(n)`: each of the first proposes the deal that is k-th best for oneself, in firm words where it was one's
    last proposal already. Those behind them are, in Deal or No Deal (n = 40, 36 allocations): accept, ask, walk away, end the
    talk; in the job interview (n = 111, 108 deals): accept, break off, end the talk. What was agreed, or stands on the table
    when the talk ends, is chosen by itself. Should the partner end it before one's first act, that act, whatever it is, only
    collects the reward.

    Observations, a `Dict` in the form of RLlib's masked modules: `action_mask` (n,) int8, 1 where an action is legal now; and
    `observations`, float32 in 0..1: own values, the two sides' last proposals and what is on the table or agreed, how far the
    talk has gone, who has proposed, insisted or walked away, and of each proposal its worth to oneself and, by a guess from
    their words, to the partner. `action_masks()` is what sb3-contrib asks for.

    Args:
        env: a `NegotiationEnv` with a partner who speaks in the words of the game's scripted agents or more.
        chattiness: 0..1, how much is said beyond the necessary.

    Raises:
        ConfigError: the game has no dialogue acts.
        DataError: the vocabulary lacks words that acts are said in.
    """

    def __init__(self, env: gymnasium.Env[dict[str, Any], dict[str, Any]], chattiness: float = 0.0) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, chattiness=chattiness)
        gymnasium.Wrapper.__init__(self, env)
        self.negotiation: NegotiationEnv = env.unwrapped  # type: ignore[assignment]  # every parley/Negotiation is one
        words = self.negotiation.vocabulary
        self.acts = words.domain.acts(words)
        self.chattiness = chattiness
        num_actions = self.acts.num_proposals + len(self.acts.others)
        self.action_space = spaces.Discrete(num_actions)
        self.observation_space = spaces.Dict(
            {
                "action_mask": spaces.Box(0, 1, (num_actions,), np.int8),
                "observations": spaces.Box(0.0, 1.0, (self.acts.num_features,), np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Start a dialogue; arguments as `NegotiationEnv.reset`."""
        seen, info = self.env.reset(seed=seed, options=options)
        self.acts.begin(seen["context"])
        self._num_read = 0
        self._hear(seen)
        self._is_over = bool(seen["phase"] == SELECT)  # the partner would not talk at all
        return self._observed(), info

    def step(self, action: np.int64) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Say what the action stands for, hears the answer, and chooses when the talk is over.

        Raises:
            ScenarioError: the mask forbids the action.
        """
        if not self.action_masks()[action]:
            raise ScenarioError("the mask forbids this act", got=self.name(int(action)), fix='see observation["action_mask"]')
        if self._is_over:
            self._is_over = False
            return self._observed(), *self._settle()
        words = self.acts.say(int(action), self.chattiness, self.np_random)
        rules = self.negotiation.rules
        utterance = np.full(rules.max_words, PAD_ID, dtype=np.int64)
        utterance[: len(words)] = words[: rules.max_words]
        seen, reward, terminated, truncated, info = self.env.step({"utterance": utterance, "selection": np.int64(0)})
        self._hear(seen)
        if seen["phase"] == SELECT and not terminated:
            reward, terminated, truncated, info = self._settle()
        return self._observed(), float(reward), terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """Which actions are legal now (n,) bool."""
        return self.acts.mask()

    def name(self, action: int) -> str:
        """What an action does, in words."""
        return self.acts.name(action)

    def _hear(self, seen: dict[str, Any]) -> None:
        """Read what has been said since the last time."""
        vocabulary = self.negotiation.vocabulary
        ids = seen["tokens"][self._num_read : seen["num_tokens"]].tolist()
        marks = [place for place, token in enumerate(ids) if token in (vocabulary.you_id, vocabulary.them_id)]
        for start, end in zip(marks, [*marks[1:], len(ids)], strict=False):
            self.acts.hear(ids[start] == vocabulary.you_id, ids[start + 1 : end])
        self._num_read = int(seen["num_tokens"])

    def _settle(self) -> tuple[float, bool, bool, dict[str, Any]]:
        chosen = choose_action(self.negotiation.rules, self.acts.selection())
        _, reward, terminated, truncated, info = self.env.step(chosen)
        return float(reward), terminated, truncated, info

    def _observed(self) -> dict[str, np.ndarray]:
        seen = np.clip(np.array(self.acts.features(), dtype=np.float32), 0.0, 1.0)
        return {"action_mask": self.action_masks().astype(np.int8), "observations": seen}
