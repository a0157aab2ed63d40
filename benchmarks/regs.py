"""Rewards for every word of a batch of replies, by rollouts and by beginnings, against the plain way (`plain_regs.py`).

64 contexts of two turns, replies of at most 20 words of a vocabulary of 10,000, five continuations of each beginning, networks
of the small sizes (generator 200/300, discriminator 100/128). Weights are drawn; the biases of the output layer are such that
words are as rare as in text, and that a reply has 11 words on average. With --quick the reference is clocked on one of the 19
lengths of a beginning, for each costs it the same.

"fed" is a generator with input feeding, as the presets of `parley minmax replies` have, "attention" one without. Of each,
"_ratio" is that of regs-mc, of seconds for the rewards of the batch, and "_step_s" a step of it: a sample, its rewards by
regs-mc, and the gradients of policy and of teacher forcing. "ratio" is that of both kinds together, "partial_ratio" that of
regs-partial, which no generator is asked for. "identical": of 16 contexts no reward differs by `MOST_DIFFERENCE` or more in
float64; in float32 a draw may fall between two words otherwise, which made one of 171 rewards differ by .002.
"discriminator_step_s": a sample, and gradients on 64 human replies and 64 of the generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_regs import plain_prefixes, plain_rollouts
from parley.engine.generation.rewards.rewards import (
    ReplyActions,
    action_batch,
    action_nll,
    forcing_loss,
    policy_loss,
    prefix_rewards,
    reply_actions,
    rewards,
)
from parley.engine.generation.settings import RewardSettings
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID, SPECIALS, PairVocabulary
from parley.policies.core.fitting.batches import OutputLoss
from parley.policies.generation.discriminator.batches import Discriminator, Ids, JudgedReplies, ReplyExamples, context_batch
from parley.policies.generation.discriminator.settings import discriminator_small
from parley.policies.seq2seq.decoding import read, sample
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import build_seq2seq
from parley.policies.seq2seq.settings import Seq2SeqSizes

SEED = 1
MOST_DIFFERENCE = 1e-10
BATCH, WORDS, MAX_WORDS, NUM_ROLLOUTS = 64, 10_000, 20, 5
ENDS = 0.055
"""Share of `</s>` among the words of the generator, of which replies of 11 words come."""
GAIN = 4.0
"""How much larger the weights of the discriminator are than drawn ones; those would give all replies nearly one score."""
LENGTHS, QUICK_LENGTHS = range(1, MAX_WORDS), (7,)
ATTENTION = Seq2SeqSizes(embed=200, hidden=300, max_source=40, max_reply=MAX_WORDS + 1, turns=2)
GENERATORS = {"fed": replace(ATTENTION, attention="dot", input_feeding=True), "attention": ATTENTION}
SETTINGS = RewardSettings(num_rollouts=NUM_ROLLOUTS)
COMPARED = 16
"""Contexts whose rewards are compared."""
REPEATS = 5
"""Readings of beginnings, which take a moment."""


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Rewards for every word of a batch of replies, by rollouts and by beginnings."""


def networks(sizes: Seq2SeqSizes) -> tuple[Seq2Seq, Discriminator]:
    """Return a generator of these sizes and a discriminator, with drawn weights."""
    vocabulary = PairVocabulary((*SPECIALS, EOT, *(f"w{rank}" for rank in range(WORDS - len(SPECIALS) - 1))))
    generator, discriminator = build_seq2seq(vocabulary, sizes), Discriminator(vocabulary, discriminator_small())
    draws = torch.Generator().manual_seed(derive_seed(SEED, "weights"))
    for model in (generator, discriminator):
        model.initialise(draws)
        model.eval()
    shares = 1 / torch.arange(1, WORDS + 1)
    shares[[PAD_ID, BOS_ID, EOU_ID]] = 1e-9
    shares[EOS_ID] = ENDS / (1 - ENDS) * (shares.sum() - shares[EOS_ID])
    generator.output.bias.data = shares.log()
    for value in discriminator.parameters():
        value.data *= GAIN
    return generator, discriminator


def contexts() -> list[list[int]]:
    """Two turns of 5 to 17 words each."""
    draws, eot = stream(SEED, "contexts"), len(SPECIALS)
    turns = [draws.integers(eot + 1, WORDS, size=int(draws.integers(5, 18))).tolist() for _ in range(2 * BATCH)]
    return [[*first, eot, *second] for first, second in zip(turns[::2], turns[1::2], strict=True)]


def measure(options: Options) -> Result:
    """Clocks both ways, and the steps of a training."""
    lengths = list(QUICK_LENGTHS if options.quick else LENGTHS)
    of_kind = {kind: measured(sizes, lengths) for kind, sizes in GENERATORS.items()}
    figures: dict[str, Any] = {}
    for kind, clocks in of_kind.items():
        figures[f"{kind}_ratio"] = clocks["reference_rollouts_s"] / clocks["rollouts_s"]
        for name in ("rollouts_s", "reference_rollouts_s", "step_s", "mean_actions", "spread"):
            figures[f"{kind}_{name}"] = clocks[name]
    seconds = {name: sum(clocks[name] for clocks in of_kind.values()) for name in next(iter(of_kind.values()))}
    most = max(largest_difference(sizes, lengths) for sizes in GENERATORS.values())
    return Result(
        ratio=seconds["reference_rollouts_s"] / seconds["rollouts_s"],
        identical=most < MOST_DIFFERENCE,
        figures={
            "partial_ratio": seconds["reference_partial_s"] / seconds["partial_s"],
            "difference": most,
            **figures,
            "reference_lengths": len(lengths),
            **{name: seconds[name] / len(of_kind) for name in ("partial_s", "reference_partial_s", "discriminator_step_s")},
        },
    )


