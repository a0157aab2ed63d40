"""A negotiator in the form that plays: it reads word after word, and decides over whole dialogues, rows in any order.

Products of words are tables, and decoder and tied output embedding fold into one map (`cells.py`). Figures equal those of
`model.py` up to rounding (tested).

The selection network, which costs most, also decides with its products in bfloat16: that tells which choices are plain and
which need float32 (`screening.py`).

Shapes: n rows, T tokens, N tokens of all rows, M language states, V words, H language state.
"""

from __future__ import annotations

from functools import partial
from weakref import proxy

import numpy as np
import torch
from torch import Tensor

from parley.policies.core.bfloat16 import clock_of, shortest_share
from parley.policies.core.packing import TokenPlaces, by_step
from parley.policies.negotiator.cells import ROWS, Attended, Cell, Products, Selection
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.screening import of_machine

MADE_UP = 2, 256
"""Tokens and rows of the dialogues by which bfloat16 is measured."""


class Tables:
    """Frozen inference form of a negotiator.

    Args:
        model: its weights are read now; after further training, make new tables.
    """

    @torch.no_grad()
    def __init__(self, model: Negotiator) -> None:
        self.model, self.device = model, model.word_embedding.weight.device
        decoder, self.word_bias_V = model.folded_decoder()
        self.word_weight_HV = decoder.t().contiguous()
        self._language = Cell(model.language, model.word_embedding.weight, 0, "", Products(torch.float32, self.device))
        self._selections = {torch.float32: Selection(model, torch.float32)}
        # A training makes tables at each update: in a circle of references they would stay until Python looks for circles.
        self.screening = of_machine(model.sizes, self.device, partial(Tables._cost_of_bfloat16, proxy(self)))

    @torch.no_grad()
    def selection(self, dtype: torch.dtype) -> Selection:
        """The selection network with its products in a precision; few ask for it in bfloat16."""
        if dtype not in self._selections:
            self._selections[dtype] = Selection(self.model, dtype)
        return self._selections[dtype]

    @torch.no_grad()
    def encode(self, contexts_n6: np.ndarray) -> tuple[Tensor, Tensor]:
        """The scenario's encoding (n, C) and its constant share of the language gates (n, 3H)."""
        context_nC = self.model.encode_context(torch.from_numpy(contexts_n6).to(self.device))
        return context_nC, context_nC @ self._language.read_weight

    def advance(self, tokens_n: Tensor, context_gates_n3H: Tensor, states_nH: Tensor, out_nH: Tensor | None = None) -> Tensor:
        """Language states after one more token in each row, written to `out_nH` where given."""
        out = torch.empty_like(states_nH) if out_nH is None else out_nH
        self._language.step(self._language.sums(tokens_n, context_gates_n3H), states_nH, out)
        return out

    def listen(
        self, tokens_N: Tensor, places: TokenPlaces, context_gates_n3H: Tensor, states_nH: Tensor, out_NH: Tensor
    ) -> None:
        """Language states after many more tokens in each row, the longest first.

        Args:
            tokens_N: the tokens.
            places: where they stand.
            context_gates_n3H: the scenarios' share of the language gates.
            states_nH: before the first.
            out_NH: where the states after each token are written.
        """

        def begin(here: slice) -> Tensor:
            return self._language.sums(tokens_N[here], context_gates_n3H.index_select(0, places.rows_N[here]))

        self._language.read(begin, places.counts, states_nH, out_NH)

    @torch.no_grad()
    def decide(
        self,
        contexts_n6: np.ndarray,
        tokens_nT: np.ndarray,
        lengths_n: np.ndarray,
        states_MH: Tensor,
        at_nT: np.ndarray,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """The final choice of whole dialogues; rows in any order.

        Args:
            contexts_n6: count and own value of each item in turn.
            tokens_nT: dialogues from this side's perspective.
            lengths_n: how many tokens count, at least 1.
            states_MH: language states, in any order.
            at_nT: which of them follows each token.
            dtype: of products; how far bfloat16 is off, `screening.MARGIN` tells.

        Returns:
            Item logits (n, 6, 18), float32.
        """
        context_nC, _ = self.encode(contexts_n6)
        logits = context_nC.new_empty(len(lengths_n), self.model.domain.num_heads, len(self.model.domain.tokens))
        order = np.argsort(-lengths_n, kind="stable")
        for start in range(0, len(order), ROWS[dtype]):
            rows = order[start : start + ROWS[dtype]]
            step_N, row_N = by_step(lengths_n[rows])
            tokens_N, at_N = (torch.from_numpy(part[rows[row_N], step_N]).to(self.device) for part in (tokens_nT, at_nT))
            places, language_NH = TokenPlaces.of(lengths_n[rows], self.device), states_MH.index_select(0, at_N)
            nothing_rS = context_nC.new_zeros(len(rows), self.model.sizes.hidden_selection)
            _, attended = self.selection(dtype).read(tokens_N, language_NH, places, nothing_rS)
            index = torch.from_numpy(rows).to(self.device)
            logits[index] = self.heads(attended, context_nC[index])
        return logits

    def heads(self, attended: Attended, context_rC: Tensor) -> Tensor:
        """Item logits (r, 6, 18) from what was attended to in whole dialogues."""
        return self.model.choice(torch.cat([attended.forward, attended.backward, context_rC], dim=1))

    def _cost_of_bfloat16(self) -> float:
        read = self._read_made_up
        return shortest_share(partial(read, torch.bfloat16), partial(read, torch.float32), clock_of(self.device))

    @torch.no_grad()
    def _read_made_up(self, dtype: torch.dtype) -> Tensor:
        """The selection network over dialogues that say nothing; on the CPU, so that it waits for the device."""
        steps, rows = MADE_UP
        places, tokens_N = (
            TokenPlaces.of(np.full(rows, steps), self.device),
            torch.zeros(steps * rows, dtype=torch.int64, device=self.device),
        )
        language_NH = torch.zeros(len(tokens_N), self.model.sizes.hidden_language, device=self.device)
        before_rS = torch.zeros(rows, self.model.sizes.hidden_selection, device=self.device)
        return self.selection(dtype).read(tokens_N, language_NH, places, before_rS)[0].cpu()
