"""The recurrent networks that play, many dialogues at once, their products in float32 or bfloat16, nothing differentiated.

Every reading of a dialogue is made of what stands here: `inference.py` reads whole dialogues, `prefix.py` dialogues that share
a beginning. Products of words with weights are tables, one row a word. Figures equal those of `model.py` up to rounding
(tested). Rows are handled longest first, so that the dialogues still running are always the first k: no step computes on
padding, and no row depends on what else is in the batch.

States, gates and sums that outlive a step are float32 whatever the products are: near 1, where an update gate keeps a state,
bfloat16 has steps of 1/256, and gates rounded so moved selections three times as far as all else that bfloat16 rounds.

Shapes: T steps, r rows, k of them still running, N tokens of all rows, V words, E word embedding, I what is read beside a word,
S states of a cell, H language state, A attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from parley.policies.core.gru import GRU, SUMS_ROWS, advance, runs
from parley.policies.core.packing import TokenPlaces
from parley.policies.core.products import Adder, tanh_
from parley.policies.negotiator.model import Negotiator

SHAPE_ROWS = 32
"""What the rows of products in bfloat16 are a multiple of, at least: for each new shape a kernel is made, which takes
milliseconds. Larger products have a multiple of more, so that there are few shapes of all sizes."""
ROWS = {torch.float32: 512, torch.bfloat16: 2048}
"""Dialogues read together: enough for full-speed products, few enough to stay near the processor."""
CELL_ROWS = 128
"""Rows whose gates are moved on together: few enough for those to stay in a near cache."""


class Products:
    """Forms products of rows with weights in one precision.

    Args:
        dtype: float32 or bfloat16.
        device: where.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._rounds = dtype != torch.float32
        self.together = 0 if self._rounds else SUMS_ROWS
        """Rows of steps whose sums are begun together; of each step alone where its rows are padded."""
        # Kept between calls: so much fresh memory would cost more than what is done in it.
        self._memory = torch.zeros(0, dtype=dtype, device=device)

    def weight(self, weight: Tensor) -> Tensor:
        """A right side, or a sum to begin from."""
        return weight.to(self._memory.dtype).contiguous()

    def adder(self, weight_JI: Tensor) -> Adder:
        """Adds products with a right side."""
        return Adder(weight_JI.to(self._memory.dtype), self._memory.dtype)

    def left(self, values_kI: Tensor) -> Tensor:
        """A left side: in bfloat16 with rows of anything finite past those given (k', I), until the next call."""
        if not self._rounds:
            return values_kI
        rows, width = padded(len(values_kI)), values_kI.shape[1]
        if len(self._memory) < rows * width:
            self._memory = self._memory.new_zeros(rows * width)
        left = self._memory[: rows * width].view(rows, width)
        left[: len(values_kI)] = values_kI
        return left

    def begin(self, table_NJ: Tensor, index_k: Tensor) -> Tensor:
        """Rows of a table to which products are added (k', J), of the table's precision."""
        if not self._rounds:
            return table_NJ.index_select(0, index_k)
        sums = table_NJ.new_empty(padded(len(index_k)), table_NJ.shape[1])
        torch.index_select(table_NJ, 0, index_k, out=sums[: len(index_k)])
        return sums


