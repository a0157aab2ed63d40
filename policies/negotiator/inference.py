"""The negotiator's networks in the form that plays: products with embeddings become tables, one matrix per step.

Every input product of a GRU with a word embedding is one row of a table of V words, the scenario's share is constant in
a dialogue, and decoder and tied output embedding fold into one map. The figures equal those of `model.py` up to rounding
(tested); a step costs a third of the multiplications.

Rows are handled longest first, so that the dialogues still running are always the first k rows: no step computes on
padding, and no result depends on what else is in the batch.

Shapes: n rows, T tokens, V words, H language state, S selection state.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from policies.gru import step
from policies.negotiator.model import Negotiator

DECIDE_ROWS = 128
"""Dialogues decided together: enough for full-speed products, few enough to stay near the processor."""


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
        self.selection_forward = _Direction(
            F.linear(words, selection.weight_ih_l0[:, states:], selection.bias_ih_l0),
            selection.weight_ih_l0[:, :states].t().contiguous(),
            selection.weight_hh_l0.t().contiguous(),
            selection.bias_hh_l0,
        )
        self.selection_backward = _Direction(
            F.linear(words, selection.weight_ih_l0_reverse[:, states:], selection.bias_ih_l0_reverse),
            selection.weight_ih_l0_reverse[:, :states].t().contiguous(),
            selection.weight_hh_l0_reverse.t().contiguous(),
            selection.bias_hh_l0_reverse,
        )

    def encode(self, contexts_n6: np.ndarray) -> tuple[Tensor, Tensor]:
        """The scenario's encoding (n, C) and its constant share of the language gates (n, 3H)."""
        context_nC = self.model.encode_context(torch.from_numpy(contexts_n6).to(self.device))
        return context_nC, F.linear(context_nC, self.context_weight)

    def advance(
        self, tokens_n: Tensor, context_gates_n3H: Tensor, states_nH: Tensor, out_nH: Tensor | None = None
    ) -> Tensor:
        """Language states after one more token in each row, written to `out_nH` where given."""
        gates = self.word_gates_V3H[tokens_n].add_(context_gates_n3H)
        return step(gates, self.hidden_weight_H3H, self.hidden_bias_3H, states_nH, out_BH=out_nH)

    @torch.no_grad()
    def decide(self, contexts_n6: np.ndarray, tokens_nT: np.ndarray, lengths_n: np.ndarray) -> Tensor:
        """Item logits (n, 6, 18) of the final choice for whole dialogues; rows in any order."""
        order = np.argsort(-lengths_n, kind="stable")
        chunks = [order[start : start + DECIDE_ROWS] for start in range(0, len(order), DECIDE_ROWS)]
        logits = [self._decide_sorted(contexts_n6[rows], tokens_nT[rows], lengths_n[rows]) for rows in chunks]
        result = torch.empty_like(torch.cat(logits))
        result[torch.from_numpy(order).to(self.device)] = torch.cat(logits)
        return result

    def _decide_sorted(self, contexts: np.ndarray, tokens: np.ndarray, lengths: np.ndarray) -> Tensor:
        steps = int(lengths[0])
        tokens_Tn = torch.from_numpy(np.ascontiguousarray(tokens[:, :steps].T)).to(self.device)
        # running[t] rows have more than t tokens; as rows are longest first, they are the first ones.
        running = np.searchsorted(-lengths, -np.arange(steps), side="left").tolist()
        context_nC, context_gates = self.encode(contexts)
        rows, hidden = len(lengths), self.model.sizes.hidden_language
        states_TnH = context_nC.new_empty(steps, rows, hidden)
        state = context_nC.new_zeros(rows, hidden)
        for t, k in enumerate(running):
            state = self.advance(tokens_Tn[t, :k], context_gates[:k], state[:k], out_nH=states_TnH[t, :k])
        width = self.model.sizes.hidden_selection
        outputs_Tn2S = context_nC.new_empty(steps, rows, 2 * width)
        for t, k in enumerate(running):
            outputs_Tn2S[t, k:] = 0
        self.selection_forward.run(tokens_Tn, states_TnH, running, range(steps), outputs_Tn2S[..., :width])
        self.selection_backward.run(tokens_Tn, states_TnH, running, range(steps - 1, -1, -1), outputs_Tn2S[..., width:])
        return self.model.selection_head(outputs_Tn2S, torch.from_numpy(lengths).to(self.device), context_nC)


class _Direction:
    """One direction of the selection GRU over tabulated word products."""

    def __init__(self, word_gates_V3S: Tensor, state_weight_H3S: Tensor, hidden_weight_S3S: Tensor, bias_3S: Tensor) -> None:
        self.word_gates, self.state_weight = word_gates_V3S, state_weight_H3S
        self.hidden_weight, self.bias = hidden_weight_S3S, bias_3S

    def run(self, tokens_Tn: Tensor, states_TnH: Tensor, running: list[int], order: range, out_TnS: Tensor) -> None:
        """Writes the outputs of every step.

        The output of one step is the state of the next. Rows that are not running hold zeros, which is the state that a
        row enters with when the backward direction reaches its last token.
        """
        state = out_TnS.new_zeros(out_TnS.shape[1:])
        for t in order:
            k = running[t]
            gates = torch.addmm(self.word_gates[tokens_Tn[t, :k]], states_TnH[t, :k], self.state_weight)
            step(gates, self.hidden_weight, self.bias, state[:k], out_BH=out_TnS[t, :k])
            state = out_TnS[t]
