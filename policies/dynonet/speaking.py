"""Decoding of DynoNets: events word by word in many chats, by draws or the likeliest.

Source: the released bot-bot chats. Words are drawn at a temperature, `<select>` costs a penalty, an utterance ends after 20
tokens. Only entities of the own table or mentioned ones are copied, `<select>` stands in front alone, and an own item
behind it.

Shapes: k rows at work, N nodes, C embedding of a node, H hidden, V words, L draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from policies.drawing import drawn
from policies.dynonet.attending import attend
from policies.dynonet.model import DynoNet, NodeContexts
from policies.dynonet.reading import NO_NODE
from policies.dynonet.settings import FriendsDecoding
from policies.dynonet.vocabulary import EOS_ID, GO_ID, ITEM_ID, SELECT_ID
from policies.lstm import advance

_FULL = 0.8
"""Share of the rows at work that still write, at least."""


@dataclass(frozen=True)
class Chosen:
    """What has been chosen in a chat.

    Args:
        words: ids, `</s>` at the end; of an entity the word of its category.
        nodes: what each names, or `NO_NODE`.
        hidden_H: the state after reading it.
        cell_H: the cell.
    """

    words: list[int]
    nodes: list[int]
    hidden_H: Tensor
    cell_H: Tensor


class Copyable(NamedTuple):
    """What may be copied in k chats."""

    words_kN: Tensor
    """What each node is read as, int64: the word of a category, or `<item>`."""
    known_kN: Tensor
    """Where there is a node: what is attended to."""
    entities_kN: Tensor
    """Entities of the own table, and mentioned ones."""
    items_kN: Tensor
    """Own items."""


def choose(
    model: DynoNet,
    decoding: FriendsDecoding,
    state: tuple[Tensor, Tensor],
    contexts: NodeContexts,
    copyable: Copyable,
    draws_kL: Tensor,
) -> list[Chosen]:
    """Chooses an event in each of k chats.

    Args:
        model: in evaluation mode.
        decoding: how words are chosen.
        state: state and cell (k, H).
        contexts: of the nodes; not changed.
        copyable: what may be copied.
        draws_kL: uniform numbers in [0, 1), float64, `num_draws` of them.
    """
    found: list[Chosen | None] = [None] * len(draws_kL)
    words: list[list[int]] = [[] for _ in found]
    nodes: list[list[int]] = [[] for _ in found]
    gates_V4H = linear(model.embedding.weight, model.decoder_words.weight, model.decoder_words.bias)
    (hidden, cell), embedded, keys = state, contexts.nodes_RNC, contexts.keys_RNH.clone()
    attended = attend(hidden, keys, embedded, copyable.known_kN, model.scorer)[0]
    rows = torch.arange(len(draws_kL), device=hidden.device)
    word, node, checked = torch.full_like(rows, GO_ID), torch.full_like(rows, NO_NODE), torch.zeros_like(copyable.known_kN)
    step = 0
    while len(rows):
        gates = gates_V4H.index_select(0, word) + linear(hidden, model.decoder_state.weight)
        gates += linear(attended, model.decoder_attended.weight)
        if len(named := (node != NO_NODE).nonzero().squeeze(1)):
            gates[named] += linear(embedded[named, node[named]], model.decoder_nodes.weight)
            fresh = named[~checked[named, node[named]]]
            checked[fresh, node[fresh]] = True
            keys[fresh, node[fresh]] += model.check
        before, (cell, squashed, hidden) = cell, (torch.empty_like(cell) for _ in range(3))
        advance(gates, before, cell, squashed, hidden)
        attended, scores, _, _ = attend(hidden, keys, embedded, copyable.known_kN, model.scorer)
        logits = _allowed(model, decoding, model.logits(hidden, attended, scores), word, copyable, step)
        drawing = decoding.temperature > 0
        chosen = drawn(logits / decoding.temperature, draws_kL[:, step]) if drawing else logits.argmax(1)
        copied = chosen >= len(model.vocabulary)
        node = torch.where(copied, chosen - len(model.vocabulary), NO_NODE)
        word = torch.where(copied, copyable.words_kN.gather(1, node.clamp(min=0).unsqueeze(1)).squeeze(1), chosen)
        step += 1
        for at, (row, new_word, new_node) in enumerate(zip(rows.tolist(), word.tolist(), node.tolist(), strict=True)):
            if found[row] is not None:
                continue
            words[row].append(new_word)
            nodes[row].append(new_node)
            if new_word == EOS_ID:
                found[row] = Chosen(words[row], nodes[row], hidden[at].clone(), cell[at].clone())
        going = [at for at, row in enumerate(rows.tolist()) if found[row] is None]
        # To leave out a row costs a copy of all that others need.
        if len(going) <= _FULL * len(rows):
            kept = (rows, word, node, checked, hidden, cell, attended, embedded, keys, draws_kL)
            rows, word, node, checked, hidden, cell, attended, embedded, keys, draws_kL = (part[going] for part in kept)
            copyable = Copyable(*(part[going] for part in copyable))
    return [each for each in found if each is not None]


def num_draws(decoding: FriendsDecoding) -> int:
    """Draws that an event may need: each token's, `</s>` counted, of a selection or an utterance."""
    return max(decoding.max_tokens, 2) + 1


def _allowed(
    model: DynoNet, decoding: FriendsDecoding, logits_kJ: Tensor, word_k: Tensor, copyable: Copyable, step: int
) -> Tensor:
    """Logits (k, V + N) with minus infinity for what may not follow."""
    num_words = len(model.vocabulary)
    allowed = torch.zeros_like(logits_kJ, dtype=torch.bool)
    opened, done = word_k == SELECT_ID, (word_k == ITEM_ID) | (step >= decoding.max_tokens)
    if step == 0:
        logits_kJ[:, SELECT_ID] -= decoding.select_penalty
        allowed[:, SELECT_ID] = True
    else:
        allowed[:, EOS_ID] = True
    free = (~opened & ~done).unsqueeze(1)
    allowed[:, model.vocabulary.first_word : num_words] = free
    allowed[:, num_words:] = torch.where(opened.unsqueeze(1), copyable.items_kN, copyable.entities_kN & free)
    allowed[:, EOS_ID] &= ~opened
    return logits_kJ.masked_fill_(~allowed, -torch.inf)
