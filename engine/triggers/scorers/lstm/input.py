"""Candidates of a trigger search under our language model: R(x), its bound and its slopes.

A candidate's words before the swap cost what the incumbent's cost; the swapped word's nats stand in the incumbent's log
softmax, because what comes before it is the same; only the words after it must be read again.

Shapes: B incumbents, G candidates each, n = B G, N searched words, M = N + 1 words read with `<s>`, or predicted with `</s>`,
K of them read again, V words, H hidden, E embedding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from parley.engine.triggers.scorers.lstm.cells import Past, Swapped, WordLstm
from parley.engine.triggers.scorers.lstm.half_spaces import HalfSpaces, OutputLayer
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID
from parley.policies.seq2seq.model import LanguageModel


@dataclass(frozen=True)
class InputTrace:
    """What is kept of one incumbent, B = 1.

    Args:
        past: the network over `<s>` and the input.
        nll_1M: nats of each word of the input and of its end.
        log_NV: log probability of every word in the place of each.
        gradient_NE: of R(x) in the embeddings of the input.
        half_spaces: the bound.
    """

    past: Past
    nll_1M: Tensor
    log_NV: Tensor
    gradient_NE: Tensor
    half_spaces: HalfSpaces


@dataclass(frozen=True)
class Lookahead:
    """Candidates read on from their swaps.

    Args:
        first: the first word that stands behind a swap in any of them.
        states_nKH: states that predict that word and each later one.
        said_nK: those words.
        counted_nK: which of them stand behind the row's own swap.
        known_n: nats of the words up to the swapped one, summed.
    """

    first: int
    states_nKH: Tensor
    said_nK: Tensor
    counted_nK: Tensor
    known_n: Tensor

    def of(self, rows: Tensor) -> Lookahead:
        """Some of the candidates."""
        return Lookahead(self.first, self.states_nKH[rows], self.said_nK[rows], self.counted_nK[rows], self.known_n[rows])

    def bound(self, half_spaces: HalfSpaces, rounding: float) -> Tensor:
        """The least that R(x) can be (n,); the arguments as in `HalfSpaces.bound`."""
        batch, least_nK = len(half_spaces.bias_BS), []
        for word, states_nH in enumerate(self.states_nKH.unbind(1), start=self.first):
            least_nK.append(half_spaces.bound(word, states_nH.unflatten(0, (batch, -1)), rounding).nll.flatten())
        return self.mean(torch.stack(least_nK, 1))

    def mean(self, nll_nK: Tensor) -> Tensor:
        """R(x) of each candidate (n,), given the nats of its words; those that are not counted do not count."""
        length = self.first + self.said_nK.shape[1]
        return (self.known_n + torch.where(self.counted_nK, nll_nK, 0.0).sum(1)) / length


class InputReader:
    """A language model's weights, arranged for many candidates.

    Args:
        lm: the network.
        dtypes: precisions in which candidates are read.
    """

    def __init__(self, lm: LanguageModel, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> None:
        self.embedding_VE = lm.eval().embedding.weight.detach()
        self.lstm, self.output = WordLstm(lm.lstm, self.embedding_VE, dtypes), OutputLayer(lm.output)

    def read(self, words_BN: Tensor) -> list[InputTrace]:
        """Reads whole inputs, always as many together."""
        words_BM, said_BM = pad(words_BN, (1, 0), value=BOS_ID), pad(words_BN, (0, 1), value=EOS_ID)
        batch, length = words_BM.shape
        with torch.enable_grad():
            embedded_BME = self.embedding_VE[words_BM].requires_grad_()
            states_BMH, past = self.lstm.unroll(words_BM, embedded_BME)
        states_nH = states_BMH.detach().flatten(0, 1)
        logits_nV = self.output.logits(states_nH)
        touched = self.output.touch(states_nH, logits_nV.clone(), said_BM)
        pull_BMH = torch.stack([each.pull_TH for each in touched]) / length
        (gradient_BME,) = torch.autograd.grad(states_BMH, embedded_BME, pull_BMH)
        logits_BMV = logits_nV[:, : self.output.num_words].unflatten(0, (batch, length))
        traces = []
        for row, each in enumerate(touched):
            log_NV = (logits_BMV[row] - each.log_whole_T[:, None])[:-1]
            gradient_NE = gradient_BME[row, 1:].clone()
            traces.append(InputTrace(past.of(row), each.nats.nll[None], log_NV, gradient_NE, each.half_spaces))
        return traces

    def mean_nll(self, words_BN: Tensor) -> Tensor:
        """R(x) of whole inputs (B,), always as many together."""
        words_BM, said_BM = pad(words_BN, (1, 0), value=BOS_ID), pad(words_BN, (0, 1), value=EOS_ID)
        states_BMH, _ = self.lstm.unroll(words_BM, self.embedding_VE[words_BM])
        return self.output.exact(states_BMH.flatten(0, 1), said_BM.flatten()).nll.unflatten(0, said_BM.shape).mean(1)

    def exact(self, lookahead: Sequence[Lookahead]) -> list[Tensor]:
        """R(x) of candidates, measured."""
        counted = [each.counted_nK.flatten() for each in lookahead]
        states_xH = torch.cat([each.states_nKH.flatten(0, 1)[rows] for each, rows in zip(lookahead, counted, strict=True)])
        said_x = torch.cat([each.said_nK.flatten()[rows] for each, rows in zip(lookahead, counted, strict=True)])
        parts = self.output.exact(states_xH, said_x).nll.split([int(rows.sum()) for rows in counted])
        return [
            each.mean(torch.zeros_like(each.said_nK, dtype=part.dtype).masked_scatter_(each.counted_nK, part))
            for each, part in zip(lookahead, parts, strict=True)
        ]

    def lookahead(
        self, traces: Sequence[InputTrace], positions_BG: Tensor, swaps_BG: Tensor, dtype: torch.dtype = torch.float32
    ) -> Lookahead:
        """Reads candidates on from their swaps, with products of some precision."""
        past, group = Past.joined([trace.past for trace in traces]), positions_BG.shape[1]
        swapped = Swapped.of(past.words_BM, positions_BG + 1, swaps_BG)
        states_KnH = self.lstm.reread(past, swapped, dtype)
        swaps = zip(traces, positions_BG, swaps_BG, strict=True)
        looked_up_n = torch.cat([trace.log_NV[positions_G, swaps_G] for trace, positions_G, swaps_G in swaps])
        places_M, positions_n1 = (
            torch.arange(past.words_BM.shape[1], device=positions_BG.device),
            positions_BG.flatten()[:, None],
        )
        nll_nM = torch.cat([trace.nll_1M for trace in traces]).repeat_interleave(group, 0)
        known_n = torch.where(places_M < positions_n1, nll_nM, 0.0).sum(1) - looked_up_n
        said_nM = pad(past.words_BM[:, 1:], (0, 1), value=EOS_ID).repeat_interleave(group, 0)
        said_nK, counted_nK = said_nM[:, swapped.first :], (places_M > positions_n1)[:, swapped.first :]
        return Lookahead(swapped.first, states_KnH.transpose(0, 1), said_nK, counted_nK, known_n)
