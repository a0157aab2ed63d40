"""Dialogue acts instead of words: a wrapper with a few dozen actions and a mask, on which ordinary RL algorithms learn.

Choosing words one by one is hard for them: 100 places of hundreds of words, most of it nonsense. Here an action says what to do
(propose the k-th best allocation, accept, ask, walk away, end); the scripted bargainers' phrases say it, and their ears read
what comes back (`scripted/`). Only what can be said in those phrases is an action.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.core.errors import ScenarioError
from envs.negotiation.env import NegotiationEnv, choose_action
from envs.negotiation.game import SELECT
from envs.negotiation.scenario import (
    MAX_SELECTIONS,
    NUM_ITEMS,
    TOTAL_VALUE,
    Triple,
    picks_table,
    selection_index,
    selection_table,
)
from envs.negotiation.scripted.bargainers import Talks, worth
from envs.negotiation.scripted.phrasing import Act, Move, Phrasebook
from envs.negotiation.vocabulary import PAD_ID, SELECTION_ID

NUM_ALLOCATIONS = MAX_SELECTIONS - 2
OTHER_ACTS = (Act.ACCEPT, Act.ASK, Act.PART, Act.END)
"""The actions behind those that propose an allocation."""
NUM_ACTIONS = NUM_ALLOCATIONS + len(OTHER_ACTS)
NUM_FEATURES = 6 * NUM_ITEMS + 10 + 2 * NUM_ALLOCATIONS


class DialogueActs(
    gymnasium.Wrapper[dict[str, np.ndarray], np.int64, dict[str, Any], dict[str, Any]], gymnasium.utils.RecordConstructorArgs
):
    """`parley/Negotiation-v1` by dialogue acts.

    Actions, `Discrete(40)`: k < 36 proposes the allocation that is k-th best for oneself (of equals the one that leaves more
    pieces to the partner first), in firm words where it was one's last proposal already; then accept, ask, walk away, end the
    talk. What was agreed, or stands on the table when the talk ends, is chosen by itself.

    Observations, a `Dict` in the form of RLlib's masked modules: `action_mask` (40,) int8, 1 where an action is legal now; and
    `observations`, float32 in 0..1: counts, own values, the two sides' last proposals and what is on the table or agreed (as
    one's own items), how far the talk has gone, who has proposed, insisted or walked away, and of each proposal its worth to
    oneself and, by a guess from their words, to the partner. `action_masks()` is what sb3-contrib asks for.

    Args:
        env: a `NegotiationEnv` with a partner who speaks in the words of the scripted bargainers' vocabulary or more.
        chattiness: 0..1, how much is said beyond the necessary.

    Raises:
        DataError: the vocabulary lacks words that acts are said in.
    """

    def __init__(self, env: gymnasium.Env[dict[str, Any], dict[str, Any]], chattiness: float = 0.0) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, chattiness=chattiness)
        gymnasium.Wrapper.__init__(self, env)
        self.negotiation: NegotiationEnv = env.unwrapped  # type: ignore[assignment]  # every parley/Negotiation is one
        self.phrasebook = Phrasebook(self.negotiation.vocabulary)
        self.chattiness = chattiness
        self.action_space = spaces.Discrete(NUM_ACTIONS)
        self.observation_space = spaces.Dict(
            {
                "action_mask": spaces.Box(0, 1, (NUM_ACTIONS,), np.int8),
                "observations": spaces.Box(0.0, 1.0, (NUM_FEATURES,), np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Starts a dialogue; arguments as `NegotiationEnv.reset`."""
        seen, info = self.env.reset(seed=seed, options=options)
        first, second, third = seen["context"][::2].tolist()
        mine = seen["context"][1::2].tolist()
        self._counts, self._values = (first, second, third), (mine[0], mine[1], mine[2])
        shares = [(int(a), int(b), int(c)) for a, b, c in picks_table(self._counts)[:-2]]
        self._shares = sorted(shares, key=lambda share: (-worth(share, self._values), sum(share), share))
        self._talks, self._num_read = Talks(self._counts), 0
        seen = self._heard(seen)
        if seen["phase"] == SELECT:  # the partner would not talk at all
            seen, *_, info = self._settle()
        return self._observed(seen), info

    def step(self, action: np.int64) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Says what the action stands for, hears the answer, and chooses when the talk is over.

        Raises:
            ScenarioError: the mask forbids the action.
        """
        if not self.action_masks()[action]:
            raise ScenarioError("the mask forbids this act", got=self.name(int(action)), fix='see observation["action_mask"]')
        words = self.phrasebook.say(self._move(int(action)), self._counts, self.chattiness, self.np_random)
        rules = self.negotiation.rules
        utterance = np.full(rules.max_words, PAD_ID, dtype=np.int64)
        utterance[: len(words)] = words[: rules.max_words]
        seen, reward, terminated, truncated, info = self.env.step({"utterance": utterance, "selection": np.int64(0)})
        seen = self._heard(seen)
        if seen["phase"] == SELECT and not terminated:
            seen, reward, terminated, truncated, info = self._settle()
        return self._observed(seen), float(reward), terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """Which actions are legal now (40,) bool."""
        talks = self._talks
        mask = np.zeros(NUM_ACTIONS, dtype=bool)
        mask[: len(self._shares)] = True
        offered = talks.table is not None and not talks.table_is_mine and talks.agreed is None
        mask[NUM_ALLOCATIONS:] = [offered, talks.num_turns == 0, not talks.i_parted, True]
        return mask

    def name(self, action: int) -> str:
        """What an action does, in words."""
        if action >= NUM_ALLOCATIONS:
            return OTHER_ACTS[action - NUM_ALLOCATIONS].value
        if action >= len(self._shares):
            return f"proposes allocation {action} of {len(self._shares)}"
        share = self._shares[action]
        return f"proposes {share} of {self._counts} for itself, worth {worth(share, self._values)}"

    def _move(self, action: int) -> Move:
        prize = max(range(NUM_ITEMS), key=lambda item: self._counts[item] * self._values[item])
        junk = next((item for item in range(NUM_ITEMS) if not self._values[item]), None)
        talks = self._talks
        if action >= NUM_ALLOCATIONS:
            act = OTHER_ACTS[action - NUM_ALLOCATIONS]
            return Move(act, talks.table if act is Act.ACCEPT else None, prize, junk)
        share = self._shares[action]
        if share == talks.my_last:
            return Move(Act.INSIST, share, prize, junk)
        if talks.my_last is not None and worth(share, self._values) < worth(talks.my_last, self._values):
            return Move(Act.CONCEDE, share, prize, junk)
        return Move(Act.OPEN if talks.table is None else Act.COUNTER, share, prize, junk)

    def _heard(self, seen: dict[str, Any]) -> dict[str, Any]:
        """Reads what has been said since the last time."""
        vocabulary, talks = self.negotiation.vocabulary, self._talks
        ids = seen["tokens"][self._num_read : seen["num_tokens"]].tolist()
        marks = [place for place, token in enumerate(ids) if token in (vocabulary.you_id, vocabulary.them_id)]
        for start, end in zip(marks, [*marks[1:], len(ids)], strict=False):
            mine, said = ids[start] == vocabulary.you_id, tuple(ids[start + 1 : end])
            if said == (SELECTION_ID,):
                talks.i_ended = mine
            else:
                talks.hear(mine, self.phrasebook.hear(said))
        self._num_read = int(seen["num_tokens"])
        return seen

    def _settle(self) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Chooses what was agreed, or else what stands on the table, or else no agreement."""
        share = self._talks.agreed or self._talks.table
        no_agreement = len(selection_table(self._counts)) - 2
        selection = no_agreement if share is None else selection_index(self._counts, share)
        seen, reward, terminated, truncated, info = self.env.step(choose_action(self.negotiation.rules, selection))
        return seen, float(reward), terminated, truncated, info

    def _observed(self, seen: dict[str, Any]) -> dict[str, np.ndarray]:
        talks, most = self._talks, np.array(self._counts, dtype=np.float32)

        def part(share: Triple | None) -> list[float]:
            return [0.0] * NUM_ITEMS if share is None else (np.array(share) / most).tolist()

        weights = talks.their_weights()
        shares = np.array(self._shares)
        own, theirs = np.zeros((2, NUM_ALLOCATIONS))
        own[: len(shares)] = shares @ np.array(self._values) / TOTAL_VALUE
        theirs[: len(shares)] = (most - shares) @ weights / max(float(most @ weights), 1e-6)
        offer = None if talks.table_is_mine else talks.table
        features = [
            *(most / max(1.0, most.max())).tolist(),
            *(np.array(self._values) / TOTAL_VALUE).tolist(),
            *(value for share in (talks.my_last, talks.their_last, talks.table, talks.agreed) for value in part(share)),
            *(float(flag) for flag in (offer is not None, talks.agreed is not None, talks.i_parted, talks.they_parted)),
            *(float(flag) for flag in (talks.my_last is not None, talks.their_last is not None)),
            min(1.0, talks.num_turns / 10),
            min(1.0, talks.pressure / 5),
            0.0 if offer is None else worth(offer, self._values) / TOTAL_VALUE,
            0.0 if talks.agreed is None else worth(talks.agreed, self._values) / TOTAL_VALUE,
            *own.tolist(),
            *theirs.tolist(),
        ]
        mask = self.action_masks().astype(np.int8)
        return {"action_mask": mask, "observations": np.clip(np.array(features, dtype=np.float32), 0.0, 1.0)}
