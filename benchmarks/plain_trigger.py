"""One step of gibbs-enum in the ordinary style: the reference of `trigger.py`.

Per position one backward pass through the whole model, as written with the parameters' gradients on; the words of steepest
descent are put there, and all of those inputs go through the encoder, the decoder and a full log softmax in one batch, with
the language model after them where it counts. Nothing is shared between positions, candidates or restarts.

Shapes: B inputs, N source words with `<eou>`, T words of the target with its end, V words, G candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, SPECIALS
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq


@dataclass(frozen=True)
class PlainVisit:
    """The candidates of a position, with their losses."""

    list_G: Tensor
    """Words tried."""
    loss_G: Tensor
    """Their losses."""

    @property
    def word(self) -> int:
        """Return the best word, ties to the first."""
        return int(self.list_G[self.loss_G.argmin()])


class PlainTrigger:
    """Gibbs-enum for one target at a time.

    Args:
        model: the network, its parameters trainable as they come.
        objective: what is minimised; of it only the settings are read.
        lm: the language model of the input.
    """

    def __init__(self, model: Seq2Seq, objective: TriggerObjective, lm: LanguageModel | None) -> None:
        self.model, self.lm, self.objective = model, lm, objective

    def step(self, target_T: Tensor, words_N: Tensor, position: int, candidates: int) -> PlainVisit:
        """Make a visit: one gradient, one list, one forward pass of the list."""
        list_G = self.propose(target_T, words_N, position, candidates)
        return PlainVisit(list_G, self.enumerate(target_T, words_N, position, list_G))

    def propose(self, target_T: Tensor, words_N: Tensor, position: int, candidates: int) -> Tensor:
        """Return the words (G,) of steepest descent at a position."""
        self.model.zero_grad()
        embedded_BNE = self.model.source_embedding(self._sources(words_N[None]))
        embedded_BNE.retain_grad()
        pull_V = torch.zeros(len(self.model.vocabulary))
        loss = self._output_loss(target_T, embedded_BNE)
        if self.lm is not None:
            self.lm.zero_grad()
            inputs_BNE = self.lm.embedding(self._inputs(words_N[None])[:, :-1])
            inputs_BNE.retain_grad()
            input_loss, log_BNV = self._input_loss(words_N[None], inputs_BNE)
            loss = loss + input_loss
        loss.sum().backward()
        assert embedded_BNE.grad is not None
        slope_V = self.model.source_embedding.weight.detach() @ embedded_BNE.grad[0, position]
        if self.lm is not None:
            assert inputs_BNE.grad is not None
            weight = self._input_weight(log_BNV.detach(), words_N[None])
            pull_V = weight * log_BNV[0, position].detach() / log_BNV.shape[1]
            slope_V = slope_V + self.lm.embedding.weight.detach() @ inputs_BNE.grad[0, position + 1] - pull_V
        slope_V[: len(SPECIALS)] = torch.inf
        return (-slope_V).topk(candidates).indices

    @torch.no_grad()
    def enumerate(self, target_T: Tensor, words_N: Tensor, position: int, list_G: Tensor) -> Tensor:
        """Return the losses (G,) with each word of the list at the position."""
        words_BN = words_N.repeat(len(list_G), 1)
        words_BN[:, position] = list_G
        loss_B = self._output_loss(target_T, self.model.source_embedding(self._sources(words_BN)))
        if self.lm is not None:
            loss_B = loss_B + self._input_loss(words_BN, self.lm.embedding(self._inputs(words_BN)[:, :-1]))[0]
        return loss_B

    def _output_loss(self, target_T: Tensor, embedded_BNE: Tensor) -> Tensor:
        replies_BT = target_T.expand(len(embedded_BNE), -1)
        begin_BT = torch.full((len(embedded_BNE), 1), BOS_ID)
        states_BNH = self.model.encode(embedded_BNE)
        log_BTV = self.model.decode(states_BNH, None, torch.cat([begin_BT, replies_BT[:, :-1]], 1)).log_softmax(-1)
        nll_BT = -log_BTV.gather(-1, replies_BT[..., None])[..., 0]
        weight_BT = torch.ones_like(nll_BT)
        if self.objective.kind == "greedy":
            weight_BT[log_BTV.argmax(-1) == replies_BT] = self.objective.satisfied_weight
        elif self.objective.kind == "sample":
            weight_BT[nll_BT < -self.objective.t_out] = self.objective.satisfied_weight
        return (weight_BT * nll_BT).sum(1) / len(target_T)

    def _input_loss(self, words_BN: Tensor, embedded_BNE: Tensor) -> tuple[Tensor, Tensor]:
        assert self.lm is not None
        log_BNV = self.lm.from_embedded(embedded_BNE).log_softmax(-1)
        nll_B = -log_BNV.gather(-1, self._inputs(words_BN)[:, 1:, None])[..., 0].mean(1)
        return self._input_weight(log_BNV.detach(), words_BN) * nll_B, log_BNV

    def _input_weight(self, log_BNV: Tensor, words_BN: Tensor) -> Tensor:
        nll_B = -log_BNV.gather(-1, self._inputs(words_BN)[:, 1:, None])[..., 0].mean(1)
        weight_B = torch.full_like(nll_B, self.objective.lm_weight)
        weight_B[nll_B < -self.objective.t_in] *= self.objective.satisfied_weight
        return weight_B

    def _sources(self, words_BN: Tensor) -> Tensor:
        return torch.cat([words_BN, words_BN.new_full((len(words_BN), 1), EOU_ID)], 1)

    def _inputs(self, words_BN: Tensor) -> Tensor:
        begin, end = (words_BN.new_full((len(words_BN), 1), word) for word in (BOS_ID, EOS_ID))
        return torch.cat([begin, words_BN, end], 1)
