"""What a discriminator says of many replies: log-odds, vectors, and how often it is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from parley.policies.generation.discriminator.batches import ReplyExamples
from parley.policies.generation.discriminator.model import Discriminator

_CONTEXTS = 128


@dataclass(frozen=True)
class Judgements:
    """What is said of R replies, in the order of the examples.

    Args:
        log_odds: that a person wrote each (R,) float64.
        vectors: what the softmax reads (R, D) float32.
        human: whether a person did (R,) bool.
    """

    log_odds: np.ndarray
    vectors: np.ndarray
    human: np.ndarray

    @property
    def accuracy(self) -> float:
        """Share of the replies that are classified as what they are; even odds count half."""
        right = np.where(self.human, self.log_odds, -self.log_odds)
        return float(((right > 0) + 0.5 * (right == 0)).mean())

    @property
    def loss(self) -> float:
        """Cross-entropy of a reply in nats."""
        return float(np.logaddexp(0, np.where(self.human, -self.log_odds, self.log_odds)).mean())


@torch.no_grad()
def judge(model: Discriminator, examples: ReplyExamples) -> Judgements:
    """Judges all replies of some examples, dropout off."""
    was_training, device = model.training, model.output.weight.device
    model.eval()
    vectors, human = [], []
    for start in range(0, len(examples), _CONTEXTS):
        batch = examples.batch(np.arange(start, min(start + _CONTEXTS, len(examples)))).to(device)
        vectors.append(model.reply_vectors(batch))
        human.append(batch.human_R)
    model.train(was_training)
    vectors_RD = torch.cat(vectors)
    logits_R2 = model.output(vectors_RD).double()
    log_odds = (logits_R2[:, 1] - logits_R2[:, 0]).cpu().numpy()
    return Judgements(log_odds, vectors_RD.cpu().numpy(), torch.cat(human).cpu().numpy().astype(bool))
