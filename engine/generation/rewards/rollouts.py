"""Monte Carlo search: what every beginning of a reply is worth, as the mean over continuations of it (section 3.2, strategy 1).

All beginnings of all replies of a batch are continued at once, word by word. After d words stand side by side: the replies
themselves, the continuations that began earlier, and those that begin here. Whatever has the same words in the same context is
one node: its state in the generator and in the discriminator exists once, one product with the output layer serves all of
them, and nothing is ever read again. Continuations that end leave.

Every drawn word is decided by a number that belongs to (example, beginning, continuation, place), so that no reward depends on
what else is in the batch, nor on who computes it.

Shapes: B replies, T words, N continuations of a beginning, P beginnings, n nodes, L lanes: continuations under way, c children.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from parley.engine.generation.rewards.replies import ReplyActions
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID
from parley.policies.core.decoding import Decoder
from parley.policies.core.drawing import drawn
from parley.policies.generation.discriminator.model import Discriminator
from parley.policies.generation.discriminator.reader import ContextMemory, WordState

_ROWS = 256
"""Nodes that the generator reads at once; bounds the memory for logits."""
PartsT = TypeVar("PartsT", bound=tuple[Any, ...])


class _RolloutNodes(NamedTuple):
    """Different beginnings after equally many words."""

    rows_n: Tensor
    """The example of each."""
    words_n: Tensor
    """Its last word, which the generator has not read yet."""
    spoken: Any
    """The generator before that word."""
    heard: WordState
    """The discriminator after it."""


class _RolloutLanes(NamedTuple):
    """Continuations under way."""

    nodes_L: Tensor
    rows_L: Tensor
    begins_L: Tensor
    """Words of the beginning that each continues."""
    numbers_L: Tensor
    """Which of its continuations."""


def rollout_draws(seed: int, num_rollouts: int, max_words: int) -> np.ndarray:
    """The numbers that decide the words of an example's continuations.

    Args:
        seed: of the example.
        num_rollouts: N.
        max_words: words of a reply at most.

    Returns:
        (N, P, P) float64 in [0, 1): of a continuation, of so many words, the word at a place; P is `max_words`.
    """
    return np.stack([stream(seed, "rollout", number).random((max_words, max_words)) for number in range(num_rollouts)])


@torch.no_grad()
def rollout_rewards(
    generator: Decoder[Any, Any],
    memory: tuple[Any, ...],
    discriminator: Discriminator,
    contexts: ContextMemory,
    replies: ReplyActions,
    seeds: Sequence[int],
    num_rollouts: int,
    max_words: int,
) -> Tensor:
    """What each word of replies earns.

    Args:
        generator: in evaluation mode, of the discriminator's vocabulary.
        memory: its contexts, a row for each reply.
        discriminator: in evaluation mode.
        contexts: the same contexts as it reads them.
        replies: what the generator said.
        seeds: one for each example.
        num_rollouts: continuations of each beginning, N.
        max_words: words of a reply at most, `</s>` not counted.

    Returns:
        (B, T) float32 in [0, 1]: the mean probability that a person wrote a continuation of the reply up to the word; at its
        last word that of the reply itself; 0 where there is no action.
    """
    words_BT, lengths_B, ends_B = replies.words_BT, replies.lengths_B, replies.num_actions_B
    device, last = words_BT.device, words_BT.shape[1] - 1
    rows_B = torch.arange(len(words_BT), device=device)
    draws = torch.from_numpy(np.stack([rollout_draws(seed, num_rollouts, max_words) for seed in seeds])).to(device)
    scores_BTN = contexts.vector_BC.new_zeros(*words_BT.shape, num_rollouts)
    own_B = rows_B
    nodes = _RolloutNodes(rows_B, torch.full_like(rows_B, BOS_ID), generator.begin(memory), discriminator.begin(contexts))
    lanes = _RolloutLanes(*[rows_B[:0]] * 4)
    for place in range(max_words + 1):
        begun_b = rows_B[(ends_B > place) & (place > 0)].repeat_interleave(num_rollouts)
        numbers_b = torch.arange(len(begun_b), device=device) % num_rollouts
        begun = _RolloutLanes(own_B[begun_b], begun_b, torch.full_like(begun_b, place), numbers_b)
        lanes = _RolloutLanes(*(torch.cat(parts) for parts in zip(lanes, begun, strict=True)))
        if place < max_words:
            draws_L = draws[lanes.rows_L, lanes.numbers_L, lanes.begins_L, place]
            words_L, spoken = _say(generator, memory, nodes, lanes.nodes_L, draws_L)
        else:
            words_L, spoken = torch.full_like(lanes.rows_L, EOS_ID), nodes.spoken
        alive_b = rows_B[lengths_B > place]
        all_nodes = torch.cat([own_B[alive_b], lanes.nodes_L])
        all_words = torch.cat([words_BT[alive_b, min(place, last)], words_L])
        nodes, which, is_over_c, scores_c = _grown(discriminator, contexts, nodes, spoken, all_nodes, all_words)
        own_b, of_lanes = which[: len(alive_b)], which[len(alive_b) :]
        done, said = is_over_c[own_b], alive_b[is_over_c[own_b]]
        scores_BTN[said, ends_B[said] - 1] = scores_c[own_b[done]].unsqueeze(1)
        done = is_over_c[of_lanes]
        scores_BTN[lanes.rows_L[done], lanes.begins_L[done] - 1, lanes.numbers_L[done]] = scores_c[of_lanes[done]]
        if bool(is_over_c.all()):
            break
        numbers_c = (~is_over_c).cumsum(0) - 1
        own_B = torch.zeros_like(rows_B).index_put((alive_b,), numbers_c[own_b])
        lanes = _take(lanes, ~done)._replace(nodes_L=numbers_c[of_lanes[~done]])
    return scores_BTN.mean(2)


def _say(
    generator: Decoder[Any, Any], memory: tuple[Any, ...], nodes: _RolloutNodes, nodes_L: Tensor, draws_L: Tensor
) -> tuple[Tensor, Any]:
    """The next words (L,) of lanes, and the generator after the nodes' words."""
    words_L, states = torch.empty_like(nodes_L), []
    for start in range(0, len(nodes.rows_n), _ROWS):
        some = slice(start, start + _ROWS)
        logits_nV, after = generator.step(_take(memory, nodes.rows_n[some]), nodes.words_n[some], _take(nodes.spoken, some))
        logits_nV[:, PAD_ID] = -torch.inf
        states.append(after)
        here_L = (nodes_L >= start) & (nodes_L < start + _ROWS)
        words_L[here_L] = drawn(logits_nV, draws_L[here_L], nodes_L[here_L] - start)
    return words_L, type(states[0])(*(torch.cat(parts) for parts in zip(*states, strict=True)))


