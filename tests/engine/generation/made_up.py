"""Two networks over a few words, and contexts with replies that the generator drew."""

from __future__ import annotations

from typing import NamedTuple

import torch

from parley.engine.generation.rewards.rewards import ReplyActions, reply_actions
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOU_ID, PAD_ID, SPECIALS, PairVocabulary
from parley.policies.core.fitting.batches import Predictor
from parley.policies.generation.discriminator.batches import ContextMemory, Discriminator, context_batch
from parley.policies.generation.discriminator.settings import DiscriminatorSizes
from parley.policies.seq2seq.decoding import read, sample
from parley.policies.seq2seq.model import Memory, Seq2Seq
from parley.policies.seq2seq.scoring import build_seq2seq
from parley.policies.seq2seq.settings import Seq2SeqSizes


class Pair(NamedTuple):
    """A generator and a discriminator in evaluation mode."""

    generator: Seq2Seq
    discriminator: Discriminator
    max_words: int


class Said(NamedTuple):
    """Contexts with a reply to each."""

    sources: list[list[int]]
    seeds: list[int]
    replies: ReplyActions
    memory: Memory
    contexts: ContextMemory


def drawn(model: Predictor, bound: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.uniform_(-bound, bound, generator=generator)
    model.eval()


def pair(num_words: int, max_words: int, seed: int = 0, ends: float = 0.0, kind: str = "hierarchical", layers: int = 0) -> Pair:
    """Large random weights; the generator says `</s>`, `<unk>` and words, and `ends` makes the first likelier.

    With layers it is one of input feeding.
    """
    vocabulary = PairVocabulary((*SPECIALS, *(f"w{number}" for number in range(num_words))))
    fed = {"layers": layers, "input_feeding": True, "attention": "dot"} if layers else {}
    generator = build_seq2seq(vocabulary, Seq2SeqSizes(embed=6, hidden=8, max_source=8, max_reply=max_words + 1, **fed))
    assert kind in ("hierarchical", "concatenated")
    sizes = DiscriminatorSizes(kind=kind, embed=6, hidden=8, words=max_words + 1, dropout=0.0)
    discriminator = Discriminator(vocabulary, sizes)
    drawn(generator, 1.0, seed)
    drawn(discriminator, 1.5, seed + 1)
    discriminator.output.weight.data *= 3
    generator.output.bias.data[[PAD_ID, BOS_ID, EOU_ID]] = -torch.inf
    generator.output.bias.data[2] += ends
    return Pair(generator, discriminator, max_words)


def heard(models: Pair, sources: list[list[int]], seeds: list[int], replies: ReplyActions) -> Said:
    contexts = context_batch(sources, models.discriminator.vocabulary, models.discriminator.sizes)
    with torch.no_grad():
        return Said(sources, seeds, replies, read(models.generator, sources), models.discriminator.read(contexts))


def said(models: Pair, size: int, seed: int = 0) -> Said:
    """Drawn contexts and replies."""
    first, last = len(SPECIALS), len(models.generator.vocabulary)
    draws = stream(seed, "contexts")
    sources = [draws.integers(first, last, size=int(draws.integers(1, 8))).tolist() for _ in range(size)]
    seeds = [derive_seed(seed, number) for number in range(size)]
    replies = sample(models.generator, sources, seeds)
    return heard(models, sources, seeds, reply_actions(replies, models.max_words))


def some(which: list[int], models: Pair, batch: Said) -> Said:
    """Examples of a batch in another order, padded for themselves."""
    words = [batch.replies.words_BT[row, : batch.replies.lengths_B[row] - 1].tolist() for row in which]
    replies = reply_actions(words, models.max_words)
    return heard(models, [batch.sources[row] for row in which], [batch.seeds[row] for row in which], replies)
