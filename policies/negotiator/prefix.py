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

from policies.negotiator.cells import Cell, Selection, padded
from policies.negotiator.inference import Tables
from policies.negotiator.model import NUM_HEADS

ROWS = {torch.float32: 512, torch.bfloat16: 2048}
"""Endings continued together: enough for full-speed products, few enough to stay near the processor."""


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
        self._in_precision: dict[torch.dtype, tuple[Selection, list[Tensor]]] = {}

    @cached_property
    def _forward(self) -> Tensor:
        """States (n, P + 1, S) of the forward half before and after each position."""
        places, rows = self._tokens_Pn.shape
        cell = self._exact.forward
        states = self._language.new_zeros(places + 1, rows, self._model.sizes.hidden_selection)
        state = states[0].clone()
        for t in range(places):
            cell.step(cell.inputs(self._tokens_Pn[t], self._language_PnH[t + 1]), states[t], state, states[t + 1])
        return states.transpose(0, 1).contiguous()

    @cached_property
    def _exact(self) -> Selection:
        return Selection(self._tables, torch.float32)

    @cached_property
    def _reader(self) -> Cell:
        return Cell(self._tables.language, torch.bfloat16)

    @cached_property
    def _shares(self) -> tuple[Tensor, Tensor]:
        """What each place of a prefix gives to the steps of the backward half and to the attention (n * P, .)."""
        inputs = self._exact.backward.inputs(self._tokens_Pn.t().flatten(), self._language[:, 1:].flatten(0, 1))
        states_NS = self._forward[:, 1:].flatten(0, 1)
        return inputs, torch.addmm(self._exact.attention_bias, states_NS, self._exact.attend_forward)

    def _selection(self, dtype: torch.dtype) -> tuple[Selection, list[Tensor]]:
        """The selection network and the shares in a precision."""
        if dtype not in self._in_precision:
            selection = self._exact if dtype == torch.float32 else Selection(self._tables, dtype)
            self._in_precision[dtype] = selection, [share.to(dtype) for share in self._shares]
        return self._in_precision[dtype]

    @torch.no_grad()
    def states(self, endings: Endings) -> Tensor:
        """Language states (r, H) after each ending."""
        order = _by_length(endings)
        parts = []
        for rows in _chunks(order, ROWS[torch.float32]):
            tokens_Tr, running, prefixes, state = self._begin(endings[rows])
            gates = self.context_gates_n3H.index_select(0, prefixes)
            for t, k in enumerate(running):
                self._tables.advance(tokens_Tr[t, :k], gates[:k], state[:k], out_nH=state[:k])
            parts.append(state)
        return _restored(parts, order)

    @torch.no_grad()
    def rough_states(self, endings: Endings) -> Tensor:
        """What `states` returns, nearly, from products in bfloat16; worth it where `Tables.can_screen`."""
        cell, order = self._reader, _by_length(endings)
        parts = []
        for rows in _chunks(order, ROWS[torch.bfloat16]):
            tokens_Tr, running, prefixes, state = self._begin(endings[rows])
            context, previous = (
                state.new_zeros(tokens_Tr.shape[1], read.shape[1], dtype=torch.bfloat16) for read in (self.context_nC, state)
            )
            context[: len(rows)], previous[: len(rows)] = self.context_nC[prefixes], state
            for t, k in enumerate(running):
                shape = padded(k)
                cell.step(cell.inputs(tokens_Tr[t, :shape], context[:shape]), previous, state[:k], previous)
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
        """Tokens (T, r'), rows still running per step, the prefix (r,) and the language state (r, H) that each goes on from."""
        device = self._language.device
        steps = int(endings.lengths[0])
        running = _running(endings.lengths)
        tokens_Tr = torch.zeros(steps, padded(len(endings)), dtype=torch.int64, device=device)
        tokens_Tr[:, : len(endings)] = torch.from_numpy(endings.tokens[:, :steps].T)
        prefixes, keeps = (torch.from_numpy(part).to(device) for part in (endings.prefixes, endings.keeps))
        return tokens_Tr, running, prefixes, self._language[prefixes, keeps]

    def _read(self, endings: Endings) -> tuple[Tensor, Tensor, list[int]]:
        """Language states (T, r', H) after each token, the tokens (T, r'), rows still running per step; longest first."""
        tokens_Tr, running, prefixes, state = self._begin(endings)
        gates = self.context_gates_n3H.index_select(0, prefixes)
        # Not left empty: products in bfloat16 of odd widths also read the row after, and 0 * nan is not 0.
        states = state.new_zeros(*tokens_Tr.shape, state.shape[1])
        for t, k in enumerate(running):
            self._tables.advance(tokens_Tr[t, :k], gates[:k], state[:k], out_nH=states[t, :k])
            state = states[t]
        return states, tokens_Tr, running

    def _over_ending(self, endings: Endings, selection: Selection) -> tuple[Tensor, _Attended]:
        """Both halves over the endings' own tokens: the backward states (r, S) before them, and what is attended to."""
        language_TrH, tokens_Tr, running = self._read(endings)
        read = tokens_Tr, language_TrH.to(selection.dtype), running
        return self._backward_over_ending(self._forward_over_ending(endings, selection, *read), selection, *read)

    def _forward_over_ending(
        self, endings: Endings, selection: Selection, tokens_Tr: Tensor, language_TrH: Tensor, running: list[int]
    ) -> Tensor:
        """The forward half's outputs (T, r', S)."""
        prefixes, keeps = (torch.from_numpy(part).to(tokens_Tr.device) for part in (endings.prefixes, endings.keeps))
        state_rS = self._forward[prefixes, keeps]
        outputs_TrS = language_TrH.new_zeros(*tokens_Tr.shape, state_rS.shape[1])
        previous = outputs_TrS.new_zeros(outputs_TrS.shape[1:])
        previous[: len(state_rS)] = state_rS
        for t, k in enumerate(running):
            sums = selection.forward.inputs(tokens_Tr[t, : padded(k)], language_TrH[t, : padded(k)])
            selection.forward.step(sums, previous, state_rS[:k], outputs_TrS[t])
            previous = outputs_TrS[t]
        return outputs_TrS

    def _backward_over_ending(
        self, forward_TrS: Tensor, selection: Selection, tokens_Tr: Tensor, language_TrH: Tensor, running: list[int]
    ) -> tuple[Tensor, _Attended]:
        """The backward half, attended to on the way together with the forward one."""
        rows, width = running[0], forward_TrS.shape[2]
        state_rS = self._language.new_zeros(rows, width)
        previous = forward_TrS.new_zeros(forward_TrS.shape[1:])
        attended = _Attended.to_nothing(rows, width, state_rS.device)
        for t, k in reversed(list(enumerate(running))):
            shape = padded(k)
            sums = selection.backward.inputs(tokens_Tr[t, :shape], language_TrH[t, :shape])
            selection.backward.step(sums, previous, state_rS[:k], previous)
            hidden = torch.addmm(selection.attention_bias, forward_TrS[t, :shape], selection.attend_forward)
            scores = self._attention(hidden.addmm_(previous[:shape], selection.attend_backward)[:k])
            share = attended.outweigh(scores)
            attended.forward[:k].lerp_(forward_TrS[t, :k].float(), share)
            attended.backward[:k].lerp_(state_rS[:k], share)
        return state_rS, attended

    def _over_prefix(
        self, prefixes: np.ndarray, keeps: np.ndarray, state_rS: Tensor, selection: Selection, shares: list[Tensor]
    ) -> _Attended:
        """What is attended to in the kept tokens; most kept first. The backward half moves `state_rS` on to the start."""
        attended = _Attended.to_nothing(len(keeps), state_rS.shape[1], state_rS.device)
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
        selection: Selection,
        shares: list[Tensor],
        attended: _Attended,
    ) -> Tensor:
        """The backward half from the endings' first token on to the start of each prefix, attended to on the way.

        Returns:
            Attention scores (K, r), last token first, minus infinity before the start.
        """
        width = state_rS.shape[1]
        last = torch.from_numpy(prefixes * self._places + keeps - 1).to(state_rS.device)
        rows, running = padded(len(prefixes)), _running(keeps)
        scores_Kr = state_rS.new_full((len(running), len(prefixes)), -torch.inf)
        previous = state_rS.new_zeros(rows, width, dtype=selection.dtype)
        previous[: len(prefixes)] = state_rS
        sums, hidden = (share.new_zeros(rows, share.shape[1]) for share in shares)
        for t, k in enumerate(running):
            places, shape = last[:k] - t, padded(k)
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


def _restored(parts: list[Tensor], order: np.ndarray) -> Tensor:
    joined = torch.cat(parts)
    result = torch.empty_like(joined)
    result[torch.from_numpy(order).to(joined.device)] = joined
    return result


def _running(lengths: np.ndarray) -> list[int]:
    """How many rows have more than t steps, for t = 0, 1, ...; rows are longest first."""
    return np.searchsorted(-lengths, -np.arange(int(lengths[0])), side="left").tolist()
