"""Training steps of SMN, DAM and MRFN at the sizes of the small presets, against steps on padded pairs.

The reference pads every pair of context and reply to six turns of thirty words and runs the whole network for each
(`plain_ranking.py`), by torch's own layers; clipping and Adam are the same on both sides. Ours encodes each turn and reply of a
batch once and reads no padding. A context meets two replies, as in training; dropout is off, because its draws differ. Contexts
and replies are those of `benchmarks.ranking`, and so are weights. No batch comes twice, so that what kernels cost that are made
for the sizes of a batch counts.

"ratio" is the smallest of the three, of seconds a step. "identical": losses and gradients, in parts of the largest gradient of
each weight, differ by less than `MOST_DIFFERENCE`. "epoch_s" is what as many steps take as the training split of
"ubuntu_dialogues" has batches, without validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_ranking import PLAIN, PlainBatch, stock
from benchmarks.ranking import MOST_DIFFERENCE, groups, network
from parley.envs.corpora.pairs.vocabulary import PAD_ID, PairVocabulary
from parley.policies.ranking.matching.matcher import Matcher
from parley.policies.ranking.matching.settings import MatcherSizes, dam_small, mrfn_small, small_fit, smn_small
from parley.policies.ranking.ranker import Pair

SIZES: dict[str, MatcherSizes] = {"smn": smn_small(), "dam": dam_small(), "mrfn": replace(mrfn_small(), dropout=0.0)}
CONTEXTS = small_fit().batch_size // 2
EPOCH = 1_029
"""Batches of an epoch of "ubuntu_dialogues"."""
STEPS, REFERENCE = 12, 4
QUICK, QUICK_REFERENCE = 3, 1


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Training steps of SMN, DAM and MRFN, batched and padded."""

    data_root: Path | None = None
    """Folder that holds the corpora; the default is PARLEY_DATA, else the user cache."""


class Stepping:
    """A network and its optimiser."""

    def __init__(self, model: Matcher) -> None:
        self.model, self.clock = model, Clock()
        self._optimiser = torch.optim.Adam(model.parameters(), lr=small_fit().learning_rate, fused=True)

    def gradients(self, pairs: Sequence[Pair], *, plain: bool) -> tuple[float, list[Tensor]]:
        """Return the loss of a batch and the gradients of all weights; the first reply of each context is right."""
        labels_P = torch.tensor([index == 0 for _, replies in pairs for index in range(len(replies))], dtype=torch.float32)
        if plain:
            flat = [(context, reply) for context, replies in pairs for reply in replies]
            log_odds_PV = PLAIN[type(self.model)](self.model, PlainBatch(self.model, flat))
        else:
            log_odds_PV = self.model(self.model.reader.read(pairs, torch.device("cpu")))
        loss = self.model.loss(log_odds_PV, labels_P).mean()
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        return float(loss.detach()), [_learned(name, value) for name, value in self.model.named_parameters()]

    def step(self, pairs: Sequence[Pair], *, plain: bool) -> None:
        """Make an update, whose seconds count."""
        with self.clock.running():
            self.gradients(pairs, plain=plain)
            nn.utils.clip_grad_norm_(self.model.parameters(), small_fit().clip)
            self._optimiser.step()


def _learned(name: str, value: nn.Parameter) -> Tensor:
    assert value.grad is not None, "every weight is learned"
    # Padding is a word of the reference, whose vector stays zero.
    return value.grad[PAD_ID + 1 :].clone() if name == "embedding.weight" else value.grad.clone()


def compare(kind: str, vocabulary: PairVocabulary, batches: Sequence[Sequence[Pair]], num_plain: int) -> dict[str, Any]:
    """Figures of one model."""
    model = network(kind, vocabulary, SIZES[kind])
    ours, plain = Stepping(model), Stepping(stock(model))
    (loss, mine), (plain_loss, theirs) = ours.gradients(batches[0], plain=False), plain.gradients(batches[0], plain=True)
    parts = [float((a - b).abs().max() / b.abs().max().clamp(min=1e-12)) for a, b in zip(mine, theirs, strict=True)]
    for batch in batches[1:]:
        ours.step(batch, plain=False)
    for batch in batches[1 : num_plain + 1]:
        plain.step(batch, plain=True)
    a_step, a_plain_step = ours.clock.cpu_s / (len(batches) - 1), plain.clock.cpu_s / num_plain
    return {
        "ratio": a_plain_step / a_step,
        "ms_a_step": 1e3 * a_step,
        "reference_ms_a_step": 1e3 * a_plain_step,
        "epoch_s": EPOCH * a_step,
        "difference": max(*parts, abs(loss - plain_loss)),
    }


def measure(options: Options) -> Result:
    """Compare the three models."""
    steps, plain = (QUICK, QUICK_REFERENCE) if options.quick else (STEPS, REFERENCE)
    lengths, pairs = groups((steps + 1) * CONTEXTS, options.data_root)
    pairs = [(context, replies[:2]) for context, replies in pairs]
    batches = [pairs[start : start + CONTEXTS] for start in range(0, len(pairs), CONTEXTS)]
    texts = (words for context, replies in pairs for words in (*context, *replies))
    vocabulary = PairVocabulary.build(texts, 10_000)
    compared = {kind: compare(kind, vocabulary, batches, plain) for kind in SIZES}
    return Result(
        ratio=min(figures["ratio"] for figures in compared.values()),
        identical=all(figures["difference"] < MOST_DIFFERENCE for figures in compared.values()),
        figures={
            "lengths": lengths,
            **compared,
        },
    )


if __name__ == "__main__":
    run("ranking_training", Options, measure)
