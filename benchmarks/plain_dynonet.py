"""A turn of DynoNet the plain way: one side of a chat after another, a message for every edge, a list of edges for every node.

What `benchmarks/dynonet.py` and tests compare with: the equations of `policies/dynonet/model.py`, by torch's autograd alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from parley.policies.dynonet.batches import Side
from parley.policies.dynonet.graphs import GO_ID
from parley.policies.dynonet.model import DynoNet
from parley.policies.dynonet.reading import NO_NODE, EventReading


class PlainSide:
    """A side of a chat, turn by turn.

    Args:
        model: whose weights are used.
        side: what it hears and does.
    """

    def __init__(self, model: DynoNet, side: Side) -> None:
        self.model, self.side = model, side
        size = model.sizes.hidden
        self.features = torch.from_numpy(side.features).float()
        self.hidden, self.cell = torch.zeros(size), torch.zeros(size)
        self.heard, self.said = (list(torch.zeros(len(self.features), size)) for _ in range(2))
        self.incoming = [[edge for edge in side.edges.tolist() if edge[0] == node] for node in range(len(self.features))]

    def turn(self, number: int) -> Tensor:
        """Return the negative log-likelihoods (T,) of the side's own turn."""
        partners, event = self.side.turns[number]
        for reading in partners:
            self.encode(reading)
        nll_T = self.decode(event)
        self.hidden, self.cell = self.hidden.detach(), self.cell.detach()
        self.heard, self.said = ([state.detach() for state in part] for part in (self.heard, self.said))
        return nll_T

    def nodes(self) -> Tensor:
        """Return the embeddings (N, C) of the nodes."""
        model, size = self.model, self.model.sizes.message
        before = torch.cat([torch.stack(self.heard), torch.stack(self.said), self.features], dim=1)
        parts = [before]
        for number in range(model.sizes.rounds):
            layer: Any = model.messages[min(number, 1)]
            received = []
            for edges in self.incoming:
                sent = [
                    torch.tanh(layer["edge"](model.edge_embedding.weight[relation]) + layer["node"](before[source]))
                    for _, source, relation in edges
                ]
                received.append(torch.stack(sent).amax(0) if sent else torch.zeros(size))
            before = torch.stack(received)
            parts.append(before)
        return torch.cat(parts, dim=1)

    def step(self, gates: Tensor) -> None:
        """Make one step of an LSTM."""
        enter, forget, candidate, leave = gates.chunk(4)
        self.cell = forget.sigmoid() * self.cell + enter.sigmoid() * candidate.tanh()
        self.hidden = leave.sigmoid() * self.cell.tanh()

    def encode(self, reading: EventReading) -> None:
        """Encode an event of the partner."""
        model, nodes = self.model, self.nodes().detach()
        for word, node in zip(reading.words, reading.nodes, strict=True):
            gates = model.encoder_words(model.embedding.weight[word]) + model.encoder_state(self.hidden)
            self.step(gates if node == NO_NODE else gates + model.encoder_nodes(nodes[node]))
        self.touch(self.heard, reading)

    def touch(self, states: list[Tensor], reading: EventReading) -> None:
        """Update the states of the nodes that an event names."""
        if self.model.sizes.dynamic:
            for node in reading.touched:
                share = self.model.decay(torch.cat([states[node], self.hidden])).sigmoid()
                states[node] = (1 - share) * states[node] + share * self.hidden

    def decode(self, event: EventReading) -> Tensor:
        """Decode the side's own event, and return its negative log-likelihoods."""
        model, contexts = self.model, self.nodes()[: event.known]
        checked, losses = torch.zeros(len(contexts), 1), []
        attended, _ = self.attend(contexts, checked)
        read = zip([GO_ID, *event.words[:-1]], [NO_NODE, *event.nodes[:-1]], event.words, event.nodes, strict=True)
        for word, node, next_word, next_node in read:
            gates = model.decoder_words(model.embedding.weight[word]) + model.decoder_state(self.hidden)
            gates = gates + model.decoder_attended(attended)
            if node != NO_NODE:
                gates = gates + model.decoder_nodes(contexts[node].detach())
                checked[node] = 1
            self.step(gates)
            attended, scores = self.attend(contexts, checked)
            logits = torch.cat([model.output(model.combine(torch.cat([self.hidden, attended])).tanh()), scores])
            target = next_word if next_node == NO_NODE else len(model.vocabulary) + next_node
            losses.append(F.cross_entropy(logits, torch.tensor(target)))
        self.touch(self.said, event)
        return torch.stack(losses)

    def attend(self, contexts: Tensor, checked: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attended mean of the contexts, and their scores."""
        model = self.model
        inner = model.key(contexts) + model.query(self.hidden) + checked.clone() * model.check
        scores = inner.tanh() @ model.score
        return scores.softmax(0) @ contexts, scores


def plain_turn_loss(sides: Sequence[PlainSide], number: int) -> Tensor:
    """Return the mean loss of a turn over all sides of a batch; a side without that turn counts as 0."""
    losses = [side.turn(number).mean() for side in sides if len(side.side.turns) > number]
    return torch.stack(losses).sum() / len(sides)
