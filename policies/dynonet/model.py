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

DynoNets on disk: a folder (`policies/core/checkpoint.py`); `corpus` of its provenance says whose schema it knows.

Training of DynoNets: the fit of other predictors, with an update after each turn of a batch, as released.

The loss of a turn is the mean over its sides of the mean over what each does, in nats per word (released); sides that have
no such turn count as 0. The state goes on from turn to turn without gradient, so the weights may change between them.

How well a DynoNet foretells what sides say and select, and how well its linker finds what speakers meant.

Shapes: n sides or chats.

The networks of a DynoNet as play runs through them: no gradients, and weights that are laid out once.

The equations are those of `model.py` and `attending.py`; tests hold both equal. What differs is how numbers come about:
  * Products are oneDNN's where torch brings it (`policies/core/layers.py`). A row of theirs does not depend on how many stand
    beside it. Because oneDNN builds a kernel for each number of rows, rows are filled up to one of few numbers.
  * tanh(x) is 2 sigmoid(2 x) - 1, and the 2 within is part of the weights: the gates of a step are one sigmoid.
  * tanh(query + key) is 1 - 2 / (1 + exp(2 query) exp(2 key)), so that keys are exponentiated once an event and not at every
    word.
  * What chooses a word and what the next word's gates read of it are one product with state and attended nodes.

Shapes: S rows of the game, k rows at work, N nodes, n nodes with edges, E edges, H hidden, V width of a node's own part, C
embedding of a node, M places of words, K message.
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
from parley.policies.core.fitting.batches import Fitness, Loss, OutputLoss, Predictor, in_order
from parley.policies.core.fitting.loop import Fit, StepLoss
from parley.policies.core.layers import Weight, is_mkl_whole
from parley.policies.dynonet.batches import (
    Edges,
    Heard,
    NodeScorer,
    Said,
    SideBatch,
    SideExamples,
    SideTurn,
    Written,
    read,
    write,
)
from parley.policies.dynonet.graphs import SELECT_ID, UNK_ID, FriendsVocabulary, num_features, num_relations
from parley.policies.dynonet.settings import DynoNetSizes


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
    """The hyperbolic tangent by the faster way, as `parley.policies.core.layers.tanh_`."""
    return values.tanh() if values.is_cuda or is_mkl_whole() else (2 * values).sigmoid() * 2 - 1


DYNONET = ModelFormat("dynonet", FriendsVocabulary, DynoNetSizes, DynoNet)
load_dynonet = DYNONET.load


def corpus_of(folder: Path) -> str:
    """The name of the corpus that the model of a run or checkpoint folder was fitted to; raises as `load_dynonet` does."""
    return str(DYNONET.provenance(folder)["corpus"])


