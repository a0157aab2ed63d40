"""The recurrences of DynoNet: an LSTM that reads, and one that writes and attends to the nodes of a graph at every word.

Each is one autograd node: rows that have ended leave the loop, and weight gradients are formed in one product over all steps.
Words of many rows stand one after another, step by step: those of all rows at the first step, then those of the rows that are
still running at the second, and so on (time-major and flat, M places in all). Rows are sorted by length, the longest first.

Attention (He et al. 2017, equations 3 to 5): a node scores v . tanh(W_q h + W_k node + w_c checked), where checked is 1
once the utterance has named the node. The softmax of the scores weighs the nodes' embeddings; the sum is attended to, and
the next step reads it.

Shapes: R rows, T steps, M places, N nodes, H hidden, C embedding of a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from parley.policies.core.lstm import advance, retreat
from parley.policies.core.products import tanh_


@dataclass(frozen=True)
class Places:
    """Where the words of rows stand in flat arrays.

    Args:
        running: rows at each step, falling.
        last_R: the place of each row's last word, int64.
    """

    running: tuple[int, ...]
    last_R: Tensor

    def rows(self) -> Tensor:
        """The row of each place (M,)."""
        return torch.cat([torch.arange(rows, device=self.last_R.device) for rows in self.running])

    def blocks(self) -> list[slice]:
        """The places of each step."""
        blocks, at = [], 0
        for rows in self.running:
            blocks.append(slice(at, at + rows))
            at += rows
        return blocks


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx, gates_M4H: Tensor, hidden_RH: Tensor, cell_RH: Tensor, weight_4HH: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        gates, size = gates_M4H.clone(), hidden_RH.shape[1]
        states, cells, squashed = (gates.new_empty(len(gates), size) for _ in range(3))
        hidden, cell = hidden_RH, cell_RH
        for block in places.blocks():
            rows = block.stop - block.start
            gates[block] += linear(hidden[:rows], weight_4HH)
            advance(gates[block], cell[:rows], cells[block], squashed[block], states[block])
            hidden, cell = states[block], cells[block]
        ctx.save_for_backward(hidden_RH, cell_RH, weight_4HH, gates, states, cells, squashed)
        ctx.places = places
        return states[places.last_R], cells[places.last_R]

    @staticmethod
    @once_differentiable
    def backward(ctx, hidden_grad: Tensor, cell_grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        first_hidden, first_cell, weight_4HH, gates, states, cells, squashed = ctx.saved_tensors
        hidden_grad, cell_grad = hidden_grad.clone(), cell_grad.clone()
        grads, weight_H4H = torch.empty_like(gates), weight_4HH.t().contiguous()
        blocks = ctx.places.blocks()
        before = torch.cat([first_hidden, *(states[past][: now.stop - now.start] for past, now in pairwise(blocks))])
        for at in range(len(blocks) - 1, -1, -1):
            block = blocks[at]
            rows = block.stop - block.start
            cell = (cells[blocks[at - 1]] if at else first_cell)[:rows]
            retreat(gates[block], cell, squashed[block], hidden_grad[:rows], cell_grad[:rows], grads[block])
            hidden_grad[:rows] = linear(grads[block], weight_H4H)
        return grads, hidden_grad, cell_grad, grads.t() @ before, None


def read(gates_M4H: Tensor, hidden_RH: Tensor, cell_RH: Tensor, weight_4HH: Tensor, places: Places) -> tuple[Tensor, Tensor]:
    """An LSTM over rows of different lengths.

    Args:
        gates_M4H: products of the inputs, biases included.
        hidden_RH: the state before.
        cell_RH: the cell before.
        weight_4HH: of the state.
        places: of the words.

    Returns:
        State and cell (R, H) after each row's last word.
    """
    found: tuple[Tensor, Tensor] = _Read.apply(gates_M4H, hidden_RH, cell_RH, weight_4HH, places)
    return found


class NodeScorer(NamedTuple):
    """The weights of attention."""

    query_HH: Tensor
    """W_q."""
    check_H: Tensor
    """w_c."""
    score_H: Tensor
    """v."""


def attend(
    hidden_kH: Tensor, keys_kNH: Tensor, nodes_kNC: Tensor, real_kN: Tensor, scorer: NodeScorer
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attends to nodes; what training and play share.

    Args:
        hidden_kH: states.
        keys_kNH: W_k of the nodes, with w_c where they are checked.
        nodes_kNC: their embeddings.
        real_kN: true where there is a node.
        scorer: the weights.

    Returns:
        What is attended to (k, C), scores (k, N), minus infinity where there is no node, their softmax, and the tanh (k, N, H).
    """
    squashed_kNH = tanh_(keys_kNH + linear(hidden_kH, scorer.query_HH).unsqueeze(1))
    scores_kN = (squashed_kNH @ scorer.score_H).masked_fill_(~real_kN, -torch.inf)
    shares_kN = scores_kN.softmax(1)
    return torch.bmm(shares_kN.unsqueeze(1), nodes_kNC).squeeze(1), scores_kN, shares_kN, squashed_kNH


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        gates_M4H: Tensor,
        hidden_RH: Tensor,
        cell_RH: Tensor,
        nodes_RNC: Tensor,
        keys_RNH: Tensor,
        weight_4HH: Tensor,
        weight_4HC: Tensor,
        query_HH: Tensor,
        check_H: Tensor,
        score_H: Tensor,
        real_RN: Tensor,
        places: Places,
        checks: Checks,
    ) -> tuple[Tensor, ...]:
        scorer, gates, size = NodeScorer(query_HH, check_H, score_H), gates_M4H.clone(), hidden_RH.shape[1]
        states, cells, squashed = (gates.new_empty(len(gates), size) for _ in range(3))
        attended = gates.new_empty(len(gates), nodes_RNC.shape[2])
        scores, keys = gates.new_empty(len(gates), keys_RNH.shape[1]), keys_RNH.clone()
        first, _, shares, tanh = attend(hidden_RH, keys, nodes_RNC, real_RN, scorer)
        kept = [(shares, tanh)]
        hidden, cell, seen = hidden_RH, cell_RH, first
        for block, (rows, nodes) in zip(places.blocks(), checks, strict=True):
            k = block.stop - block.start
            gates[block] += linear(hidden[:k], weight_4HH) + linear(seen[:k], weight_4HC)
            advance(gates[block], cell[:k], cells[block], squashed[block], states[block])
            keys[rows, nodes] += check_H
            hidden, cell = states[block], cells[block]
            attended[block], scores[block], shares, tanh = attend(hidden, keys[:k], nodes_RNC[:k], real_RN[:k], scorer)
            seen = attended[block]
            kept.append((shares, tanh))
        given = hidden_RH, cell_RH, nodes_RNC, weight_4HH, weight_4HC, query_HH, score_H
        ctx.save_for_backward(*given, first, gates, states, cells, squashed, attended)
        ctx.kept, ctx.places, ctx.checks = kept, places, checks
        last_R = places.last_R
        final = states[last_R], cells[last_R]
        ctx.mark_non_differentiable(*final)
        return states, attended, scores, *final

    @staticmethod
    @once_differentiable
    def backward(ctx, states_grad: Tensor, attended_grad: Tensor, scores_grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        first_hidden, first_cell, nodes_RNC, weight_4HH, weight_4HC, query_HH, score_H, *found = ctx.saved_tensors
        first, gates, states, cells, squashed, attended = found
        blocks = ctx.places.blocks()
        (num_rows, num_nodes, width), steps = nodes_RNC.shape, len(blocks)
        back = [weight.t().contiguous() for weight in (weight_4HH, weight_4HC, query_HH)]
        grads, queries_grad = torch.empty_like(gates), torch.empty_like(states)
        hidden_grad, cell_grad = torch.zeros_like(first_hidden), torch.zeros_like(first_cell)
        seen_grad, check_grad = first.new_zeros(num_rows, width), torch.zeros_like(score_H)
        keys_grad, score_grad = nodes_RNC.new_zeros(num_rows, num_nodes, len(score_H)), torch.zeros_like(score_H)
        # Step 0 is the attention from the state before the first word.
        shares_RTN = nodes_RNC.new_zeros(num_rows, steps + 1, num_nodes)
        seen_RTC = nodes_RNC.new_zeros(num_rows, steps + 1, width)

        def attention(step: int, k: int, of_scores: Tensor | None) -> Tensor:
            """Backward of `attend`: the gradient of the queries (k, H)."""
            nonlocal score_grad
            shares_kN, squashed_kNH = ctx.kept[step]
            seen_RTC[:k, step], shares_RTN[:k, step] = seen_grad[:k], shares_kN
            of_shares_kN = torch.bmm(nodes_RNC[:k], seen_grad[:k].unsqueeze(2)).squeeze(2)
            of_scores_kN = shares_kN * (of_shares_kN - (shares_kN * of_shares_kN).sum(1, keepdim=True))
            if of_scores is not None:
                of_scores_kN += of_scores
            score_grad = score_grad + of_scores_kN.reshape(-1) @ squashed_kNH.view(-1, len(score_H))
            # Nothing reads the tanh again: its memory takes the gradient of what it was taken of.
            inner_kNH = squashed_kNH.square_().neg_().add_(1).mul_(score_H).mul_(of_scores_kN.unsqueeze(2))
            keys_grad[:k] += inner_kNH
            return inner_kNH.sum(1)

        for step in range(steps - 1, -1, -1):
            block = blocks[step]
            k = block.stop - block.start
            seen_grad[:k] += attended_grad[block]
            queries_grad[block] = attention(step + 1, k, scores_grad[block])
            rows, nodes = ctx.checks[step]
            check_grad += keys_grad[rows, nodes].sum(0)
            hidden_grad[:k] += states_grad[block] + linear(queries_grad[block], back[2])
            cell = (cells[blocks[step - 1]] if step else first_cell)[:k]
            retreat(gates[block], cell, squashed[block], hidden_grad[:k], cell_grad[:k], grads[block])
            hidden_grad[:k], seen_grad[:k] = linear(grads[block], back[0]), linear(grads[block], back[1])
        first_queries_grad = attention(0, num_rows, None)
        hidden_grad += linear(first_queries_grad, back[2])
        past = list(pairwise(blocks))
        before = torch.cat([first_hidden, *(states[one][: now.stop - now.start] for one, now in past)])
        seen_before = torch.cat([first, *(attended[one][: now.stop - now.start] for one, now in past)])
        query_grad = queries_grad.t() @ states + first_queries_grad.t() @ first_hidden
        nodes_grad = torch.bmm(shares_RTN.transpose(1, 2), seen_RTC)
        weights = grads.t() @ before, grads.t() @ seen_before, query_grad, check_grad, score_grad
        return grads, hidden_grad, cell_grad, nodes_grad, keys_grad, *weights, None, None, None


Checks = Sequence[tuple[Tensor, Tensor]]
"""By step: rows and nodes that are named for the first time by the word that is read there, int64."""


class Written(NamedTuple):
    """What came of writing."""

    states_MH: Tensor
    attended_MC: Tensor
    scores_MN: Tensor
    """Of the nodes, at each place; minus infinity where there is none."""
    hidden_RH: Tensor
    """After the last word; without gradient."""
    cell_RH: Tensor


def write(
    gates_M4H: Tensor,
    state: tuple[Tensor, Tensor],
    contexts: tuple[Tensor, Tensor],
    real_RN: Tensor,
    weights: tuple[Tensor, Tensor],
    scorer: NodeScorer,
    places: Places,
    checks: Checks,
) -> Written:
    """An LSTM over rows of different lengths that attends to nodes after every word and reads what it attended to.

    Args:
        gates_M4H: products of the words that are read, biases included.
        state: state and cell (R, H) before.
        contexts: embeddings (R, N, C) and keys (R, N, H) of the nodes.
        real_RN: true where there is a node.
        weights: of the state (4H, H) and of what is attended to (4H, C).
        scorer: of attention.
        places: of the words.
        checks: nodes that the words name.
    """
    return Written(*_Write.apply(gates_M4H, *state, *contexts, *weights, *scorer, real_RN, places, checks))
