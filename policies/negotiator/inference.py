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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from envs.negotiation.scenario import ITEM_TOKENS
from policies.gru import step
from policies.negotiator.fit import multiplies_bfloat16
from policies.negotiator.model import NUM_HEADS, Negotiator

DECIDE_ROWS = 128
"""Dialogues decided together: enough for full-speed products, few enough to stay near the processor."""
SCREEN_ROWS = 512
"""The same for bfloat16, whose products want more rows."""
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
        self.word_gates_V3H = F.linear(words, language.weight_ih_l0[:, :embed], language.bias_ih_l0)
        self.context_weight = language.weight_ih_l0[:, embed:].contiguous()
        self.hidden_weight_H3H = language.weight_hh_l0.t().contiguous()
        self.hidden_bias_3H = language.bias_hh_l0
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
        gates = self.word_gates_V3H.index_select(0, tokens_n).add_(context_gates_n3H)
        return step(gates, self.hidden_weight_H3H, self.hidden_bias_3H, states_nH, out_BH=out_nH)

    @torch.no_grad()
    def decide(self, contexts_n6: np.ndarray, tokens_nT: np.ndarray, lengths_n: np.ndarray) -> Tensor:
        """Item logits (n, 6, 18) of the final choice for whole dialogues; rows in any order."""
        context_nC, context_gates_n3H = self.encode(contexts_n6)
        logits = context_nC.new_empty(len(lengths_n), NUM_HEADS, len(ITEM_TOKENS))
        for group in _groups(lengths_n, DECIDE_ROWS):
            rows, tokens_N = torch.from_numpy(group.rows).to(self.device), group.take(tokens_nT, self.device)
            gates, states_NH = context_gates_n3H[rows], context_nC.new_empty(len(tokens_N), self.model.sizes.hidden_language)
            state = states_NH.new_zeros(len(rows), states_NH.shape[1])
            for place in group.steps:
                k = place.stop - place.start
                state = self.advance(tokens_N[place], gates[:k], state[:k], out_nH=states_NH[place])
            logits[rows] = self._exact.logits(group, tokens_N, states_NH, context_nC[rows])
        return logits

    @torch.no_grad()
    def screen(
        self, contexts_n6: np.ndarray, tokens_nT: np.ndarray, lengths_n: np.ndarray, states_MH: Tensor, at_nT: np.ndarray
    ) -> Tensor:
        """What `decide` returns, nearly, from products in bfloat16.

        Args:
            contexts_n6: count and own value of each item in turn.
            tokens_nT: dialogues from this side's perspective.
            lengths_n: how many tokens count.
            states_MH: bfloat16 language states, in any order.
            at_nT: which of them follows each token.

        Returns:
            Item logits (n, 6, 18) float32. How far their sums are from those of `decide`: `speaker.DOUBT`.
        """
        context_nC, _ = self.encode(contexts_n6)
        logits = context_nC.new_empty(len(lengths_n), NUM_HEADS, len(ITEM_TOKENS))
        for group in _groups(lengths_n, SCREEN_ROWS):
            rows, tokens_N = torch.from_numpy(group.rows).to(self.device), group.take(tokens_nT, self.device)
            states_NH = states_MH.index_select(0, group.take(at_nT, self.device))
            logits[rows] = self._rounded.logits(group, tokens_N, states_NH, context_nC[rows])
        return logits


