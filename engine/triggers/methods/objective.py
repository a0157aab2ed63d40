"""The objective of a trigger search: the loss of an input for a target sentence (He & Glass 2018, equations 3 to 6).

    L(x; y) = 1/m sum_t w_t nll_t + lambda_in w_in R(x)
    nll_t   = -log P(y_t | y_<t, x), the end of the sentence counted, m words in all
    R(x)    = -1/n sum_t log P_LM(x_t | x_<t), the end counted

    kind        a word is satisfied, and weighs `satisfied_weight` instead of 1, when
    likelihood  never
    greedy      it is the likeliest word: y_t = argmax_j P(j | y_<t, x)            equation 5
    sample      log P(y_t | y_<t, x) > t_out                                       equation 6
    (input)     -R(x) > t_in satisfies the language model's term in the same way

# Paper: satisfied terms are dropped. Released code: they keep a hundredth in the sampled objectives; `satisfied_weight=0.01`.

Every term rises with the nll of its word, so a lower bound of the nlls gives a lower bound of the loss.

With `mellowmax` = alpha the mean over words gives way to log(1/m sum_t exp(alpha w_t nll_t)) / alpha (Asadi & Littman 2017, as
nanoGCG takes it): between the mean and the largest, so that one word that is not said costs more.
# nanoGCG: of logits. Ours: of nats, which are at least 0.

Shapes: R inputs, T words of the target with its end, padded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from parley.envs.core.config import Configuration, NonNegativeFloat, NonPositiveFloat, Share

Kind = Literal["likelihood", "greedy", "sample"]
RELEASED_WEIGHT = 0.01


@dataclass(frozen=True, kw_only=True)
class TriggerObjective(Configuration):
    """The loss that a search minimises.

    Args:
        kind: when a word of the target is satisfied.
        t_out: log probability above which a word is satisfied (sample), in nats; at most 0.
        lm_weight: lambda_in, the weight of the language model's term; 0 leaves the input free.
        t_in: mean log probability above which the input is satisfied, in nats; at most 0.
        satisfied_weight: weight of a satisfied term; 0 in the paper, 0.01 in the released code.
        mellowmax: alpha; 0 takes the mean over words.
    """

    kind: Kind = "greedy"
    t_out: NonPositiveFloat = 0.0
    lm_weight: NonNegativeFloat = 0.0
    t_in: NonPositiveFloat = 0.0
    satisfied_weight: Share = 0.0
    mellowmax: NonNegativeFloat = 0.0

    def weights(self, nll_RT: Tensor, likeliest_RT: Tensor) -> Tensor:
        """Return the weight of each word (R, T), satisfied ones reduced.

        Args:
            nll_RT: nats of each word of the target.
            likeliest_RT: True if it is the model's likeliest word there.
        """
        if self.kind == "likelihood":
            return torch.ones_like(nll_RT)
        satisfied_RT = likeliest_RT if self.kind == "greedy" else nll_RT < -self.t_out
        return torch.where(satisfied_RT, self.satisfied_weight, 1.0)

    def input_weight(self, input_nll_R: Tensor) -> Tensor:
        """Return the weight of the language model's term (R,), lambda_in included.

        Args:
            input_nll_R: R(x), mean nats of a word of the input under the language model.
        """
        return self.lm_weight * torch.where(input_nll_R < -self.t_in, self.satisfied_weight, 1.0)

    def loss(self, nll_RT: Tensor, likeliest_RT: Tensor, mask_RT: Tensor, input_nll_R: Tensor | None) -> Tensor:
        """Return the loss of each input (R,).

        Args:
            nll_RT: nats of each word of the target; anything where the mask is false.
            likeliest_RT: True if it is the model's likeliest word there.
            mask_RT: true at the target's words.
            input_nll_R: R(x); None when `lm_weight` is 0.
        """
        terms_RT = torch.where(mask_RT, nll_RT * self.weights(nll_RT, likeliest_RT), 0.0)
        if self.mellowmax:
            scaled_RT = (self.mellowmax * terms_RT).masked_fill(~mask_RT, -torch.inf)
            loss_R = (scaled_RT.logsumexp(-1) - mask_RT.sum(-1).log()) / self.mellowmax
            # Of no word at all it is 0 up to rounding.
            loss_R = loss_R.clamp_min(0)
        else:
            loss_R = terms_RT.sum(-1) / mask_RT.sum(-1)
        if input_nll_R is None:
            return loss_R
        return loss_R + self.input_weight(input_nll_R) * input_nll_R
