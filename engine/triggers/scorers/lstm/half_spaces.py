"""A lower bound of a softmax's normaliser, from planes that touch it at one state.

    log Z(h) = log( sum_{v in S} e^(w_v.h + b_v) + sum_c Z_c(h) )

S holds the words of the target and those that are likely at the state h0; the others are cut into segments c. log Z_c is
convex in h, so the plane that touches it at h0 lies below it everywhere:

    log Z_c(h) >= log Z_c(h0) + mu_c . (h - h0),    mu_c = sum_{v in c} P(v | c, h0) w_v

Near h0 the bound is tight to the second order, and it costs |S| + |c| products instead of V. The planes fall out of the
gradient at h0, which needs the mean of all w_v anyway. Ours; no source.

All products over the whole vocabulary have `ROWS` rows, so that a figure does not depend on the rest of the batch.

Shapes: B incumbents, G candidates each, n states, T words of a target, V words, W words of a segment, C segments, S words of
the subset, H hidden
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from parley.policies.core.layers import Weight, product

SUBSET = 512
"""Likely words whose share is exact."""
SEGMENTS = 32
"""Planes that stand for all others."""
ROWS = 64
"""States multiplied with the whole vocabulary together: fewer cost as much, because the weights must be read."""


def joined(parts: Sequence[Any]) -> Any:
    """Return dataclasses of tensors of several inputs, whose targets are of one length, as one of all inputs."""
    if len(parts) == 1:
        return parts[0]
    columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(parts[0])}
    values = {name: torch.cat(of) if isinstance(of[0], Tensor) else joined(of) for name, of in columns.items()}
    return type(parts[0])(**values)


class Nats(NamedTuple):
    """Nats of the words of a target, or their bounds."""

    nll: Tensor
    """Nats, or a lower bound."""
    likeliest: Tensor
    """True if the word is the likeliest, or may be."""


@dataclass(frozen=True)
class HalfSpaces:
    """The bound at the states of B incumbents.

    Args:
        columns_BSH: output weights of the subset.
        bias_BS: and their biases.
        targets_BT: where in the subset each word of the target is.
        slopes_BTCH: mu_c of each segment.
        heights_BTC: the planes at h = 0.
    """

    columns_BSH: Tensor
    bias_BS: Tensor
    targets_BT: Tensor
    slopes_BTCH: Tensor
    heights_BTC: Tensor

    def bound(self, word: int, states_BGH: Tensor, rounding: float) -> Nats:
        """Return the least nats (B, G) that a word of the target can take, and whether it may be the likeliest.

        Args:
            word: its place in the target.
            states_BGH: states of the candidates that predict it.
            rounding: nats by which logits may be off.
        """
        inside_BGS = _products(states_BGH, self.columns_BSH) + self.bias_BS[:, None]
        tails_BGC = _products(states_BGH, self.slopes_BTCH[:, word]) + self.heights_BTC[:, word, None]
        place_BG1 = self.targets_BT[:, word, None, None].expand(-1, inside_BGS.shape[1], 1)
        said_BG = inside_BGS.gather(2, place_BG1)[..., 0]
        most_BG = inside_BGS.amax(2)
        peak_BG1 = torch.maximum(most_BG, tails_BGC.amax(2))[..., None]
        mass_BG = inside_BGS.sub_(peak_BG1).exp_().sum(2) + tails_BGC.sub_(peak_BG1).exp_().sum(2)
        least_BG = mass_BG.log_() + peak_BG1[..., 0] - said_BG - rounding
        return Nats(least_BG.clamp_(min=0), said_BG >= most_BG - rounding)


class Touched(NamedTuple):
    """A softmax at the T states of one incumbent."""

    nats: Nats
    """Nats of the words of its target (T,), exact."""
    log_whole_T: Tensor
    """log Z."""
    pull_TH: Tensor
    """Gradient of the nats in the states."""
    half_spaces: HalfSpaces
    """The bound there, B = 1."""


class OutputLayer:
    """A softmax over the vocabulary.

    Args:
        layer: from states to logits.
    """

    def __init__(self, layer: nn.Linear) -> None:
        self.num_words = len(layer.weight)
        missing = -self.num_words % SEGMENTS
        self._weight_VH = layer.weight.detach()
        self._bias_V = pad(layer.bias.detach(), (0, missing), value=-torch.inf)
        padded_VH = pad(self._weight_VH, (0, 0, 0, missing))
        self._logits = Weight(padded_VH)
        self._segments = [Weight(segment_WH.t()) for segment_WH in padded_VH.chunk(SEGMENTS)]

    def logits(self, states_nH: Tensor) -> Tensor:
        """Return logits (n, V) of all words; the padding of V is minus infinity."""
        return torch.cat([self._logits(block).add_(self._bias_V) for block in _blocks(states_nH)])[: len(states_nH)]

    def exact(self, states_nH: Tensor, words_n: Tensor) -> Nats:
        """Return nats (n,) of a word in each state."""
        logits_nV = self.logits(states_nH)
        # One product for the word and its rivals: of two, a likeliest word may come out less likely than itself.
        said_n = logits_nV.gather(1, words_n[:, None])[:, 0]
        most_n = logits_nV.amax(1)
        mass_n = logits_nV.sub_(most_n[:, None]).exp_().sum(1)
        return Nats(mass_n.log_() + most_n - said_n, said_n >= most_n)

    def touch(self, states_nH: Tensor, logits_nV: Tensor, words_BT: Tensor) -> list[Touched]:
        """Return nats, gradients and bounds at the states of B incumbents.

        Args:
            states_nH: the T states of each, one incumbent after the other.
            logits_nV: their logits; destroyed.
            words_BT: the words of the targets.
        """
        length, words_n = words_BT.shape[1], words_BT.flatten()
        said_n = logits_nV.gather(1, words_n[:, None])[:, 0]
        most_n = logits_nV.amax(1)
        mass_nV = logits_nV.sub_(most_n[:, None]).exp_()
        whole_n = mass_nV.sum(1)
        log_n = whole_n.log() + most_n
        inside, subsets = [], []
        for mass_TV, words_T, whole_T in zip(mass_nV.split(length), words_BT, whole_n.split(length), strict=True):
            subsets.append(self._subset(mass_TV / whole_T[:, None], words_T))
            inside.append(mass_TV[:, subsets[-1]] @ self._weight_VH[subsets[-1]])
            mass_TV[:, subsets[-1]] = 0
        sums_nCH, tails_nC = self._tails(mass_nV)
        pull_nH = (torch.cat(inside) + sums_nCH.sum(1)) / whole_n[:, None] - self._weight_VH[words_n]
        # A segment of which all words are in the subset has no mass: its plane is minus infinity everywhere.
        slopes_nCH = sums_nCH / tails_nC.clamp_min(torch.finfo(tails_nC.dtype).tiny)[..., None]
        heights_nC = tails_nC.log() + most_n[:, None] - (slopes_nCH * states_nH[:, None]).sum(2)
        touched = []
        for row, (subset_S, words_T) in enumerate(zip(subsets, words_BT, strict=True)):
            rows = slice(row * length, (row + 1) * length)
            nats = Nats((log_n - said_n)[rows], (said_n >= most_n)[rows])
            targets_T = (subset_S == words_T[:, None]).int().argmax(1)
            lines = (self._weight_VH[subset_S], self._bias_V[subset_S], targets_T, slopes_nCH[rows].clone(), heights_nC[rows])
            touched.append(Touched(nats, log_n[rows], pull_nH[rows], HalfSpaces(*(part[None] for part in lines))))
        return touched

    def _subset(self, share_TV: Tensor, words_T: Tensor) -> Tensor:
        """Return the words (S,): those of the target, and others that are likely somewhere in it."""
        likely_V = share_TV.amax(0)
        likely_V[words_T] = 2.0
        return likely_V.topk(min(SUBSET + len(words_T), self.num_words), sorted=False).indices

    def _tails(self, mass_nV: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of the output weights (n, C, H) in each segment, and its mass (n, C)."""
        sums, tails_nC = [], mass_nV.unflatten(1, (SEGMENTS, -1)).sum(2)
        for block in _blocks(mass_nV):
            parts = zip(self._segments, block.chunk(SEGMENTS, 1), strict=True)
            sums.append(torch.stack([segment(part) for segment, part in parts], 1))
        return torch.cat(sums)[: len(mass_nV)], tails_nC


def _blocks(rows_nX: Tensor) -> list[Tensor]:
    """Return rows in blocks of `ROWS`, the last one filled with zeros."""
    return list(pad(rows_nX, (0, 0, 0, -len(rows_nX) % ROWS)).split(ROWS))


def _products(states_BGH: Tensor, weight_BJH: Tensor) -> Tensor:
    """Return products (B, G, J) of the states of each incumbent with a weight of its own."""
    if len(states_BGH) > 1:
        return torch.bmm(states_BGH, weight_BJH.mT)
    return product(states_BGH[0], weight_BJH[0])[None]
