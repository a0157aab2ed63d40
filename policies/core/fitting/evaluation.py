"""How well a model predicts recorded replies or sentences: nats per word, `</s>` counted.

The negative of the test figure is the threshold that trigger search calls T_out (a sequence-to-sequence model) or T_in (a
language model): He & Glass 2018, section 4.

Shapes: B rows, T reply words, M targets of a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import EOS_ID, UNK_ID, PairVocabulary
from parley.policies.core.fitting.batches import Batch, Examples, in_order
from parley.policies.core.fitting.predictor import Predictor

BatchT = TypeVar("BatchT", bound=Batch)
_ROWS = 256


@dataclass(frozen=True)
class Fitness:
    """Figures of one model on one split."""

    nll_sums: np.ndarray
    """(n,) negative log-likelihood of each example in nats, shortest examples first."""
    num_targets: np.ndarray
    """(n,) words of each, `</s>` counted."""

    @property
    def nll(self) -> float:
        """Nats per word."""
        return float(self.nll_sums.sum() / self.num_targets.sum())

    @property
    def perplexity(self) -> float:
        """exp(nats per word)."""
        return math.exp(self.nll)


def example_nll(model: Predictor[BatchT], batch: BatchT) -> tuple[Tensor, Tensor]:
    """Negative log-likelihoods of a batch's examples.

    Args:
        model: in evaluation mode, or in training with dropout.
        batch: on the model's device.

    Returns:
        Nats of each example (B,) float64, through which gradients flow, and its words (B,) int64, `</s>` counted; in the
        order of the rows.
    """
    nll_M, real_BT = model.nll(batch), batch.real_BT
    nll_BT = nll_M.new_zeros(real_BT.shape).masked_scatter(real_BT, nll_M)
    return nll_BT.double().sum(1), real_BT.sum(1)


@torch.no_grad()
def evaluate(model: Predictor[BatchT], examples: Examples[BatchT]) -> Fitness:
    """Scores a model on a split in float32; dropout is off while it runs."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    sums, counts = zip(*(example_nll(model, batch.to(device)) for batch in in_order(examples, _ROWS)), strict=True)
    model.train(was_training)
    return Fitness(torch.cat(sums).cpu().numpy(), torch.cat(counts).cpu().numpy())


@dataclass(frozen=True)
class TextSizes:
    """How much text the examples of a split have to say, each (n,) int64, shortest examples first as in `Fitness`."""

    num_words: np.ndarray
    """Words and ends; a word that is cut off counts."""
    num_characters: np.ndarray
    """Characters, the blank or mark behind a word counted."""
    num_unknown: np.ndarray
    """`<unk>` among the words."""


def text_sizes(examples: Examples[BatchT], vocabulary: PairVocabulary) -> TextSizes:
    """Sizes of what `evaluate` scores, whatever units it is said in."""
    ends_V, characters_V = torch.from_numpy(vocabulary.ends), torch.from_numpy(vocabulary.num_characters)
    counts = []
    for batch in in_order(examples, _ROWS):
        said_BT, real_BT = batch.targets_BT, batch.real_BT
        ends_BT = ends_V[said_BT]
        cut_B = (~ends_BT[:, :-1] & (said_BT[:, 1:] == EOS_ID)).sum(1)
        counted = (ends_BT & real_BT).sum(1) + cut_B, (characters_V[said_BT] * real_BT).sum(1), (said_BT == UNK_ID).sum(1)
        counts.append(torch.stack(counted))
    return TextSizes(*torch.cat(counts, dim=1).numpy())
