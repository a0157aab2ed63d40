"""Judges of replies, cross-fitted in five folds, and the steps of a network judge against pairs that are read one by one.

20,000 sources of two turns, each with a reply of either side: 2 x 20,000 pairs of 10,000 words, as rare as in text; replies of
one side have their words from another part of the list by a tenth. Networks of the small sizes (100/128). In the reference
each pair is read by itself, its source too, padded to the longest of the batch, by torch's own layers.

"ratio" is that of the seconds for gradients on a batch of 128 pairs, from the pairs as they come; "identical": no gradient
differs by `MOST_DIFFERENCE` or more. "svm_s" and "network_s" are seconds for all five folds, fits and scores; with --quick for
one fold of 2 x 2,000 pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.generation.discriminator.batches import (
    Discriminator,
    JudgedReplies,
    ReplyExamples,
    context_batch,
    reply_batch,
)
from parley.policies.generation.discriminator.settings import discriminator_small
from parley.policies.generation.judges.judge import Judge, JudgeSettings, svm_unigram
from parley.policies.generation.judges.neural import hierarchical

SEED = 1
MOST_DIFFERENCE = 1e-5
SOURCES, QUICK_SOURCES, FOLDS, WORDS, BATCH = 20_000, 700, 5, 10_000, 64
BATCHES = 10
LONGEST = 49
"""Words of a turn at most; turns have 14 on average, replies of at most 20 words 9, as in DailyDialog."""


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Judges of replies, cross-fitted, and the steps of a network judge against pairs that are read one by one."""


def made_up(num: int) -> tuple[list[RepliedPair], np.ndarray]:
    """Pairs, both sides of a source one after the other, and whether each is of the first side."""
    draws = stream(SEED, "pairs")
    shares = 1 / np.arange(1, WORDS + 1)
    ranks = draws.choice(WORDS, size=(num, 4, LONGEST), p=shares / shares.sum())
    # A tenth of the second side's words are others.
    ranks[:, 3] = np.where(draws.random((num, LONGEST)) < 0.1, WORDS - 1 - ranks[:, 3], ranks[:, 3])
    lengths = 3 + np.stack([draws.geometric(share, size=num) for share in (0.09, 0.09, 0.15, 0.15)], axis=1)
    lengths = lengths.clip(max=(LONGEST, LONGEST, 20, 20))
    pairs = []
    for rank_rows, sizes in zip(ranks.tolist(), lengths.tolist(), strict=True):
        first, second, *replies = (tuple(f"w{rank}" for rank in row[:size]) for row, size in zip(rank_rows, sizes, strict=True))
        pairs += [RepliedPair((first, second), reply) for reply in replies]
    return pairs, np.tile([True, False], num)


def share_right(judge: Judge, pairs: Sequence[RepliedPair], labels: np.ndarray, fold: int) -> float:
    """Fits a judge to the other folds; the share of this one's pairs that it tells."""
    held_out = np.arange(len(pairs)) // 2 % FOLDS == fold
    judge.fit([pairs[n] for n in np.flatnonzero(~held_out).tolist()], labels[~held_out], SEED)
    scores = judge.score([pairs[n] for n in np.flatnonzero(held_out).tolist()])
    return float(np.mean((np.asarray(scores) > 0) == labels[held_out]))


def plain_log_odds(model: Discriminator, sources: Sequence[np.ndarray], replies: Sequence[np.ndarray]) -> Tensor:
    """Log-odds (R,) of pairs, each read whole by torch's own layers, padding like words."""
    reader, sizes = model.reader, model.sizes
    contexts, (words_RT, lengths_R) = context_batch(sources, model.vocabulary, sizes), reply_batch(replies, sizes)
    state: tuple[Tensor, Tensor] | None = None
    turns = [*zip(contexts.words_BKN.unbind(1), contexts.lengths_BK.unbind(1), strict=True), (words_RT, lengths_R)]
    assert reader.sentences is not None
    for words_RN, lengths in turns:
        states_RNH = nn.LSTM.forward(reader.words, reader.embedding(words_RN))[0]
        state = reader.sentences(states_RNH[torch.arange(len(states_RNH)), lengths - 1], state)
    assert state is not None
    machine_R, human_R = model.output(state[0]).unbind(1)
    return human_R - machine_R


def measure(options: Options) -> Result:
    """Clocks both ways, and the judges."""
    num, folds = (QUICK_SOURCES, 1) if options.quick else (SOURCES, FOLDS)
    pairs, labels = made_up(num)
    vocabulary = PairVocabulary((*SPECIALS, EOT, *(f"w{rank}" for rank in range(WORDS))))
    model = Discriminator(vocabulary, discriminator_small())
    model.initialise(torch.Generator().manual_seed(SEED))
    model.eval()
    clocks = {name: Clock() for name in ("plain", "ours", "svm", "network")}
    sources = [vocabulary.encode([*pair.context[0], EOT, *pair.context[1]]) for pair in pairs[: 2 * BATCH * BATCHES]]
    replies = [vocabulary.encode(pair.reply) for pair in pairs[: 2 * BATCH * BATCHES]]
    apart, weights = [], list(model.parameters())
    for start in range(0, len(sources), 2 * BATCH):
        of_batch, human = range(start, start + 2 * BATCH), torch.from_numpy(labels[start : start + 2 * BATCH]).float()
        with clocks["plain"].running():
            odds_R = plain_log_odds(model, [sources[n] for n in of_batch], [replies[n] for n in of_batch])
            wanted = torch.autograd.grad(binary_cross_entropy_with_logits(odds_R, human), weights)
        with clocks["ours"].running():
            items = [JudgedReplies(sources[n], replies[n : n + 2], (True, False), 0) for n in of_batch[::2]]
            batch = ReplyExamples(items, vocabulary, model.sizes).batch(np.arange(BATCH))
            gradients = torch.autograd.grad(binary_cross_entropy_with_logits(model(batch), human), weights)
        apart += [(ours - theirs).abs().max().item() for ours, theirs in zip(gradients, wanted, strict=True)]
    right = {}
    for name, made in {"svm": svm_unigram(JudgeSettings()), "network": hierarchical(JudgeSettings())}.items():
        with clocks[name].running():
            right[name] = float(np.mean([share_right(made(), pairs, labels, fold) for fold in range(folds)]))
    return Result(
        ratio=clocks["plain"].seconds / clocks["ours"].seconds,
        identical=max(apart) < MOST_DIFFERENCE,
        figures={
            "difference": max(apart),
            "step_ms": clocks["ours"].seconds / BATCHES * 1e3,
            "reference_step_ms": clocks["plain"].seconds / BATCHES * 1e3,
            "pairs": len(pairs),
            "folds": folds,
            **{f"{name}_s": clocks[name].seconds for name in right},
            **{f"{name}_right": share for name, share in right.items()},
        },
    )


if __name__ == "__main__":
    run("judges", Options, measure)
