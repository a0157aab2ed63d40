"""Weights of replies by the tf-idf of their words, so that dull replies teach less (Li et al. 2017, section 3.3, footnote 6).

A reply is a document. Its score t is the mean tf-idf of its words that are no stop words, and in a batch of B replies its
weight is B t / (sum of all t), where no t counts for more than three times the smallest. Both the standard model and the
generator of adversarial training are weighted so.

Choices:
  * # Paper: silent on how tf and idf are counted. Ours: tf is how often the reply says the word, idf = log(replies / replies
    that say it), over the training split.
  * # Paper: silent on replies of stop words alone, whose score is 0, which would cap all others at 0. Ours: they weigh as the
    lowest of the others.

Shapes: B replies, T words of the longest, V words of the vocabulary, M targets of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from parley.envs.corpora.pairs.tokens import is_content
from parley.envs.corpora.pairs.vocabulary import EOS_ID, PairVocabulary
from parley.policies.core.fitting.batches import Loss, OutputLoss, Predictor
from parley.policies.core.fitting.loop import Objective

Ids = Sequence[int] | np.ndarray
_CAP = 3.0


@dataclass(frozen=True)
class ResponseWeights:
    """The weights of replies.

    Args:
        idf: of each word of the vocabulary (V,); 0 for stop words.
        is_stop: whether each is a stop word (V,).
    """

    idf: np.ndarray
    is_stop: np.ndarray

    @classmethod
    def of(cls, replies: Iterable[Ids], num_words: int, stops: Iterable[int]) -> ResponseWeights:
        """Count the idf of words in the replies of a training split.

        Args:
            replies: words of each.
            num_words: of the vocabulary.
            stops: stop words, punctuation and marks.
        """
        counts, num = np.zeros(num_words, dtype=np.int64), 0
        for reply in replies:
            counts[np.unique(np.asarray(reply, dtype=np.int64))] += 1
            num += 1
        is_stop = np.zeros(num_words, dtype=bool)
        is_stop[list(stops)] = True
        return cls(np.where(is_stop, 0.0, np.log(max(num, 1) / np.maximum(counts, 1))), is_stop)

    def score(self, reply: Ids) -> float:
        """Return the mean tf-idf of the words that are no stop words; 0 without one."""
        words = np.asarray(reply, dtype=np.int64)
        words, counts = np.unique(words[~self.is_stop[words]], return_counts=True)
        return float((counts * counts * self.idf[words]).sum() / counts.sum()) if len(words) else 0.0

    def __call__(self, replies: Sequence[Ids]) -> np.ndarray:
        """Return the weights of the replies of a batch (B,) float64, 1 on average."""
        scores = np.array([self.score(reply) for reply in replies])
        least = scores[scores > 0].min(initial=np.inf)
        if np.isinf(least):
            return np.ones(len(replies))
        scores = scores.clip(least, _CAP * least)
        weights: np.ndarray = len(scores) * scores / scores.sum()
        return weights


def stop_ids(vocabulary: PairVocabulary) -> list[int]:
    """Return the ids of stop words, punctuation and marks."""
    return [index for index, word in enumerate(vocabulary.words) if not is_content(word)]


class WeightedReplies(Objective[Any]):
    """The likelihood of replies, each weighted in its batch; validation is without weights.

    Args:
        model: that is trained.
        weights: of its replies.
    """

    def __init__(self, model: Predictor[Any], weights: ResponseWeights) -> None:
        super().__init__(model)
        self._weights = weights

    def loss(self, batch: Any, output_loss: OutputLoss) -> Loss:
        """Return the weighted loss; its figure of targets is without weights."""
        real_BT, targets_BT = batch.real_BT, batch.targets_BT
        replies = [row[real].tolist() for row, real in zip(targets_BT, real_BT, strict=True)]
        weights_B = self._weights([[word for word in reply if word != EOS_ID] for reply in replies])
        shares_M = torch.from_numpy(weights_B).to(targets_BT.device, torch.float32).repeat_interleave(real_BT.sum(1))
        states_MH, targets_M = self.model.target_states(batch), targets_BT[real_BT]
        with torch.no_grad():
            nll = output_loss(states_MH, targets_M)
        return Loss(output_loss(states_MH, targets_M, shares_M), nll)
