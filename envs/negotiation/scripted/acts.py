"""Dialogue acts of Deal or No Deal: what the scripted bargainers' phrases can say is an act, and their ears read the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.envs.negotiation.dealornodeal.rules import (
    MAX_SELECTIONS,
    NUM_ITEMS,
    TOTAL_VALUE,
    Triple,
    picks_table,
    selection_index,
    selection_table,
)
from parley.envs.negotiation.game_acts import GameActs
from parley.envs.negotiation.scripted.bargainers import Talks, worth
from parley.envs.negotiation.scripted.phrasing import Act, Move, Phrasebook
from parley.envs.negotiation.vocabulary import SELECTION_ID, Vocabulary

NUM_ALLOCATIONS = MAX_SELECTIONS - 2
OTHER_ACTS = (Act.ACCEPT, Act.ASK, Act.PART, Act.END)
"""The acts behind those that propose an allocation."""


class DivisionActs(GameActs):
    """Proposes allocations: of those worth the same to oneself, the one first that leaves more pieces to the partner.

    Args:
        vocabulary: of both sides.

    Raises:
        DataError: it lacks words that acts are said in.
    """

    num_proposals = NUM_ALLOCATIONS
    others = tuple(act.value for act in OTHER_ACTS)
    num_features = 6 * NUM_ITEMS + 10 + 2 * NUM_ALLOCATIONS

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.phrasebook = Phrasebook(vocabulary)

    def begin(self, context: np.ndarray) -> None:
        first, second, third = context[::2].tolist()
        mine = context[1::2].tolist()
        self.counts, self.values = (first, second, third), (mine[0], mine[1], mine[2])
        shares = [(int(a), int(b), int(c)) for a, b, c in picks_table(self.counts)[:-2]]
        self.shares = sorted(shares, key=lambda share: (-worth(share, self.values), sum(share), share))
        self.talks = Talks(self.counts)

    def hear(self, mine: bool, said: Sequence[int]) -> None:
        if tuple(said) == (SELECTION_ID,):
            self.talks.i_ended = mine
        else:
            self.talks.hear(mine, self.phrasebook.hear(tuple(said)))

    def mask(self) -> np.ndarray:
        talks = self.talks
        mask = np.zeros(NUM_ALLOCATIONS + len(OTHER_ACTS), dtype=bool)
        mask[: len(self.shares)] = True
        offered = talks.table is not None and not talks.table_is_mine and talks.agreed is None
        mask[NUM_ALLOCATIONS:] = [offered, talks.num_turns == 0, not talks.i_parted, True]
        return mask

    def say(self, action: int, chattiness: float, rng: np.random.Generator) -> list[int]:
        return self.phrasebook.say(self._move(action), self.counts, chattiness, rng)

    def selection(self) -> int:
        share = self.talks.agreed or self.talks.table
        no_agreement = len(selection_table(self.counts)) - 2
        return no_agreement if share is None else selection_index(self.counts, share)

    def features(self) -> list[float]:
        talks, most = self.talks, np.array(self.counts, dtype=np.float32)

        def part(share: Triple | None) -> list[float]:
            return [0.0] * NUM_ITEMS if share is None else (np.array(share) / most).tolist()

        weights = talks.their_weights()
        shares = np.array(self.shares)
        own, theirs = np.zeros((2, NUM_ALLOCATIONS))
        own[: len(shares)] = shares @ np.array(self.values) / TOTAL_VALUE
        theirs[: len(shares)] = (most - shares) @ weights / max(float(most @ weights), 1e-6)
        offer = None if talks.table_is_mine else talks.table
        return [
            *(most / max(1.0, most.max())).tolist(),
            *(np.array(self.values) / TOTAL_VALUE).tolist(),
            *(value for share in (talks.my_last, talks.their_last, talks.table, talks.agreed) for value in part(share)),
            *(float(flag) for flag in (offer is not None, talks.agreed is not None, talks.i_parted, talks.they_parted)),
            *(float(flag) for flag in (talks.my_last is not None, talks.their_last is not None)),
            min(1.0, talks.num_turns / 10),
            min(1.0, talks.pressure / 5),
            0.0 if offer is None else worth(offer, self.values) / TOTAL_VALUE,
            0.0 if talks.agreed is None else worth(talks.agreed, self.values) / TOTAL_VALUE,
            *own.tolist(),
            *theirs.tolist(),
        ]

    def name(self, action: int) -> str:
        if action >= NUM_ALLOCATIONS:
            return self.others[action - NUM_ALLOCATIONS]
        if action >= len(self.shares):
            return f"proposes allocation {action} of {len(self.shares)}"
        share = self.shares[action]
        return f"proposes {share} of {self.counts} for itself, worth {worth(share, self.values)}"

    def _move(self, action: int) -> Move:
        prize = max(range(NUM_ITEMS), key=lambda item: self.counts[item] * self.values[item])
        junk = next((item for item in range(NUM_ITEMS) if not self.values[item]), None)
        talks = self.talks
        if action >= NUM_ALLOCATIONS:
            act = OTHER_ACTS[action - NUM_ALLOCATIONS]
            return Move(act, talks.table if act is Act.ACCEPT else None, prize, junk)
        share = self.shares[action]
        if share == talks.my_last:
            return Move(Act.INSIST, share, prize, junk)
        if talks.my_last is not None and worth(share, self.values) < worth(talks.my_last, self.values):
            return Move(Act.CONCEDE, share, prize, junk)
        return Move(Act.OPEN if talks.table is None else Act.COUNTER, share, prize, junk)
