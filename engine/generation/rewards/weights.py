"""Weights of replies by the tf-idf of their words, so that dull replies teach less (Li et al. 2017, section 3.3, footnote 6).

A reply is a document. Its score t is the mean tf-idf of its words that are no stop words, and in a batch of B replies its
weight is B t / (sum of all t), where no t counts for more than three times the smallest.

Choices:
  * # Paper: silent on how tf and idf are counted. Ours: tf is how often the reply says the word, idf = log(replies / replies
    that say it), over the training split.
  * # Paper: silent on replies of stop words alone, whose score is 0, which would cap all others at 0. Ours: they weigh as the
    lowest of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from parley.policies.generation.discriminator.batches import Ids

_CAP = 3.0


@dataclass(frozen=True)
class ResponseWeights:
    """What replies weigh.

    Args:
        idf: of each word of the vocabulary (V,); 0 for stop words.
        is_stop: whether each is a stop word (V,).
    """

    idf: np.ndarray
    is_stop: np.ndarray

    @classmethod
    def of(cls, replies: Iterable[Ids], num_words: int, stops: Iterable[int]) -> ResponseWeights:
        """Counted in the replies of a training split.

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
        """Mean tf-idf of the words that are no stop words; 0 where there are none."""
        words = np.asarray(reply, dtype=np.int64)
        words, counts = np.unique(words[~self.is_stop[words]], return_counts=True)
        return float((counts * counts * self.idf[words]).sum() / counts.sum()) if len(words) else 0.0

    def __call__(self, replies: Sequence[Ids]) -> np.ndarray:
        """Weights of the replies of a batch (B,) float64, 1 on average."""
        scores = np.array([self.score(reply) for reply in replies])
        least = scores[scores > 0].min(initial=np.inf)
        if np.isinf(least):
            return np.ones(len(replies))
        scores = scores.clip(least, _CAP * least)
        weights: np.ndarray = len(scores) * scores / scores.sum()
        return weights