def earned(generator: Seq2Seq, discriminator: Discriminator, sources: Sequence[Ids], replies: ReplyActions) -> Tensor:
    """Rewards (B, T) of words by rollouts."""
    with torch.no_grad():
        memory = read(generator, sources)
        heard = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
    return rewards(SETTINGS, generator, memory, discriminator, heard, replies, seeds_of(sources), MAX_WORDS)


def beginnings(discriminator: Discriminator, sources: Sequence[Ids], replies: ReplyActions) -> Tensor:
    """Rewards (B, T) of words by beginnings."""
    with torch.no_grad():
        heard = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
    return prefix_rewards(discriminator, heard, replies)


def seeds_of(sources: Sequence[Ids]) -> list[int]:
    """Return the seed of each context's reply and continuations."""
    return [derive_seed(SEED, number) for number in range(len(sources))]


def largest_difference(sizes: Seq2SeqSizes, lengths: Sequence[int]) -> float:
    """How much a reward differs from the reference's at most, in float64; the arguments are those of `measured`."""
    generator, discriminator = networks(sizes)
    generator.double()
    discriminator.double()
    torch.set_default_dtype(torch.float64)
    try:
        sources = contexts()[:COMPARED]
        replies = reply_actions(sample(generator, sources, seeds_of(sources)), MAX_WORDS)
        inputs = generator, discriminator, sources, replies, seeds_of(sources), NUM_ROLLOUTS, MAX_WORDS
        rewards_BT, wanted = earned(generator, discriminator, sources, replies), plain_rollouts(*inputs, lengths)
        apart = [
            (rewards_BT[:, length - 1] - wanted_B)[replies.num_actions_B > length].abs().max().item()
            for length, wanted_B in wanted.items()
            if (replies.num_actions_B > length).any()
        ]
        partial_BT, plain_BT = beginnings(discriminator, sources, replies), plain_prefixes(discriminator, sources, replies)
        inner_BT = torch.arange(MAX_WORDS + 1) < replies.num_actions_B.unsqueeze(1) - 1
        return max(*apart, (partial_BT - plain_BT)[inner_BT[:, : plain_BT.shape[1]]].abs().max().item())
    finally:
        torch.set_default_dtype(torch.float32)


def measured(sizes: Seq2SeqSizes, lengths: Sequence[int]) -> dict[str, float]:
    """Seconds of processor of a generator's rewards and of steps, in float32.

    Args:
        sizes: of the generator.
        lengths: of the beginnings that the reference rewards.
    """
    generator, discriminator = networks(sizes)
    sources = contexts()
    seeds = seeds_of(sources)
    sampled = sample(generator, sources, seeds)
    replies = reply_actions(sampled, MAX_WORDS)
    names = "rollouts", "plain_rollouts", "partial", "plain_partial", "generator", "discriminator"
    clocks = {name: Clock() for name in names}
    beginnings(discriminator, sources, replies)
    with clocks["rollouts"].running():
        rewards_BT = earned(generator, discriminator, sources, replies)
    with clocks["plain_rollouts"].running():
        plain_rollouts(generator, discriminator, sources, replies, seeds, NUM_ROLLOUTS, MAX_WORDS, lengths)
    with clocks["partial"].running():
        for _ in range(REPEATS):
            beginnings(discriminator, sources, replies)
    with clocks["plain_partial"].running():
        plain_prefixes(discriminator, sources, replies)

    with clocks["generator"].running():
        chosen = reply_actions(sample(generator, sources, seeds), MAX_WORDS)
        batch, num_words = action_batch(generator, sources, chosen), float(chosen.num_actions_B.sum())
        ones_B, advantages_BT = torch.ones(BATCH), earned(generator, discriminator, sources, chosen)
        policy_loss(SETTINGS, action_nll(generator, batch), advantages_BT, ones_B, num_words).backward()
        forcing_loss(action_nll(generator, batch), ones_B, num_words).backward()
    with clocks["discriminator"].running():
        other = sample(generator, sources, [seed + 1 for seed in seeds])
        rows = zip(sources, zip(sampled, other, strict=True), seeds, strict=True)
        items = [JudgedReplies(source, both, (True, False), seed) for source, both, seed in rows]
        examples = ReplyExamples(items, discriminator.vocabulary, discriminator.sizes)
        discriminator.loss(examples.batch(np.arange(BATCH)), OutputLoss(discriminator.output)).total.backward()

    seconds = {name: clock.cpu_s for name, clock in clocks.items()}
    return {
        "rollouts_s": seconds["rollouts"],
        "reference_rollouts_s": seconds["plain_rollouts"] / len(lengths) * len(LENGTHS),
        "partial_s": seconds["partial"] / REPEATS,
        "reference_partial_s": seconds["plain_partial"],
        "step_s": seconds["generator"],
        "discriminator_step_s": seconds["discriminator"],
        "mean_actions": replies.num_actions_B.double().mean().item(),
        "spread": rewards_BT[replies.real_BT].std().item(),
    }


if __name__ == "__main__":
    run("regs", Options, measure)
