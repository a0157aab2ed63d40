"""What an attack wants: choices of the target that pay the adversary more, and an end of the talk (Cheng et al. 2019, eq. 5-7).

The target alone chooses, so its every legal selection fixes both sides' points. O' are the selections that pay the adversary
more. With kappa 0 the hinge loss is at its floor exactly when the target would choose from O', with kappa > 0 below zero.

Departures:
  * # Paper: kappa has no figure. Ours: 0, the target's choice alone counts; larger values ask for a margin.
  * # Paper: among candidates whose loss is at the floor nothing is preferred. Ours: the one that pays more.
  * # Released: 5 * gap - advantage of the best favourable selection; it can be negative while the choice is unfavourable.
    Ours: the option "released", with that property.

Shapes: r candidates, M selections (padded; 38 in Deal or No Deal), V words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from parley.envs.negotiation.domain import Domain
from parley.envs.negotiation.vocabulary import SELECTION_ID

Loss = Literal["hinge", "released", "outcome"]
RELEASED_WEIGHT = 5.0
"""Weight of the gap in the released loss."""


@dataclass(frozen=True)
class Values:
    """What every legal selection of the target earns in n dialogues.

    Args:
        adversary: the adversary's points (n, M) int64; 0 for refusals and past the legal ones.
        target: the target's points (n, M) int64.
        legal: which selections are legal (n, M).
    """

    adversary: np.ndarray
    target: np.ndarray
    legal: np.ndarray

    @classmethod
    def of(cls, contexts_2n6: np.ndarray, domain: Domain) -> Values:
        """From the contexts of the adversary (index 0) and the target (index 1)."""
        counts, values = contexts_2n6[0][:, 0::2], contexts_2n6[:, :, 1::2]
        own, other = domain.shares(counts)
        target, adversary = (own * values[1][:, None]).sum(2), (other * values[0][:, None]).sum(2)
        return cls(adversary, target, domain.legal_selections(counts)[1])

    def rows(self, index: np.ndarray) -> Values:
        """The values of some dialogues, repeated where an index is."""
        return Values(self.adversary[index], self.target[index], self.legal[index])

    @property
    def advantage(self) -> np.ndarray:
        """Adversary's points less the target's (n, M)."""
        return self.adversary - self.target


def losses(scores_rM: Tensor, values: Values, loss: Loss, kappa: float = 0.0) -> Tensor:
    """The loss of r candidates from the target's scores of its selections.

    Args:
        scores_rM: sum of the six head logits of each selection, minus infinity past the legal ones.
        values: of each candidate's dialogue.
        loss: "hinge" (eq. 6), "released", or "outcome": the adversary's advantage alone, negative, which needs no scores
            but their largest.
        kappa: margin of the hinge, in logits.

    Returns:
        (r,) float32; lower is better for the adversary.
    """
    device = scores_rM.device
    advantage = torch.from_numpy(values.advantage).to(device)
    if loss == "outcome":
        return -advantage.gather(1, scores_rM.argmax(1, keepdim=True)).squeeze(1).to(scores_rM.dtype)
    favourable = advantage > 0
    inside = scores_rM.masked_fill(~favourable, -torch.inf)
    best, where = inside.max(1)
    if loss == "hinge":
        outside = scores_rM.masked_fill(favourable, -torch.inf).amax(1)
        return (outside - best).clamp_min(-kappa)
    gained = advantage.gather(1, where.unsqueeze(1)).squeeze(1)
    return RELEASED_WEIGHT * (scores_rM.amax(1) - best) - gained


def bounds(
    scores_rM: Tensor, values: Values, loss: Loss, kappa: float, doubt_r: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Between what the loss and the advantage lie when scores are known only roughly.

    Args:
        scores_rM: as in `losses`, each pair's difference off by no more than the doubt.
        values: as in `losses`.
        loss: as in `losses`.
        kappa: as in `losses`.
        doubt_r: how far off a difference may be (r,).

    Returns:
        Least loss, largest loss, least advantage, largest advantage, each (r,).
    """
    advantage = torch.from_numpy(values.advantage).to(scores_rM.device, scores_rM.dtype)
    top, doubt = scores_rM.amax(1), doubt_r.unsqueeze(1)

    def among(near_rM: Tensor) -> tuple[Tensor, Tensor]:
        least = advantage.masked_fill(~near_rM, torch.inf).amin(1)
        return least, advantage.masked_fill(~near_rM, -torch.inf).amax(1)

    low, high = among(scores_rM >= top.unsqueeze(1) - doubt)
    if loss == "outcome":
        return -high, -low, low, high
    favourable = advantage > 0
    inside = scores_rM.masked_fill(~favourable, -torch.inf)
    best = inside.amax(1)
    if loss == "hinge":
        gap = scores_rM.masked_fill(favourable, -torch.inf).amax(1) - best
        return (gap - doubt_r).clamp_min(-kappa), (gap + doubt_r).clamp_min(-kappa), low, high
    least, most = among(inside >= best.unsqueeze(1) - doubt)
    gap = RELEASED_WEIGHT * (top - best)
    slack = RELEASED_WEIGHT * doubt_r
    return (gap - slack).clamp_min(0) - most, gap + slack - least, low, high


def end_gaps(logits_rV: Tensor) -> Tensor:
    """How far `<selection>` is from being the likeliest next word, from logits with unspeakable words at minus infinity.

    Returns:
        (r,) largest logit of another word less that of `<selection>`; at or below 0 the target would end the talk.
    """
    others = torch.maximum(logits_rV[:, :SELECTION_ID].amax(1), logits_rV[:, SELECTION_ID + 1 :].amax(1))
    return others - logits_rV[:, SELECTION_ID]
