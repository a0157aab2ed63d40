"""A DynoNet that plays: hundreds of chats at a time, event by event, by the functions that training runs through.

What is kept between events: state, what nodes keep, their embeddings, and the products of their own parts with the weights
that read these (`DynoNet.roots`), which are formed anew for the nodes that an event changes and no others. What a side has
just chosen is not computed again when it hears itself.

Shapes: S rows of the game, k rows at work, N nodes, H hidden, C embedding of a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envs.friends.events import ChatEvent, Mention, Token
from envs.friends.game import Act, FriendsView
from envs.friends.linker import EntityLinker
from envs.storage.copies import CHECKPOINT, fetched_model
from policies.dynonet.batches import Edges, Heard, heard_of, said_of
from policies.dynonet.checkpoints import load_dynonet
from policies.dynonet.model import DynoNet, NodeContexts
from policies.dynonet.reading import NO_NODE, ChatReader
from policies.dynonet.settings import FriendsDecoding
from policies.dynonet.speaking import Chosen, Copyable, choose, num_draws
from policies.dynonet.vocabulary import SELECT_ID

SPARE_NODES = 8
"""Nodes for which a session makes room beyond those of its largest graph."""


class DynoNetAgent:
    """A `FriendsAgent`.

    Args:
        model: in evaluation mode.
        linker: finds entities in what is heard, and knows how they are said.
        name: shown in reports.
        decoding: how words are chosen.
    """

    def __init__(self, model: DynoNet, linker: EntityLinker, name: str, decoding: FriendsDecoding | None = None) -> None:
        self.model, self.linker, self.name = model, linker, name
        self.decoding = decoding or FriendsDecoding()

    def __repr__(self) -> str:
        return f"DynoNetAgent({self.name!r}, {self.decoding})"

    def join(self, view: FriendsView) -> DynoNetSession:
        """Takes a side."""
        return DynoNetSession(self, view)


class DynoNetSession:
    """One side of the chats in the rows of a game.

    Attributes:
        hidden_SH: states after what has been heard and said.
        cell_SH: their cells.
        contexts: the nodes as they are now.
    """

    def __init__(self, agent: DynoNetAgent, view: FriendsView) -> None:
        self._agent, self._view, self._model = agent, view, agent.model
        self._readers: dict[int, ChatReader] = {}
        self._chosen: dict[int, Chosen] = {}
        self._described: dict[int, int] = {}
        zeros, rows, sizes = agent.model.output.weight.new_zeros, len(view), agent.model.sizes
        self.hidden_SH, self.cell_SH = zeros(rows, sizes.hidden), zeros(rows, sizes.hidden)
        width = agent.model.key.in_features
        own = width - sizes.rounds * sizes.message
        self._own_SNV = zeros(rows, 0, own)
        self._roots_SNJ = zeros(rows, 0, agent.model.roots(zeros(1, own)).shape[1])
        self._words_SN = zeros(rows, 0, dtype=torch.int64)
        self.contexts = NodeContexts(zeros(rows, 0, width), zeros(rows, 0, sizes.hidden))

    @torch.no_grad()
    def enter(self, rows: list[int]) -> None:
        """Builds the graphs of new chats."""
        view, model, at = self._view, self._model, self._ids(rows)
        for row in rows:
            table, attributes = view.entities(row), view.attributes(row)
            self._readers[row] = ChatReader(table, attributes, model.vocabulary, model.sizes.max_items, self._agent.linker)
            self._chosen.pop(row, None)
            self._described.pop(row, None)
        self.hidden_SH[at], self.cell_SH[at], self._own_SNV[at] = 0, 0, 0
        self._describe(rows)

    @torch.no_grad()
    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Reads one event in each of the rows, the partner's or its own."""
        mine = [event.side == self._view.side for event in events]
        theirs, own = ([i for i, each in enumerate(mine) if each is wanted] for wanted in (False, True))
        if theirs:
            self._listen([rows[i] for i in theirs], [events[i] for i in theirs])
        if own:
            self._remember([rows[i] for i in own], [events[i] for i in own])

    @torch.no_grad()
    def act(self, rows: list[int]) -> list[Act]:
        """Chooses what to say or to select."""
        view, agent, at = self._view, self._agent, self._ids(rows)
        # The last draw chooses forms.
        draws = np.stack([view.generator(row).random(num_draws(agent.decoding) + 1) for row in rows])
        graphs = [self._readers[row].graph for row in rows]
        bounds = zip(*((len(graph), graph.first_entity, graph.num_items) for graph in graphs), strict=True)
        limits = [self._ids(each).unsqueeze(1) for each in bounds]
        every = torch.arange(self._own_SNV.shape[1], device=at.device)
        known = every < limits[0]
        copyable = Copyable(self._words_SN[at], known, known & (every >= limits[1]), every < limits[2])
        contexts = NodeContexts(*(part[at] for part in self.contexts))
        state, draws_kL = (self.hidden_SH[at], self.cell_SH[at]), torch.from_numpy(draws).to(at.device)
        chosen = choose(self._model, agent.decoding, state, contexts, copyable, draws_kL)
        self._chosen.update(zip(rows, chosen, strict=True))
        return [self._act(self._readers[row], each, draw) for row, each, draw in zip(rows, chosen, draws[:, -1], strict=True)]

    def _act(self, reader: ChatReader, chosen: Chosen, draw: float) -> Act:
        if chosen.words[0] == SELECT_ID:
            return chosen.nodes[1]
        entities, tokens = list(reader.graph.nodes), list[Token]()
        for word, node in zip(chosen.words[:-1], chosen.nodes[:-1], strict=True):
            if node == NO_NODE:
                tokens.append(self._model.vocabulary.words[word])
                continue
            entity = entities[node - reader.graph.first_entity]
            forms = self._agent.linker.forms(entity)
            tokens.append(Mention(entity, forms[int(draw * len(forms)) if self._agent.decoding.forms else 0]))
        return tuple(tokens)

    def _listen(self, rows: list[int], events: Sequence[ChatEvent]) -> None:
        readings = [self._readers[row].hear(event) for row, event in zip(rows, events, strict=True)]
        self._describe(rows)
        heard = heard_of(readings, rows).to(self.hidden_SH.device)
        at = heard.rows_k
        state = self._model.encode((self.hidden_SH[at], self.cell_SH[at]), heard, self.contexts.nodes_RNC[at])
        self._keep(heard, *state, of_own=False)

    def _remember(self, rows: list[int], events: Sequence[ChatEvent]) -> None:
        readings = [self._readers[row].own(event) for row, event in zip(rows, events, strict=True)]
        chosen = [self._chosen.pop(row, None) for row in rows]
        known, unknown = list[int](), list[int]()
        for i, (reading, each) in enumerate(zip(readings, chosen, strict=True)):
            same = each is not None and (each.words, each.nodes) == (reading.words, reading.nodes)
            (known if same else unknown).append(i)
        if known:
            said = said_of([readings[i] for i in known], [rows[i] for i in known], len(self._model.vocabulary))
            heard, by_row = said.heard.to(self.hidden_SH.device), {rows[i]: chosen[i] for i in known}
            ordered = [each for row in heard.rows_k.tolist() if (each := by_row[row]) is not None]
            state = torch.stack([each.hidden_H for each in ordered]), torch.stack([each.cell_H for each in ordered])
            self._keep(heard, *state, of_own=True)
        if unknown:
            said = said_of([readings[i] for i in unknown], [rows[i] for i in unknown], len(self._model.vocabulary))
            said = said.to(self.hidden_SH.device)
            at = said.heard.rows_k
            contexts = NodeContexts(*(part[at] for part in self.contexts))
            written = self._model.decode((self.hidden_SH[at], self.cell_SH[at]), said, contexts)
            self._keep(said.heard, written.hidden_RH, written.cell_RH, of_own=True)

    def _keep(self, heard: Heard, hidden_kH: Tensor, cell_kH: Tensor, *, of_own: bool) -> None:
        """Notes the state after an event, and changes the nodes that it touches."""
        at, touched, model = heard.rows_k, heard.touched, self._model
        self.hidden_SH[at], self.cell_SH[at] = hidden_kH, cell_kH
        if not model.sizes.dynamic or not len(touched.rows_J):
            return
        rows, nodes, size = at[touched.rows_J], touched.nodes_J, model.sizes.hidden
        part = slice(size, 2 * size) if of_own else slice(0, size)
        own_JV = self._own_SNV[rows, nodes]
        own_JV[:, part] = model.touched(own_JV[:, part], hidden_kH[touched.rows_J])
        self._own_SNV[rows, nodes], self._roots_SNJ[rows, nodes] = own_JV, model.roots(own_JV)
        self._spread(rows.unique())

    def _spread(self, at: Tensor) -> None:
        """Forms the contexts of rows anew."""
        edges = Edges.of([self._readers[row].graph.edges_E3 for row in at.tolist()], self._own_SNV.shape[1]).to(at.device)
        for kept, new in zip(self.contexts, self._model.spread(self._own_SNV[at], self._roots_SNJ[at], edges), strict=True):
            kept[at] = new

    def _describe(self, rows: list[int]) -> None:
        """Makes room for nodes that are new in these rows, notes what they are, and forms their contexts."""
        graphs = {row: graph for row in rows if len(graph := self._readers[row].graph) > self._described.get(row, 0)}
        if not graphs:
            return
        if (more := max(map(len, graphs.values())) - self._own_SNV.shape[1]) > 0:
            kept = (self._own_SNV, self._roots_SNJ, self._words_SN, *self.contexts)
            self._own_SNV, self._roots_SNJ, self._words_SN, *contexts = (_wider(part, more + SPARE_NODES) for part in kept)
            self.contexts = NodeContexts(*contexts)
        for row, graph in graphs.items():
            new = slice(self._described.get(row, 0), len(graph))
            self._own_SNV[row, new, 2 * self._model.sizes.hidden :] = torch.from_numpy(graph.features()[new]).to(self._own_SNV)
            self._words_SN[row, new] = self._ids(graph.words[new])
            self._roots_SNJ[row, new] = self._model.roots(self._own_SNV[row, new])
            self._described[row] = len(graph)
        self._spread(self._ids(list(graphs)))

    def _ids(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.hidden_SH.device)


def _wider(part_SN: Tensor, more: int) -> Tensor:
    """With room for more nodes, all 0."""
    return torch.cat([part_SN, part_SN.new_zeros(len(part_SN), more, *part_SN.shape[2:])], dim=1)


def load_friends_agent(
    folder: str | Path,
    linker: EntityLinker,
    name: str | None = None,
    device: str = "cpu",
    decoding: FriendsDecoding | None = None,
) -> DynoNetAgent:
    """An agent from a run or checkpoint folder, or a URI of one; raises as `ModelFormat.load` does.

    Args:
        folder: such as "runs/dynonet".
        linker: of the corpus that it was trained on, which `corpus` of its provenance names.
        name: shown in reports; the run's when not given.
        device: torch device.
        decoding: how words are chosen; as released when not given.
    """
    path = fetched_model(folder)
    run = path.parent if path.name == CHECKPOINT else path
    return DynoNetAgent(load_dynonet(path).to(device), linker, name or run.name, decoding)
