"""The negotiator's networks in the form that plays: products with embeddings become tables, one matrix per step.

Every input product of a GRU with a word embedding is one row of a table of V words, the scenario's share is constant in
a dialogue, and decoder and tied output embedding fold into one map. The figures equal those of `model.py` up to rounding
(tested); a step costs a third of the multiplications.

Rows are handled longest first, so that the dialogues still running are always the first k rows: no step computes on
padding, and no result depends on what else is in the batch.

The selection network, which costs most, also exists with its products in bfloat16 (`Tables.screen`), several times as
fast where the processor multiplies that: it tells which choices are plain and which need `Tables.decide`.

Shapes: n rows, T tokens, N tokens of all rows, V words, H language state, S selection state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from envs.negotiation.scenario import ITEM_TOKENS
from policies.gru import Step, step
from policies.negotiator.model import NUM_HEADS, Negotiator
from policies.training import multiplies_bfloat16

DECIDE_ROWS = 128
"""Dialogues decided together: enough for full-speed products, few enough to stay near the processor."""
SCREEN_ROWS = 1024
"""The same for bfloat16, whose products want more rows, and whose steps with few rows cost nearly as much as full ones."""
CELL_ROWS = 64
"""Rows whose gates are moved on together, in both directions: few enough for those to stay in the nearest cache."""
SCORE_TOKENS = 512
"""Tokens whose attention is scored together, for the same reasons."""
SHAPE_ROWS = 32
"""Products in bfloat16 have a multiple of this many rows: each new shape costs milliseconds, in which a kernel is made."""


class Tables:
    """Frozen inference form of a negotiator.

    Args:
        model: its weights are read now; after further training, make new tables.
    """

    @torch.no_grad()
    def __init__(self, model: Negotiator) -> None:
        self.model, self.device = model, model.word_embedding.weight.device
        embed, words = model.sizes.embed_word, model.word_embedding.weight
        language, selection = model.language, model.selection
        self._step = Step.of(language.weight_hh_l0, language.bias_hh_l0)
        self.language = Direction(
            F.linear(words, language.weight_ih_l0[:, :embed], language.bias_ih_l0),
            language.weight_ih_l0[:, embed:].t().contiguous(),
            language.weight_hh_l0.t().contiguous(),
            language.bias_hh_l0,
        )
        self._word_gates_V3H = self.language.word_gates.clone()
        self._word_gates_V3H[:, : len(self._step.gate_bias)] += self._step.gate_bias
        self.context_weight = language.weight_ih_l0[:, embed:].contiguous()
        decoder, self.word_bias_V = model.folded_decoder()
        self.word_weight_HV = decoder.t().contiguous()
        states = model.sizes.hidden_language
        self.selection_forward = Direction(
            F.linear(words, selection.weight_ih_l0[:, states:], selection.bias_ih_l0),
            selection.weight_ih_l0[:, :states].t().contiguous(),
            selection.weight_hh_l0.t().contiguous(),
            selection.bias_hh_l0,
        )
        self.selection_backward = Direction(
            F.linear(words, selection.weight_ih_l0_reverse[:, states:], selection.bias_ih_l0_reverse),
            selection.weight_ih_l0_reverse[:, :states].t().contiguous(),
            selection.weight_hh_l0_reverse.t().contiguous(),
            selection.bias_hh_l0_reverse,
        )
        self.can_screen = multiplies_bfloat16(self.device)
        """Whether `screen` is faster than `decide` here."""

    @cached_property
    def _exact(self) -> _Selection:
        return _Selection(self.model, self.selection_forward, self.selection_backward, torch.float32)

    @cached_property
    def _rounded(self) -> _Selection:
        return _Selection(self.model, self.selection_forward, self.selection_backward, torch.bfloat16)

    def encode(self, contexts_n6: np.ndarray) -> tuple[Tensor, Tensor]:
        """The scenario's encoding (n, C) and its constant share of the language gates (n, 3H)."""
        context_nC = self.model.encode_context(torch.from_numpy(contexts_n6).to(self.device))
        return context_nC, F.linear(context_nC, self.context_weight)

    def advance(self, tokens_n: Tensor, context_gates_n3H: Tensor, states_nH: Tensor, out_nH: Tensor | None = None) -> Tensor:
        """Language states after one more token in each row, written to `out_nH` where given."""
        gates = self._word_gates_V3H.index_select(0, tokens_n).add_(context_gates_n3H)
        return step(gates, self._step, states_nH, out_BH=out_nH)

    @torch.no_grad()
    def decide(
        self, contexts_n6: np.ndarray, tokens_nT: np.ndarray, lengths_n: np.ndarray, states_MH: Tensor, at_nT: np.ndarray
    ) -> Tensor:
        """The final choice of whole dialogues; rows in any order.

        Args:
            contexts_n6: count and own value of each item in turn.
            tokens_nT: dialogues from this side's perspective.
            lengths_n: how many tokens count, at least 1.
            states_MH: language states, in any order.
            at_nT: which of them follows each token.

        Returns:
            Item logits (n, 6, 18).
        """
        return self._choose(self._exact, DECIDE_ROWS, contexts_n6, tokens_nT, lengths_n, states_MH, at_nT)

    @torch.no_grad()
    def screen(
        self, contexts_n6: np.ndarray, tokens_nT: np.ndarray, lengths_n: np.ndarray, states_MH: Tensor, at_nT: np.ndarray
    ) -> Tensor:
        """What `decide` returns, nearly, from products in bfloat16: how far sums of it are off, `speaker.DOUBT` tells."""
        return self._choose(self._rounded, SCREEN_ROWS, contexts_n6, tokens_nT, lengths_n, states_MH, at_nT)

    def _choose(
        self,
        selection: _Selection,
        size: int,
        contexts_n6: np.ndarray,
        tokens_nT: np.ndarray,
        lengths_n: np.ndarray,
        states_MH: Tensor,
        at_nT: np.ndarray,
    ) -> Tensor:
        context_nC, _ = self.encode(contexts_n6)
        logits = context_nC.new_empty(len(lengths_n), NUM_HEADS, len(ITEM_TOKENS))
        for group in _groups(lengths_n, size):
            rows = torch.from_numpy(group.rows).to(self.device)
            logits[rows] = selection.logits(group, group.take(tokens_nT), states_MH, group.take(at_nT), context_nC[rows])
        return logits


