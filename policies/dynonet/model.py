"""DynoNet: an encoder, a decoder that copies from a graph, and node embeddings that change as entities are mentioned.

Source: He et al. 2017, section 3, and the released code. A node's embedding is [v0; v1; ...; vK]: v0 = [what was heard
about it; what was said about it; its features], and a round of messages is v_k = max over its edges of tanh(W_k [edge;
v_(k-1)] + b_k); the first round has weights of its own. An utterance with state h changes the nodes that it names: new = (1
- s) old + s h with s = sigmoid(w [old; h]). The encoder reads words beside embeddings of nodes, the decoder also what it
attended to at the word before (`attending.py`); both go on from one state through the whole chat. The next word is drawn
from the softmax over the logits of all words and the scores of all nodes.

Departures:
  * # Released: the largest message of a node is compared with 0 where another node has more edges. Ours: of its own edges
    alone.
  * # Released: the memories of nodes that nobody names shrink too, by the same weights. Ours, as in the paper: they stay.
  * # Released: a chat's first speaker reads `</s>` before it speaks. Ours: it starts from zero.
  * # Released: scores of nodes that are none are -10. Ours: minus infinity, so that they are never copied.
  * tanh and the maximum change places, which gives the same numbers and needs one tanh for each node instead of one for
    each edge.

Embeddings of nodes are read by encoder and decoder without gradient, as in the released code.

Shapes: R rows, N nodes, E edges, F features, C embedding of a node, H hidden, M places of words, K message.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear

from parley.policies.core.fitting.loss import OutputLoss
from parley.policies.core.fitting.predictor import Loss, Predictor
from parley.policies.core.products import is_mkl_whole
from parley.policies.dynonet.attending import NodeScorer, Written, read, write
from parley.policies.dynonet.batches import Edges, Heard, Said, SideBatch, SideTurn
from parley.policies.dynonet.graphs import num_features, num_relations
from parley.policies.dynonet.settings import DynoNetSizes
from parley.policies.dynonet.vocabulary import FriendsVocabulary


class NodeContexts(NamedTuple):
    """The nodes of a graph as they are now."""

    nodes_RNC: Tensor
    """Embeddings."""
    keys_RNH: Tensor
    """What attention compares with."""


class ChatMemory(NamedTuple):
    """What a model knows of R chats."""

    hidden_RH: Tensor
    cell_RH: Tensor
    heard_RNH: Tensor
    """What every node keeps of utterances that were heard."""
    said_RNH: Tensor
    """And of those that the side said itself."""


class DynoNet(Predictor[SideBatch]):
    """The networks.

    Args:
        vocabulary: words, categories, attributes.
        sizes: widths.
    """

    def __init__(self, vocabulary: FriendsVocabulary, sizes: DynoNetSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        hidden, message = sizes.hidden, sizes.message
        own = 2 * hidden + num_features(vocabulary, sizes.max_items)
        width = own + sizes.rounds * message
        self.embedding = nn.Embedding(len(vocabulary), sizes.embed)
        self.edge_embedding = nn.Embedding(num_relations(vocabulary), sizes.edge)
        self.messages = nn.ModuleList(
            nn.ModuleDict({"node": nn.Linear(size, message, bias=False), "edge": nn.Linear(sizes.edge, message)})
            for size in (own, message)[: sizes.rounds]
        )
        """Of the first round, and of all others."""
        self.decay = nn.Linear(2 * hidden, 1)
        self.encoder_words, self.decoder_words = (nn.Linear(sizes.embed, 4 * hidden) for _ in range(2))
        self.encoder_nodes, self.decoder_nodes = (nn.Linear(width, 4 * hidden, bias=False) for _ in range(2))
        self.encoder_state, self.decoder_state = (nn.Linear(hidden, 4 * hidden, bias=False) for _ in range(2))
        self.decoder_attended = nn.Linear(width, 4 * hidden, bias=False)
        self.query, self.key = nn.Linear(hidden, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.check, self.score = (nn.Parameter(torch.empty(hidden)) for _ in range(2))
        self.combine = nn.Linear(hidden + width, hidden, bias=False)
        self.output = nn.Linear(hidden, len(vocabulary))

    def initialise(self, generator: torch.Generator) -> None:
        """As other predictors; gates that forget start open, as in TensorFlow's cell."""
        super().initialise(generator)
        for layer in (self.encoder_words, self.decoder_words):
            layer.bias.data[self.sizes.hidden : 2 * self.sizes.hidden] += 1

    def blank(self, rows: int, num_nodes: int) -> ChatMemory:
        """What is known before a chat."""
        zeros, size = self.output.weight.new_zeros, self.sizes.hidden
        return ChatMemory(zeros(rows, size), zeros(rows, size), zeros(rows, num_nodes, size), zeros(rows, num_nodes, size))

    def roots(self, own_nV: Tensor) -> Tensor:
        """Products (n, K + H) of the nodes' own parts v0 (n, V) with the weights of the first messages and of the keys.

        They change only where v0 does, so that play keeps them.
        """
        first = [each["node"].weight for each in self.messages[:1]]  # type: ignore[index]  # torch types its lists as modules
        return linear(own_nV, torch.cat([*first, self.key.weight[:, : own_nV.shape[-1]]]))

    def spread(self, own_RNV: Tensor, roots_RNJ: Tensor, edges: Edges) -> NodeContexts:
        """Passes messages.

        Args:
            own_RNV: the nodes' own parts: what was heard, what was said, features.
            roots_RNJ: `roots` of them.
            edges: of the graphs.
        """
        rows, num_nodes, _ = own_RNV.shape
        parts, hidden = [own_RNV], self.sizes.hidden
        sums_nK, joined_n = roots_RNJ[..., :-hidden].reshape(rows * num_nodes, -1), _joined(edges, rows * num_nodes)
        for number in range(self.sizes.rounds):
            layer: Any = self.messages[min(number, 1)]
            relations = linear(self.edge_embedding.weight, layer["edge"].weight, layer["edge"].bias)
            if number:
                sums_nK = linear(parts[-1].reshape(rows * num_nodes, -1), layer["node"].weight)
            messages_EK = sums_nK.index_select(0, edges.sources_E) + relations.index_select(0, edges.relations_E)
            largest_nK = _Largest.apply(messages_EK, edges.targets_E, rows * num_nodes)
            parts.append(_squash(largest_nK).masked_fill(~joined_n, 0).view(rows, num_nodes, -1))
        keys_RNH = roots_RNJ[..., -hidden:]
        if self.sizes.rounds:
            keys_RNH = keys_RNH + linear(torch.cat(parts[1:], dim=2), self.key.weight[:, own_RNV.shape[2] :])
        return NodeContexts(torch.cat(parts, dim=2), keys_RNH)

    def contexts(self, memory: ChatMemory, batch: SideBatch) -> NodeContexts:
        """The nodes of the rows of a memory, the first ones of a batch."""
        rows = len(memory.hidden_RH)
        own_RNV = torch.cat([memory.heard_RNH, memory.said_RNH, batch.features_RNF[:rows]], dim=2)
        return self.spread(own_RNV, self.roots(own_RNV), batch.edges.first(rows))

    def touched(self, old_JH: Tensor, state_JH: Tensor) -> Tensor:
        """What nodes keep (J, H) that an utterance names whose last state is given."""
        share_J1 = linear(torch.cat([old_JH, state_JH], dim=1), self.decay.weight, self.decay.bias).sigmoid()
        return (1 - share_J1) * old_JH + share_J1 * state_JH

    def encode(self, state: tuple[Tensor, Tensor], heard: Heard, nodes_kNC: Tensor) -> tuple[Tensor, Tensor]:
        """State and cell (k, H) after an event that was heard.

        Args:
            state: state and cell before, of the event's rows.
            heard: the event.
            nodes_kNC: embeddings of their nodes, read without gradient.
        """
        gates = self._gates(heard, nodes_kNC, self.encoder_words, self.encoder_nodes)
        return read(gates, *state, self.encoder_state.weight, heard.places)

    def decode(self, state: tuple[Tensor, Tensor], said: Said, contexts: NodeContexts) -> Written:
        """Writes an event word by word.

        Args:
            state: state and cell before, of the event's rows.
            said: the words that are read.
            contexts: of their nodes.
        """
        gates = self._gates(said.heard, contexts.nodes_RNC, self.decoder_words, self.decoder_nodes)
        real_kN = torch.arange(contexts.keys_RNH.shape[1], device=gates.device) < said.known_k.unsqueeze(1)
        weights = self.decoder_state.weight, self.decoder_attended.weight
        return write(gates, state, contexts, real_kN, weights, self.scorer, said.heard.places, said.checks)

    @property
    def scorer(self) -> NodeScorer:
        """The weights of attention."""
        return NodeScorer(self.query.weight, self.check, self.score)

    def logits(self, states_MH: Tensor, attended_MC: Tensor, scores_MN: Tensor) -> Tensor:
        """Of all words and all nodes (M, V + N)."""
        combined_MH = _squash(self.combine(torch.cat([states_MH, attended_MC], dim=1)))
        return torch.cat([linear(combined_MH, self.output.weight, self.output.bias), scores_MN], dim=1)

    def turn(self, memory: ChatMemory, batch: SideBatch, turn: SideTurn) -> tuple[Tensor, ChatMemory]:
        """Hears what a turn's rows heard, and writes what they said.

        Args:
            memory: of all rows.
            batch: sides.
            turn: one of its turns.

        Returns:
            Negative log-likelihoods (M,) of the turn's targets, and the memory of its rows after it, through which no gradient
            flows: an update sees what was heard since the side last acted, and what it then does (released).
        """
        memory = ChatMemory(*(part[: turn.rows] for part in memory))
        for heard in turn.heard:
            memory = self.listen(memory, heard, batch)
        contexts, said = self.contexts(memory, batch), turn.said
        rows = said.heard.rows_k
        own = NodeContexts(*(part[rows] for part in contexts))
        written = self.decode((memory.hidden_RH[rows], memory.cell_RH[rows]), said, own)
        logits_MJ = self.logits(written.states_MH, written.attended_MC, written.scores_MN)
        nll_M = cross_entropy(logits_MJ, said.targets_M, reduction="none")
        with torch.no_grad():
            after = self.remember(memory, said, written.hidden_RH, written.cell_RH)
        return nll_M, ChatMemory(*(part.detach() for part in after))

    def listen(self, memory: ChatMemory, heard: Heard, batch: SideBatch) -> ChatMemory:
        """The memory of rows after an event that some of them hear."""
        rows = heard.rows_k
        with torch.no_grad():
            nodes_kNC = self.contexts(memory, batch).nodes_RNC[rows]
        hidden_kH, cell_kH = self.encode((memory.hidden_RH[rows], memory.cell_RH[rows]), heard, nodes_kNC)
        kept = self._kept(memory.heard_RNH, heard, hidden_kH)
        state = memory.hidden_RH.index_copy(0, rows, hidden_kH), memory.cell_RH.index_copy(0, rows, cell_kH)
        return ChatMemory(*state, kept, memory.said_RNH)

    def remember(self, memory: ChatMemory, said: Said, hidden_kH: Tensor, cell_kH: Tensor) -> ChatMemory:
        """The memory of rows after an event of their own."""
        rows, kept = said.heard.rows_k, self._kept(memory.said_RNH, said.heard, hidden_kH)
        state = memory.hidden_RH.index_copy(0, rows, hidden_kH), memory.cell_RH.index_copy(0, rows, cell_kH)
        return ChatMemory(*state, memory.heard_RNH, kept)

    def nll(self, batch: SideBatch) -> Tensor:
        nll_S = self.output.weight.new_zeros(batch.real_BT.numel())
        memory = self.blank(*batch.features_RNF.shape[:2])
        for turn in batch.turns:
            nll_M, memory = self.turn(memory, batch, turn)
            nll_S = nll_S.index_copy(0, turn.spots_M, nll_M)
        return nll_S.view_as(batch.real_BT)[batch.real_BT]

    def loss(self, batch: SideBatch, output_loss: OutputLoss) -> Loss:
        total = self.nll(batch).sum()
        return Loss(total, total)

    def _gates(self, heard: Heard, nodes_kNC: Tensor, words: nn.Linear, nodes: nn.Linear) -> Tensor:
        table_V4H = linear(self.embedding.weight, words.weight, words.bias)
        gates_M4H = table_V4H.index_select(0, heard.words_M)
        named = heard.named
        if not len(named.places_J):
            return gates_M4H
        read_JC = nodes_kNC.detach()[named.rows_J, named.nodes_J]
        return gates_M4H.index_add(0, named.places_J, linear(read_JC, nodes.weight))

    def _kept(self, kept_RNH: Tensor, heard: Heard, hidden_kH: Tensor) -> Tensor:
        touched = heard.touched
        if not self.sizes.dynamic or not len(touched.rows_J):
            return kept_RNH
        at = heard.rows_k[touched.rows_J], touched.nodes_J
        return kept_RNH.index_put(at, self.touched(kept_RNH[at], hidden_kH[touched.rows_J]))


