"""Dialogues that share a beginning: what a negotiator makes of many endings, without reading the beginning again.

A search for adversarial sentences asks the same network about thousands of dialogues that differ in a few words near the
end. Language states and the forward half of the selection network depend on what came before alone, so they are kept for
every position of a prefix and an ending continues from them. The backward half sees the whole dialogue; what it needs of a
prefix besides its own recurrence (input products, the forward share of the attention) is kept too. Figures equal those of
`model.py` on whole dialogues up to rounding (tested). As in `inference.py` the selection network also exists with its products
in bfloat16, which screens candidates where the processor multiplies that fast.

Shapes: n prefixes, P longest prefix, r endings, T longest ending, H language state, S selection state, A attention, V words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from policies.negotiator.inference import Direction, Tables
from policies.negotiator.model import NUM_HEADS

ROWS = {torch.float32: 512, torch.bfloat16: 1024}
"""Endings continued together: enough for full-speed products, few enough to stay near the processor."""
SHAPE_ROWS = 32
"""Products have a multiple of this many rows: for each new shape of bfloat16 a kernel is compiled, which takes milliseconds."""
CELL_ROWS = 128
"""Rows whose gates are moved on together: few enough for those to stay in a near cache."""


@dataclass(frozen=True)
class Endings:
    """r endings: each keeps the first tokens of a prefix and goes on with its own.

    Args:
        prefixes: index (r,) of the prefix that each continues.
        keeps: tokens (r,) kept of it, from none to all.
        tokens: token ids (r, T) that follow, padded.
        lengths: how many of `tokens` count (r,), at least 1.
    """

    prefixes: np.ndarray
    keeps: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.prefixes)

    def __getitem__(self, rows: np.ndarray) -> Endings:
        return Endings(self.prefixes[rows], self.keeps[rows], self.tokens[rows], self.lengths[rows])

    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """One row (u,) of each kind of equal endings, and which of these each ending equals (r,)."""
        read = np.where(np.arange(self.tokens.shape[1]) < self.lengths[:, None], self.tokens, -1)
        whole = np.ascontiguousarray(np.column_stack([self.prefixes, self.keeps, read]))
        alike = whole.view(np.dtype((np.void, whole.dtype.itemsize * whole.shape[1]))).ravel()
        _, rows, which = np.unique(alike, return_index=True, return_inverse=True)
        return rows, which


class Prefixes:
    """n beginnings of dialogues, read once.

    Args:
        tables: the negotiator that reads them.
        contexts_n6: count and own value of each item in turn.
        tokens_nP: the dialogues from its perspective, padded.
        lengths_n: how many tokens count, at least 1.
    """

    @torch.no_grad()
    def __init__(self, tables: Tables, contexts_n6: np.ndarray, tokens_nP: np.ndarray, lengths_n: np.ndarray) -> None:
        self._tables, self._model = tables, tables.model
        self.context_nC, self.context_gates_n3H = tables.encode(np.ascontiguousarray(contexts_n6))
        sizes = self._model.sizes
        rows, places = len(lengths_n), int(lengths_n.max())
        tokens_Pn = torch.from_numpy(np.ascontiguousarray(tokens_nP[:, :places].T)).to(tables.device)
        # What follows a row's last token is read as well and never used: no ending keeps more than the row has.
        language = self.context_nC.new_zeros(places + 1, rows, sizes.hidden_language)
        for t in range(places):
            tables.advance(tokens_Pn[t], self.context_gates_n3H, language[t], out_nH=language[t + 1])
        self._tokens_Pn, self._language_PnH = tokens_Pn, language
        # Kept by prefix, then position, so that one number addresses a place of a prefix.
        self._places, self._language = places, language.transpose(0, 1).contiguous()
        self._in_precision: dict[torch.dtype, tuple[_Selection, list[Tensor]]] = {}

    @cached_property
    def _forward(self) -> Tensor:
        """States (n, P + 1, S) of the forward half before and after each position."""
        places, rows = self._tokens_Pn.shape
        cell = self._exact.forward
        states = self._language.new_zeros(places + 1, rows, self._model.sizes.hidden_selection)
        sums = cell.inputs(self._tokens_Pn.flatten(), self._language_PnH[1:].flatten(0, 1)).unflatten(0, (places, rows))
        cell.run(sums, [(t, rows) for t in range(places)], states[0].clone(), states[1:])
        return states.transpose(0, 1).contiguous()

    @cached_property
    def _exact(self) -> _Selection:
        return _Selection(self._tables, torch.float32)

    @cached_property
    def _shares(self) -> tuple[Tensor, Tensor]:
        """What each place of a prefix gives to the steps of the backward half and to the attention (n * P, .)."""
        inputs = self._exact.backward.inputs(self._tokens_Pn.t().flatten(), self._language[:, 1:].flatten(0, 1))
        states_NS = self._forward[:, 1:].flatten(0, 1)
        return inputs, torch.addmm(self._exact.attention_bias, states_NS, self._exact.attend_forward)

    def _selection(self, dtype: torch.dtype) -> tuple[_Selection, list[Tensor]]:
        """The selection network and the shares in a precision."""
        if dtype not in self._in_precision:
            selection = self._exact if dtype == torch.float32 else _Selection(self._tables, dtype)
            self._in_precision[dtype] = selection, [share.to(dtype) for share in self._shares]
        return self._in_precision[dtype]

    @torch.no_grad()
    def states(self, endings: Endings) -> Tensor:
        """Language states (r, H) after each ending."""
        order = _by_length(endings)
        parts = []
        for rows in _chunks(order, ROWS[torch.float32]):
            tokens_Tr, running, gates, state = self._begin(endings[rows])
            for t, k in enumerate(running):
                self._tables.advance(tokens_Tr[t, :k], gates[:k], state[:k], out_nH=state[:k])
            parts.append(state)
        return _restored(parts, order)

    @torch.no_grad()
    def decide(self, endings: Endings) -> Tensor:
        """Item logits (r, 6, 18) of the final choice after dialogues with those endings, the last token included."""
        return self._logits(endings, torch.float32)

    @torch.no_grad()
    def screen(self, endings: Endings) -> Tensor:
        """What `decide` returns, nearly, from products in bfloat16; worth it where `Tables.can_screen`."""
        return self._logits(endings, torch.bfloat16)

    def _logits(self, endings: Endings, dtype: torch.dtype) -> Tensor:
        selection, shares = self._selection(dtype)
        device, width = self._language.device, self._model.sizes.hidden_selection
        states_rS = torch.empty(len(endings), width, device=device)
        attended = _Attended.to_nothing(len(endings), width, device)
        # Grouped once by their own tokens and once by those kept, so that a group's rows run equally far.
        for rows in _chunks(_by_length(endings), ROWS[dtype]):
            index = torch.from_numpy(rows).to(device)
            states_rS[index], part = self._over_ending(endings[rows], selection)
            attended.include(index, part)
        kept = np.lexsort((endings.prefixes, -endings.keeps))[: np.count_nonzero(endings.keeps)]
        for rows in _chunks(kept, ROWS[dtype]):
            index = torch.from_numpy(rows).to(device)
            prefixes, keeps = endings.prefixes[rows], endings.keeps[rows]
            attended.include(index, self._over_prefix(prefixes, keeps, states_rS[index], selection, shares))
        context_rC = self.context_nC[torch.from_numpy(endings.prefixes).to(device)]
        encoded = torch.tanh(self._model.selection_encoder(torch.cat([attended.forward, attended.backward, context_rC], dim=1)))
        return self._model.selection_heads(encoded).unflatten(1, (NUM_HEADS, -1))

    def _begin(self, endings: Endings) -> tuple[Tensor, list[int], Tensor, Tensor]:
        """Tokens (T, r'), rows still running per step, context gates and language states (r, .) before the first one."""
        device = self._language.device
        steps = int(endings.lengths[0])
        running = _running(endings.lengths)
        tokens_Tr = torch.zeros(steps, _padded(len(endings)), dtype=torch.int64, device=device)
        tokens_Tr[:, : len(endings)] = torch.from_numpy(endings.tokens[:, :steps].T)
        prefixes, keeps = (torch.from_numpy(part).to(device) for part in (endings.prefixes, endings.keeps))
        return tokens_Tr, running, self.context_gates_n3H.index_select(0, prefixes), self._language[prefixes, keeps]

    def _read(self, endings: Endings) -> tuple[Tensor, Tensor, list[int]]:
        """Language states (T, r', H) after each token, the tokens (T, r'), rows still running per step; longest first."""
        tokens_Tr, running, gates, state = self._begin(endings)
        # Not left empty: products in bfloat16 of odd widths also read the row after, and 0 * nan is not 0.
        states = state.new_zeros(*tokens_Tr.shape, state.shape[1])
        for t, k in enumerate(running):
            self._tables.advance(tokens_Tr[t, :k], gates[:k], state[:k], out_nH=states[t, :k])
            state = states[t]
        return states, tokens_Tr, running

    def _over_ending(self, endings: Endings, selection: _Selection) -> tuple[Tensor, _Attended]:
        """Both halves over the endings' own tokens: the backward states (r, S) before them, and what is attended to."""
        device, width = self._language.device, self._model.sizes.hidden_selection
        language_TrH, tokens_Tr, running = self._read(endings)
        prefixes, keeps = (torch.from_numpy(part).to(device) for part in (endings.prefixes, endings.keeps))
        language_TrH = language_TrH.to(selection.dtype)
        forward_TrS = torch.zeros(*tokens_Tr.shape, width, dtype=selection.dtype, device=device)
        previous = forward_TrS.new_zeros(forward_TrS.shape[1:])
        state_rS = self._forward[prefixes, keeps]
        previous[: len(endings)] = state_rS
        for t, k in enumerate(running):
            sums = selection.forward.inputs(tokens_Tr[t, : _padded(k)], language_TrH[t, : _padded(k)])
            selection.forward.step(sums, previous, state_rS[:k], forward_TrS[t])
            previous = forward_TrS[t]
        state_rS.zero_()
        previous = torch.zeros_like(previous)
        attended = _Attended.to_nothing(len(endings), width, device)
        for t, k in reversed(list(enumerate(running))):
            shape = _padded(k)
            sums = selection.backward.inputs(tokens_Tr[t, :shape], language_TrH[t, :shape])
            selection.backward.step(sums, previous, state_rS[:k], previous)
            hidden = torch.addmm(selection.attention_bias, forward_TrS[t, :shape], selection.attend_forward)
            scores = self._attention(hidden.addmm_(previous[:shape], selection.attend_backward)[:k])
            share = attended.outweigh(scores)
            attended.forward[:k].lerp_(forward_TrS[t, :k].float(), share)
            attended.backward[:k].lerp_(state_rS[:k], share)
        return state_rS, attended

    def _over_prefix(
        self, prefixes: np.ndarray, keeps: np.ndarray, state_rS: Tensor, selection: _Selection, shares: list[Tensor]
    ) -> _Attended:
        """What is attended to in the kept tokens; most kept first. The backward half moves `state_rS` on to the start."""
        attended = _Attended.to_nothing(*state_rS.shape, state_rS.device)
        scores_Kr = self._backward_over_prefix(prefixes, keeps, state_rS, selection, shares, attended)
        weights_Kr = (scores_Kr - attended.weights).exp_()
        # The forward outputs of kept tokens are the same for all endings that keep as many.
        for same in _groups(prefixes * self._places + keeps):
            keep = int(keeps[same.start])
            places = torch.arange(keep, 0, -1, device=state_rS.device)
            forward_KS = self._forward[int(prefixes[same.start]), places]
            torch.mm(weights_Kr[:keep, same].t(), forward_KS, out=attended.forward[same])
        return attended

    def _backward_over_prefix(
        self,
        prefixes: np.ndarray,
        keeps: np.ndarray,
        state_rS: Tensor,
        selection: _Selection,
        shares: list[Tensor],
        attended: _Attended,
    ) -> Tensor:
        """The backward half from the endings' first token on to the start of each prefix, attended to on the way.

        Returns:
            Attention scores (K, r), last token first, minus infinity before the start.
        """
        width = state_rS.shape[1]
        last = torch.from_numpy(prefixes * self._places + keeps - 1).to(state_rS.device)
        rows, running = _padded(len(prefixes)), _running(keeps)
        scores_Kr = state_rS.new_full((len(running), len(prefixes)), -torch.inf)
        previous = state_rS.new_zeros(rows, width, dtype=selection.dtype)
        previous[: len(prefixes)] = state_rS
        sums, hidden = (share.new_zeros(rows, share.shape[1]) for share in shares)
        for t, k in enumerate(running):
            places, shape = last[:k] - t, _padded(k)
            for share, place in zip(shares, (sums, hidden), strict=True):
                torch.index_select(share, 0, places, out=place[:k])
            selection.backward.step(sums[:shape], previous, state_rS[:k], previous)
            scores_Kr[t, :k] = self._attention(hidden[:shape].addmm_(previous[:shape], selection.attend_backward)[:k])
            attended.backward[:k].lerp_(state_rS[:k], attended.outweigh(scores_Kr[t, :k]))
        return scores_Kr

    def _attention(self, hidden_kA: Tensor) -> Tensor:
        """Attention scores (k,) from the hidden layer before its tanh."""
        return self._model.attention_score(hidden_kA.float().tanh_()).squeeze(1)


@dataclass(frozen=True)
class _Attended:
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
    def to_nothing(cls, rows: int, width: int, device: torch.device) -> _Attended:
        """Before the first token."""
        return cls(torch.full((rows,), -torch.inf, device=device), *torch.zeros(2, rows, width, device=device))

    def outweigh(self, scores_k: Tensor) -> Tensor:
        """Adds one token's weight in each of the first rows, and returns its share (k, 1) of what has been weighed so far."""
        weights = self.weights[: len(scores_k)]
        torch.logaddexp(weights, scores_k, out=weights)
        return (scores_k - weights).exp_().unsqueeze(1)

    def include(self, rows: Tensor, more: _Attended) -> None:
        """Adds other tokens of some of the dialogues."""
        weights = torch.logaddexp(self.weights[rows], more.weights)
        share = (more.weights - weights).exp_().unsqueeze(1)
        for means, others in ((self.forward, more.forward), (self.backward, more.backward)):
            means[rows] = means[rows].lerp_(others, share)
        self.weights[rows] = weights


def _groups(labels_k: np.ndarray) -> Iterator[slice]:
    """Runs of equal labels."""
    stops = [*(np.flatnonzero(np.diff(labels_k)) + 1).tolist(), len(labels_k)]
    yield from (slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False))