@dataclass(frozen=True)
class Direction:
    """The language GRU, or one direction of the selection GRU, over tabulated word products."""

    word_gates: Tensor
    """Each word's share of the gates (V, 3S), input biases included."""
    input_weight: Tensor
    """(H, 3S): from the language state, or (C, 3S) from the scenario's encoding."""
    hidden_weight: Tensor
    """(S, 3S): from the own state."""
    bias: Tensor
    """(3S,): of the hidden product."""


def by_step(lengths_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step and row (N,) of every token: the first ones of all rows, the second ones of those that have one, and so on."""
    step, row = np.nonzero(np.arange(lengths_n.max(initial=0))[:, None] < lengths_n)
    return step, row


class _Group:
    """Dialogues that are decided together, longest first, their tokens step by step.

    The backward direction reads every dialogue from its own last token on, so that it too has the first k rows at a step,
    as many as the forward one.

    Args:
        rows: which dialogues, longest first.
        lengths: their tokens.
    """

    def __init__(self, rows: np.ndarray, lengths: np.ndarray) -> None:
        self.rows = rows
        self.step, self.row = by_step(lengths)
        starts = np.searchsorted(self.step, np.arange(lengths[0] + 1))
        self.counts: list[int] = np.diff(starts).tolist()
        """Rows that have a token at each step."""
        self.mirror = starts[lengths[self.row] - 1 - self.step] + self.row
        """The token that stands as far from its row's end as this one (N,) from the start."""
        self.places = np.where(self.step > 0, len(rows) + starts[self.step - 1] + self.row, self.row)
        """Of `_Recurrence` (N,)."""

    def take(self, values_nT: np.ndarray) -> np.ndarray:
        """The values (N,) that belong to the group's tokens."""
        return values_nT[self.rows[self.row], self.step]


def _groups(lengths_n: np.ndarray, size: int) -> Iterator[_Group]:
    order = np.argsort(-lengths_n, kind="stable")
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        yield _Group(rows, lengths_n[rows])


class _Selection:
    """The selection network over packed dialogues, its products formed in one precision.

    Gates stay in float32: near 1, where an update gate keeps a state, bfloat16 has steps of 1/256, and gates rounded so
    moved selections three times as far as all else that bfloat16 rounds.
    """

    def __init__(self, model: Negotiator, forward: Direction, backward: Direction, dtype: torch.dtype) -> None:
        self._model = model
        self._recurrence = _Recurrence(forward, backward, dtype)
        self._attention_weight = model.attention_hidden.weight.t().to(dtype).contiguous()
        self._attention_bias = model.attention_hidden.bias.to(dtype)

    def logits(self, group: _Group, tokens_N: np.ndarray, states_MH: Tensor, at_N: np.ndarray, context_nC: Tensor) -> Tensor:
        """Item logits (n, 6, 18) from the tokens and the language states after them, which stand `at_N` in `states_MH`."""
        device, count, rows = context_nC.device, len(tokens_N), len(group.rows)
        outputs_2NS = self._recurrence.run(group, tokens_N, states_MH, at_N)
        step, row, mirror = (torch.from_numpy(part).to(device) for part in (group.step, group.row, group.mirror))
        scores_Tn = context_nC.new_full((len(group.counts), rows), -torch.inf)
        scores_Tn[step, row] = self._scores(outputs_2NS, mirror)
        weights_N = scores_Tn.softmax(0)[step, row]
        weights_2N1 = torch.stack([weights_N, weights_N[mirror]]).unsqueeze(2)
        attended_2nS = context_nC.new_zeros(2, rows, outputs_2NS.shape[2])
        parts = zip(outputs_2NS[:, :count].split(group.counts, 1), weights_2N1.split(group.counts, 1), strict=True)
        for k, (outputs, weights) in zip(group.counts, parts, strict=True):
            attended_2nS[:, :k].addcmul_(outputs.float(), weights)
        encoded = torch.tanh(self._model.selection_encoder(torch.cat([*attended_2nS, context_nC], dim=1)))
        return self._model.selection_heads(encoded).unflatten(1, (NUM_HEADS, len(ITEM_TOKENS)))

    def _scores(self, outputs_2NS: Tensor, mirror_N: Tensor) -> Tensor:
        """Attention scores (N,) in the forward direction's order."""
        width, scores = outputs_2NS.shape[2], []
        both = outputs_2NS.new_zeros(SCORE_TOKENS, 2 * width)
        for start, mirror in zip(range(0, len(mirror_N), SCORE_TOKENS), mirror_N.split(SCORE_TOKENS), strict=True):
            both[:, :width] = outputs_2NS[0, start : start + SCORE_TOKENS]
            both[: len(mirror), width:] = outputs_2NS[1].index_select(0, mirror)
            hidden = torch.addmm(self._attention_bias, both, self._attention_weight).float().tanh_()
            scores.append(self._model.attention_score(hidden).squeeze(1))
        return torch.cat(scores)[: len(mirror_N)]


class _Recurrence:
    """The selection GRU, both directions at a time.

    Each token has a place where the row's state before it and what is read at it stand side by side, so that a step's
    products have one left side. The state after it is written to the place of the row's next token; after the last one,
    to a place of nobody's. Reset gate, update gate, hidden product and input product of the candidate stand side by side
    too (4S).

    Shapes: P places, I state and input side by side.
    """

    def __init__(self, forward: Direction, backward: Direction, dtype: torch.dtype) -> None:
        both = (forward, backward)
        self._width = width = len(forward.hidden_weight)
        self._num_words = len(forward.word_gates)
        gates, hidden, new = slice(0, 2 * width), slice(2 * width, 3 * width), slice(3 * width, 4 * width)
        words_2V4S = torch.stack([F.pad(part.word_gates + part.bias, (0, width)) for part in both])
        weight_2I4S = torch.stack([F.pad(torch.cat([part.hidden_weight, part.input_weight]), (0, width)) for part in both])
        for d, part in enumerate(both):
            words_2V4S[d, :, hidden] = part.bias[2 * width :]
            words_2V4S[d, :, new] = part.word_gates[:, 2 * width :]
            weight_2I4S[d, width:, hidden] = 0
            weight_2I4S[d, width:, new] = part.input_weight[:, 2 * width :]
        self._words = words_2V4S.flatten(0, 1).to(dtype)
        self._rounds = dtype == torch.bfloat16
        everything, state, read = slice(0, weight_2I4S.shape[1]), slice(0, width), slice(width, weight_2I4S.shape[1])
        # In bfloat16 a call costs more than the products with zero that one for all columns has.
        parts = [(everything, slice(0, 4 * width))] if self._rounds else [(everything, gates), (state, hidden), (read, new)]
        self._products = [(rows, columns, weight_2I4S[:, rows, columns].to(dtype).contiguous()) for rows, columns in parts]
        # Kept between calls: so much fresh memory would cost more than what is done in it.
        self._joined_2PI = weight_2I4S.new_empty(2, 0, weight_2I4S.shape[1], dtype=dtype)

    def run(self, group: _Group, tokens_N: np.ndarray, states_MH: Tensor, at_N: np.ndarray) -> Tensor:
        """The outputs (2, N', S) of both directions, each in its own order, until the next call.

        What stands past N is anything.
        """
        device, rows, width = states_MH.device, len(group.rows), self._width
        shape_rows = SHAPE_ROWS if self._rounds else 1
        # What stands past the last token is never used; it spares scores and last steps a shape of their own.
        places = rows + _rounded_up(len(tokens_N) + shape_rows, SCORE_TOKENS)
        # Products may pair the end of one row with the start of the next, times zero: what stands there must be finite.
        tokens_2P, at_2P = np.zeros((2, places), dtype=np.int64), np.full((2, places), at_N[0])
        tokens_2P[:, group.places] = tokens_N, self._num_words + tokens_N[group.mirror]
        at_2P[:, group.places] = at_N, at_N[group.mirror]
        joined_2PI = self._room(places)
        for joined, at in zip(joined_2PI, torch.from_numpy(at_2P).to(device), strict=True):
            joined[:, width:] = states_MH.index_select(0, at)
        joined_2PI[:, :rows, :width] = 0
        gates = joined_2PI.new_empty(2 * _rounded_up(rows, shape_rows), 4 * width)
        state_2nS = torch.zeros(2, rows, width, device=device)
        exact = state_2nS.new_empty(2, CELL_ROWS, 4 * width)
        shapes = [_rounded_up(k, shape_rows) for k in group.counts]
        begins = [0, *itertools.accumulate(group.counts[:-1], initial=rows)]
        tokens = np.concatenate([tokens_2P[:, at : at + shape].ravel() for at, shape in zip(begins, shapes, strict=False)])
        words = torch.from_numpy(tokens).to(device).split([2 * shape for shape in shapes])
        for k, shape, begin, after, word in zip(group.counts, shapes, begins, begins[1:], words, strict=False):
            torch.index_select(self._words, 0, word, out=gates[: 2 * shape])
            step, before = gates[: 2 * shape].view(2, shape, 4 * width), joined_2PI[:, begin : begin + shape]
            for inputs, columns, weight in self._products:
                step[..., columns].baddbmm_(before[..., inputs], weight)
            for low in range(0, k, CELL_ROWS):
                high = min(k, low + CELL_ROWS)
                state, gate = state_2nS[:, low:high], exact[:, : high - low].copy_(step[:, low:high])
                reset, update = gate[..., : 2 * width].sigmoid_().split(width, 2)
                inner, new = gate[..., 2 * width :].split(width, 2)
                torch.lerp(new.addcmul_(reset, inner).tanh_(), state, update, out=state)
                joined_2PI[:, after + low : after + high, :width] = state
        return joined_2PI[:, rows:, :width]

    def _room(self, places: int) -> Tensor:
        if self._joined_2PI.shape[1] < places:
            # Kernels are made for distances too: by powers of two there are few of them.
            self._joined_2PI = self._joined_2PI.new_zeros(2, 1 << (places - 1).bit_length(), self._joined_2PI.shape[2])
        return self._joined_2PI[:, :places]


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
