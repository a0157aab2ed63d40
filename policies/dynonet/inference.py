"""The networks of a DynoNet as play runs through them: no gradients, and weights that are laid out once.

The equations are those of `model.py` and `attending.py`; tests hold both equal. What differs is how numbers come about:
  * Products are oneDNN's where torch brings it (`policies/core/products.py`). A row of theirs does not depend on how many stand
    beside it. Because oneDNN builds a kernel for each number of rows, rows are filled up to one of few numbers.
  * tanh(x) is 2 sigmoid(2 x) - 1, and the 2 within is part of the weights: the gates of a step are one sigmoid.
  * tanh(query + key) is 1 - 2 / (1 + exp(2 query) exp(2 key)), so that keys are exponentiated once an event and not at every
    word.
  * What chooses a word and what the next word's gates read of it are one product with state and attended nodes.

Shapes: S rows of the game, k rows at work, N nodes, n nodes with edges, E edges, H hidden, V width of a node's own part, C
embedding of a node, M places of words, K message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, linear

from parley.policies.core.products import Weight
from parley.policies.dynonet.batches import Heard
from parley.policies.dynonet.model import DynoNet

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
