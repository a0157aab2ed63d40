"""Batches of sides of recorded chats, and the recurrences of DynoNet over them: an LSTM that reads, and one that writes.

A batch goes turn by turn: the events that a side heard since its last act, and its act. A turn's rows are the sides that have
so many turns; sides are sorted by their number of turns, so these are the first rows. Within one event rows are sorted by
length, the longest first.

Each recurrence is one autograd node: rows that have ended leave the loop, and weight gradients are formed in one product over
all steps. Words of many rows follow each other step by step: those of all rows at the first step, then those of the rows
still running at the second, and so on (time-major and flat, M positions in all).

The writer attends to the nodes of a graph at every word (He et al. 2017, equations 3 to 5): a node scores v . tanh(W_q h + W_k
node + w_c checked), where checked is 1 once the utterance has named the node. The softmax of the scores weighs the nodes'
embeddings; their sum is attended to, and the next step reads it.

Shapes: R rows, T steps or words said by a side, M positions of words, N nodes, E edges, F features, k rows of an event, J
changed nodes, H hidden, C embedding of a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.nn.utils.rnn import pad_sequence

from parley.envs.mutual_friends.game import FriendsChat
from parley.envs.mutual_friends.linker import EntityLinker
from parley.policies.core.layers import advance, retreat, tanh_
from parley.policies.dynonet.graphs import GO_ID, FriendsVocabulary
from parley.policies.dynonet.reading import NO_NODE, ChatReader, EventReading
from parley.policies.dynonet.settings import DynoNetSizes


@dataclass(frozen=True)
class Places:
    """Positions of the words of rows in flat arrays.

    Args:
        running: rows at each step, falling.
        last_R: the place of each row's last word, int64.
    """

    running: tuple[int, ...]
    last_R: Tensor

    def rows(self) -> Tensor:
        """Return the row of each position (M,)."""
        return torch.cat([torch.arange(rows, device=self.last_R.device) for rows in self.running])

    def blocks(self) -> list[slice]:
        """Return the positions of each step."""
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
    """Return the states of an LSTM over rows of different lengths.

    Args:
        gates_M4H: products of the inputs, biases included.
        hidden_RH: the state before.
        cell_RH: the cell before.
        weight_4HH: of the state.
        places: of the words.

    Returns:
        State and cell (R, H) after each row's last word.
    """
    states: tuple[Tensor, Tensor] = _Read.apply(gates_M4H, hidden_RH, cell_RH, weight_4HH, places)
    return states


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
    """Return the attention to nodes, in training and in play.

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
        first_hidden, first_cell, nodes_RNC, weight_4HH, weight_4HC, query_HH, score_H, *saved = ctx.saved_tensors
        first, gates, states, cells, squashed, attended = saved
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
            # The tanh is not read again: its memory takes the gradient of its input.
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
        before = torch.cat([first_hidden, *(states[earlier][: now.stop - now.start] for earlier, now in past)])
        seen_before = torch.cat([first, *(attended[earlier][: now.stop - now.start] for earlier, now in past)])
        query_grad = queries_grad.t() @ states + first_queries_grad.t() @ first_hidden
        nodes_grad = torch.bmm(shares_RTN.transpose(1, 2), seen_RTC)
        weights = grads.t() @ before, grads.t() @ seen_before, query_grad, check_grad, score_grad
        return grads, hidden_grad, cell_grad, nodes_grad, keys_grad, *weights, None, None, None


Checks = Sequence[tuple[Tensor, Tensor]]
"""By step: rows and nodes that the word read there names for the first time, int64."""


class Written(NamedTuple):
    """The results of writing."""

    states_MH: Tensor
    attended_MC: Tensor
    scores_MN: Tensor
    """Scores of the nodes, at each position; minus infinity where there is none."""
    hidden_RH: Tensor
    """State after the last word; without gradient."""
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
    """Return the results of an LSTM over rows of different lengths that attends to nodes after every word.

    Args:
        gates_M4H: products of the words that are read, biases included.
        state: state and cell (R, H) before.
        contexts: embeddings (R, N, C) and keys (R, N, H) of the nodes.
        real_RN: true where there is a node.
        weights: of the state (4H, H) and of the attended nodes (4H, C).
        scorer: of attention.
        places: of the words.
        checks: nodes that the words name.
    """
    return Written(*_Write.apply(gates_M4H, *state, *contexts, *weights, *scorer, real_RN, places, checks))


class Moved:
    """A dataclass whose tensors, nested ones too, move to a device; other parts stay."""

    def to(self, device: torch.device) -> Self:
        """Return the same on a device."""
        return type(self)(**{attribute.name: _moved(getattr(self, attribute.name), device) for attribute in fields(self)})  # type: ignore[arg-type]


def _moved(part: Any, device: torch.device) -> Any:
    if isinstance(part, Tensor | Moved):
        return part.to(device)
    if isinstance(part, Places):
        return replace(part, last_R=part.last_R.to(device))
    return type(part)(_moved(inner, device) for inner in part) if isinstance(part, list | tuple) else part


