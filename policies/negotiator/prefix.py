"""Dialogues that share a beginning: what a negotiator makes of many endings, without reading the beginning again.

A search for adversarial sentences asks the same network about thousands of dialogues that differ in a few words near the
end. Language states and the forward half of the selection network depend on what came before alone, so they are kept for
every position of a prefix and an ending continues from them. The backward half sees the whole dialogue; what it needs of a
prefix besides its own recurrence (input products, the forward share of the attention) is kept too. Figures equal those of
`model.py` on whole dialogues up to rounding (tested).

Shapes: n prefixes, P longest prefix, r endings, T longest ending, H language state, S selection state, A attention, V words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from parley.policies.core.packing import TokenPlaces, running
from parley.policies.negotiator.cells import ROWS, Attended
from parley.policies.negotiator.inference import Tables


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
        self._tables, self._model, self.domain = tables, tables.model, tables.model.domain
        self.context_nC, self.context_gates_n3H = tables.encode(np.ascontiguousarray(contexts_n6))
        sizes = self._model.sizes
        rows, places = len(lengths_n), int(lengths_n.max())
        tokens_Pn = torch.from_numpy(np.ascontiguousarray(tokens_nP[:, :places].T)).to(tables.device)
        # What follows a row's last token is read as well and never used: no ending keeps more than the row has.
        language = self.context_nC.new_zeros(places + 1, rows, sizes.hidden_language)
        for t in range(places):
            tables.advance(tokens_Pn[t], self.context_gates_n3H, language[t], out_nH=language[t + 1])
        self._tokens_Pn = tokens_Pn
        # Kept by prefix, then position, so that one number addresses a place of a prefix.
        self._places, self._language = places, language.transpose(0, 1).contiguous()
        self._in_precision: dict[torch.dtype, list[Tensor]] = {}

    @cached_property
    def _forward(self) -> Tensor:
        """States (n, P + 1, S) of the forward half before and after each position."""
        places, rows = self._tokens_Pn.shape
        cell = self._tables.selection(torch.float32).forward
        states = self._language.new_zeros(places + 1, rows, self._model.sizes.hidden_selection)
        for t in range(places):
            cell.step(cell.inputs(self._tokens_Pn[t], self._language[:, t + 1]), states[t], states[t + 1])
        return states.transpose(0, 1).contiguous()

    @cached_property
    def _shares(self) -> list[Tensor]:
        """What each place of a prefix gives to the steps of the backward half and to the attention (n * P, .)."""
        selection = self._tables.selection(torch.float32)
        inputs = selection.backward.inputs(self._tokens_Pn.t().flatten(), self._language[:, 1:].flatten(0, 1))
        return [inputs, selection.hidden(self._forward[:, 1:].flatten(0, 1))]

    def _shares_in(self, dtype: torch.dtype) -> list[Tensor]:
        if dtype not in self._in_precision:
            self._in_precision[dtype] = [share.to(dtype) for share in self._shares]
        return self._in_precision[dtype]

    @torch.no_grad()
    def states(self, endings: Endings) -> Tensor:
        """Language states (r, H) after each ending."""
        states_rH = self._language.new_empty(len(endings), self._language.shape[2])
        for rows in _chunks(_by_length(endings), ROWS[torch.float32]):
            tokens_N, places, prefixes, state = self._begin(endings[rows])
            gates = self.context_gates_n3H.index_select(0, prefixes)
            for tokens in tokens_N.split(places.counts):
                k = len(tokens)
                self._tables.advance(tokens, gates[:k], state[:k], state[:k])
            states_rH[torch.from_numpy(rows).to(state.device)] = state
        return states_rH

    @torch.no_grad()
    def decide(self, endings: Endings, dtype: torch.dtype = torch.float32) -> Tensor:
        """Item logits (r, 6, 18) of the final choice after dialogues with those endings, the last token included.

        Args:
            endings: how they go on.
            dtype: of products; how far bfloat16 is off, `screening.MARGIN` tells.
        """
        device = self._language.device
        states_rS = torch.empty(len(endings), self._model.sizes.hidden_selection, device=device)
        attended = Attended.to_nothing(states_rS)
        # Grouped once by their own tokens and once by those kept, so that a group's rows run equally far.
        for rows in _chunks(_by_length(endings), ROWS[dtype]):
            index = torch.from_numpy(rows).to(device)
            states_rS[index], part = self._over_ending(endings[rows], dtype)
            attended.include(index, part)
        kept = np.lexsort((endings.prefixes, -endings.keeps))[: np.count_nonzero(endings.keeps)]
        for rows in _chunks(kept, ROWS[dtype]):
            index = torch.from_numpy(rows).to(device)
            attended.include(index, self._over_prefix(endings.prefixes[rows], endings.keeps[rows], states_rS[index], dtype))
        return self._tables.heads(attended, self.context_nC[torch.from_numpy(endings.prefixes).to(device)])

    def _begin(self, endings: Endings) -> tuple[Tensor, TokenPlaces, Tensor, Tensor]:
        """Tokens (N,) and where they stand, the prefix (r,) and the language state (r, H) that each goes on from."""
        places = TokenPlaces.of(endings.lengths, self._language.device)
        tokens_rT, prefixes, keeps = (
            torch.from_numpy(part).to(self._language.device) for part in (endings.tokens, endings.prefixes, endings.keeps)
        )
        return tokens_rT[places.rows_N, places.steps_N], places, prefixes, self._language[prefixes, keeps]

    def _over_ending(self, endings: Endings, dtype: torch.dtype) -> tuple[Tensor, Attended]:
        """The endings' own tokens, longest first: the backward states (r, S) before them, and what is attended to."""
        tokens_N, places, prefixes, state = self._begin(endings)
        gates = self.context_gates_n3H.index_select(0, prefixes)
        language_NH = state.new_empty(len(tokens_N), state.shape[1])
        for tokens, after in zip(tokens_N.split(places.counts), language_NH.split(places.counts), strict=True):
            k = len(tokens)
            state = self._tables.advance(tokens, gates[:k], state[:k], after)
        before_rS = self._forward[prefixes, torch.from_numpy(endings.keeps).to(prefixes.device)]
        return self._tables.selection(dtype).read(tokens_N, language_NH, places, before_rS)

    def _over_prefix(self, prefixes: np.ndarray, keeps: np.ndarray, state_rS: Tensor, dtype: torch.dtype) -> Attended:
        """What is attended to in the kept tokens; most kept first. The backward half moves `state_rS` on to the start."""
        selection, (inputs, hidden) = self._tables.selection(dtype), self._shares_in(dtype)
        last, steps = torch.from_numpy(prefixes * self._places + keeps - 1).to(state_rS.device), running(keeps)
        attended = Attended.to_nothing(state_rS)
        # Last token first, nothing before the start.
        scores_Kr = state_rS.new_full((len(steps), len(prefixes)), -torch.inf)
        for t, k in enumerate(steps):
            places, state = last[:k] - t, state_rS[:k]
            selection.backward.step(selection.products.begin(inputs, places), state, state)
            scores_Kr[t, :k] = selection.scores(selection.products.begin(hidden, places), state)
            attended.backward[:k].lerp_(state, attended.outweigh(scores_Kr[t, :k]))
        weights_Kr = (scores_Kr - attended.weights).exp_()
        # The forward outputs of kept tokens are the same for all endings that keep as many.
        for same in _groups(prefixes * self._places + keeps):
            keep = int(keeps[same.start])
            before = torch.arange(keep, 0, -1, device=state_rS.device)
            forward_KS = self._forward[int(prefixes[same.start]), before]
            torch.mm(weights_Kr[:keep, same].t(), forward_KS, out=attended.forward[same])
        return attended


def _groups(labels_k: np.ndarray) -> Iterator[slice]:
    """Runs of equal labels."""
    stops = [*(np.flatnonzero(np.diff(labels_k)) + 1).tolist(), len(labels_k)]
    yield from (slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False))


def _by_length(endings: Endings) -> np.ndarray:
    """Longest endings first, neighbours much alike."""
    return np.lexsort((endings.prefixes, -endings.keeps, -endings.lengths))


def _chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    yield from (rows[start : start + size] for start in range(0, len(rows), size))
