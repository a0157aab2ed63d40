"""DynoNet: an encoder, a decoder that copies from a graph, and node embeddings that change as entities are mentioned.

Source: He et al. 2017, section 3, and the released code. A node's embedding is [v0; v1; ...; vK]: v0 = [its part from heard
utterances; its part from said ones; its features], and a round of messages is v_k = max over its edges of tanh(W_k [edge;
v_(k-1)] + b_k); the first round has weights of its own. An utterance with state h changes the nodes that it names: new = (1
- s) old + s h with s = sigmoid(w [old; h]). The encoder reads words beside embeddings of nodes, the decoder also the attended
nodes of the word before (`batches.py`); both continue from one state through the whole chat. The next word is drawn from the
softmax over the logits of all words and the scores of all nodes. Encoder and decoder read node embeddings without gradient, as
in the released code.

Departures:
  * # Released: the largest message of a node is compared with 0 where another node has more edges. Ours: of its own edges
    alone.
  * # Released: the memories of nodes that nobody names shrink too, by the same weights. Ours, as in the paper: they stay.
  * # Released: a chat's first speaker reads `</s>` before it speaks. Ours: it starts from zero.
  * # Released: scores of nodes that are none are -10. Ours: minus infinity, so that they are never copied.
  * tanh and the maximum change places, which gives the same numbers and needs one tanh for each node instead of one for
    each edge.

A checkpoint is a folder (`policies/core/checkpoint.py`); `corpus` of its provenance names the corpus whose schema it knows.

Training is `Fit` with an update after each turn of a batch, as released. The loss of a turn is the mean over its sides of the
mean over a side's targets, in nats per word (released); sides without such a turn count as 0. The state continues from turn to
turn without gradient, so the weights may change between them.

`by_kind` scores predictions of what sides say and select, `linked` a linker's recall of the mentions that speakers meant.

`DynoNetInference` is the form of the networks for play: no gradients, and weights laid out once. Tests hold its figures equal
to those of `DynoNet`. Numbers are formed in other ways:
  * Products are oneDNN's where torch brings it (`policies/core/layers.py`). A row of theirs does not depend on the number of
    rows. Because oneDNN builds a kernel for each number of rows, rows are filled up to one of few numbers.
  * tanh(x) is 2 sigmoid(2 x) - 1, and the 2 within is part of the weights: the gates of a step are one sigmoid.
  * tanh(query + key) is 1 - 2 / (1 + exp(2 query) exp(2 key)), so that keys are exponentiated once an event and not at every
    word.
  * The scores of a word and the next word's gates are one product with state and attended nodes.

Shapes: R rows, S rows of the game, k rows at work, N nodes, n nodes with edges (of figures: sides or chats), E edges, F
features, C embedding of a node, V width of a node's own part, H hidden, M positions of words, K message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, embedding_bag, linear

from parley.envs.mutual_friends.game import FriendsChat, Mention, Token
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import Entity
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.core.fitting.batches import Fitness, Loss, OutputLoss, Predictor, in_order, measured_order
from parley.policies.core.fitting.loop import Fit, StepLoss
from parley.policies.core.layers import Weight, is_mkl_whole
from parley.policies.dynonet.batches import (
    Edges,
    Heard,
    NodeScorer,
    SideBatch,
    SideExamples,
    SideTurn,
    SpokenEvent,
    Written,
    read,
    write,
)
from parley.policies.dynonet.graphs import SELECT_ID, UNK_ID, FriendsVocabulary, num_features, num_relations
from parley.policies.dynonet.settings import DynoNetSizes


class NodeContexts(NamedTuple):
    """The nodes of a graph in their present state."""

    nodes_RNC: Tensor
    """Embeddings."""
    keys_RNH: Tensor
    """Keys of the attention."""


class ChatMemory(NamedTuple):
    """A model's memory of R chats."""

    hidden_RH: Tensor
    cell_RH: Tensor
    heard_RNH: Tensor
    """Each node's memory of heard utterances."""
    said_RNH: Tensor
    """Each node's memory of the side's own utterances."""