@dataclass(frozen=True)
class Edges(Moved):
    """Edges of R graphs of N nodes each; node n of row r is number r N + n."""

    targets_E: Tensor
    """Receiver of a message, int64, rising."""
    sources_E: Tensor
    """Sender of the message."""
    relations_E: Tensor
    """Relation of the edge."""
    ends_R: list[int]
    """Number of edges of the rows up to and including each."""

    @classmethod
    def of(cls, graphs: Sequence[np.ndarray], num_nodes: int) -> Edges:
        """Return the edges of graphs from those (E, 3) of each row; `num_nodes` is N."""
        counts = [len(edges) for edges in graphs]
        targets, sources, relations = np.concatenate(graphs).astype(np.int64).T
        starts = np.repeat(np.arange(len(graphs)) * num_nodes, counts)
        first, second, third = (torch.from_numpy(part.copy()) for part in (targets + starts, sources + starts, relations))
        return cls(first, second, third, np.cumsum(counts).tolist())

    def first(self, rows: int) -> Edges:
        """Return the edges of the first rows."""
        end = self.ends_R[rows - 1]
        return Edges(self.targets_E[:end], self.sources_E[:end], self.relations_E[:end], self.ends_R[:rows])


@dataclass(frozen=True)
class Named(Moved):
    """Positions of words that name nodes."""

    places_J: Tensor
    rows_J: Tensor
    """Rows of the event."""
    nodes_J: Tensor


@dataclass(frozen=True)
class TouchedNodes(Moved):
    """Nodes that an event changes."""

    rows_J: Tensor
    """Rows of the event."""
    nodes_J: Tensor


@dataclass(frozen=True)
class Heard(Moved):
    """An event that k rows hear, or one of their own that they remember."""

    rows_k: Tensor
    """Rows of the batch, int64."""
    words_M: Tensor
    """Ids, int64."""
    places: Places
    named: Named
    touched: TouchedNodes


@dataclass(frozen=True)
class SpokenEvent(Moved):
    """An event that k rows write."""

    heard: Heard
    """The words as they are read: `<go>` in front, the last one missing."""
    checks: Checks
    """Nodes that the words read name for the first time, by step."""
    targets_M: Tensor
    """Ids of words, or V + node."""
    known_k: Tensor
    """Nodes that each row may copy."""


def heard_of(readings: Sequence[EventReading], rows: Sequence[int]) -> Heard:
    """Return an event as rows hear it, one reading each."""
    order = _longest_first(readings)
    readings, rows = [readings[i] for i in order], [rows[i] for i in order]
    return _heard([reading.words for reading in readings], [reading.nodes for reading in readings], readings, rows)


def spoken_of(readings: Sequence[EventReading], rows: Sequence[int], num_words: int) -> SpokenEvent:
    """Return an event as rows write it; `num_words` is V."""
    order = _longest_first(readings)
    readings, rows = [readings[i] for i in order], [rows[i] for i in order]
    words = [[GO_ID, *reading.words[:-1]] for reading in readings]
    nodes = [[NO_NODE, *reading.nodes[:-1]] for reading in readings]
    targets = [
        [word if node == NO_NODE else num_words + node for word, node in zip(reading.words, reading.nodes, strict=True)]
        for reading in readings
    ]
    heard = _heard(words, nodes, readings, rows)
    checks = []
    for step in range(len(heard.places.running)):
        named = [
            (row, row_nodes[step])
            for row, row_nodes in enumerate(nodes)
            if len(row_nodes) > step and row_nodes[step] != NO_NODE
        ]
        fresh = [(row, node) for row, node in named if node not in nodes[row][:step]]
        checks.append((_ids([row for row, _ in fresh]), _ids([node for _, node in fresh])))
    return SpokenEvent(heard, checks, _ids(_flat(targets)), _ids([reading.num_nodes for reading in readings]))


def _longest_first(readings: Sequence[EventReading]) -> list[int]:
    return sorted(range(len(readings)), key=lambda i: -len(readings[i].words))


def _heard(
    words: Sequence[Sequence[int]], nodes: Sequence[Sequence[int]], readings: Sequence[EventReading], rows: Sequence[int]
) -> Heard:
    lengths = np.array([len(row_words) for row_words in words])
    running = np.bincount(lengths)[::-1].cumsum()[::-1][1:]
    starts = running.cumsum() - running
    row = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(len(row)) - np.repeat(lengths.cumsum() - lengths, lengths)
    position = starts[step] + row
    words_M, nodes_M = np.empty(len(row), np.int64), np.fromiter(chain.from_iterable(nodes), np.int64, len(row))
    words_M[position] = np.fromiter(chain.from_iterable(words), np.int64, len(row))
    named, last = np.flatnonzero(nodes_M != NO_NODE), starts[lengths - 1] + np.arange(len(lengths))
    places = Places(tuple(running.tolist()), torch.from_numpy(last))
    named_nodes = Named(*map(torch.from_numpy, (position[named], row[named], nodes_M[named])))
    return Heard(_ids(rows), torch.from_numpy(words_M), places, named_nodes, touched_of(readings))


