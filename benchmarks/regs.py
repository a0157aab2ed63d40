"""Rewards for every word of a batch of replies, by rollouts and by beginnings, against the plain way (`plain_regs.py`).

64 contexts of two turns, replies of at most 20 words of a vocabulary of 10,000, five continuations of each beginning, networks
of the small sizes (generator 200/300, discriminator 100/128). Weights are drawn; the biases of the output layer are such that
words are as rare as in text, and that a reply has 11 words on average. With --quick the reference is clocked on two of the 19
lengths of a beginning, for each costs it the same.

"ratio" is that of regs-mc, of seconds for the rewards of the batch; "partial_ratio" that of regs-partial. "identical": no
reward differs by `MOST_DIFFERENCE` or more. "generator_step_s" is a sample, its rewards by regs-mc, and the gradients of policy
and of teacher forcing; "discriminator_step_s" a sample, and gradients on 64 human replies and 64 of the generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Clock, run
from benchmarks.plain_regs import plain_prefixes, plain_rollouts
from engine.generation.losses import action_batch, action_nll, forcing_loss, policy_loss
from engine.generation.replies import reply_actions
from engine.generation.rewards import prefix_rewards, rewards
from engine.generation.settings import RewardSettings
from envs.core.seeds import derive_seed, stream
from envs.pairs.turns import EOT
from envs.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID, SPECIALS, PairVocabulary
from policies.discriminator.batches import JudgedReplies, ReplyExamples, context_batch
from policies.discriminator.model import Discriminator
from policies.discriminator.settings import discriminator_small
from policies.fitting.loss import OutputLoss
from policies.seq2seq.decoding import read, sample
from policies.seq2seq.model import Seq2Seq
from policies.seq2seq.settings import Seq2SeqSizes

SEED = 1
MOST_DIFFERENCE = 1e-5
BATCH, WORDS, MAX_WORDS, NUM_ROLLOUTS = 64, 10_000, 20, 5
ENDS = 0.055
"""Share of `</s>` among the words of the generator, of which replies of 11 words come."""
GAIN = 4.0
"""How much larger the weights of the discriminator are than drawn ones; those would give all replies nearly one score."""
LENGTHS, QUICK_LENGTHS = range(1, MAX_WORDS), (2, 11)


@dataclass(frozen=True)
class Options:
    """Rewards for every word of a batch of replies, by rollouts and by beginnings."""

    quick: bool = False
    """The reference rewards beginnings of two lengths only."""


def networks() -> tuple[Seq2Seq, Discriminator]:
    """A generator and a discriminator with drawn weights."""
    vocabulary = PairVocabulary((*SPECIALS, EOT, *(f"w{rank}" for rank in range(WORDS - len(SPECIALS) - 1))))
    sizes = Seq2SeqSizes(embed=200, hidden=300, max_source=40, max_reply=MAX_WORDS + 1, turns=2)
    generator, discriminator = Seq2Seq(vocabulary, sizes), Discriminator(vocabulary, discriminator_small())
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


def measure(options: Options) -> dict[str, Any]:
    """Clocks both ways, and the steps of a training."""
    generator, discriminator = networks()
    sources, seeds = contexts(), [derive_seed(SEED, number) for number in range(BATCH)]
    said = sample(generator, sources, seeds)
    replies = reply_actions(said, MAX_WORDS)
    asked = generator, discriminator, sources, replies, seeds, NUM_ROLLOUTS, MAX_WORDS

    def earned() -> Tensor:
        with torch.no_grad():
            memory = read(generator, sources)
            heard = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
        return rewards(settings, generator, memory, discriminator, heard, replies, seeds, MAX_WORDS)

    def beginnings() -> Tensor:
        with torch.no_grad():
            heard = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
        return prefix_rewards(discriminator, heard, replies)

    settings = RewardSettings(num_rollouts=NUM_ROLLOUTS)
    names = "rollouts", "plain_rollouts", "partial", "plain_partial", "generator", "discriminator"
    clocks = {name: Clock() for name in names}
    beginnings()
    with clocks["rollouts"].running():
        rewards_BT = earned()
    lengths = list(QUICK_LENGTHS if options.quick else LENGTHS)
    with clocks["plain_rollouts"].running():
        plain = plain_rollouts(*asked, lengths)
    repeats = 5
    with clocks["partial"].running():
        for _ in range(repeats):
            partial_BT = beginnings()
    with clocks["plain_partial"].running():
        plain_BT = plain_prefixes(discriminator, sources, replies)
    apart = [
        (rewards_BT[:, length - 1] - wanted_B)[replies.num_actions_B > length].abs().max().item()
        for length, wanted_B in plain.items()
    ]
    inner_BT = torch.arange(MAX_WORDS + 1) < replies.num_actions_B.unsqueeze(1) - 1
    apart.append((partial_BT - plain_BT)[inner_BT[:, : plain_BT.shape[1]]].abs().max().item())

    with clocks["generator"].running():
        chosen = reply_actions(sample(generator, sources, seeds), MAX_WORDS)
        batch, num_words = action_batch(generator, sources, chosen), float(chosen.num_actions_B.sum())
        ones_B = torch.ones(BATCH)
        policy_loss(settings, action_nll(generator, batch), earned(), ones_B, num_words).backward()
        forcing_loss(action_nll(generator, batch), ones_B, num_words).backward()
    with clocks["discriminator"].running():
        other = sample(generator, sources, [seed + 1 for seed in seeds])
        rows = zip(sources, zip(said, other, strict=True), seeds, strict=True)
        items = [JudgedReplies(source, both, (True, False), seed) for source, both, seed in rows]
        examples = ReplyExamples(items, discriminator.vocabulary, discriminator.sizes)
        discriminator.loss(examples.batch(np.arange(BATCH)), OutputLoss(discriminator.output)).total.backward()

    seconds = {name: clock.cpu_s for name, clock in clocks.items()}
    plain_s = seconds["plain_rollouts"] / len(lengths) * len(LENGTHS)
    return {
        "ratio": plain_s / seconds["rollouts"],
        "partial_ratio": seconds["plain_partial"] / (seconds["partial"] / repeats),
        "identical": max(apart) < MOST_DIFFERENCE,
        "difference": max(apart),
        "rollouts_s": seconds["rollouts"],
        "reference_rollouts_s": plain_s,
        "reference_lengths": len(lengths),
        "partial_s": seconds["partial"] / repeats,
        "reference_partial_s": seconds["plain_partial"],
        "generator_step_s": seconds["generator"],
        "discriminator_step_s": seconds["discriminator"],
        "mean_actions": replies.num_actions_B.double().mean().item(),
        "spread": rewards_BT[replies.real_BT].std().item(),
    }


if __name__ == "__main__":
    run("regs", Options, measure)
