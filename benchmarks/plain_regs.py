"""The plain way to reward every word of replies, as SeqGAN, TextGAN and the code released with Li et al. 2017 do it.

For every beginning and each of its continuations the contexts are read, the beginning is fed to the generator from its first
word, and all rows of the batch go on to the longest length, whether their reply is over or not, by torch's own layers. The
discriminator then reads context and reply from the start. Random numbers are those of `engine/generation/rewards/rewards.py`.

Shapes: B replies, T words, N continuations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from benchmarks.plain_ranking import stock
from parley.engine.generation.rewards.rewards import ReplyActions, rollout_draws
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID
from parley.policies.generation.discriminator.batches import Discriminator, Ids, context_batch, reply_batch
from parley.policies.seq2seq.decoding import read
from parley.policies.seq2seq.model import Seq2Seq


@torch.no_grad()
def plain_whole(discriminator: Discriminator, sources: Sequence[Ids], replies: Sequence[Ids]) -> Tensor:
    """Return the probability (B,) that a person wrote each whole reply to its context."""
    memory = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
    words_BT, lengths_B = reply_batch(replies, discriminator.sizes)
    return discriminator.prefixes(memory, words_BT, lengths_B).gather(1, lengths_B[:, None] - 1).squeeze(1).sigmoid()


@torch.no_grad()
def plain_rollouts(
    generator: Seq2Seq,
    discriminator: Discriminator,
    sources: Sequence[Ids],
    replies: ReplyActions,
    seeds: Sequence[int],
    num_rollouts: int,
    max_words: int,
    lengths: Iterable[int],
) -> dict[int, Tensor]:
    """Return the mean probability (B,) over continuations of beginnings, by the length of the beginning.

    What stands at a reply that has no beginning of a length, or is one, means nothing; the other arguments are those of
    `rollout_rewards`.
    """
    draws = np.stack([rollout_draws(seed, num_rollouts, max_words) for seed in seeds])
    generator, means = stock(generator), {}
    for length in lengths:
        scores = []
        for number in range(num_rollouts):
            said_BT = _continued(generator, sources, replies.words_BT[:, :length], draws[:, number, length], max_words)
            whole = [words[: words.index(EOS_ID)] if EOS_ID in words else words for words in said_BT.tolist()]
            scores.append(plain_whole(discriminator, sources, whole))
        means[length] = torch.stack(scores).mean(0)
    return means


def _continued(generator: Seq2Seq, sources: Sequence[Ids], begun_BT: Tensor, draws_BP: np.ndarray, max_words: int) -> Tensor:
    """Continue the given beginnings to replies of `max_words` words (B, P)."""
    memory = read(generator, sources)
    state = generator.begin(memory)
    words_B = torch.full((len(begun_BT),), BOS_ID)
    words = []
    for position in range(max_words):
        logits_BV, state = generator.step(memory, words_B, state)
        if position < begun_BT.shape[1]:
            words_B = begun_BT[:, position]
        else:
            passed_BV = logits_BV.softmax(1).cumsum(1, dtype=torch.float64)
            bars_B1 = torch.from_numpy(draws_BP[:, position, None]) * passed_BV[:, -1:]
            words_B = torch.searchsorted(passed_BV, bars_B1, right=True).squeeze(1)
        words.append(words_B)
    return torch.stack(words, dim=1)


@torch.no_grad()
def plain_prefixes(discriminator: Discriminator, sources: Sequence[Ids], replies: ReplyActions) -> Tensor:
    """Return the probability (B, T) that a person wrote each beginning, read from the start in a pass each."""
    scores = []
    for length in range(1, replies.words_BT.shape[1] + 1):
        memory = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
        reader, state = discriminator.reader, discriminator.begin(memory)
        hidden_BTH = reader.words(reader.embedding(replies.words_BT[:, :length]))[0]
        state = state._replace(hidden_RH=hidden_BTH[:, -1])
        scores.append(discriminator.human(memory, state).sigmoid())
    return torch.stack(scores, dim=1)