@dataclass(frozen=True)
class Direction:
    """One direction of the selection GRU over tabulated word products."""

    word_gates: Tensor
    """Each word's share of the gates (V, 3S), input biases included."""
    state_weight: Tensor
    """(H, 3S): from the language state."""
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

    Args:
        rows: which dialogues, longest first.
        lengths: their tokens.
    """

    def __init__(self, rows: np.ndarray, lengths: np.ndarray) -> None:
        self.rows = rows
        self.step, self.row = by_step(lengths)
        stops = np.searchsorted(self.step, np.arange(lengths[0]), side="right").tolist()
        self.steps = [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]
        """Where the tokens of each step stand; they belong to the first rows."""

    def take(self, values_nT: np.ndarray, device: torch.device) -> Tensor:
        """The values (N,) that belong to the group's tokens."""
        return torch.from_numpy(values_nT[self.rows[self.row], self.step]).to(device)


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
        self._forward, self._backward = _Recurrence(forward, dtype), _Recurrence(backward, dtype)
        self._attention_weight = model.attention_hidden.weight.t().to(dtype).contiguous()
        self._attention_bias = model.attention_hidden.bias.to(dtype)

    def logits(self, group: _Group, tokens_N: Tensor, states_NH: Tensor, context_nC: Tensor) -> Tensor:
        """Item logits (n, 6, 18) from the tokens and the language states after them."""
        width = self._model.sizes.hidden_selection
        # What stands past the last token is never read; it spares the scores a shape of their own.
        outputs_N2S = states_NH.new_empty(_rounded_up(len(states_NH), SCORE_TOKENS), 2 * width)
        self._forward.run(tokens_N, states_NH, group.steps, outputs_N2S[:, :width])
        self._backward.run(tokens_N, states_NH, group.steps[::-1], outputs_N2S[:, width:])
        scores_N = torch.cat([self._scores(part_N2S) for part_N2S in outputs_N2S.split(SCORE_TOKENS)])
        scores_Tn = context_nC.new_full((len(group.steps), len(group.rows)), -torch.inf)
        for t, place in enumerate(group.steps):
            scores_Tn[t, : place.stop - place.start] = scores_N[place]
        weights_Tn1 = scores_Tn.softmax(0).unsqueeze(2)
        attended_n2S = context_nC.new_zeros(len(group.rows), 2 * width)
        for t, place in enumerate(group.steps):
            k = place.stop - place.start
            attended_n2S[:k].addcmul_(outputs_N2S[place].float(), weights_Tn1[t, :k])
        encoded = torch.tanh(self._model.selection_encoder(torch.cat([attended_n2S, context_nC], dim=1)))
        return self._model.selection_heads(encoded).unflatten(1, (NUM_HEADS, len(ITEM_TOKENS)))

    def _scores(self, outputs_N2S: Tensor) -> Tensor:
        hidden = torch.addmm(self._attention_bias, outputs_N2S, self._attention_weight).float().tanh_()
        return self._model.attention_score(hidden).squeeze(1)


class _Recurrence:
    """One direction of the selection GRU; reset and update gates are one product with input and state side by side."""

    def __init__(self, direction: Direction, dtype: torch.dtype) -> None:
        both = 2 * direction.hidden_weight.shape[0]
        shared = torch.zeros_like(direction.bias)
        shared[:both] = direction.bias[:both]
        words = direction.word_gates + shared
        self._gate_words, self._new_words = (part.to(dtype).contiguous() for part in (words[:, :both], words[:, both:]))
        weight = torch.cat([direction.state_weight, direction.hidden_weight]).to(dtype)
        self._gate_weight = weight[:, :both].contiguous()
        self._new_weight = direction.state_weight[:, both:].to(dtype).contiguous()
        self._hidden_weight = direction.hidden_weight[:, both:].to(dtype).contiguous()
        self._hidden_bias = direction.bias[both:].to(dtype)
        self._shape_rows = SHAPE_ROWS if dtype == torch.bfloat16 else 1

    def run(self, tokens_N: Tensor, inputs_NH: Tensor, steps: list[slice], out_NS: Tensor) -> None:
        """Writes the output of every token; `steps` in the order in which they are taken.

        A row's state is zero until the direction reaches it, and rests where the direction has left it.
        """
        rows = max(place.stop - place.start for place in (steps[0], steps[-1]))
        inputs, width = inputs_NH.shape[1], out_NS.shape[1]
        most = _rounded_up(rows, self._shape_rows)
        joined_nI = inputs_NH.new_zeros(most, inputs + width)
        gates_n2S, news_nS = inputs_NH.new_zeros(most, 2 * width), inputs_NH.new_zeros(most, width)
        state_nS = torch.zeros(rows, width, device=inputs_NH.device)
        for place in steps:
            k = place.stop - place.start
            shape = _rounded_up(k, self._shape_rows)
            tokens, joined, state = tokens_N[place], joined_nI[:shape], state_nS[:k]
            joined[:k, :inputs] = inputs_NH[place]
            torch.index_select(self._gate_words, 0, tokens, out=gates_n2S[:k])
            torch.index_select(self._new_words, 0, tokens, out=news_nS[:k])
            gate = gates_n2S[:shape].addmm_(joined, self._gate_weight)[:k].float().sigmoid_()
            hidden = torch.addmm(self._hidden_bias, joined[:, inputs:], self._hidden_weight)[:k].float()
            new = news_nS[:shape].addmm_(joined[:, :inputs], self._new_weight)[:k].float()
            new.addcmul_(gate[:, :width], hidden).tanh_()
            torch.lerp(new, state, gate[:, width:], out=state)
            joined[:k, inputs:] = state
            out_NS[place] = joined[:k, inputs:]


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
