"""A step of Reranking-RL, a sampled reply made more likely by what two other contexts make of it, against the plain way.

64 contexts of two turns, replies of at most 20 words of a vocabulary of 10,000, 11 words on average, the generator of
`benchmarks/regs.py` (embedding 200, state 300, attention). Ours says replies and lets other contexts overhear them in the same
steps, reads no context twice, and lets replies that have ended go; the plain way (`plain_reranking.py`) samples, and scores
each context apart.

"ratio" is of the processor's seconds for loss and gradient. "identical": the same replies, and losses and gradients that differ
by less than `MOST_DIFFERENCE` of their size. "times_likelihood": a whole step, likelihood and reward, in steps of likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_ranking import stock
from benchmarks.plain_reranking import ended, plain_reward_loss
from benchmarks.regs import ATTENTION, SEED, contexts, networks
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import EOT, Turn, Turns, turn_of
from parley.policies.core.fitting.batches import OutputLoss
from parley.policies.core.margin import ExamplesByContext, RerankingObjective, rotated_others
from parley.policies.core.settings import RerankingSettings
from parley.policies.seq2seq.decoding import Seq2SeqResponder

MOST_DIFFERENCE = 1e-3
NUM_OTHERS = 2


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """A step of Reranking-RL: replies sampled, overheard by two other contexts, and made more likely."""


def examples(responder: Seq2SeqResponder) -> ExamplesByContext:
    """Return the contexts as turns, and recorded replies of eleven words."""
    vocabulary, rng = responder.model.vocabulary, stream(SEED, "recorded")
    turns_of_context: list[Turns] = []
    for ids in contexts():
        text = vocabulary.decode(ids)
        middle = text.index(EOT)
        turns_of_context.append((turn_of(text[:middle]), turn_of(text[middle + 1 :])))
    recorded: list[Turn] = [turn_of(vocabulary.decode(rng.integers(10, 2000, size=10))) for _ in turns_of_context]
    return ExamplesByContext(responder, turns_of_context, recorded)


def measure(options: Options) -> Result:
    """Clocks both ways, and a step of likelihood."""
    model, _ = networks(ATTENTION)
    responder = Seq2SeqResponder(model)
    train, plain = examples(responder), stock(model)
    objective = RerankingObjective(responder, train, RerankingSettings(others="rotated", num_others=NUM_OTHERS))
    batch, loss, weights = train.batch(np.arange(len(train))), OutputLoss(model.output), list(model.parameters())
    clocks = {name: Clock() for name in ("ours", "plain", "likelihood")}
    apart, alike, words = [], [], 0.0
    repeats = 1 if options.quick else 5
    # Memory is claimed, and products are made ready, before anything is clocked.
    objective.reward_loss(batch, np.random.default_rng(SEED), loss).backward()
    for seed in range(repeats):
        with clocks["ours"].running():
            reward = objective.reward_loss(batch, np.random.default_rng(seed), loss)
            mine = torch.autograd.grad(reward, weights)
        rng = np.random.default_rng(seed)
        rows_KB = torch.from_numpy(rotated_others(train.classes, NUM_OTHERS, rng))
        draws_BT = torch.from_numpy(rng.random((len(train), model.sizes.max_reply - 1)))
        with clocks["plain"].running():
            wanted, words_BT = plain_reward_loss(plain, batch.learned, draws_BT, rows_KB)
            theirs = torch.autograd.grad(wanted, list(plain.parameters()))
        spoken = objective.spoken(train, batch, np.random.default_rng(seed), greedy=False).sampled
        alike.append(spoken.replies() == ended(words_BT))
        words += float(spoken.lengths_C.double().mean()) / repeats
        apart.append(abs(float(reward.detach() - wanted.detach())) / float(wanted.detach()))
        # Layers of a copy may stand in another order.
        names = dict(zip((name for name, _ in plain.named_parameters()), theirs, strict=True))
        for (name, _), gradient in zip(model.named_parameters(), mine, strict=True):
            apart.append(float((gradient - names[name]).norm() / names[name].norm()))
        with clocks["likelihood"].running():
            torch.autograd.grad(model.loss(batch.learned, loss).total, weights)
    seconds = {name: clock.cpu_s / repeats for name, clock in clocks.items()}
    return Result(
        ratio=seconds["plain"] / seconds["ours"],
        identical=all(alike) and max(apart) < MOST_DIFFERENCE,
        figures={
            "difference": max(apart),
            "step_s": seconds["ours"],
            "reference_step_s": seconds["plain"],
            "likelihood_s": seconds["likelihood"],
            "times_likelihood": (seconds["likelihood"] + seconds["ours"]) / seconds["likelihood"],
            "mean_words": words,
        },
    )


if __name__ == "__main__":
    run("reranking", Options, measure)
