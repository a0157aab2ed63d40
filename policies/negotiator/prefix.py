"""Dialogues that share a beginning: what a negotiator makes of many endings, without reading the beginning again.

A search for adversarial sentences asks the same network about thousands of dialogues that differ in a few words near the
end. Language states and the forward half of the selection network depend on what came before alone, so they are kept for
every position of a prefix and an ending continues from them. The backward half sees the whole dialogue; what it needs of a
prefix besides its own recurrence (input products, the forward share of the attention) is kept too. Figures equal those of
`model.py` on whole dialogues up to rounding (tested).

Shapes: n prefixes, P longest prefix, r endings, T longest ending, H language state, S selection state, A attention, V words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from policies.gru import step
from policies.negotiator.inference import Direction, Tables

ROWS = 256
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

    @classmethod
    def joined(cls, parts: list[Endings]) -> Endings:
        """Several lots of endings as one, in their order."""
        width = max(part.tokens.shape[1] for part in parts)
        tokens = [np.pad(part.tokens, ((0, 0), (0, width - part.tokens.shape[1]))) for part in parts]
        names = ("prefixes", "keeps", "lengths")
        prefixes, keeps, lengths = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        return cls(prefixes, keeps, np.concatenate(tokens), lengths)


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
        self._lengths = lengths_n
        self.context_nC, self.context_gates_n3H = tables.encode(np.ascontiguousarray(contexts_n6))
        sizes = self._model.sizes
        rows, places = len(lengths_n), int(lengths_n.max())
        tokens_Pn = torch.from_numpy(np.ascontiguousarray(tokens_nP[:, :places].T)).to(tables.device)
        # What follows a row's last token is read as well and never used: no ending keeps more than the row has.
        language = self.context_nC.new_zeros(places + 1, rows, sizes.hidden_language)
        forward = self.context_nC.new_zeros(places + 1, rows, sizes.hidden_selection)
        backward_gates = self.context_nC.new_empty(places, rows, 3 * sizes.hidden_selection)
        for t in range(places):
            tables.advance(tokens_Pn[t], self.context_gates_n3H, language[t], out_nH=language[t + 1])
            self._step(tables.selection_forward, tokens_Pn[t], language[t + 1], forward[t], forward[t + 1])
            backward_gates[t] = self._gates(tables.selection_backward, tokens_Pn[t], language[t + 1])
        half = sizes.hidden_selection
        weight = self._model.attention_hidden.weight
        self._attend_forward, self._attend_backward = weight[:, :half].t().contiguous(), weight[:, half:].t().contiguous()
        attention = torch.addmm(self._model.attention_hidden.bias, forward[1:].flatten(0, 1), self._attend_forward)
        # Kept by prefix, then position, so that one number addresses a place of a prefix.
        self._places = places
        self._language, self._forward = (x.transpose(0, 1).contiguous() for x in (language, forward))
        self._backward_gates = backward_gates.transpose(0, 1).flatten(0, 1).contiguous()
        self._attention = attention.unflatten(0, (places, rows)).transpose(0, 1).flatten(0, 1).contiguous()

    @torch.no_grad()
    def states(self, endings: Endings) -> Tensor:
        """Language states (r, H) after each ending."""
        order, chunks = self._chunks(endings)
        parts = [self._read(endings[rows])[0] for rows in chunks]
        return self._restored(parts, order)

    @torch.no_grad()
    def decide(self, endings: Endings) -> Tensor:
        """Item logits (r, 6, 18) of the final choice after dialogues with those endings, the last token included."""
        order, chunks = self._chunks(endings)
        parts = [self._decide(endings[rows]) for rows in chunks]
        return self._restored(parts, order)

    def _chunks(self, endings: Endings) -> tuple[np.ndarray, list[np.ndarray]]:
        """Rows so that those of one prefix stay together; within a chunk, longest endings first."""
        order = np.lexsort((-endings.lengths, -endings.keeps, endings.prefixes, -self._lengths[endings.prefixes]))
        chunks = [order[start : start + ROWS] for start in range(0, len(order), ROWS)]
        chunks = [rows[np.argsort(-endings.lengths[rows], kind="stable")] for rows in chunks]
        return np.concatenate(chunks), chunks

    def _restored(self, parts: list[Tensor], order: np.ndarray) -> Tensor:
        joined = torch.cat(parts)
        result = torch.empty_like(joined)
        result[torch.from_numpy(order).to(joined.device)] = joined
        return result

    def _read(self, endings: Endings) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """Final language states (r, H), all of them (T, r, H), tokens (T, r), rows still running per step; longest first."""
        device = self._language.device
        steps = int(endings.lengths[0])
        running = np.searchsorted(-endings.lengths, -np.arange(steps), side="left").tolist()
        tokens_Tr = torch.from_numpy(np.ascontiguousarray(endings.tokens[:, :steps].T)).to(device)
        prefixes, keeps = (torch.from_numpy(part).to(device) for part in (endings.prefixes, endings.keeps))
        gates = self.context_gates_n3H[prefixes]
        state = self._language[prefixes, keeps]
        states = state.new_empty(steps, *state.shape)
        for t, k in enumerate(running):
            states[t, :k] = state[:k] = self._tables.advance(tokens_Tr[t, :k], gates[:k], state[:k])
        return state, states, tokens_Tr, running

    def _decide(self, endings: Endings) -> Tensor:
        tables, model, device = self._tables, self._model, self._language.device
        _, language_TrH, tokens_Tr, running = self._read(endings)
        prefixes = torch.from_numpy(endings.prefixes).to(device)
        keeps, lengths = (torch.from_numpy(part).to(device) for part in (endings.keeps, endings.lengths))
        steps, rows, width = len(running), len(endings), model.sizes.hidden_selection

        state = self._forward[prefixes, keeps]
        forward = state.new_zeros(steps, rows, width)
        for t, k in enumerate(running):
            self._step(tables.selection_forward, tokens_Tr[t, :k], language_TrH[t, :k], state[:k], forward[t, :k])
            state = forward[t]
        state = state.new_zeros(rows, width)
        backward = state.new_zeros(steps, rows, width)
        for t in range(steps - 1, -1, -1):
            k = running[t]
            self._step(tables.selection_backward, tokens_Tr[t, :k], language_TrH[t, :k], state[:k], backward[t, :k])
            state = backward[t]
        hidden = torch.addmm(model.attention_hidden.bias, forward.flatten(0, 1), self._attend_forward)
        hidden.addmm_(backward.flatten(0, 1), self._attend_backward)
        ours = model.attention_score(hidden.tanh_()).view(steps, rows)
        ours = ours.masked_fill_(torch.arange(steps, device=device).unsqueeze(1) >= lengths, -torch.inf)
        kept, prefix_backward, order = self._backward_over_prefix(endings, state)
        weights = torch.cat([ours, kept]).softmax(0)
        attended = torch.cat(
            [
                torch.einsum("tr,trs->rs", weights[:steps], forward),
                torch.einsum("tr,trs->rs", weights[:steps], backward),
            ],
            dim=1,
        )
        prefix_weights = weights[steps:]
        attended[:, width:].index_add_(0, order, torch.einsum("tr,trs->rs", prefix_weights[:, order], prefix_backward))
        self._add_prefix_forward(endings, prefix_weights, attended[:, :width])
        encoded = torch.tanh(model.selection_encoder(torch.cat([attended, self.context_nC[prefixes]], dim=1)))
        return model.selection_heads(encoded).unflatten(1, (6, -1))

    def _backward_over_prefix(self, endings: Endings, state_rS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The backward half from the endings' first token on to the start of each prefix.

        Returns:
            Attention scores (K, r) by distance from the ending, minus infinity before the start, in the order of the
            endings; outputs (K, r, S) and which ending (r,) each of their columns is: most kept tokens first.
        """
        device, backward = self._language.device, self._tables.selection_backward
        by_keep = np.argsort(-endings.keeps, kind="stable")
        keeps = endings.keeps[by_keep]
        steps, rows = int(keeps[0]), len(endings)
        running = np.searchsorted(-keeps, -np.arange(steps), side="left").tolist()
        last = torch.from_numpy(endings.prefixes[by_keep] * self._places + keeps - 1).to(device)
        order = torch.from_numpy(by_keep).to(device)
        outputs = state_rS.new_zeros(steps, rows, state_rS.shape[1])
        scores = state_rS.new_full((steps, rows), -torch.inf)
        state = state_rS[order]
        for t, k in enumerate(running):
            places = last[:k] - t
            gates = self._backward_gates.index_select(0, places)
            step(gates, backward.hidden_weight, backward.bias, state[:k], out_BH=outputs[t, :k])
            hidden = self._attention.index_select(0, places).addmm_(outputs[t, :k], self._attend_backward).tanh_()
            scores[t, order[:k]] = self._model.attention_score(hidden).squeeze(1)
            state = outputs[t]
        return scores, outputs, order

    def _add_prefix_forward(self, endings: Endings, weights_Kr: Tensor, attended_rS: Tensor) -> None:
        """Adds the forward outputs of the kept tokens; those are the same for all endings of a prefix."""
        steps = weights_Kr.shape[0]
        if not steps:
            return
        distance = np.arange(steps)
        for prefix in np.unique(endings.prefixes).tolist():
            rows = np.flatnonzero(endings.prefixes == prefix)
            for keep in np.unique(endings.keeps[rows]).tolist():
                if keep == 0:
                    continue
                chosen = torch.from_numpy(rows[endings.keeps[rows] == keep]).to(weights_Kr.device)
                places = torch.from_numpy(keep - distance[:keep]).to(weights_Kr.device)
                attended_rS[chosen] += weights_Kr[:keep, chosen].t() @ self._forward[prefix, places]

    def _gates(self, direction: Direction, tokens_r: Tensor, language_rH: Tensor) -> Tensor:
        return torch.addmm(direction.word_gates.index_select(0, tokens_r), language_rH, direction.state_weight)

    def _step(self, direction: Direction, tokens_r: Tensor, language_rH: Tensor, state_rS: Tensor, out_rS: Tensor) -> None:
        gates = self._gates(direction, tokens_r, language_rH)
        step(gates, direction.hidden_weight, direction.bias, state_rS, out_BH=out_rS)
