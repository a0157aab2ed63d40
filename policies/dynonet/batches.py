"""Sides of recorded chats as batches: turn by turn, what a side heard since it last acted, and what it then did.

A turn's rows are the sides that have so many turns; sides are sorted by their number, so that these are the first rows.
Within one event rows are sorted by length, as `attending.py` wants them.

Shapes: R rows, N nodes, E edges, F features, k rows of an event, M places of words, J changed nodes, T words said by a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from parley.envs.mutual_friends.events import FriendsChat
from parley.envs.mutual_friends.linker import EntityLinker
from parley.policies.dynonet.attending import Checks, Places
from parley.policies.dynonet.reading import NO_NODE, ChatReader, EventReading
from parley.policies.dynonet.settings import DynoNetSizes
from parley.policies.dynonet.vocabulary import GO_ID, FriendsVocabulary


class Moved:
    """A dataclass whose tensors, and those within, go to a device; other parts stay as they are."""

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(**{each.name: _moved(getattr(self, each.name), device) for each in fields(self)})  # type: ignore[arg-type]


def _moved(part: Any, device: torch.device) -> Any:
    if isinstance(part, Tensor | Moved):
        return part.to(device)
    if isinstance(part, Places):
        return replace(part, last_R=part.last_R.to(device))
    return type(part)(_moved(each, device) for each in part) if isinstance(part, list | tuple) else part


@dataclass(frozen=True)
class Edges(Moved):
    """Edges of R graphs of N nodes each; node n of row r is number r N + n."""

    targets_E: Tensor
    """Who gets a message, int64, rising."""
    sources_E: Tensor
    """From whom."""
    relations_E: Tensor
    """By which relation."""
    ends_R: list[int]
    """Edges of the rows up to and including each."""

    @classmethod
    def of(cls, graphs: Sequence[np.ndarray], num_nodes: int) -> Edges:
        """From the edges (E, 3) of each row; `num_nodes` is N."""
        counts = [len(edges) for edges in graphs]
        targets, sources, relations = np.concatenate(graphs).astype(np.int64).T
        starts = np.repeat(np.arange(len(graphs)) * num_nodes, counts)
        first, second, third = (torch.from_numpy(each.copy()) for each in (targets + starts, sources + starts, relations))
        return cls(first, second, third, np.cumsum(counts).tolist())

    def first(self, rows: int) -> Edges:
        """Those of the first rows."""
        end = self.ends_R[rows - 1]
        return Edges(self.targets_E[:end], self.sources_E[:end], self.relations_E[:end], self.ends_R[:rows])


@dataclass(frozen=True)
class Named(Moved):
    """Places of words that name nodes."""

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
class Said(Moved):
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
    """An event as rows hear it, one reading each."""
    order = _longest_first(readings)
    readings, rows = [readings[i] for i in order], [rows[i] for i in order]
    return _heard([each.words for each in readings], [each.nodes for each in readings], readings, rows)


def said_of(readings: Sequence[EventReading], rows: Sequence[int], num_words: int) -> Said:
    """An event as rows write it; `num_words` is V."""
    order = _longest_first(readings)
    readings, rows = [readings[i] for i in order], [rows[i] for i in order]
    words = [[GO_ID, *each.words[:-1]] for each in readings]
    nodes = [[NO_NODE, *each.nodes[:-1]] for each in readings]
    targets = [
        [word if node == NO_NODE else num_words + node for word, node in zip(each.words, each.nodes, strict=True)]
        for each in readings
    ]
    heard = _heard(words, nodes, readings, rows)
    checks = []
    for step in range(len(heard.places.running)):
        named = [(row, own[step]) for row, own in enumerate(nodes) if len(own) > step and own[step] != NO_NODE]
        fresh = [(row, node) for row, node in named if node not in nodes[row][:step]]
        checks.append((_ids([row for row, _ in fresh]), _ids([node for _, node in fresh])))
    return Said(heard, checks, _ids(_flat(targets)), _ids([each.known for each in readings]))


def _longest_first(readings: Sequence[EventReading]) -> list[int]:
    return sorted(range(len(readings)), key=lambda i: -len(readings[i].words))


def _heard(
    words: Sequence[Sequence[int]], nodes: Sequence[Sequence[int]], readings: Sequence[EventReading], rows: Sequence[int]
) -> Heard:
    lengths = np.array([len(own) for own in words])
    running = np.bincount(lengths)[::-1].cumsum()[::-1][1:]
    starts = running.cumsum() - running
    row = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(len(row)) - np.repeat(lengths.cumsum() - lengths, lengths)
    place = starts[step] + row
    words_M, nodes_M = np.empty(len(row), np.int64), np.fromiter(chain.from_iterable(nodes), np.int64, len(row))
    words_M[place] = np.fromiter(chain.from_iterable(words), np.int64, len(row))
    named, last = np.flatnonzero(nodes_M != NO_NODE), starts[lengths - 1] + np.arange(len(lengths))
    places = Places(tuple(running.tolist()), torch.from_numpy(last))
    found = Named(*map(torch.from_numpy, (place[named], row[named], nodes_M[named])))
    return Heard(_ids(rows), torch.from_numpy(words_M), places, found, touched_of(readings))


def touched_of(readings: Sequence[EventReading]) -> TouchedNodes:
    """The nodes that events change, one event a row."""
    counts = [len(each.touched) for each in readings]
    rows = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    return TouchedNodes(rows, _ids([node for each in readings for node in each.touched]))


def _flat(rows: Sequence[Sequence[int]]) -> list[int]:
    """Step by step; rows are sorted by length, the longest first."""
    return [own[step] for step in range(len(rows[0])) for own in rows if len(own) > step]


def _ids(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


@dataclass(frozen=True)
class SideTurn(Moved):
    """What the first rows of a batch heard since they last acted, and what they do."""

    heard: list[Heard]
    said: Said
    spots_M: Tensor
    """Where each target stands in (R, T), flat."""
    rows: int
    """How many rows have such a turn or a later one."""


@dataclass(frozen=True)
class SideBatch(Moved):
    """Sides of chats."""

    features_RNF: Tensor
    """Of the nodes, one-hot, float32; 0 behind the last one of a row."""
    edges: Edges
    turns: list[SideTurn]
    targets_BT: Tensor
    """What each side said (R, T), int64: ids of words, or V + node."""
    real_BT: Tensor


@dataclass(frozen=True)
class Side:
    """One side of a recorded chat.

    Args:
        features: of the nodes of its graph when the chat ends (N, F) bool.
        edges: of the graph (E, 3) int16.
        turns: what it heard since it last acted, and what it then did.
    """

    features: np.ndarray
    edges: np.ndarray
    turns: Sequence[tuple[Sequence[EventReading], EventReading]]


def side_of(chat: FriendsChat, side: int, vocabulary: FriendsVocabulary, sizes: DynoNetSizes, linker: EntityLinker) -> Side:
    """A side as a model reads it.

    Raises:
        DataError: as `ChatReader`.
    """
    scenario = chat.scenario
    reader = ChatReader(scenario.entities[side], scenario.attributes, vocabulary, sizes.max_items, linker)
    turns: list[tuple[Sequence[EventReading], EventReading]] = []
    waiting: list[EventReading] = []
    for said, heard in zip(chat.events, chat.heard, strict=True):
        if said.side != side:
            waiting.append(reader.hear(heard))
            continue
        turns.append((waiting, reader.own(said)))
        waiting = []
    return Side(reader.graph.features().astype(bool), reader.graph.edges_E3.astype(np.int16), turns)


class SideExamples:
    """Sides to fit a model to or to measure it on; those that never act are left out."""

    def __init__(
        self, chats: Sequence[FriendsChat], vocabulary: FriendsVocabulary, sizes: DynoNetSizes, linker: EntityLinker
    ) -> None:
        both = [side_of(chat, side, vocabulary, sizes, linker) for chat in chats for side in (0, 1)]
        self.sides = [each for each in both if each.turns]
        self.chats = np.array([i // 2 for i, each in enumerate(both) if each.turns], dtype=np.int64)
        """(n,) of which chat each is."""
        self._num_words = len(vocabulary)
        self.num_targets = np.array([sum(len(own.words) for _, own in each.turns) for each in self.sides], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.sides)

    def batch(self, indices: np.ndarray) -> SideBatch:
        """The sides at `indices` (R,), in that order."""
        sides = [self.sides[int(index)] for index in indices]
        order = sorted(range(len(sides)), key=lambda i: -len(sides[i].turns))
        ranked = [sides[i] for i in order]
        num_targets = self.num_targets[indices]
        longest = int(num_targets.max())
        targets = torch.zeros(len(sides) * longest, dtype=torch.int64)
        starts, turns = [i * longest for i in order], []
        for number in range(len(ranked[0].turns)):
            rows = sum(len(each.turns) > number for each in ranked)
            heard, own = zip(*(each.turns[number] for each in ranked[:rows]), strict=True)
            said = said_of(own, range(rows), self._num_words)
            deepest = max(map(len, heard))
            heard_by = [[row for row in range(rows) if len(heard[row]) > depth] for depth in range(deepest)]
            events = [heard_of([heard[row][depth] for row in each], each) for depth, each in enumerate(heard_by)]
            at = said.heard.rows_k.tolist()
            spots = _ids(_flat([range(starts[row], starts[row] + len(own[row].words)) for row in at]))
            targets[spots] = said.targets_M
            turns.append(SideTurn(events, said, spots, rows))
            starts = [start + len(each.words) for start, each in zip(starts, own, strict=False)]
        features = pad_sequence([torch.from_numpy(each.features) for each in ranked], batch_first=True).float()
        edges = Edges.of([each.edges for each in ranked], features.shape[1])
        real = torch.arange(longest) < torch.from_numpy(num_targets).unsqueeze(1)
        return SideBatch(features, edges, turns, targets.view(len(sides), longest), real)