class DynoNetFit(Fit[SideBatch]):
    """One supervised training of a DynoNet."""

    model: DynoNet

    def step(self, group: np.ndarray) -> StepLoss:
        """An update for each turn; the loss is the sum over all targets, each before its update."""
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
    """What a turn's update brings down.

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
    rows_M = turn.said.heard.places.rows()
    sums = torch.stack([nll_M.new_zeros(turn.rows).index_add(0, rows_M, each) for each in (nll_M, torch.ones_like(nll_M))])
    return (sums[0] / sums[1]).sum() / num_sides, nll_M.detach(), memory


_ROWS = 256


class SideFitness(NamedTuple):
    """How well a model predicts what sides do, by kind of token; sides stand as in `whose`."""

    tokens: Fitness
    """All of them."""
    known: Fitness
    """All but `<unk>`."""
    entities: Fitness
    """Copied entities of utterances."""
    items: Fitness
    """Selected items, which are copied, too."""


@torch.no_grad()
def by_kind(model: DynoNet, examples: SideExamples) -> SideFitness:
    """Scores the tokens of some sides.

    Args:
        model: in evaluation mode.
        examples: the sides.
    """
    device, found = next(model.parameters()).device, []
    for batch in in_order(examples, _ROWS):
        moved = batch.to(device)
        nll_BT = torch.zeros(batch.real_BT.shape).masked_scatter(batch.real_BT, model.nll(moved).cpu()).double()
        is_node_BT, is_item_BT = (batch.targets_BT >= len(model.vocabulary)) & batch.real_BT, torch.zeros_like(batch.real_BT)
        is_item_BT[:, 1:] = batch.targets_BT[:, :-1] == SELECT_ID
        is_known_BT = batch.real_BT & (batch.targets_BT != UNK_ID)
        chosen = batch.real_BT, is_known_BT, is_node_BT & ~is_item_BT, is_node_BT & is_item_BT
        found.append([((nll_BT * chosen_BT).sum(1), chosen_BT.sum(1)) for chosen_BT in chosen])
    kinds = zip(*found, strict=True)
    return SideFitness(*(Fitness(*(torch.cat(part).numpy() for part in zip(*kind, strict=True))) for kind in kinds))


def whose(examples: SideExamples) -> np.ndarray:
    """Of which chat each side is (n,), in the order in which sides are scored."""
    return examples.chats[np.argsort(examples.num_targets, kind="stable")]


def linked(chats: Iterable[FriendsChat], linker: EntityLinker) -> tuple[np.ndarray, np.ndarray]:
    """How many of the mentions that speakers meant a listener's linker finds, by the words alone.

    Args:
        chats: with marked mentions.
        linker: reads with the listener's table as context.

    Returns:
        Mentions found (n,) and mentions (n,) of each chat.
    """
    found, meant = [], []
    for chat in chats:
        hits = total = 0
        for event in chat.events:
            wanted = _spans(event.tokens)
            if wanted:
                known = _spans(linker.link(event.words, chat.scenario.mentionable[1 - event.side]))
                hits, total = hits + len(wanted.items() & known.items()), total + len(wanted)
        found.append(hits)
        meant.append(total)
    return np.array(found), np.array(meant)


def _spans(tokens: Iterable[Token]) -> dict[int, Entity]:
    """Entities by the place of their first word."""
    spans, at = {}, 0
    for token in tokens:
        if isinstance(token, Mention):
            spans[at] = token.entity
        at += len(token.words) if isinstance(token, Mention) else 1
    return spans


_MOST = 80.0
"""The largest exponent: tanh of half of it is 1 in float32, and its power is a number."""
_STEPS = 4
"""Numbers of rows between a power of two and the next one that rows are filled up to; `_LEAST` at least."""
_LEAST = 16


class GraphEdges(NamedTuple):
    """Edges of the graphs of some rows; node n of row r of the game is number r N + n."""

    joined_n: Tensor
    """The nodes that have edges, int64, rising."""
    targets_E: Tensor
    """Who gets a message, as a place in `joined_n`, rising."""
    sources_E: Tensor
    """From whom."""
    senders_E: Tensor
    """The same, as places in `joined_n`: as edges have inverses, who sends also gets."""
    relations: list[Tensor]
    """Products (E, K) of the relations' embeddings, by round."""