def _by_length(endings: Endings) -> np.ndarray:
    """Longest endings first, neighbours much alike."""
    return np.lexsort((endings.prefixes, -endings.keeps, -endings.lengths))


def _chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    yield from (rows[start : start + size] for start in range(0, len(rows), size))


class _Selection:
    """The selection network's weights in one precision, those of the attention by the half that they multiply."""

    def __init__(self, tables: Tables, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.forward, self.backward = _Cell(tables.selection_forward, dtype), _Cell(tables.selection_backward, dtype)
        weight = tables.model.attention_hidden.weight.t().to(dtype)
        half = tables.model.sizes.hidden_selection
        self.attend_forward, self.attend_backward = weight[:half].contiguous(), weight[half:].contiguous()
        self.attention_bias = tables.model.attention_hidden.bias.to(dtype)


class _Cell:
    """One direction of the selection GRU; states and gates are float32 whatever the precision of the products.

    What a step adds up stands side by side: candidate, reset gate, update gate, hidden product (4S). Inputs give the first
    three, the own state the last three, so that either is one product.
    """

    def __init__(self, direction: Direction, dtype: torch.dtype) -> None:
        self._width = len(direction.hidden_weight)
        new_first = torch.arange(3 * self._width, device=direction.bias.device).roll(self._width)
        bias = direction.bias.clone()
        bias[2 * self._width :] = 0
        words = (direction.word_gates + bias)[:, new_first]
        hidden = direction.bias[2 * self._width :].expand(len(words), -1)
        self._words = torch.cat([words, hidden], dim=1).to(dtype)
        self._input_weight = direction.state_weight[:, new_first].to(dtype).contiguous()
        self._hidden_weight = direction.hidden_weight.to(dtype)
        # Kept between calls: so much fresh memory would cost more than what is done in it.
        self._exact = direction.bias.new_empty(CELL_ROWS, 4 * self._width)

    def inputs(self, tokens_N: Tensor, language_NH: Tensor) -> Tensor:
        """What words, language states, in the precision of the products, and biases give to a step (N, 4S)."""
        sums = self._words.index_select(0, tokens_N)
        sums[:, : 3 * self._width].addmm_(language_NH, self._input_weight)
        return sums

    def run(self, sums_Tr4S: Tensor, steps: list[tuple[int, int]], state_rS: Tensor, out_TrS: Tensor) -> None:
        """Writes the outputs of steps (t, rows running then), from a state on, which becomes that after the last step.

        Args:
            sums_Tr4S: from `inputs`, a multiple of `SHAPE_ROWS` rows a step; overwritten.
            steps: in the order in which they are made.
            state_rS: states before the first step; of rows that join later, zero.
            out_TrS: as many rows as the sums, zero.
        """
        previous = out_TrS.new_zeros(out_TrS.shape[1:])
        previous[: len(state_rS)] = state_rS
        for t, k in steps:
            self.step(sums_Tr4S[t, : _padded(k)], previous, state_rS[:k], out_TrS[t])
            previous = out_TrS[t]

    def step(self, sums_k4S: Tensor, previous_rS: Tensor, state_kS: Tensor, out_rS: Tensor) -> None:
        """Moves the states of the first k rows on and writes them to `out_rS` too; `previous_rS` is where they were before."""
        width, rows = self._width, len(state_kS)
        sums_k4S[:, width:].addmm_(previous_rS[: len(sums_k4S)], self._hidden_weight)
        for low in range(0, rows, CELL_ROWS):
            high = min(rows, low + CELL_ROWS)
            sums, state = self._exact[: high - low].copy_(sums_k4S[low:high]), state_kS[low:high]
            gates = sums[:, width : 3 * width].sigmoid_()
            new = sums[:, :width].addcmul_(gates[:, :width], sums[:, 3 * width :]).tanh_()
            torch.lerp(new, state, gates[:, width:], out=state)
            out_rS[low:high] = state


def _restored(parts: list[Tensor], order: np.ndarray) -> Tensor:
    joined = torch.cat(parts)
    result = torch.empty_like(joined)
    result[torch.from_numpy(order).to(joined.device)] = joined
    return result


def _running(lengths: np.ndarray) -> list[int]:
    """How many rows have more than t steps, for t = 0, 1, ...; rows are longest first."""
    return np.searchsorted(-lengths, -np.arange(int(lengths[0])), side="left").tolist()


def _padded(rows: int) -> int:
    return -(-rows // SHAPE_ROWS) * SHAPE_ROWS
