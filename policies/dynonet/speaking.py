"""Decoding of DynoNets: events word by word in many chats, by draws or the likeliest.

Source: the released bot-bot chats. Words are drawn at a temperature, `<select>` costs a penalty, an utterance ends after 20
tokens. Only entities of the own table or mentioned ones are copied, `<select>` stands in front alone, and an own item
behind it.

Shapes: k rows at work, N nodes, C embedding of a node, H hidden, V words, L draws.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from parley.policies.core.drawing import drawn
from parley.policies.dynonet.inference import DynoNetInference, NodeAttention
from parley.policies.dynonet.reading import NO_NODE
from parley.policies.dynonet.settings import FriendsDecoding
from parley.policies.dynonet.vocabulary import EOS_ID, GO_ID, ITEM_ID, SELECT_ID

_FULL = 0.8
"""Share of the rows at work that still write, at least."""


class Chosen(NamedTuple):
    """What has been chosen in k chats."""

    words: list[list[int]]
    """Ids, `</s>` at the end; of an entity the word of its category."""
    nodes: list[list[int]]
    """What each names, or `NO_NODE`."""
    hidden_kH: Tensor
    """States after reading it."""
    cell_kH: Tensor


class Copyable(NamedTuple):
    """What may be copied in k chats."""

    words_kN: Tensor
    """What each node is read as, int64: the word of a category, or `<item>`."""
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
    """Chooses an event in each of k chats.

    Args:
        network: what computes.
        decoding: how words are chosen.
        state: state and cell (k, H).
        nodes_nC: embeddings of all nodes of the game.
        attention: to the nodes of the chats; is changed.
        copyable: what may be copied.
        draws_kL: uniform numbers in [0, 1), float64, `num_draws` of them.
    """
    (hidden, cell), num_words, last = state, len(network.vocabulary), num_draws(decoding) - 1
    hidden_kH, cell_kH = torch.empty_like(hidden), torch.empty_like(cell)
    rows = torch.arange(len(hidden), device=hidden.device)
    word, node = torch.full_like(rows, GO_ID), torch.full_like(rows, NO_NODE)
    words_kL, nodes_kL = (each.unsqueeze(1).repeat(1, last + 1) for each in (word, node))
    going, checked, banned = rows >= 0, torch.zeros_like(copyable.items_kN), hidden
    gates = network.first_gates(hidden, network.attend(hidden, attention, nodes_nC)[0])
    for step in range(last + 1):
        gates = gates + network.said_words_V4H.index_select(0, word)
        if len(named := (node != NO_NODE).nonzero().squeeze(1)):
            own = node[named]
            gates.index_add_(0, named, network.named_gates(nodes_nC.index_select(0, attention.starts_k[named] + own)))
            fresh = ~checked[named, own]
            checked[named, own] = True
            network.check(attention, named[fresh], own[fresh])
        hidden, cell = network.step(gates, cell)
        if step == last:
            # Nothing else may follow.
            word, node = torch.full_like(rows, EOS_ID), torch.full_like(rows, NO_NODE)
        else:
            seen, scores = network.attend(hidden, attention, nodes_nC)
            logits, gates = network.after(hidden, seen)
            if step <= 2:
                # An item is chosen at the second step, and what may follow a word is always the same.
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
            # To leave out a row costs a copy of all that others need.
            if len(kept) <= _FULL * len(rows):
                parts = (rows, word, node, going, checked, cell, gates, banned, draws_kL)
                rows, word, node, going, checked, cell, gates, banned, draws_kL = (part[kept] for part in parts)
                attention, copyable = attention.of(kept), Copyable(*(part[kept] for part in copyable))
    said, named_kL = words_kL.tolist(), nodes_kL.tolist()
    lengths = [each.index(EOS_ID) + 1 for each in said]
    words, nodes = ([each[:length] for each, length in zip(both, lengths, strict=True)] for both in (said, named_kL))
    return Chosen(words, nodes, hidden_kH, cell_kH)


def num_draws(decoding: FriendsDecoding) -> int:
    """Draws that an event may need: each token's, `</s>` counted, of a selection or an utterance."""
    return max(decoding.max_tokens, 2) + 1


def _banned(network: DynoNetInference, decoding: FriendsDecoding, word_k: Tensor, copyable: Copyable, step: int) -> Tensor:
    """What is added to logits (k, V + N): minus infinity for what may not follow, and what `<select>` costs."""
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