class NodeAttention:
    """The nodes of k rows, as attention reads them throughout an event.

    Args:
        powers_kNH: exp(2 key).
        real_kN: where there is a node.
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
        """That of some rows."""
        return NodeAttention(self.powers_kNH[rows_j], self.real_kN[rows_j], self.starts_k[rows_j])


class DynoNetInference:
    """Networks and their weights.

    Args:
        model: in evaluation mode; what is changed in it later is not seen.
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
        firsts = [each["node"].weight for each in rounds[:1]]
        self._roots = Weight(torch.cat([*firsts, model.key.weight[:, : self.own]]))
        self._nodes = [Weight(each["node"].weight) for each in rounds]
        embedded = model.edge_embedding.weight
        self._relations = [linear(embedded, each["edge"].weight, each["edge"].bias) for each in rounds]
        self._keys = Weight(model.key.weight[:, self.own :]) if rounds else None

    def zeros(self, *shape: int) -> Tensor:
        """Zeros on the device of the weights."""
        return self._output_V.new_zeros(shape)

    def roots(self, own_jV: Tensor) -> tuple[Tensor, Tensor]:
        """Products of nodes' own parts with the weights of the first messages (j, K or 0) and of the keys (j, H).

        They change only where the own part does, so that they are kept.
        """
        first_jK, key_jH = _product(self._roots, own_jV).tensor_split([-self.hidden], dim=1)
        return first_jK, key_jH

    def touched(self, old_jH: Tensor, state_jH: Tensor) -> Tensor:
        """As `DynoNet.touched`."""
        share_j1 = (_product(self._decay, torch.cat([old_jH, state_jH], dim=1)) + self._decay_1).sigmoid_()
        return torch.lerp(old_jH, state_jH, share_j1)

    def edges(self, graphs: Sequence[np.ndarray], rows: Sequence[int], num_nodes: int) -> GraphEdges:
        """The edges (E, 3) of the graphs of some rows, side by side; `num_nodes` is N."""
        targets, sources, relations = np.concatenate(graphs).T.astype(np.int64)
        starts = np.repeat(np.asarray(rows, dtype=np.int64) * num_nodes, [len(each) for each in graphs])
        targets = targets + starts
        first = np.diff(targets, prepend=-1) != 0
        joined, sources = targets[first], sources + starts
        found = joined, np.cumsum(first) - 1, sources, np.searchsorted(joined, sources), relations.copy()
        joined_n, targets_E, sources_E, senders_E, numbers_E = (torch.from_numpy(each).to(self._device) for each in found)
        relations = [each.index_select(0, numbers_E) for each in self._relations]
        return GraphEdges(joined_n, targets_E, sources_E, senders_E, relations)

    def spread(self, nodes_nC: Tensor, first_nK: Tensor, edges: GraphEdges) -> None:
        """Passes messages: writes those that nodes have got behind their own parts.

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
        """What attention compares with (k, N, H), of products of own parts (`roots`) and of messages that nodes have got."""
        if self._keys is None:
            return roots_kNH
        return _product(self._keys, messages_kNM.flatten(0, 1)).view_as(roots_kNH).add_(roots_kNH)

    def attention(self, keys_kNH: Tensor, real_kN: Tensor, starts_k: Tensor) -> NodeAttention:
        """Attention by keys (`keys`) to nodes; the rest as `NodeAttention`."""
        return NodeAttention((2 * keys_kNH).clamp_(-_MOST, _MOST).exp_(), real_kN, starts_k)

    def attend(self, hidden_kH: Tensor, attention: NodeAttention, nodes_nC: Tensor) -> tuple[Tensor, Tensor]:
        """What is attended to (k, C), and scores (k, N), anything where there is no node."""
        powers_kH = _product(self._query, hidden_kH).clamp_(-_MOST, _MOST).exp_()
        powers_kNH, spare_jH = attention.powers_kNH, attention.spare_jH
        num = powers_kNH.shape[:2].numel()
        torch.mul(powers_kNH, powers_kH.unsqueeze(1), out=spare_jH[:num].view_as(powers_kNH)).add_(1).reciprocal_()
        scores_kN = self._score(spare_jH)[:num].view(powers_kNH.shape[:2]) + self._scores
        shares_L = (scores_kN + attention.absent_kN).softmax(1).view(-1).index_select(0, attention.places_L)
        seen_kC = embedding_bag(attention.nodes_L, nodes_nC, attention.firsts_k, mode="sum", per_sample_weights=shares_L)
        return seen_kC, scores_kN

    def check(self, attention: NodeAttention, rows_j: Tensor, nodes_j: Tensor) -> None:
        """Marks nodes that an utterance has named."""
        attention.powers_kNH[rows_j, nodes_j] *= self._check_H

    def first_gates(self, hidden_kH: Tensor, seen_kC: Tensor) -> Tensor:
        """What the first word's gates (k, 4H) read of the state and of what is attended to."""
        return _product(self._said_state, hidden_kH) + _product(self._attended, seen_kC)

    def named_gates(self, nodes_jC: Tensor) -> Tensor:
        """What gates (j, 4H) read of nodes that the word before has named."""
        return _product(self._said_nodes, nodes_jC)

    def after(self, hidden_kH: Tensor, seen_kC: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (k, V) of words, and what the next word's gates (k, 4H) read of the state and of what is attended to."""
        sums_kJ = _product(self._after, torch.cat([hidden_kH, seen_kC], dim=1))
        combined_kH = _squashed(sums_kJ[:, : self.hidden])
        return _product(self._output, combined_kH).add_(self._output_V), sums_kJ[:, self.hidden :]

    def step(self, gates_k4H: Tensor, cell_kH: Tensor) -> tuple[Tensor, Tensor]:
        """State and cell (k, H) after a word; `gates_k4H` are sums, and lost."""
        enter, forget, candidate, leave = gates_k4H.sigmoid_().chunk(4, dim=1)
        cell_kH = (forget * cell_kH).addcmul_(enter, candidate, value=2).sub_(enter)
        return _squashed(2 * cell_kH).mul_(leave), cell_kH

    def read(self, state: tuple[Tensor, Tensor], heard: Heard, nodes_nC: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
        """State and cell (k, H) after an event that was heard; `num_nodes` is the room for nodes in the game."""
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
    """The product of rows, whose number is filled up to one of few."""
    missing = _missing(num := len(rows_nI))
    return weight(torch.cat([rows_nI, rows_nI.new_zeros(missing, rows_nI.shape[1])]) if missing else rows_nI)[:num]


def _missing(num: int) -> int:
    """How many rows are missing to the next number for which there is a kernel."""
    step = max(_LEAST, (1 << max(num - 1, 1).bit_length() - 1) // _STEPS)
    return -num % step


def _squashed(doubled: Tensor) -> Tensor:
    """The hyperbolic tangent of the half of each value, in place."""
    return doubled.sigmoid_().mul_(2).sub_(1)
