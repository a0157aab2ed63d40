"""A DynoNet as a player: hundreds of chats at a time, event by event. Also its decoding, and a policy that lies.

A session keeps between events: the state, the memories of nodes, their embeddings, and the products of their own parts
(`DynoNetInference.roots`), which are formed anew only for the nodes that an event changes. Messages are passed when they are
read. An event that a side has just chosen is not computed again when it hears itself.

Decoding follows the released bot-bot chats. Words are drawn at a temperature, `<select>` costs a penalty, an utterance ends
after 20 tokens. Only entities of the own table or mentioned ones are copied; `<select>` comes first only, and an own item
follows it.

`Liar` scores every claim by features of it, and learns by reinforcement. It is between a player of MutualFriends and its
partner (`envs/mutual_friends/lies.py`); `engine/mutual_friends/rl.py` trains it.

Shapes: S rows of the game, k rows at work, N nodes, J nodes that change, H hidden, V width of a node's own part or words of the
vocabulary, C embedding of a node, M its messages, K message, L draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.config import from_dict
from parley.envs.core.errors import CheckpointError
from parley.envs.core.storage.copies import CHECKPOINT, fetched_model
from parley.envs.corpora.lines import WordList
from parley.envs.mutual_friends.game import Act, ChatEvent, FriendsView, Token
from parley.envs.mutual_friends.lies import FEATURES, Choice, LieRules
from parley.envs.mutual_friends.linker import EntityLinker
from parley.policies.core.checkpoint import ActionScorer, ModelFormat, drawn_actions
from parley.policies.core.decoding import drawn
from parley.policies.core.settings import ChoiceSizes
from parley.policies.dynonet.batches import TouchedNodes, heard_of, spoken_of, touched_of
from parley.policies.dynonet.graphs import EOS_ID, GO_ID, ITEM_ID, SELECT_ID
from parley.policies.dynonet.model import DynoNet, DynoNetInference, GraphEdges, NodeAttention, NodeContexts, load_dynonet
from parley.policies.dynonet.reading import NO_NODE, ChatReader, EventReading
from parley.policies.dynonet.settings import FriendsDecoding

_RULES = "rules"
"""Key of a checkpoint for the rules of its liar."""


class Liar(ActionScorer):
    """A policy that scores claims.

    Args:
        vocabulary: names of the features of a claim.
        sizes: widths.
    """

    def __init__(self, vocabulary: WordList, sizes: ChoiceSizes) -> None:
        super().__init__(len(vocabulary), sizes)
        self.vocabulary = vocabulary


LIAR = ModelFormat("liar", WordList, ChoiceSizes, Liar)
"""Storage format of the liar."""


def new_liar(sizes: ChoiceSizes, seed: int) -> Liar:
    """Return an untrained policy."""
    liar = Liar(WordList(FEATURES), sizes)
    liar.draw_weights(seed)
    return liar.eval()


def save_liar(liar: Liar, folder: Path, rules: LieRules, provenance: dict[str, Any]) -> None:
    """Write a policy with its rules; errors as of `ModelFormat.save`."""
    LIAR.save(liar, folder, {**provenance, _RULES: asdict(rules)})


def load_liar(folder: Path) -> tuple[Liar, LieRules]:
    """Return the policy of a run or checkpoint folder, and its rules.

    Raises:
        CheckpointError: as `ModelFormat.load`, or it saw something else of claims.
    """
    liar = LIAR.load(folder)
    if liar.vocabulary.words != FEATURES:
        got = f"{len(liar.vocabulary)} features, {len(FEATURES)} expected"
        raise CheckpointError("the liar sees something else of claims", where=folder, got=got, fix="train it again")
    return liar, from_dict(LieRules, LIAR.provenance(folder)[_RULES])


def liar_choice(liar: Liar) -> Choice:
    """Return a function that draws lies from a policy, as in its training."""

    def choose(seen: np.ndarray, masks: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return drawn_actions(liar(torch.from_numpy(seen), torch.from_numpy(masks)), uniforms)

    return choose


_FULL = 0.8
"""Least share of the rows at work that still write; below it ended rows leave."""


class Chosen(NamedTuple):
    """The events chosen in k chats."""

    words: list[list[int]]
    """Ids, `</s>` at the end; of an entity the word of its category."""
    nodes: list[list[int]]
    """Node that each names, or `NO_NODE`."""
    hidden_kH: Tensor
    """States after reading it."""
    cell_kH: Tensor


class Copyable(NamedTuple):
    """The nodes that may be copied in k chats."""

    words_kN: Tensor
    """Word as which each node is read, int64: that of a category, or `<item>`."""
    entities_kN: Tensor
    """Entities of the own table, and mentioned ones."""
    items_kN: Tensor
    """Own items."""


def choose(
    network: DynoNetInference,
    decoding: FriendsDecoding,
    state: tuple[Tensor, Tensor],
    nodes_nC: Tensor,
    attention: NodeAttention,
    copyable: Copyable,
    draws_kL: Tensor,
) -> Chosen:
    """Return an event for each of k chats.

    Args:
        network: the networks.
        decoding: settings of choosing words.
        state: state and cell (k, H).
        nodes_nC: embeddings of all nodes of the game.
        attention: to the nodes of the chats; is changed.
        copyable: nodes that may be copied.
        draws_kL: uniform numbers in [0, 1), float64, `num_draws` of them.
    """
    (hidden, cell), num_words, last = state, len(network.vocabulary), num_draws(decoding) - 1
    hidden_kH, cell_kH = torch.empty_like(hidden), torch.empty_like(cell)
    rows = torch.arange(len(hidden), device=hidden.device)
    word, node = torch.full_like(rows, GO_ID), torch.full_like(rows, NO_NODE)
    words_kL, nodes_kL = (ids.unsqueeze(1).repeat(1, last + 1) for ids in (word, node))
    going, checked, banned = rows >= 0, torch.zeros_like(copyable.items_kN), hidden
    gates = network.first_gates(hidden, network.attend(hidden, attention, nodes_nC)[0])
    for step in range(last + 1):
        gates = gates + network.said_words_V4H.index_select(0, word)
        if len(named := (node != NO_NODE).nonzero().squeeze(1)):
            named_nodes = node[named]
            gates.index_add_(0, named, network.named_gates(nodes_nC.index_select(0, attention.starts_k[named] + named_nodes)))
            fresh = ~checked[named, named_nodes]
            checked[named, named_nodes] = True
            network.check(attention, named[fresh], named_nodes[fresh])
        hidden, cell = network.step(gates, cell)
        if step == last:
            # The last token is always the end.
            word, node = torch.full_like(rows, EOS_ID), torch.full_like(rows, NO_NODE)
        else:
            seen, scores = network.attend(hidden, attention, nodes_nC)
            logits, gates = network.after(hidden, seen)
            if step <= 2:
                # An item is chosen at the second step; from the third on the allowed tokens stay the same.
                banned = _banned(network, decoding, word, copyable, step)
            logits = torch.cat([logits, scores], dim=1).add_(banned)
            drawing = decoding.temperature > 0
            chosen = drawn(logits / decoding.temperature, draws_kL[:, step]) if drawing else logits.argmax(1)
            copied = chosen >= num_words
            node = torch.where(copied, chosen - num_words, NO_NODE)
            word = torch.where(copied, copyable.words_kN.gather(1, node.clamp(min=0).unsqueeze(1)).squeeze(1), chosen)
        words_kL[rows, step], nodes_kL[rows, step] = word, node
        if len(ended := ((word == EOS_ID) & going).nonzero().squeeze(1)):
            hidden_kH[rows[ended]], cell_kH[rows[ended]], going[ended] = hidden[ended], cell[ended], False
            kept = going.nonzero().squeeze(1)
            if not len(kept):
                break
            # Leaving out a row costs a copy of the others.
            if len(kept) <= _FULL * len(rows):
                parts = (rows, word, node, going, checked, cell, gates, banned, draws_kL)
                rows, word, node, going, checked, cell, gates, banned, draws_kL = (part[kept] for part in parts)
                attention, copyable = attention.of(kept), Copyable(*(part[kept] for part in copyable))
    rows_of_words, named_kL = words_kL.tolist(), nodes_kL.tolist()
    lengths = [ids.index(EOS_ID) + 1 for ids in rows_of_words]
    words, nodes = ([ids[:length] for ids, length in zip(both, lengths, strict=True)] for both in (rows_of_words, named_kL))
    return Chosen(words, nodes, hidden_kH, cell_kH)


def num_draws(decoding: FriendsDecoding) -> int:
    """Return the number of draws that an event may need: one a token, `</s>` counted."""
    return max(decoding.max_tokens, 2) + 1


def _banned(network: DynoNetInference, decoding: FriendsDecoding, word_k: Tensor, copyable: Copyable, step: int) -> Tensor:
    """Return the terms added to logits (k, V + N): minus infinity for forbidden words, and the penalty of `<select>`."""
    num_words = len(network.vocabulary)
    allowed = copyable.items_kN.new_zeros(len(word_k), num_words + copyable.items_kN.shape[1])
    opened, done = word_k == SELECT_ID, (word_k == ITEM_ID) | (step >= decoding.max_tokens)
    allowed[:, SELECT_ID if step == 0 else EOS_ID] = True
    free = (~opened & ~done).unsqueeze(1)
    allowed[:, network.vocabulary.first_word : num_words] = free
    allowed[:, num_words:] = torch.where(opened.unsqueeze(1), copyable.items_kN, copyable.entities_kN & free)
    allowed[:, EOS_ID] &= ~opened
    banned = network.zeros(*allowed.shape).masked_fill_(~allowed, -torch.inf)
    if step == 0:
        banned[:, SELECT_ID] = -decoding.select_penalty
    return banned


SPARE_NODES = 8
"""Nodes for which a session makes room beyond those of its largest graph."""


class DynoNetAgent:
    """A DynoNet as a `FriendsAgent`.

    Args:
        model: in evaluation mode.
        linker: finds entities in heard words, and knows their forms.
        name: shown in reports.
        decoding: settings of choosing words.
    """

    def __init__(self, model: DynoNet, linker: EntityLinker, name: str, decoding: FriendsDecoding | None = None) -> None:
        self.model, self.linker, self.name = model, linker, name
        self.decoding = decoding or FriendsDecoding()

    def __repr__(self) -> str:
        return f"DynoNetAgent({self.name!r}, {self.decoding})"

    def join(self, view: FriendsView) -> DynoNetSession:
        """Return a session that plays one side."""
        return DynoNetSession(self, view)


class DynoNetSession:
    """One side of the chats in the rows of a game.

    Attributes:
        hidden_SH: states after the events heard and said.
        cell_SH: their cells.
    """

    def __init__(self, agent: DynoNetAgent, view: FriendsView) -> None:
        self._agent, self._view, self._network = agent, view, DynoNetInference(agent.model)
        self._readers: dict[int, ChatReader] = {}
        self._chosen: dict[int, tuple[Act, list[int], list[int]]] = {}
        self._described: dict[int, int] = {}
        self._stale: set[int] = set()
        self._edges: tuple[list[int], GraphEdges] | None = None
        zeros, rows, size = self._network.zeros, len(view), agent.model.sizes.hidden
        self.hidden_SH, self.cell_SH, self._chosen_hidden_SH, self._chosen_cell_SH = (zeros(rows, size) for _ in range(4))
        firsts, keys = self._network.roots(zeros(1, self._network.own))
        self._nodes_SNC, self._firsts_SNK = zeros(rows, 0, self._network.width), zeros(rows, 0, firsts.shape[1])
        self._keys_SNH, self._words_SN = zeros(rows, 0, keys.shape[1]), zeros(rows, 0).long()

    @property
    def nodes_SNC(self) -> Tensor:
        """Embeddings of the nodes in their present state."""
        self._spread(list(self._readers))
        return self._nodes_SNC

    @torch.no_grad()
    def enter(self, rows: list[int]) -> None:
        """Build the graphs of new chats."""
        view, model, at = self._view, self._agent.model, self._ids(rows)
        for row in rows:
            table, attributes = view.entities(row), view.attributes(row)
            self._readers[row] = ChatReader(table, attributes, model.vocabulary, model.sizes.max_items, self._agent.linker)
            self._chosen.pop(row, None)
            self._described.pop(row, None)
        for part in (self.hidden_SH, self.cell_SH, self._nodes_SNC):
            part[at] = 0
        self._stale.update(rows)
        self._edges = None
        self._describe(rows)

    @torch.no_grad()
    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Read one event in each of the rows, the partner's or its own."""
        mine = [event.side == self._view.side for event in events]
        theirs, own_events = ([i for i, is_mine in enumerate(mine) if is_mine is wanted] for wanted in (False, True))
        if theirs:
            self._listen([rows[i] for i in theirs], [events[i] for i in theirs])
        if own_events:
            self._remember([rows[i] for i in own_events], [events[i] for i in own_events])

    @torch.no_grad()
    def act(self, rows: list[int]) -> list[Act]:
        """Return an utterance or a selection in each row."""
        view, agent, at = self._view, self._agent, self._ids(rows)
        # The last draw chooses forms.
        draws = np.stack([view.generator(row).random(num_draws(agent.decoding) + 1) for row in rows])
        readers = [self._readers[row] for row in rows]
        bounds = [(len(reader.graph), reader.graph.first_entity, reader.graph.num_items) for reader in readers]
        bounds_k3 = torch.tensor(bounds, device=at.device)
        num_nodes = int(bounds_k3[:, 0].max())
        every_N = torch.arange(num_nodes, device=at.device)
        known_kN, named_kN, items_kN = every_N < bounds_k3[:, :1], every_N >= bounds_k3[:, 1:2], every_N < bounds_k3[:, 2:]
        copyable = Copyable(self._words_SN[at, :num_nodes], known_kN & named_kN, items_kN)
        attention = self._network.attention(self._keys(rows, num_nodes), known_kN, at * self._nodes_SNC.shape[1])
        state, draws_kL = (self.hidden_SH[at], self.cell_SH[at]), torch.from_numpy(draws).to(at.device)
        chosen = choose(self._network, agent.decoding, state, self._nodes_SNC.flatten(0, 1), attention, copyable, draws_kL)
        self._chosen_hidden_SH[at], self._chosen_cell_SH[at] = chosen.hidden_kH, chosen.cell_kH
        choices = zip(readers, chosen.words, chosen.nodes, draws[:, -1].tolist(), strict=True)
        acts = [self._act(*reader) for reader in choices]
        self._chosen.update(zip(rows, zip(acts, chosen.words, chosen.nodes, strict=True), strict=True))
        return acts

    def _act(self, reader: ChatReader, words: list[int], nodes: list[int], draw: float) -> Act:
        if words[0] == SELECT_ID:
            return nodes[1]
        vocabulary_words, first = self._network.vocabulary.words, reader.graph.first_entity
        tokens: list[Token] = [vocabulary_words[word] for word in words[:-1]]
        named = [index for index, node in enumerate(nodes) if node != NO_NODE]
        entities = list(reader.graph.nodes) if named else []
        for index in named:
            ways = self._agent.linker.mentions(entities[nodes[index] - first])
            tokens[index] = ways[int(draw * len(ways)) if self._agent.decoding.forms else 0]
        return tuple(tokens)

    def _reading(self, row: int, event: ChatEvent) -> tuple[EventReading, bool]:
        """Return the reading of an own event, and whether it was just chosen, so that nothing has to be computed."""
        reader, (act, words, nodes) = self._readers[row], self._chosen.pop(row, ((), [], []))
        # Words without a marked entity may still name one.
        if event.selected == act or (event.tokens is act and max(nodes, default=NO_NODE) != NO_NODE):
            return reader.read(words, nodes), True
        reading = reader.read_own(event)
        return reading, (reading.words, reading.nodes) == (words, nodes)

    def _listen(self, rows: list[int], events: Sequence[ChatEvent]) -> None:
        readings = [self._readers[row].hear(event) for row, event in zip(rows, events, strict=True)]
        self._describe(rows)
        self._spread(rows)
        heard = heard_of(readings, rows).to(self.hidden_SH.device)
        state = self.hidden_SH[heard.rows_k], self.cell_SH[heard.rows_k]
        state = self._network.read(state, heard, self._nodes_SNC.flatten(0, 1), self._nodes_SNC.shape[1])
        self._keep(heard.rows_k, heard.touched, state, of_own=False)

    def _remember(self, rows: list[int], events: Sequence[ChatEvent]) -> None:
        readings, chosen = zip(*map(self._reading, rows, events), strict=True)
        chosen_events, other_events = (
            [i for i, is_chosen in enumerate(chosen) if is_chosen is wanted] for wanted in (True, False)
        )
        if chosen_events:
            at = self._ids([rows[i] for i in chosen_events])
            touched = touched_of([readings[i] for i in chosen_events]).to(at.device)
            self._keep(at, touched, (self._chosen_hidden_SH[at], self._chosen_cell_SH[at]), of_own=True)
        if other_events:
            events_batch = spoken_of(
                [readings[i] for i in other_events], [rows[i] for i in other_events], len(self._network.vocabulary)
            )
            events_batch = events_batch.to(self.hidden_SH.device)
            at = events_batch.heard.rows_k
            keys_kNH = self._keys(at.tolist(), self._nodes_SNC.shape[1])
            contexts = NodeContexts(self._nodes_SNC[at], keys_kNH)
            written = self._agent.model.decode((self.hidden_SH[at], self.cell_SH[at]), events_batch, contexts)
            self._keep(at, events_batch.heard.touched, (written.hidden_RH, written.cell_RH), of_own=True)

    def _keep(self, at: Tensor, touched: TouchedNodes, state: tuple[Tensor, Tensor], *, of_own: bool) -> None:
        """Set the states (k, H) after an event, and change the nodes that it touches."""
        self.hidden_SH[at], self.cell_SH[at] = state
        if not self._network.sizes.dynamic or not len(touched.rows_J):
            return
        size, rows_J = self._network.hidden, at[touched.rows_J]
        numbers_J = rows_J * self._nodes_SNC.shape[1] + touched.nodes_J
        part = slice(size, 2 * size) if of_own else slice(0, size)
        own_JV = self._nodes_SNC.flatten(0, 1)[:, : self._network.own].index_select(0, numbers_J)
        own_JV[:, part] = self._network.touched(own_JV[:, part], state[0].index_select(0, touched.rows_J))
        self._note(numbers_J, own_JV)
        self._stale.update(rows_J.tolist())

    def _note(self, numbers_j: Tensor, own_jV: Tensor) -> None:
        own_nV = self._nodes_SNC.flatten(0, 1)[:, : self._network.own]
        parts = own_nV, self._firsts_SNK.flatten(0, 1), self._keys_SNH.flatten(0, 1)
        for part, new in zip(parts, (own_jV, *self._network.roots(own_jV)), strict=True):
            part.index_copy_(0, numbers_j, new)

    def _spread(self, rows: list[int]) -> None:
        """Compute the contexts of rows in which nodes have changed."""
        rows = sorted(rows)
        if self._stale.isdisjoint(rows):
            return
        if self._edges is None or self._edges[0] != rows:
            graphs = [self._readers[row].graph.edges_E3 for row in rows]
            self._edges = rows, self._network.edges(graphs, rows, self._nodes_SNC.shape[1])
        self._network.spread(self._nodes_SNC.flatten(0, 1), self._firsts_SNK.flatten(0, 1), self._edges[1])
        self._stale.difference_update(rows)

    def _keys(self, rows: list[int], num_nodes: int) -> Tensor:
        """Return the keys of attention (k, N, H) of the first nodes of rows."""
        self._spread(rows)
        at = self._ids(rows)
        messages_SNM = self._nodes_SNC[:, :num_nodes, self._network.own :]
        return self._network.keys(self._keys_SNH[:, :num_nodes][at], messages_SNM[at])

    def _describe(self, rows: list[int]) -> None:
        """Set the features of new nodes, with room for them; only new chats have edges to set."""
        graphs = {row: graph for row in rows if len(graph := self._readers[row].graph) > self._described.get(row, 0)}
        if not graphs:
            return
        if (more := max(map(len, graphs.values())) - self._nodes_SNC.shape[1]) > 0:
            kept = (self._nodes_SNC, self._firsts_SNK, self._keys_SNH, self._words_SN)
            room = more + SPARE_NODES
            parts = (torch.cat([part, part.new_zeros(len(part), room, *part.shape[2:])], dim=1) for part in kept)
            self._nodes_SNC, self._firsts_SNK, self._keys_SNH, self._words_SN = parts
            self._edges = None
        numbers, features, words = list[int](), [], list[int]()
        for row, graph in graphs.items():
            first, start = self._described.get(row, 0), row * self._nodes_SNC.shape[1]
            numbers += range(start + first, start + len(graph))
            features.append(graph.features(first))
            words += graph.words[first:]
            self._described[row] = len(graph)
        own_jV = self._network.zeros(len(numbers), self._network.own)
        own_jV[:, 2 * self._network.hidden :] = torch.from_numpy(np.concatenate(features))
        numbers_j = self._ids(numbers)
        self._note(numbers_j, own_jV)
        self._words_SN.view(-1)[numbers_j] = self._ids(words)

    def _ids(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.hidden_SH.device)


def load_friends_agent(
    folder: str | Path,
    linker: EntityLinker,
    name: str | None = None,
    device: str = "cpu",
    decoding: FriendsDecoding | None = None,
) -> DynoNetAgent:
    """Return an agent from a run or checkpoint folder, or a URI of one; raises as `ModelFormat.load` does.

    Args:
        folder: such as "runs/dynonet".
        linker: of the corpus that it was trained on, which `corpus` of its provenance names.
        name: shown in reports; the run's when not given.
        device: torch device.
        decoding: settings of choosing words; the released ones by default.
    """
    path = fetched_model(folder)
    run = path.parent if path.name == CHECKPOINT else path
    return DynoNetAgent(load_dynonet(path).to(device), linker, name or run.name, decoding)
