"""Dialogue acts of a job interview: proposing any of 108 deals, accepting, breaking off, in the scripted sides' phrases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.envs.negotiation.domain import Numbers
from parley.envs.negotiation.game_acts import GameActs
from parley.envs.negotiation.interview.bargainers import Applicant, InterviewStanding
from parley.envs.negotiation.interview.rules import BEST, ISSUES, OPTIONS, deals, describe
from parley.envs.negotiation.interview.wording import understand
from parley.envs.negotiation.scripted.bargainers import STYLES
from parley.envs.negotiation.vocabulary import SELECTION_ID, Vocabulary

NUM_DEALS = len(deals())
INTERVIEW_ACTS = ("takes the proposal on the table", "breaks off without a deal", "says <selection>")
"""The acts behind those that propose a deal."""
ACCEPTS, BREAKS_OFF, ENDS = range(NUM_DEALS, NUM_DEALS + len(INTERVIEW_ACTS))
_WISHES = 3
"""How often an option is named until more makes no difference."""


class InterviewActs(GameActs):
    """Proposes deals: of those worth the same to oneself, in the order of the selections.

    Args:
        vocabulary: of both sides.

    Raises:
        DataError: it lacks words that acts are said in.
    """

    num_proposals = NUM_DEALS
    others = INTERVIEW_ACTS
    num_features = 6 * len(OPTIONS) + 9 + 2 * NUM_DEALS

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.speaker = Applicant(vocabulary, STYLES["scripted"])

    def begin(self, context: np.ndarray) -> None:
        self.values = context[1::2]
        own = self.values[deals()].sum(1)
        self.order = np.argsort(-own, kind="stable")
        self.own = own[self.order]
        self.standing = InterviewStanding()

    def hear(self, mine: bool, said: Sequence[int]) -> None:
        if list(said) == [SELECTION_ID]:
            self.standing.i_ended = mine
        else:
            self.standing.hear(mine, understand(self.speaker.vocabulary.decode(said)))

    def mask(self) -> np.ndarray:
        mask = np.ones(NUM_DEALS + len(INTERVIEW_ACTS), dtype=bool)
        mask[ACCEPTS] = self._offer is not None and self.standing.agreed is None
        mask[BREAKS_OFF] = not self.standing.parted
        return mask

    def say(self, action: int, chattiness: float, rng: np.random.Generator) -> list[int]:
        if action == ENDS:
            return [SELECTION_ID]
        kind = {ACCEPTS: "accept", BREAKS_OFF: "part"}.get(action) or self._kind(action)
        deal = self.proposal(action) if action < NUM_DEALS else self.standing.table or ()
        return self.speaker.say(kind, deal, chattiness if self.standing.num_turns == 0 else 0.0, rng)

    def selection(self) -> int:
        deal = self.standing.agreed or self.standing.table
        return NUM_DEALS if deal is None else int(np.flatnonzero((deals() == deal).all(axis=1))[0])

    def features(self) -> list[float]:
        standing, offer = self.standing, self._offer
        places = np.zeros((4, len(OPTIONS)))
        for row, deal in enumerate((standing.my_last, standing.their_last, standing.table, standing.agreed)):
            places[row, list(deal or ())] = 1.0
        wishes = np.minimum(standing.their_wishes, _WISHES) / _WISHES
        flags = (offer, standing.agreed, standing.my_last, standing.their_last)
        return [
            *(self.values / BEST).tolist(),
            *places.reshape(-1).tolist(),
            *wishes.tolist(),
            *(float(flag is not None) for flag in flags),
            float(standing.parted),
            min(1.0, standing.num_turns / 10),
            min(1.0, standing.pressure / 5),
            0.0 if offer is None else self._worth(offer) / BEST,
            0.0 if standing.agreed is None else self._worth(standing.agreed) / BEST,
            *(self.own / BEST).tolist(),
            *(wishes[deals()].sum(1)[self.order] / len(ISSUES)).tolist(),
        ]

    def name(self, action: int) -> str:
        if action >= NUM_DEALS:
            return INTERVIEW_ACTS[action - NUM_DEALS]
        settled = describe(int(self.order[action]))
        return f"proposes {settled}, worth {self.own[action]}"

    def proposal(self, action: int) -> Numbers:
        """The deal that an action proposes: one item of each issue."""
        return tuple(deals()[self.order[action]].tolist())

    @property
    def _offer(self) -> Numbers | None:
        return None if self.standing.table_is_mine else self.standing.table

    def _kind(self, action: int) -> str:
        """The kind of phrase that a proposal is made in."""
        last = self.standing.my_last
        if last == self.proposal(action):
            return "insist"
        if last is not None and self.own[action] < self._worth(last):
            return "concede"
        return "open" if self.standing.table is None else "counter"

    def _worth(self, deal: Numbers) -> int:
        return int(self.values[list(deal)].sum())
