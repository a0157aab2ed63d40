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

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from policies.negotiator.inference import Direction, Tables
from policies.negotiator.model import NUM_HEADS

ROWS = {torch.float32: 256, torch.bfloat16: 512}
"""Endings continued together: enough for full-speed products, few enough to stay near the processor."""
SHAPE_ROWS = 32
"""Products have a multiple of this many rows: for each new shape of bfloat16 a kernel is compiled, which takes milliseconds."""
SCORED = 512
"""Tokens whose attention is scored together, for the same reasons."""


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
        for t in range(places):
            tables.advance(tokens_Pn[t], self.context_gates_n3H, language[t], out_nH=language[t + 1])
        exact = _Selection(tables, torch.float32)
        forward = self.context_nC.new_zeros(places + 1, rows, sizes.hidden_selection)
        running = [(t, rows) for t in range(places)]
        exact.forward.run(tokens_Pn, language[1:], running, forward[0].clone(), forward[1:])
        gates, news = exact.backward.shares(tokens_Pn.flatten(), language[1:].flatten(0, 1))
        attention = torch.addmm(exact.attention_bias, forward[1:].flatten(0, 1), exact.attend_forward)
        # Kept by prefix, then position, so that one number addresses a place of a prefix.
        self._places = places
        self._language, self._forward = (x.transpose(0, 1).contiguous() for x in (language, forward))
        self._shares = [x.unflatten(0, (places, rows)).transpose(0, 1).flatten(0, 1) for x in (gates, news, attention)]
        self._selections = {torch.float32: exact}

    @torch.no_grad()
    def states(self, endings: Endings) -> Tensor:
        """Language states (r, H) after each ending."""
        order, chunks = self._chunks(endings, ROWS[torch.float32])
        return _restored([self._read(endings[rows])[0] for rows in chunks], order)

    @torch.no_grad()
    def decide(self, endings: Endings) -> Tensor:
        """Item logits (r, 6, 18) of the final choice after dialogues with those endings, the last token included."""
        return self._logits(endings, torch.float32)

    @torch.no_grad()
    def screen(self, endings: Endings) -> Tensor:
        """What `decide` returns, nearly, from products in bfloat16; worth it where `Tables.can_screen`."""
        return self._logits(endings, torch.bfloat16)

    def _logits(self, endings: Endings, dtype: torch.dtype) -> Tensor:
        if dtype not in self._selections:
            self._selections[dtype] = _Selection(self._tables, dtype)
        shares = [share.to(dtype) for share in self._shares]
        order, chunks = self._chunks(endings, ROWS[dtype])
        return _restored([self._decide(endings[rows], self._selections[dtype], shares) for rows in chunks], order)

    def _chunks(self, endings: Endings, size: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Rows so that those of one prefix stay together; within a chunk, longest endings first."""
        order = np.lexsort((-endings.lengths, -endings.keeps, endings.prefixes, -self._lengths[endings.prefixes]))
        chunks = [order[start : start + size] for start in range(0, len(order), size)]
        chunks = [rows[np.argsort(-endings.lengths[rows], kind="stable")] for rows in chunks]
        return np.concatenate(chunks), chunks

    def _read(self, endings: Endings) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """Final language states (r, H), all of them (T, r, H), tokens (T, r), rows still running per step; longest first."""
        device = self._language.device
        steps = int(endings.lengths[0])
        running = _running(endings.lengths)
        tokens_Tr = torch.from_numpy(np.ascontiguousarray(endings.tokens[:, :steps].T)).to(device)
        prefixes, keeps = (torch.from_numpy(part).to(device) for part in (endings.prefixes, endings.keeps))
        gates = self.context_gates_n3H[prefixes]
        state = self._language[prefixes, keeps]
        states = state.new_empty(steps, *state.shape)
        for t, k in enumerate(running):
            states[t, :k] = state[:k] = self._tables.advance(tokens_Tr[t, :k], gates[:k], state[:k])
        return state, states, tokens_Tr, running

    def _decide(self, endings: Endings, selection: _Selection, shares: list[Tensor]) -> Tensor:
        model, device = self._model, self._language.device
        _, language_TrH, tokens_Tr, running = self._read(endings)
        prefixes, keeps, lengths = (
            torch.from_numpy(part).to(device) for part in (endings.prefixes, endings.keeps, endings.lengths)
        )
        steps, rows, width = len(running), len(endings), model.sizes.hidden_selection
        forward, backward = torch.empty(2, steps, _padded(rows), width, dtype=selection.dtype, device=device)
        order, state = list(enumerate(running)), self._language.new_zeros(rows, width)
        selection.forward.run(tokens_Tr, language_TrH, order, self._forward[prefixes, keeps], forward)
        selection.backward.run(tokens_Tr, language_TrH, order[::-1], state, backward)
        parts = zip(forward.flatten(0, 1).split(SCORED), backward.flatten(0, 1).split(SCORED), strict=True)
        scores = [model.attention_score(selection.attention(*part).float().tanh_()) for part in parts]
        ours = torch.cat(scores).view(steps, -1)[:, :rows]
        ours = ours.masked_fill(torch.arange(steps, device=device).unsqueeze(1) >= lengths, -torch.inf)
        kept, before, column = self._backward_over_prefix(endings, state, selection, shares)
        weights = torch.cat([ours, kept]).softmax(0)
        attended = state.new_zeros(rows, 2 * width)
        _add_weighted(attended[:, :width], forward, weights[:steps], running)
        _add_weighted(attended[:, width:], backward, weights[:steps], running)
        summed = state.new_zeros(rows, width)
        _add_weighted(summed, before, weights[steps:, column], _running(endings.keeps[column.cpu().numpy()]))
        attended[:, width:].index_add_(0, column, summed)
        self._add_prefix_forward(endings, weights[steps:], attended[:, :width])
        encoded = torch.tanh(model.selection_encoder(torch.cat([attended, self.context_nC[prefixes]], dim=1)))
        return model.selection_heads(encoded).unflatten(1, (NUM_HEADS, -1))

    def _backward_over_prefix(
        self, endings: Endings, state_rS: Tensor, selection: _Selection, shares: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The backward half from the endings' first token on to the start of each prefix.

        Returns:
            Attention scores (K, r) by distance from the ending, minus infinity before the start, in the order of the
            endings; outputs (K, r', S) and which ending (r,) each of their columns is: most kept tokens first.
        """
        device, cell = self._language.device, selection.backward
        by_keep = np.argsort(-endings.keeps, kind="stable")
        keeps, rows = endings.keeps[by_keep], len(endings)
        last = torch.from_numpy(endings.prefixes[by_keep] * self._places + keeps - 1).to(device)
        column = torch.from_numpy(by_keep).to(device)
        state, width = state_rS[column], state_rS.shape[1]
        outputs = torch.empty(int(keeps[0]), _padded(rows), width, dtype=selection.dtype, device=device)
        scores = state_rS.new_full((len(outputs), rows), -torch.inf)
        previous = torch.zeros(_padded(rows), width, dtype=selection.dtype, device=device)
        previous[:rows] = state
        gates, news, hidden = (share.new_zeros(_padded(rows), share.shape[1]) for share in shares)
        for t, k in enumerate(_running(keeps)):
            places, shape = last[:k] - t, _padded(k)
            for share, place in zip(shares, (gates, news, hidden), strict=True):
                torch.index_select(share, 0, places, out=place[:k])
            gates[:shape].addmm_(previous[:shape], cell.gate_hidden_weight)
            cell.move(gates, news, previous, state[:k])
            previous[:k] = state[:k]
            outputs[t, :k] = previous[:k]
            attention = hidden[:shape].addmm_(previous[:shape], selection.attend_backward)[:k].float().tanh_()
            scores[t, column[:k]] = self._model.attention_score(attention).squeeze(1)
        return scores, outputs, column

    def _add_prefix_forward(self, endings: Endings, weights_Kr: Tensor, attended_rS: Tensor) -> None:
        """Adds the forward outputs of the kept tokens; those are the same for all endings of a prefix."""
        distance = np.arange(len(weights_Kr))
        for prefix in np.unique(endings.prefixes).tolist():
            rows = np.flatnonzero(endings.prefixes == prefix)
            for keep in np.unique(endings.keeps[rows]).tolist():
                chosen = torch.from_numpy(rows[endings.keeps[rows] == keep]).to(weights_Kr.device)
                places = torch.from_numpy(keep - distance[:keep]).to(weights_Kr.device)
                attended_rS[chosen] += weights_Kr[:keep, chosen].t() @ self._forward[prefix, places]


class _Selection:
    """The selection network's weights in one precision, those of the attention by the half that they multiply."""

    def __init__(self, tables: Tables, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.forward, self.backward = _Cell(tables.selection_forward, dtype), _Cell(tables.selection_backward, dtype)
        weight = tables.model.attention_hidden.weight.t().to(dtype)
        half = tables.model.sizes.hidden_selection
        self.attend_forward, self.attend_backward = weight[:half].contiguous(), weight[half:].contiguous()
        self.attention_bias = tables.model.attention_hidden.bias.to(dtype)

    def attention(self, forward_NS: Tensor, backward_NS: Tensor) -> Tensor:
        """What both halves give to the hidden layer of the attention (N, A), before its tanh."""
        return torch.addmm(self.attention_bias, forward_NS, self.attend_forward).addmm_(backward_NS, self.attend_backward)


class _Cell:
    """One direction of the selection GRU; states and gates are float32 whatever the precision of the products."""

    def __init__(self, direction: Direction, dtype: torch.dtype) -> None:
        self._dtype, self._inputs = dtype, len(direction.state_weight)
        both = 2 * len(direction.hidden_weight)
        shared = torch.zeros_like(direction.bias)
        shared[:both] = direction.bias[:both]
        words, state = (direction.word_gates + shared).to(dtype), direction.state_weight.to(dtype)
        hidden = direction.hidden_weight.to(dtype)
        self._gate_words, self._new_words = words[:, :both].contiguous(), words[:, both:].contiguous()
        self._gate_weight, self._new_weight = torch.cat([state, hidden])[:, :both].contiguous(), state[:, both:].contiguous()
        self.gate_hidden_weight = hidden[:, :both].contiguous()
        self._hidden_weight, self._hidden_bias = hidden[:, both:].contiguous(), direction.bias[both:].to(dtype)

    def shares(self, tokens_N: Tensor, language_NH: Tensor) -> tuple[Tensor, Tensor]:
        """What words and language states give to the gates (N, 2S) and to the candidate (N, S)."""
        gates = self._gate_words.index_select(0, tokens_N).addmm_(language_NH, self._gate_weight[: self._inputs])
        return gates, self._new_words.index_select(0, tokens_N).addmm_(language_NH, self._new_weight)

    def run(
        self, tokens_Tr: Tensor, language_TrH: Tensor, steps: list[tuple[int, int]], state_rS: Tensor, out_TrS: Tensor
    ) -> None:
        """Writes the outputs of steps (t, rows running then), from a state on, which becomes that after the last step."""
        rows, inputs = len(state_rS), self._inputs
        joined, gates, news = (
            torch.zeros(_padded(rows), size, dtype=self._dtype, device=state_rS.device)
            for size in (inputs + state_rS.shape[1], self._gate_words.shape[1], self._new_words.shape[1])
        )
        joined[:rows, inputs:] = state_rS
        for t, k in steps:
            tokens, shape = tokens_Tr[t, :k], _padded(k)
            joined[:k, :inputs] = language_TrH[t, :k]
            torch.index_select(self._gate_words, 0, tokens, out=gates[:k])
            torch.index_select(self._new_words, 0, tokens, out=news[:k])
            gates[:shape].addmm_(joined[:shape], self._gate_weight)
            news[:shape].addmm_(joined[:shape, :inputs], self._new_weight)
            self.move(gates, news, joined[:, inputs:], state_rS[:k])
            joined[:k, inputs:] = state_rS[:k]
            out_TrS[t, :k] = state_rS[:k]

    def move(self, gates_r2S: Tensor, news_rS: Tensor, previous_rS: Tensor, state_kS: Tensor) -> None:
        """The states of the first k rows one step on; `previous_rS` is what they were, in the precision of the products."""
        k, width = state_kS.shape
        product = torch.addmm(self._hidden_bias, previous_rS[: _padded(k)], self._hidden_weight)[:k].float()
        gate = gates_r2S[:k].float().sigmoid_()
        new = news_rS[:k].float().addcmul_(gate[:, :width], product).tanh_()
        torch.lerp(new, state_kS, gate[:, width:], out=state_kS)


def _add_weighted(sums_rS: Tensor, outputs_TrS: Tensor, weights_Tr: Tensor, running: list[int]) -> None:
    for t, k in enumerate(running):
        sums_rS[:k].addcmul_(outputs_TrS[t, :k].float(), weights_Tr[t, :k].unsqueeze(1))


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
