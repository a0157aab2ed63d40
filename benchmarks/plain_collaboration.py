"""A DynoNet that plays the plain way: one chat, one graph and one word at a time, all nodes formed anew for every event.

What `benchmarks/collaboration.py` compares with: the equations of `policies/dynonet/model.py` and the rules of
`policies/dynonet/agent.py`, given the same weights and draws. It shares how events are read (`reading.py`) and how a number
becomes a word (`policies/core/decoding.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parley.envs.mutual_friends.game import Act, ChatEvent, FriendsView, Token
from parley.envs.mutual_friends.linker import EntityLinker
from parley.policies.core.decoding import drawn
from parley.policies.dynonet.agent import num_draws
from parley.policies.dynonet.graphs import EOS_ID, GO_ID, ITEM_ID, SELECT_ID
from parley.policies.dynonet.model import DynoNet
from parley.policies.dynonet.reading import NO_NODE, ChatReader, EventReading
from parley.policies.dynonet.settings import FriendsDecoding


class PlainDynoNetAgent:
    """A `FriendsAgent` that plays one chat at a time.

    Args:
        model: whose weights are used.
        linker: of its corpus.
    """

    name = "plain"

    def __init__(self, model: DynoNet, linker: EntityLinker) -> None:
        self.model, self.linker, self.decoding = model, linker, FriendsDecoding()

    def join(self, view: FriendsView) -> PlainDynoNetSession:
        """Take a side."""
        return PlainDynoNetSession(self, view)


class PlainDynoNetSession:
    """One side of one chat after another; the row is always the first."""

    def __init__(self, agent: PlainDynoNetAgent, view: FriendsView) -> None:
        self.agent, self.view, self.model = agent, view, agent.model

    @torch.no_grad()
    def enter(self, rows: list[int]) -> None:
        """Begin a chat."""
        (row,), model, size = rows, self.model, self.model.sizes.hidden
        view = self.view
        table = view.entities(row), view.attributes(row)
        self.reader = ChatReader(*table, model.vocabulary, model.sizes.max_items, self.agent.linker)
        self.hidden, self.cell = torch.zeros(size), torch.zeros(size)
        self.heard = [torch.zeros(size) for _ in range(len(self.reader.graph))]
        self.said = [torch.zeros(size) for _ in range(len(self.reader.graph))]

    @torch.no_grad()
    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Read an event."""
        (event,) = events
        if event.side != self.view.side:
            reading = self.reader.hear(event)
            nodes = self.nodes()
            for word, node in zip(reading.words, reading.nodes, strict=True):
                gates = self.model.encoder_words(self.model.embedding.weight[word]) + self.model.encoder_state(self.hidden)
                self.step(gates if node == NO_NODE else gates + self.model.encoder_nodes(nodes[node]))
            self.touch(self.heard, reading)
        else:
            # What it has chosen it has read already.
            self.touch(self.said, self.reader.own(event))

    @torch.no_grad()
    def act(self, rows: list[int]) -> list[Act]:
        """Write or select, word by word."""
        (row,), graph, model = rows, self.reader.graph, self.model
        draws = torch.from_numpy(self.view.generator(row).random(num_draws(self.agent.decoding) + 1))
        nodes, checked, num_words = self.nodes(), torch.zeros(len(graph), 1), len(model.vocabulary)
        attended, _ = self.attend(nodes, checked)
        word, node, tokens, entities = GO_ID, NO_NODE, list[Token](), list(graph.nodes)
        step, selected = 0, NO_NODE
        while word != EOS_ID:
            gates = model.decoder_words(model.embedding.weight[word]) + model.decoder_state(self.hidden)
            gates = gates + model.decoder_attended(attended)
            if node != NO_NODE:
                gates = gates + model.decoder_nodes(nodes[node])
                checked[node] = 1
            self.step(gates)
            attended, scores = self.attend(nodes, checked)
            logits = torch.cat([model.output(model.combine(torch.cat([self.hidden, attended])).tanh()), scores])
            self.forbid(logits, word, step)
            chosen = int(drawn((logits / self.agent.decoding.temperature).unsqueeze(0), draws[step : step + 1]))
            step += 1
            if chosen < num_words:
                word, node = chosen, NO_NODE
                if word not in (EOS_ID, SELECT_ID):
                    tokens.append(model.vocabulary.words[word])
                continue
            node = chosen - num_words
            word = graph.words[node]
            if word == ITEM_ID:
                selected = node
            else:
                entity = entities[node - graph.first_entity]
                tokens.append(self.agent.linker.mentions(entity)[0])
        return [tuple(tokens) if selected == NO_NODE else selected]

    def forbid(self, logits: Tensor, word: int, step: int) -> None:
        """Mask the words and nodes that may not follow a word."""
        graph, num_words, first_word = self.reader.graph, len(self.model.vocabulary), self.model.vocabulary.first_word
        allowed = torch.zeros(len(logits), dtype=torch.bool)
        if word == SELECT_ID:
            allowed[num_words : num_words + graph.num_items] = True
        else:
            if word != ITEM_ID and step < self.agent.decoding.max_tokens:
                allowed[first_word:num_words] = True
                allowed[num_words + graph.first_entity :] = True
            allowed[SELECT_ID if step == 0 else EOS_ID] = True
        if step == 0:
            logits[SELECT_ID] -= self.agent.decoding.select_penalty
        logits[~allowed] = -torch.inf

    def nodes(self) -> Tensor:
        """Return the embeddings of all nodes (N, C), by messages along all edges."""
        model, graph = self.model, self.reader.graph
        new = len(graph) - len(self.heard)
        self.heard += [torch.zeros(model.sizes.hidden) for _ in range(new)]
        self.said += [torch.zeros(model.sizes.hidden) for _ in range(new)]
        targets, sources, relations = torch.from_numpy(graph.edges_E3).unbind(1)
        before = torch.cat([torch.stack(self.heard), torch.stack(self.said), torch.from_numpy(graph.features())], dim=1)
        parts = [before]
        for number in range(model.sizes.rounds):
            layer: Any = model.messages[min(number, 1)]
            sent = torch.tanh(layer["edge"](model.edge_embedding(relations)) + layer["node"](before[sources]))
            nothing = torch.full((len(graph), sent.shape[1]), -torch.inf)
            received = nothing.scatter_reduce(0, targets.unsqueeze(1).expand_as(sent), sent, "amax")
            before = received.masked_fill(received.isinf(), 0)
            parts.append(before)
        return torch.cat(parts, dim=1)

    def attend(self, nodes: Tensor, checked: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attended mean of the nodes, and their scores."""
        model = self.model
        scores = (model.key(nodes) + model.query(self.hidden) + checked * model.check).tanh() @ model.score
        return scores.softmax(0) @ nodes, scores

    def step(self, gates: Tensor) -> None:
        """Make one step of an LSTM."""
        enter, forget, candidate, leave = gates.chunk(4)
        self.cell = forget.sigmoid() * self.cell + enter.sigmoid() * candidate.tanh()
        self.hidden = leave.sigmoid() * self.cell.tanh()

    def touch(self, states: list[Tensor], reading: EventReading) -> None:
        """Update the states of the nodes that an event names."""
        if self.model.sizes.dynamic:
            for node in reading.touched:
                share = self.model.decay(torch.cat([states[node], self.hidden])).sigmoid()
                states[node] = (1 - share) * states[node] + share * self.hidden