def touched_of(readings: Sequence[EventReading]) -> TouchedNodes:
    """Return the nodes that events change, one event a row."""
    counts = [len(reading.touched) for reading in readings]
    rows = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    return TouchedNodes(rows, _ids([node for reading in readings for node in reading.touched]))


def _flat(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return values step by step; rows are sorted by length, the longest first."""
    return [row[step] for step in range(len(rows[0])) for row in rows if len(row) > step]


def _ids(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


@dataclass(frozen=True)
class SideTurn(Moved):
    """The events that the first rows of a batch heard since they last acted, and their acts."""

    heard: list[Heard]
    spoken: SpokenEvent
    spots_M: Tensor
    """Position of each target in (R, T), flat."""
    rows: int
    """Number of rows with such a turn or a later one."""


@dataclass(frozen=True)
class SideBatch(Moved):
    """Sides of chats."""

    features_RNF: Tensor
    """Features of the nodes, one-hot, float32; 0 behind the last one of a row."""
    edges: Edges
    turns: list[SideTurn]
    targets_BT: Tensor
    """Words said by each side (R, T), int64: ids of words, or V + node."""
    real_BT: Tensor


@dataclass(frozen=True)
class Side:
    """One side of a recorded chat.

    Args:
        features: of the nodes of its graph when the chat ends (N, F) bool.
        edges: of the graph (E, 3) int16.
        turns: events heard since its last act, and its act.
    """

    features: np.ndarray
    edges: np.ndarray
    turns: Sequence[tuple[Sequence[EventReading], EventReading]]


def side_of(chat: FriendsChat, side: int, vocabulary: FriendsVocabulary, sizes: DynoNetSizes, linker: EntityLinker) -> Side:
    """Return a side as a model reads it.

    Raises:
        DataError: as `ChatReader`.
    """
    scenario = chat.scenario
    reader = ChatReader(scenario.entities[side], scenario.attributes, vocabulary, sizes.max_items, linker)
    turns: list[tuple[Sequence[EventReading], EventReading]] = []
    waiting: list[EventReading] = []
    for event, heard in zip(chat.events, chat.heard, strict=True):
        if event.side != side:
            waiting.append(reader.hear(heard))
            continue
        turns.append((waiting, reader.read_own(event)))
        waiting = []
    return Side(reader.graph.features().astype(bool), reader.graph.edges_E3.astype(np.int16), turns)


class SideExamples:
    """Sides to fit a model to or to measure it on; sides that never act are left out."""

    def __init__(
        self, chats: Sequence[FriendsChat], vocabulary: FriendsVocabulary, sizes: DynoNetSizes, linker: EntityLinker
    ) -> None:
        both = [side_of(chat, side, vocabulary, sizes, linker) for chat in chats for side in (0, 1)]
        self.sides = [side for side in both if side.turns]
        self.units = np.array([i // 2 for i, side in enumerate(both) if side.turns], dtype=np.int64)
        """(n,) the chat of each."""
        self._num_words = len(vocabulary)
        self.num_targets = np.array([sum(len(act.words) for _, act in side.turns) for side in self.sides], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.sides)

    def batch(self, indices: np.ndarray) -> SideBatch:
        """Return the sides at `indices` (R,), in that order."""
        sides = [self.sides[int(index)] for index in indices]
        order = sorted(range(len(sides)), key=lambda i: -len(sides[i].turns))
        ranked = [sides[i] for i in order]
        num_targets = self.num_targets[indices]
        longest = int(num_targets.max())
        targets = torch.zeros(len(sides) * longest, dtype=torch.int64)
        starts, turns = [i * longest for i in order], []
        for number in range(len(ranked[0].turns)):
            rows = sum(len(side.turns) > number for side in ranked)
            heard, acts = zip(*(side.turns[number] for side in ranked[:rows]), strict=True)
            written = spoken_of(acts, range(rows), self._num_words)
            deepest = max(map(len, heard))
            heard_by = [[row for row in range(rows) if len(heard[row]) > depth] for depth in range(deepest)]
            events = [heard_of([heard[row][depth] for row in hearers], hearers) for depth, hearers in enumerate(heard_by)]
            at = written.heard.rows_k.tolist()
            spots = _ids(_flat([range(starts[row], starts[row] + len(acts[row].words)) for row in at]))
            targets[spots] = written.targets_M
            turns.append(SideTurn(events, written, spots, rows))
            starts = [start + len(act.words) for start, act in zip(starts, acts, strict=False)]
        features = pad_sequence([torch.from_numpy(side.features) for side in ranked], batch_first=True).float()
        edges = Edges.of([side.edges for side in ranked], features.shape[1])
        real = torch.arange(longest) < torch.from_numpy(num_targets).unsqueeze(1)
        return SideBatch(features, edges, turns, targets.view(len(sides), longest), real)
