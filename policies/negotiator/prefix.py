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

import numpy as np
import torch
from torch import Tensor

from policies.negotiator.inference import CELL_ROWS, SHAPE_ROWS, Attended, Direction, Group, Selection, Tables, rounded_up
from policies.negotiator.model import Negotiator

ROWS = {torch.float32: 256, torch.bfloat16: 512}
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
        # Kept by prefix, then position, so that one number addresses a place of a prefix.
        self._places = places + 1
        self._language = language.transpose(0, 1).contiguous()
        self._forward, shares = self._read_forward(tokens_nP, lengths_n)
        self._shares = {torch.float32: shares}
        self._halves = {torch.float32: _BackwardHalf(self._model, tables.selection_backward, torch.float32)}

    @torch.no_grad()
    def states(self, endings: Endings) -> Tensor:
        """Language states (r, H) after each ending."""
        order = _by_length(endings)
        parts = []
        for rows in _chunks(order, ROWS[torch.float32]):
            last = torch.from_numpy(endings.lengths[rows] - 1)
            parts.append(self._read(endings[rows])[last, torch.arange(len(rows))])
        return _restored(parts, order)

    @torch.no_grad()
    def decide(self, endings: Endings) -> Tensor:
        """Item logits (r, 6, 18) of the final choice after dialogues with those endings, the last token included."""
        return self._logits(endings, self._tables.exact)

    @torch.no_grad()
    def screen(self, endings: Endings) -> Tensor:
        """What `decide` returns, nearly, from products in bfloat16; worth it where `Tables.can_screen`."""
        return self._logits(endings, self._tables.rounded)

    def _read_forward(self, tokens_nP: np.ndarray, lengths_n: np.ndarray) -> tuple[Tensor, Tensor]:
        """The forward outputs (n, P + 1, S) before each token and after the last, and what places give to the backward half."""
        model, (rows, places) = self._model, self._language.shape[:2]
        forward_nPS = self._language.new_zeros(rows, places, model.sizes.hidden_selection)
        order = np.argsort(-lengths_n, kind="stable")
        group = Group(order, lengths_n[order])
        row, step = group.rows[group.row], group.step + 1
        start = self._language.new_zeros(2, rows, forward_nPS.shape[2])
        outputs_2NS = self._tables.exact.recurrence.run(
            group, group.take(tokens_nP), self._language.flatten(0, 1), row * places + step, start
        )
        forward_nPS[torch.from_numpy(row), torch.from_numpy(step)] = outputs_2NS[0, : len(row)]
        return forward_nPS, _shares(model, self._tables.selection_backward, tokens_nP, self._language, forward_nPS)

    def _logits(self, endings: Endings, selection: Selection) -> Tensor:
        dtype, model = selection.dtype, self._model
        if dtype not in self._halves:
            self._halves[dtype] = _BackwardHalf(model, self._tables.selection_backward, dtype)
            self._shares[dtype] = self._shares[torch.float32].to(dtype)
        device, width = self._language.device, model.sizes.hidden_selection
        states_rS, weights_r, means_r2S = (
            torch.empty(len(endings), *size, device=device) for size in ((width,), (), (2 * width,))
        )
        # Grouped once by their own tokens and once by those kept, so that a group's rows run equally far.
        for rows in _chunks(_by_length(endings), ROWS[dtype]):
            part, states = self._over_ending(endings[rows], selection)
            index = torch.from_numpy(rows).to(device)
            states_rS[index], weights_r[index], means_r2S[index] = states, part.weights, part.means
        attended = Attended(weights_r, means_r2S)
        kept = np.lexsort((endings.prefixes, -endings.keeps))[: np.count_nonzero(endings.keeps)]
        for rows in _chunks(kept, ROWS[dtype]):
            index = torch.from_numpy(rows).to(device)
            attended.include(index, self._over_prefix(endings.prefixes[rows], endings.keeps[rows], states_rS[index], dtype))
        return selection.heads(attended.means, self.context_nC[torch.from_numpy(endings.prefixes).to(device)])

    def _read(self, endings: Endings) -> Tensor:
        """Language states (T, r, H) after the tokens of endings, longest first; what stands past an end is anything."""
        device, steps = self._language.device, int(endings.lengths[0])
        tokens_Tr = torch.from_numpy(np.ascontiguousarray(endings.tokens[:, :steps].T)).to(device)
        prefixes, keeps = (torch.from_numpy(part).to(device) for part in (endings.prefixes, endings.keeps))
        gates, state = self.context_gates_n3H[prefixes], self._language[prefixes, keeps]
        # Not left empty: what no row has read is looked at beside what counts.
        states_TrH = state.new_zeros(steps, *state.shape)
        for tokens, states, k in zip(tokens_Tr, states_TrH, _running(endings.lengths), strict=True):
            state = self._tables.advance(tokens[:k], gates[:k], state[:k], out_nH=states[:k])
        return states_TrH

    def _over_ending(self, endings: Endings, selection: Selection) -> tuple[Attended, Tensor]:
        """Both halves over the endings' own tokens: what is attended to, and the backward states (r, S) before them."""
        rows = len(endings)
        group = Group(np.arange(rows), endings.lengths)
        prefixes, keeps = (torch.from_numpy(part).to(self._language.device) for part in (endings.prefixes, endings.keeps))
        forward = self._forward[prefixes, keeps]
        start_2nS = torch.stack([forward, torch.zeros_like(forward)])
        at_N = group.step * rows + group.row
        attended, states_2nS = selection.attend(
            group, group.take(endings.tokens), self._read(endings).flatten(0, 1), at_N, start_2nS
        )
        return attended, states_2nS[1]

    def _over_prefix(self, prefixes: np.ndarray, keeps: np.ndarray, state_rS: Tensor, dtype: torch.dtype) -> Attended:
        """What is attended to in the kept tokens; most kept first. The backward half moves `state_rS` on to the start."""
        running, first = _running(keeps), torch.from_numpy(prefixes * self._places + keeps).to(state_rS.device)
        scores_Kr, outputs = self._halves[dtype].run(self._shares[dtype], first, running, state_rS)
        weights_Kr, (rows, width) = scores_Kr.softmax(0), state_rS.shape
        means = state_rS.new_zeros(rows, 2 * width)
        for k, output, weights in zip(running, outputs, weights_Kr, strict=True):
            means[:k, width:].addcmul_(output[:k].float(), weights[:k].unsqueeze(1))
        # The forward outputs of kept tokens are the same for all endings that keep as many.
        for same in _groups(prefixes * self._places + keeps):
            keep = int(keeps[same.start])
            places = torch.arange(keep, 0, -1, device=means.device)
            means[same, :width] = weights_Kr[:keep, same].t() @ self._forward[int(prefixes[same.start]), places]
        return Attended(scores_Kr.logsumexp(0), means)