class Cell:
    """The language GRU, or one direction of the selection GRU.

    What a step adds up stands side by side: candidate, reset gate, update gate, hidden product (4S). What is read gives the
    first three, the own state the last three, so that either is one product.

    Args:
        gru: its weights.
        words_VE: word embeddings.
        word_at: the first of the input's columns that are a word's; the others are read beside it.
        suffix: of the direction, in torch's names of weights.
        products: that it is made of.
    """

    def __init__(self, gru: GRU, words_VE: Tensor, word_at: int, suffix: str, products: Products) -> None:
        self._width, self._products = gru.hidden_size, products
        input_weight, hidden_weight, input_bias, hidden_bias = (
            getattr(gru, f"{part}_l0{suffix}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        # torch's order is reset, update, candidate.
        before, word, after = input_weight.roll(self._width, 0).tensor_split([word_at, word_at + words_VE.shape[1]], dim=1)
        gates, inner = hidden_bias.tensor_split([2 * self._width])
        words = F.linear(words_VE, word, input_bias.roll(self._width))
        words[:, self._width :] += gates
        self._words = products.weight(torch.cat([words, inner.expand(len(words), -1)], dim=1))
        beside = torch.cat([before, after], dim=1)
        self.read_weight, self._add_read = products.weight(beside.t()), products.adder(beside)
        self._add_hidden = products.adder(hidden_weight)
        self._exact = words.new_empty(CELL_ROWS, 4 * self._width)

    def sums(self, tokens_k: Tensor, shares_k3S: Tensor) -> Tensor:
        """What words, biases, and shares formed already give to a step (k', 4S)."""
        sums = self._products.begin(self._words, tokens_k)
        sums[: tokens_k.shape[0], : 3 * self._width].add_(shares_k3S)
        return sums

    def inputs(self, tokens_k: Tensor, read_kI: Tensor) -> Tensor:
        """What words, biases, and what is read beside them give to a step (k', 4S)."""
        sums = self._products.begin(self._words, tokens_k)
        self._add_read(sums[:, : 3 * self._width], self._products.left(read_kI))
        return sums

    def step(self, sums_k4S: Tensor, state_kS: Tensor, out_kS: Tensor) -> None:
        """Moves states on.

        Args:
            sums_k4S: from `sums` or `inputs`; overwritten.
            state_kS: before the step, float32.
            out_kS: where they are written after it; may be `state_kS`.
        """
        width, rows = self._width, state_kS.shape[0]
        self._add_hidden(sums_k4S[:, width:], self._products.left(state_kS))
        # Torch's own `split` takes as long as a call that computes with few rows.
        for begin in range(0, rows, CELL_ROWS):
            here = slice(begin, min(rows, begin + CELL_ROWS))
            sums, state, out = sums_k4S[here], state_kS[here], out_kS[here]
            if sums.dtype != torch.float32:
                sums = self._exact[: len(sums)].copy_(sums)
            sums[:, width : 3 * width].sigmoid_()
            new, reset, update, inner = sums.chunk(4, 1)
            torch.lerp(tanh_(new.addcmul_(reset, inner)), state, update, out=out)

    def read(self, begin: Callable[[slice], Tensor], counts: list[int], state_rS: Tensor, out_NS: Tensor) -> None:
        """Moves states on over many steps.

        Args:
            begin: gives the sums of some steps, from `sums` or `inputs`.
            counts: rows of each step, none more than the one before it.
            state_rS: before the first step.
            out_NS: where the states after each step are written.
        """
        stop = 0
        for steps in runs(counts, self._products.together):
            here = slice(stop, stop := stop + sum(steps))
            sums, out = begin(here), out_NS[here]
            if self._products.together:
                state_rS = advance(sums, self._add_hidden, state_rS, out, steps)
            else:
                self.step(sums, state_rS[: len(out)], out)
                state_rS = out


class Selection:
    """The selection network, its products in one precision."""

    def __init__(self, model: Negotiator, dtype: torch.dtype) -> None:
        self._score, self.products = model.attention_score, Products(dtype, model.word_embedding.weight.device)
        words, at = model.word_embedding.weight, model.sizes.hidden_language
        self.forward = Cell(model.selection, words, at, "", self.products)
        self.backward = Cell(model.selection, words, at, "_reverse", self.products)
        halves = model.attention_hidden.weight.tensor_split(2, dim=1)
        self._add_forward, self._add_backward = (self.products.adder(half) for half in halves)
        self._bias = self.products.weight(model.attention_hidden.bias)

    def read(self, tokens_N: Tensor, language_NH: Tensor, places: TokenPlaces, before_rS: Tensor) -> tuple[Tensor, Attended]:
        """Both halves over some tokens of r dialogues, the longest first.

        Args:
            tokens_N: the tokens.
            language_NH: language states after each.
            places: where they stand.
            before_rS: states of the forward half before the first token.

        Returns:
            States of the backward half (r, S) after the first token, and what is attended to.
        """
        counts = places.counts
        forward_NS, mirrored_NS = before_rS.new_empty(2, len(tokens_N), before_rS.shape[1])
        self.forward.read(partial(self._inputs, self.forward, tokens_N, language_NH), counts, before_rS, forward_NS)
        # The backward half reads each dialogue from its last token on.
        mirrored = tokens_N[places.mirrored_N], language_NH[places.mirrored_N]
        self.backward.read(partial(self._inputs, self.backward, *mirrored), counts, torch.zeros_like(before_rS), mirrored_NS)
        backward_NS = mirrored_NS[places.mirrored_N]
        halves = zip(forward_NS.split(SUMS_ROWS), backward_NS.split(SUMS_ROWS), strict=True)
        scores_N = torch.cat([self.scores(self.hidden(forward), backward) for forward, backward in halves])
        scores_Tr = scores_N.new_full((len(counts), len(before_rS)), -torch.inf)
        scores_Tr[places.steps_N, places.rows_N] = scores_N
        weights_r = scores_Tr.logsumexp(0)
        shares_N1 = (scores_N - weights_r[places.rows_N]).exp_().unsqueeze(1)
        means = [torch.zeros_like(before_rS) for _ in range(2)]
        for mean_rS, states_NS in zip(means, (forward_NS, backward_NS), strict=True):
            for states, share in zip(states_NS.split(counts), shares_N1.split(counts), strict=True):
                mean_rS[: len(states)].addcmul_(states, share)
        return mirrored_NS[places.last_B], Attended(weights_r, *means)

    @staticmethod
    def _inputs(cell: Cell, tokens_N: Tensor, language_NH: Tensor, here: slice) -> Tensor:
        return cell.inputs(tokens_N[here], language_NH[here])

    def hidden(self, forward_kS: Tensor) -> Tensor:
        """What the forward half gives to the hidden layer of the attention (k', A)."""
        left = self.products.left(forward_kS)
        hidden = self._bias.repeat(len(left), 1)
        self._add_forward(hidden, left)
        return hidden

    def scores(self, hidden_kA: Tensor, backward_kS: Tensor) -> Tensor:
        """Attention scores (k,) from what the forward half gives, which is overwritten, and the backward half's states."""
        self._add_backward(hidden_kA, self.products.left(backward_kS))
        return self._score(tanh_(hidden_kA[: len(backward_kS)].float())).squeeze(1)


@dataclass(frozen=True)
class Attended:
    """What attention makes of some tokens of r dialogues.

    Args:
        weights: logarithm of what they weigh together (r,).
        forward: weighted mean of the forward half's outputs (r, S).
        backward: of the backward half's.
    """

    weights: Tensor
    forward: Tensor
    backward: Tensor

    @classmethod
    def to_nothing(cls, states_rS: Tensor) -> Attended:
        """Before the first token of rows of such states."""
        return cls(states_rS.new_full((len(states_rS),), -torch.inf), *states_rS.new_zeros(2, *states_rS.shape))

    def outweigh(self, scores_k: Tensor) -> Tensor:
        """Adds one token's weight in each of the first rows, and returns its share (k, 1) of what has been weighed so far."""
        weights = self.weights[: len(scores_k)]
        torch.logaddexp(weights, scores_k, out=weights)
        return (scores_k - weights).exp_().unsqueeze(1)

    def include(self, rows: Tensor, more: Attended) -> None:
        """Adds other tokens of some of the dialogues."""
        weights = torch.logaddexp(self.weights[rows], more.weights)
        share = (more.weights - weights).exp_().unsqueeze(1)
        for means, others in ((self.forward, more.forward), (self.backward, more.backward)):
            means[rows] = means[rows].lerp_(others, share)
        self.weights[rows] = weights


def padded(rows: int) -> int:
    """As many rows as a product in bfloat16 of this many has: at most a quarter more, above a few."""
    grain = max(SHAPE_ROWS, 1 << max(0, rows.bit_length() - 3))
    return -(-rows // grain) * grain