def _grown(
    discriminator: Discriminator, contexts: ContextMemory, nodes: _RolloutNodes, spoken: Any, parents: Tensor, words: Tensor
) -> tuple[_RolloutNodes, Tensor, Tensor, Tensor]:
    """What nodes and their next words become, each different pair once.

    Returns:
        The nodes of the next place, which are the pairs that are not over; the pair of each given one; of the pairs (c,)
        whether they are over, and if so the probability that a person wrote them.
    """
    most = int(words.max()) + 1
    codes_c, which = torch.unique(parents * most + words, return_inverse=True)
    parents_c, words_c = codes_c // most, codes_c % most
    rows_c, heard = nodes.rows_n[parents_c], discriminator.advance(words_c, _take(nodes.heard, parents_c))
    is_over_c = words_c == EOS_ID
    odds = discriminator.human(_take(contexts, rows_c[is_over_c]), _take(heard, is_over_c))
    scores_c = odds.new_zeros(len(words_c)).masked_scatter(is_over_c, odds.sigmoid())
    on_c = ~is_over_c
    grown = _RolloutNodes(rows_c[on_c], words_c[on_c], _take(spoken, parents_c[on_c]), _take(heard, on_c))
    return grown, which, is_over_c, scores_c


def _take(parts: PartsT, rows: Tensor | slice) -> PartsT:
    """Some rows of a named tuple of tensors; parts that are not there stay so."""
    kind: Any = type(parts)
    found: PartsT = kind(*(None if part is None else part[rows] for part in parts))
    return found