class _Largest(torch.autograd.Function):
    """The largest message that each node gets, by component; gradients of equal ones are shared out evenly."""

    @staticmethod
    def forward(ctx, messages_EK: Tensor, targets_E: Tensor, num_nodes: int) -> Tensor:  # type: ignore[no-untyped-def]  # torch has no type for ctx
        least = messages_EK.new_full((num_nodes, messages_EK.shape[1]), -torch.inf)
        largest_nK = least.scatter_reduce(0, targets_E.unsqueeze(1).expand_as(messages_EK), messages_EK, "amax")
        ctx.save_for_backward(messages_EK, targets_E, largest_nK)
        return largest_nK

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_nK: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        messages_EK, targets_E, largest_nK = ctx.saved_tensors
        same_EK = (messages_EK == largest_nK.index_select(0, targets_E)).to(grad_nK.dtype)
        shared_nK = torch.zeros_like(grad_nK).index_add_(0, targets_E, same_EK).clamp_(min=1)
        return same_EK.mul_((grad_nK / shared_nK).index_select(0, targets_E)), None, None


def _joined(edges: Edges, num_nodes: int) -> Tensor:
    """True (n, 1) for nodes that have edges."""
    joined = torch.zeros(num_nodes, 1, dtype=torch.bool, device=edges.targets_E.device)
    return joined.index_fill_(0, edges.targets_E, True)


def _squash(values: Tensor) -> Tensor:
    """The hyperbolic tangent by the faster way, as `parley.policies.core.products.tanh_`."""
    return values.tanh() if values.is_cuda or is_mkl_whole() else (2 * values).sigmoid() * 2 - 1