class _BackwardHalf:
    """The backward half of the selection GRU over kept tokens, with its share of the attention, in one precision.

    The products of a state stand side by side: reset gate, update gate, candidate, and the attention to the state itself,
    so that one product serves the next step and the score of this one. The candidate's input product is the last column.
    """

    def __init__(self, model: Negotiator, direction: Direction, dtype: torch.dtype) -> None:
        self._width = width = model.sizes.hidden_selection
        attention = model.attention_hidden.weight.t()[width:]
        self._weight = torch.cat([direction.hidden_weight, attention], dim=1).to(dtype).contiguous()
        self._score, self._dtype = model.attention_score, dtype

    def run(self, shares: Tensor, first_r: Tensor, running: list[int], state_rS: Tensor) -> tuple[Tensor, Tensor]:
        """From the endings' first token on to the start of each prefix.

        Args:
            shares: of `_shares`.
            first_r: the place of the last token kept, most kept first.
            running: how many rows have more than t tokens kept.
            state_rS: before the first step; moved on.

        Returns:
            Attention scores (K, r), minus infinity before the start, and outputs (K, r', S), both last token first.
        """
        (rows, width), device = state_rS.shape, state_rS.device
        # Not left empty: products in bfloat16 of odd widths also read the row after, and 0 * nan is not 0.
        outputs = torch.zeros(1 + len(running), _padded(rows), width, dtype=self._dtype, device=device)
        outputs[0, :rows] = state_rS
        scores = state_rS.new_full((len(running), rows), -torch.inf)
        columns = self._weight.shape[1]
        gates = shares.new_zeros(_padded(rows), shares.shape[1])
        exact = state_rS.new_empty(2 * CELL_ROWS, shares.shape[1])
        # A row's last state is scored one step after its last move.
        for t, (scored, k) in enumerate(zip([rows, *running], [*running, 0], strict=True)):
            torch.index_select(shares, 0, first_r[:scored] - t, out=gates[:scored])
            shape = _padded(scored)
            gates[:shape, :columns].addmm_(outputs[t, :shape], self._weight)
            for low in range(0, scored, len(exact)):
                gate = exact[: min(scored - low, len(exact))].copy_(gates[low : low + len(exact)][: scored - low])
                reset, update = gate[:, : 2 * width].sigmoid_().split(width, 1)
                gate[:, columns:].addcmul_(reset, gate[:, 2 * width : 3 * width])
                gate[:, 3 * width :].tanh_()
                if t:
                    scores[t - 1, low : low + len(gate)] = self._score(gate[:, 3 * width : columns]).squeeze(1)
                if k > low:
                    moved = min(k - low, len(gate))
                    state = state_rS[low : low + moved]
                    torch.lerp(gate[:moved, columns:], state, update[:moved], out=state)
                    outputs[t + 1, low : low + moved] = state
        return scores, outputs[1:]


def _shares(
    model: Negotiator, direction: Direction, tokens_nP: np.ndarray, language_nPH: Tensor, forward_nPS: Tensor
) -> Tensor:
    """What each place of a prefix gives to a step of the backward half, by prefix and place, start and end included.

    A step into a token gives to its gates, and scores the state after the token that follows: reset gate, update gate,
    candidate's hidden bias, attention to the following token, candidate.
    """
    rows, places, width = *language_nPH.shape[:2], forward_nPS.shape[2]
    tokens = torch.from_numpy(np.ascontiguousarray(tokens_nP[:, : places - 1])).to(language_nPH.device)
    gates = direction.word_gates[tokens] + language_nPH[:, 1:] @ direction.state_weight
    attention = forward_nPS @ model.attention_hidden.weight.t()[:width] + model.attention_hidden.bias
    both, hidden = 2 * width, attention.shape[2]
    shares = language_nPH.new_zeros(rows, places, 4 * width + hidden)
    shares[:, 1:, :both] = gates[..., :both] + direction.bias[:both]
    shares[:, 1:, both : 3 * width] = direction.bias[both:]
    # Nothing follows the last token of a prefix that an ending keeps whole: what follows is the ending's own.
    shares[:, :-1, 3 * width : 3 * width + hidden] = attention[:, 1:]
    shares[:, 1:, 3 * width + hidden :] = gates[..., both:]
    return shares.flatten(0, 1)


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


def _padded(rows: int) -> int:
    return rounded_up(rows, SHAPE_ROWS)