class DynoNet(Predictor[SideBatch]):
    """The networks of a DynoNet.

    Args:
        vocabulary: words, categories, attributes.
        sizes: widths.
    """

    def __init__(self, vocabulary: FriendsVocabulary, sizes: DynoNetSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        hidden, message = sizes.hidden, sizes.message
        own_width = 2 * hidden + num_features(vocabulary, sizes.max_items)
        width = own_width + sizes.rounds * message
        self.embedding = nn.Embedding(len(vocabulary), sizes.embed)
        self.edge_embedding = nn.Embedding(num_relations(vocabulary), sizes.edge)
        self.messages = nn.ModuleList(
            nn.ModuleDict({"node": nn.Linear(size, message, bias=False), "edge": nn.Linear(sizes.edge, message)})
            for size in (own_width, message)[: sizes.rounds]
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
        """Draw initial weights as other predictors; gates that forget start open, as in TensorFlow's cell."""
        super().initialise(generator)
        for layer in (self.encoder_words, self.decoder_words):
            layer.bias.data[self.sizes.hidden : 2 * self.sizes.hidden] += 1

    def blank(self, rows: int, num_nodes: int) -> ChatMemory:
        """Return the memory before a chat."""
        zeros, size = self.output.weight.new_zeros, self.sizes.hidden
        return ChatMemory(zeros(rows, size), zeros(rows, size), zeros(rows, num_nodes, size), zeros(rows, num_nodes, size))

    def roots(self, own_nV: Tensor) -> Tensor:
        """Return products (n, K + H) of the nodes' parts v0 (n, V) and the weights of first messages and keys.

        They change only with v0, so play keeps them.
        """
        first = [layers["node"].weight for layers in self.messages[:1]]  # type: ignore[index]  # torch types its lists as modules
        return linear(own_nV, torch.cat([*first, self.key.weight[:, : own_nV.shape[-1]]]))

    def spread(self, own_RNV: Tensor, roots_RNJ: Tensor, edges: Edges) -> NodeContexts:
        """Return the nodes after passing messages.

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
        """Return the nodes of the rows of a memory, the first ones of a batch."""
        rows = len(memory.hidden_RH)
        own_RNV = torch.cat([memory.heard_RNH, memory.said_RNH, batch.features_RNF[:rows]], dim=2)
        return self.spread(own_RNV, self.roots(own_RNV), batch.edges.first(rows))

    def touched(self, old_JH: Tensor, state_JH: Tensor) -> Tensor:
        """Return the new memories (J, H) of nodes that an utterance with the given last state names."""
        share_J1 = linear(torch.cat([old_JH, state_JH], dim=1), self.decay.weight, self.decay.bias).sigmoid()
        return (1 - share_J1) * old_JH + share_J1 * state_JH

    def encode(self, state: tuple[Tensor, Tensor], heard: Heard, nodes_kNC: Tensor) -> tuple[Tensor, Tensor]:
        """Return state and cell (k, H) after an event that was heard.

        Args:
            state: state and cell before, of the event's rows.
            heard: the event.
            nodes_kNC: embeddings of their nodes, read without gradient.
        """
        gates = self._gates(heard, nodes_kNC, self.encoder_words, self.encoder_nodes)
        return read(gates, *state, self.encoder_state.weight, heard.places)

    def decode(self, state: tuple[Tensor, Tensor], event: SpokenEvent, contexts: NodeContexts) -> Written:
        """Return the states of writing an event word by word.

        Args:
            state: state and cell before, of the event's rows.
            event: the event whose words are read.
            contexts: of their nodes.
        """
        gates = self._gates(event.heard, contexts.nodes_RNC, self.decoder_words, self.decoder_nodes)
        real_kN = torch.arange(contexts.keys_RNH.shape[1], device=gates.device) < event.known_k.unsqueeze(1)
        weights = self.decoder_state.weight, self.decoder_attended.weight
        return write(gates, state, contexts, real_kN, weights, self.scorer, event.heard.places, event.checks)

    @property
    def scorer(self) -> NodeScorer:
        """The weights of attention."""
        return NodeScorer(self.query.weight, self.check, self.score)

    def logits(self, states_MH: Tensor, attended_MC: Tensor, scores_MN: Tensor) -> Tensor:
        """Return logits of all words and all nodes (M, V + N)."""
        combined_MH = _squash(self.combine(torch.cat([states_MH, attended_MC], dim=1)))
        return torch.cat([linear(combined_MH, self.output.weight, self.output.bias), scores_MN], dim=1)

    def turn(self, memory: ChatMemory, batch: SideBatch, turn: SideTurn) -> tuple[Tensor, ChatMemory]:
        """Return the losses of a turn's words, and the memory after its rows have heard and said their events.

        Args:
            memory: of all rows.
            batch: sides.
            turn: one of its turns.

        Returns:
            Negative log-likelihoods (M,) of the turn's targets, and the memory of its rows after it, through which no gradient
            flows: an update sees the events heard since the side's last act, and its act (released).
        """
        memory = ChatMemory(*(part[: turn.rows] for part in memory))
        for heard in turn.heard:
            memory = self.listen(memory, heard, batch)
        contexts, event = self.contexts(memory, batch), turn.spoken
        rows = event.heard.rows_k
        own_contexts = NodeContexts(*(part[rows] for part in contexts))
        written = self.decode((memory.hidden_RH[rows], memory.cell_RH[rows]), event, own_contexts)
        logits_MJ = self.logits(written.states_MH, written.attended_MC, written.scores_MN)
        nll_M = cross_entropy(logits_MJ, event.targets_M, reduction="none")
        with torch.no_grad():
            after = self.remember(memory, event, written.hidden_RH, written.cell_RH)
        return nll_M, ChatMemory(*(part.detach() for part in after))

    def listen(self, memory: ChatMemory, heard: Heard, batch: SideBatch) -> ChatMemory:
        """Return the memory of rows after an event that some of them hear."""
        rows = heard.rows_k
        with torch.no_grad():
            nodes_kNC = self.contexts(memory, batch).nodes_RNC[rows]
        hidden_kH, cell_kH = self.encode((memory.hidden_RH[rows], memory.cell_RH[rows]), heard, nodes_kNC)
        kept = self._kept(memory.heard_RNH, heard, hidden_kH)
        state = memory.hidden_RH.index_copy(0, rows, hidden_kH), memory.cell_RH.index_copy(0, rows, cell_kH)
        return ChatMemory(*state, kept, memory.said_RNH)

    def remember(self, memory: ChatMemory, event: SpokenEvent, hidden_kH: Tensor, cell_kH: Tensor) -> ChatMemory:
        """Return the memory of rows after an event of their own."""
        rows, kept = event.heard.rows_k, self._kept(memory.said_RNH, event.heard, hidden_kH)
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
    """The largest message of each node, by component; equal ones share the gradient evenly."""

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
    joined = torch.zeros(num_nodes, 1, dtype=torch.bool, device=edges.targets_E.device)
    return joined.index_fill_(0, edges.targets_E, True)


def _squash(values: Tensor) -> Tensor:
    """Return the hyperbolic tangent by the faster way, as `parley.policies.core.layers.tanh_`."""
    return values.tanh() if values.is_cuda or is_mkl_whole() else (2 * values).sigmoid() * 2 - 1


DYNONET = ModelFormat("dynonet", FriendsVocabulary, DynoNetSizes, DynoNet)
load_dynonet = DYNONET.load


def corpus_of(folder: Path) -> str:
    """Return the name of the corpus of the model in a run or checkpoint folder; raises as `load_dynonet` does."""
    return str(DYNONET.provenance(folder)["corpus"])


class DynoNetFit(Fit[SideBatch]):
    """A supervised training of a DynoNet."""

    model: DynoNet

    def step(self, group: np.ndarray) -> StepLoss:
        """Make an update for each turn; the loss is the sum over all targets, each before its update."""
        batch = self.train.batch(group).to(next(self.model.parameters()).device)
        memory, total, highest = self.model.blank(*batch.features_RNF.shape[:2]), 0.0, 0.0
        for turn in batch.turns:
            loss, nll_M, memory = turn_loss(self.model, memory, batch, turn, len(group))
            self.descend(loss)
            total += float(nll_M.sum())
            highest = max(highest, float(loss.detach()))
        return StepLoss(highest, total, int(self.train.num_targets[group].sum()))


def turn_loss(
    model: DynoNet, memory: ChatMemory, batch: SideBatch, turn: SideTurn, num_sides: int
) -> tuple[Tensor, Tensor, ChatMemory]:
    """Return the loss of a turn's update.

    Args:
        model: in training.
        memory: of the sides before the turn.
        batch: of `num_sides` sides.
        turn: one of its turns.
        num_sides: of the batch.

    Returns:
        The loss, the negative log-likelihoods (M,) of the turn's targets, and the memory after it.
    """
    nll_M, memory = model.turn(memory, batch, turn)
    rows_M = turn.spoken.heard.places.rows()
    sums = torch.stack([nll_M.new_zeros(turn.rows).index_add(0, rows_M, values) for values in (nll_M, torch.ones_like(nll_M))])
    return (sums[0] / sums[1]).sum() / num_sides, nll_M.detach(), memory


_ROWS = 256


class SideFitness(NamedTuple):
    """Figures of a model's predictions of sides, by kind of token."""

    tokens: Fitness
    """All tokens."""
    known_tokens: Fitness
    """All tokens but `<unk>`."""
    entities: Fitness
    """Copied entities of utterances."""
    items: Fitness
    """Selected items, which are copied, too."""


@torch.no_grad()
def by_kind(model: DynoNet, examples: SideExamples) -> SideFitness:
    """Return the figures of the tokens of some sides.

    Args:
        model: in evaluation mode.
        examples: the sides.
    """
    device, sums_of_batches = next(model.parameters()).device, []
    for batch in in_order(examples, _ROWS):
        moved = batch.to(device)
        nll_BT = torch.zeros(batch.real_BT.shape).masked_scatter(batch.real_BT, model.nll(moved).cpu()).double()
        is_node_BT, is_item_BT = (batch.targets_BT >= len(model.vocabulary)) & batch.real_BT, torch.zeros_like(batch.real_BT)
        is_item_BT[:, 1:] = batch.targets_BT[:, :-1] == SELECT_ID
        is_known_BT = batch.real_BT & (batch.targets_BT != UNK_ID)
        chosen = batch.real_BT, is_known_BT, is_node_BT & ~is_item_BT, is_node_BT & is_item_BT
        sums_of_batches.append([((nll_BT * chosen_BT).sum(1), chosen_BT.sum(1)) for chosen_BT in chosen])
    kinds, units = zip(*sums_of_batches, strict=True), examples.units[measured_order(examples)]
    pairs = (zip(*kind, strict=True) for kind in kinds)
    return SideFitness(*(Fitness(torch.cat(sums).numpy(), torch.cat(counts).numpy(), units) for sums, counts in pairs))


def linked(chats: Iterable[FriendsChat], linker: EntityLinker) -> tuple[np.ndarray, np.ndarray]:
    """Return how many of the mentions that speakers meant a listener's linker finds, by the words alone.

    Args:
        chats: with marked mentions.
        linker: reads with the listener's table as context.

    Returns:
        Mentions found (n,) and mentions (n,) of each chat.
    """
    num_found, meant = [], []
    for chat in chats:
        hits = total = 0
        for event in chat.events:
            wanted = _spans(event.tokens)
            if wanted:
                linked_spans = _spans(linker.link(event.words, chat.scenario.mentionable[1 - event.side]))
                hits, total = hits + len(wanted.items() & linked_spans.items()), total + len(wanted)
        num_found.append(hits)
        meant.append(total)
    return np.array(num_found), np.array(meant)


def _spans(tokens: Iterable[Token]) -> dict[int, Entity]:
    """Return entities by the position of their first word."""
    spans, at = {}, 0
    for token in tokens:
        if isinstance(token, Mention):
            spans[at] = token.entity
        at += len(token.words) if isinstance(token, Mention) else 1
    return spans


_MOST = 80.0
"""The largest exponent: tanh of half of it is 1 in float32, and its power is a number."""
_STEPS = 4
"""Numbers of rows between two powers of two that rows are filled up to; `_LEAST` at least."""
_LEAST = 16


class GraphEdges(NamedTuple):
    """Edges of the graphs of some rows; node n of row r of the game is number r N + n."""

    joined_n: Tensor
    """The nodes that have edges, int64, rising."""
    targets_E: Tensor
    """Receiver of a message, as an index into `joined_n`, rising."""
    sources_E: Tensor
    """Sender of the message."""
    senders_E: Tensor
    """The same, as indices into `joined_n`: edges have inverses, so each sender also receives."""
    relations: list[Tensor]
    """Products (E, K) of the relations' embeddings, by round."""


class NodeAttention:
    """The nodes of k rows for attention during an event.

    Args:
        powers_kNH: exp(2 key).
        real_kN: true at existing nodes.
        starts_k: numbers of the rows' first nodes among all nodes of the game, int64.
    """

    def __init__(self, powers_kNH: Tensor, real_kN: Tensor, starts_k: Tensor) -> None:
        self.powers_kNH, self.real_kN, self.starts_k = powers_kNH, real_kN, starts_k
        self.places_L = real_kN.view(-1).nonzero().squeeze(1)
        """Where the nodes stand in (k, N), flat."""
        numbers_kN = starts_k.unsqueeze(1) + torch.arange(real_kN.shape[1], device=starts_k.device)
        self.nodes_L = numbers_kN.view(-1).index_select(0, self.places_L)
        """Their numbers in the game."""
        counts_k = real_kN.sum(1)
        self.firsts_k = counts_k.cumsum(0) - counts_k
        """Where each row begins among these."""
        self.absent_kN = torch.zeros_like(powers_kNH[:, :, 0]).masked_fill_(~real_kN, -torch.inf)
        num, width = powers_kNH.shape[:2].numel(), powers_kNH.shape[2]
        self.spare_jH = powers_kNH.new_zeros(num + _missing(num), width)
        """Room for what is formed at every word, of all nodes."""

    def of(self, rows_j: Tensor) -> NodeAttention:
        """Return the attention of some rows."""
        return NodeAttention(self.powers_kNH[rows_j], self.real_kN[rows_j], self.starts_k[rows_j])


class DynoNetInference:
    """The weights and products of a DynoNet for play.

    Args:
        model: in evaluation mode; later changes of it have no effect.
    """

    @torch.no_grad()
    def __init__(self, model: DynoNet) -> None:
        self.sizes, self.vocabulary, self._device = model.sizes, model.vocabulary, model.output.weight.device
        hidden = self.hidden = model.sizes.hidden
        self.width = model.key.in_features
        self.own = self.width - model.sizes.rounds * model.sizes.message
        doubled_4H = model.output.weight.new_ones(4 * hidden)
        doubled_4H[2 * hidden : 3 * hidden] = 2

        def gates(layer: nn.Linear) -> Tensor:
            return layer.weight * doubled_4H.unsqueeze(1)

        def words(layer: nn.Linear) -> Tensor:
            return linear(model.embedding.weight, layer.weight, layer.bias) * doubled_4H

        self.heard_words_V4H, self.said_words_V4H = words(model.encoder_words), words(model.decoder_words)
        self._heard_state, self._said_state = Weight(gates(model.encoder_state)), Weight(gates(model.decoder_state))
        self._heard_nodes, self._said_nodes = Weight(gates(model.encoder_nodes)), Weight(gates(model.decoder_nodes))
        read = torch.cat([gates(model.decoder_state), gates(model.decoder_attended)], dim=1)
        self._after = Weight(torch.cat([2 * model.combine.weight, read]))
        self._attended = Weight(gates(model.decoder_attended))
        self._query = Weight(2 * model.query.weight)
        self._output, self._output_V = Weight(model.output.weight), model.output.bias.detach()
        self._check_H, self._score, self._scores = (2 * model.check).exp(), Weight(-2 * model.score[None]), model.score.sum()
        self._decay, self._decay_1 = Weight(model.decay.weight), model.decay.bias.detach()
        rounds: list[Any] = [model.messages[min(number, 1)] for number in range(model.sizes.rounds)]
        firsts = [layers["node"].weight for layers in rounds[:1]]
        self._roots = Weight(torch.cat([*firsts, model.key.weight[:, : self.own]]))
        self._nodes = [Weight(layers["node"].weight) for layers in rounds]
        embedded = model.edge_embedding.weight
        self._relations = [linear(embedded, layers["edge"].weight, layers["edge"].bias) for layers in rounds]
        self._keys = Weight(model.key.weight[:, self.own :]) if rounds else None

    def zeros(self, *shape: int) -> Tensor:
        """Return zeros on the device of the weights."""
        return self._output_V.new_zeros(shape)

    def roots(self, own_jV: Tensor) -> tuple[Tensor, Tensor]:
        """Return products of nodes' parts and the weights of first messages (j, K or 0) and keys (j, H).

        They change only with the own part, so they are kept.
        """
        first_jK, key_jH = _product(self._roots, own_jV).tensor_split([-self.hidden], dim=1)
        return first_jK, key_jH

    def touched(self, old_jH: Tensor, state_jH: Tensor) -> Tensor:
        """Return the new memories of nodes, as `DynoNet.touched`."""
        share_j1 = (_product(self._decay, torch.cat([old_jH, state_jH], dim=1)) + self._decay_1).sigmoid_()
        return torch.lerp(old_jH, state_jH, share_j1)

    def edges(self, graphs: Sequence[np.ndarray], rows: Sequence[int], num_nodes: int) -> GraphEdges:
        """Return the edges (E, 3) of the graphs of some rows, side by side; `num_nodes` is N."""
        targets, sources, relations = np.concatenate(graphs).T.astype(np.int64)
        starts = np.repeat(np.asarray(rows, dtype=np.int64) * num_nodes, [len(part) for part in graphs])
        targets = targets + starts
        first = np.diff(targets, prepend=-1) != 0
        joined, sources = targets[first], sources + starts
        arrays = joined, np.cumsum(first) - 1, sources, np.searchsorted(joined, sources), relations.copy()
        joined_n, targets_E, sources_E, senders_E, numbers_E = (torch.from_numpy(part).to(self._device) for part in arrays)
        relations = [part.index_select(0, numbers_E) for part in self._relations]
        return GraphEdges(joined_n, targets_E, sources_E, senders_E, relations)

    def spread(self, nodes_nC: Tensor, first_nK: Tensor, edges: GraphEdges) -> None:
        """Write the messages that nodes have received behind their own parts.

        Args:
            nodes_nC: embeddings of all nodes of the game; here n counts these.
            first_nK: products of their own parts (`roots`).
            edges: of the graphs that have changed.
        """
        sums_nK, senders_E, at, width = first_nK, edges.sources_E, self.own, self.sizes.message
        for number, relations_EK in enumerate(edges.relations):
            messages_EK = sums_nK.index_select(0, senders_E).add_(relations_EK)
            least_nK = messages_EK.new_full((len(edges.joined_n), width), -torch.inf)
            targets_EK = edges.targets_E.unsqueeze(1).expand_as(messages_EK)
            got_nK = _squashed(least_nK.scatter_reduce_(0, targets_EK, messages_EK, "amax").mul_(2))
            nodes_nC[:, at : at + width].index_copy_(0, edges.joined_n, got_nK)
            at += width
            if number + 1 < len(edges.relations):
                sums_nK, senders_E = _product(self._nodes[number + 1], got_nK), edges.senders_E

    def keys(self, roots_kNH: Tensor, messages_kNM: Tensor) -> Tensor:
        """Return keys of attention (k, N, H), of products of own parts (`roots`) and of received messages."""
        if self._keys is None:
            return roots_kNH
        return _product(self._keys, messages_kNM.flatten(0, 1)).view_as(roots_kNH).add_(roots_kNH)

    def attention(self, keys_kNH: Tensor, real_kN: Tensor, starts_k: Tensor) -> NodeAttention:
        """Return attention by keys (`keys`) to nodes; the rest as `NodeAttention`."""
        return NodeAttention((2 * keys_kNH).clamp_(-_MOST, _MOST).exp_(), real_kN, starts_k)

    def attend(self, hidden_kH: Tensor, attention: NodeAttention, nodes_nC: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attended nodes (k, C), and scores (k, N), arbitrary where there is no node."""
        powers_kH = _product(self._query, hidden_kH).clamp_(-_MOST, _MOST).exp_()
        powers_kNH, spare_jH = attention.powers_kNH, attention.spare_jH
        num = powers_kNH.shape[:2].numel()
        torch.mul(powers_kNH, powers_kH.unsqueeze(1), out=spare_jH[:num].view_as(powers_kNH)).add_(1).reciprocal_()
        scores_kN = self._score(spare_jH)[:num].view(powers_kNH.shape[:2]) + self._scores
        shares_L = (scores_kN + attention.absent_kN).softmax(1).view(-1).index_select(0, attention.places_L)
        seen_kC = embedding_bag(attention.nodes_L, nodes_nC, attention.firsts_k, mode="sum", per_sample_weights=shares_L)
        return seen_kC, scores_kN

    def check(self, attention: NodeAttention, rows_j: Tensor, nodes_j: Tensor) -> None:
        """Mark nodes that an utterance has named."""
        attention.powers_kNH[rows_j, nodes_j] *= self._check_H

    def first_gates(self, hidden_kH: Tensor, seen_kC: Tensor) -> Tensor:
        """Return the share of state and attended nodes in the first word's gates (k, 4H)."""
        return _product(self._said_state, hidden_kH) + _product(self._attended, seen_kC)

    def named_gates(self, nodes_jC: Tensor) -> Tensor:
        """Return the share in the gates (j, 4H) of nodes that the word before has named."""
        return _product(self._said_nodes, nodes_jC)

    def after(self, hidden_kH: Tensor, seen_kC: Tensor) -> tuple[Tensor, Tensor]:
        """Return word logits (k, V), and the share of state and attended nodes in the next word's gates (k, 4H)."""
        sums_kJ = _product(self._after, torch.cat([hidden_kH, seen_kC], dim=1))
        combined_kH = _squashed(sums_kJ[:, : self.hidden])
        return _product(self._output, combined_kH).add_(self._output_V), sums_kJ[:, self.hidden :]

    def step(self, gates_k4H: Tensor, cell_kH: Tensor) -> tuple[Tensor, Tensor]:
        """Return state and cell (k, H) after a word; `gates_k4H` are sums, and are overwritten."""
        enter, forget, candidate, leave = gates_k4H.sigmoid_().chunk(4, dim=1)
        cell_kH = (forget * cell_kH).addcmul_(enter, candidate, value=2).sub_(enter)
        return _squashed(2 * cell_kH).mul_(leave), cell_kH

    def read(self, state: tuple[Tensor, Tensor], heard: Heard, nodes_nC: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
        """Return state and cell (k, H) after a heard event; `num_nodes` is the room for nodes in the game."""
        gates_M4H, named = self.heard_words_V4H.index_select(0, heard.words_M), heard.named
        if len(named.places_J):
            numbers_J = heard.rows_k[named.rows_J] * num_nodes + named.nodes_J
            gates_M4H.index_add_(0, named.places_J, _product(self._heard_nodes, nodes_nC.index_select(0, numbers_J)))
        states_MH, cells_MH = (gates_M4H.new_empty(len(gates_M4H), self.hidden) for _ in range(2))
        hidden_kH, cell_kH = state
        for block in heard.places.blocks():
            rows = block.stop - block.start
            gates = gates_M4H[block].add_(_product(self._heard_state, hidden_kH[:rows]))
            hidden_kH, cell_kH = self.step(gates, cell_kH[:rows])
            states_MH[block], cells_MH[block] = hidden_kH, cell_kH
        return states_MH.index_select(0, heard.places.last_R), cells_MH.index_select(0, heard.places.last_R)


def _product(weight: Weight, rows_nI: Tensor) -> Tensor:
    missing = _missing(num := len(rows_nI))
    return weight(torch.cat([rows_nI, rows_nI.new_zeros(missing, rows_nI.shape[1])]) if missing else rows_nI)[:num]


def _missing(num: int) -> int:
    step = max(_LEAST, (1 << max(num - 1, 1).bit_length() - 1) // _STEPS)
    return -num % step


def _squashed(doubled: Tensor) -> Tensor:
    return doubled.sigmoid_().mul_(2).sub_(1)
