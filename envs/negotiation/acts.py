"""Dialogue acts as actions: the Gymnasium wrapper on which ordinary RL algorithms learn.

Word by word is hard for these algorithms: 100 positions with hundreds of words, mostly nonsense. Here an action is a dialogue
act (propose the k-th best deal, accept, walk away, end). The phrases of the game's scripted agents express it, and their parser
reads the partner's words (`DivisionActs` in `scripted/bargainers.py`, `InterviewActs` in `interview/bargainers.py`).
`Domain.acts` gives the acts of a game (`GameActs`); they follow one dialogue from one side.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from parley.envs.core.errors import ScenarioError
from parley.envs.negotiation.domain import PAD_ID
from parley.envs.negotiation.env import NegotiationEnv, choose_action
from parley.envs.negotiation.game import SELECT


class DialogueActs(
    gymnasium.Wrapper[dict[str, np.ndarray], np.int64, dict[str, Any], dict[str, Any]], gymnasium.utils.RecordConstructorArgs
):
    """`parley/Negotiation-v1` with dialogue acts as actions, for the game of its vocabulary.

    Actions, `Discrete(n)`: action k first proposes the k-th best deal for this side, in firm words if it repeats the last
    proposal. The other actions are, in Deal or No Deal (n = 40, 36 allocations): accept, ask, walk away, end the talk; in the
    job interview (n = 111, 108 deals): accept, break off, end the talk. After the talk, the wrapper chooses the agreed deal or
    the one on the table. If the partner ends the talk before this side's first act, that act only collects the reward.

    Observations, a `Dict` in the form of RLlib's masked modules: `action_mask` (n,) int8, 1 for legal actions; and
    `observations`, float32 in 0..1: own values, both sides' last proposals, the deal on the table or agreed, the progress of
    the talk, flags of proposals, insistence and walking away, and for each proposal its worth to this side and, estimated
    from the words, to the partner. `action_masks()` is the method that sb3-contrib expects.

    Args:
        env: a `NegotiationEnv` whose partner speaks at least the words of the game's scripted agents.
        chattiness: 0..1, the amount of words beyond the necessary.

    Raises:
        ConfigError: the game has no dialogue acts.
        DataError: the vocabulary lacks words of the acts.
    """

    def __init__(self, env: gymnasium.Env[dict[str, Any], dict[str, Any]], chattiness: float = 0.0) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, chattiness=chattiness)
        gymnasium.Wrapper.__init__(self, env)
        self.negotiation: NegotiationEnv = env.unwrapped  # type: ignore[assignment]  # every parley/Negotiation is one
        words = self.negotiation.vocabulary
        self.acts = words.domain.acts(words)
        self.chattiness = chattiness
        num_actions = self.acts.num_proposals + len(self.acts.other_acts)
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
        observation, info = self.env.reset(seed=seed, options=options)
        self.acts.begin(observation["context"])
        self._num_read = 0
        self._hear(observation)
        self._is_over = bool(observation["phase"] == SELECT)  # the partner would not talk at all
        return self._observed(), info

    def step(self, action: np.int64) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Say the act, hear the reply, and choose if the talk is over.

        Raises:
            ScenarioError: the mask forbids the action.
        """
        if not self.action_masks()[action]:
            raise ScenarioError("the mask forbids this act", got=self.name(int(action)), fix='see observation["action_mask"]')
        if self._is_over:
            self._is_over = False
            return self._observed(), *self._settle()
        ids = self.acts.say(int(action), self.chattiness, self.np_random)
        rules = self.negotiation.rules
        utterance = np.full(rules.max_words, PAD_ID, dtype=np.int64)
        utterance[: len(ids)] = ids[: rules.max_words]
        observation, reward, terminated, truncated, info = self.env.step({"utterance": utterance, "selection": np.int64(0)})
        self._hear(observation)
        if observation["phase"] == SELECT and not terminated:
            reward, terminated, truncated, info = self._settle()
        return self._observed(), float(reward), terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """Return the mask of legal actions (n,) bool."""
        return self.acts.mask()

    def name(self, action: int) -> str:
        """Return the action in words."""
        return self.acts.name(action)

    def _hear(self, observation: dict[str, Any]) -> None:
        """Process the new utterances of an observation."""
        vocabulary = self.negotiation.vocabulary
        ids = observation["tokens"][self._num_read : observation["num_tokens"]].tolist()
        marks = [i for i, token in enumerate(ids) if token in (vocabulary.you_id, vocabulary.them_id)]
        for start, end in zip(marks, [*marks[1:], len(ids)], strict=False):
            self.acts.hear(ids[start] == vocabulary.you_id, ids[start + 1 : end])
        self._num_read = int(observation["num_tokens"])

    def _settle(self) -> tuple[float, bool, bool, dict[str, Any]]:
        chosen = choose_action(self.negotiation.rules, self.acts.selection())
        _, reward, terminated, truncated, info = self.env.step(chosen)
        return float(reward), terminated, truncated, info

    def _observed(self) -> dict[str, np.ndarray]:
        observation = np.clip(np.array(self.acts.features(), dtype=np.float32), 0.0, 1.0)
        return {"action_mask": self.action_masks().astype(np.int8), "observations": observation}
