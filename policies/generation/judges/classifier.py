"""A classifier of Hugging Face as a judge: it is not fitted, but from which score on a pair is of the first side is.

Such classifiers were trained elsewhere, such as to tell people's replies from machines' or from random ones. What they say of
the pairs of a fit gives the threshold, and whether the first side is above or below it, that err least there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.replied import RepliedPair
from parley.policies.generation.judges.judge import Judge
from parley.policies.generation.judges.remembered import Numbers, Remembered, ranked


class ThresholdJudge(Judge):
    """A threshold of numbers that are not fitted.

    Args:
        numbers: of pairs.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._threshold, self._sign = 0.0, 1.0

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        self._threshold, self._sign = best_threshold(self._numbers(pairs), labels)

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        return self._sign * (self._numbers(pairs) - self._threshold)


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The threshold that errs least, half-way between two scores, and 1 where the first side is above it, -1 where below.

    Args:
        scores: (N,) numbers.
        labels: (N,) whether each is of the first side.
    """
    order = np.argsort(scores, kind="stable")
    ranked, sides = scores[order], labels[order]
    # Of the first side below each place, of the second below it; a threshold at place i leaves i pairs below.
    firsts = np.concatenate([[0], np.cumsum(sides)])
    places = np.arange(len(sides) + 1)
    errors = firsts + (len(sides) - places) - (firsts[-1] - firsts)
    between = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])
    above, below = (np.where(between, each, len(sides) + 1) for each in (errors, len(sides) - errors))
    sign, counts = (1.0, above) if above.min() <= below.min() else (-1.0, below)
    place = int(counts.argmin())
    ends = np.concatenate([[ranked[0] - 1], ranked, [ranked[-1] + 1]])
    return float(ends[place] + ends[place + 1]) / 2, sign


def classifier(name: str, device: str) -> Callable[[], Judge]:
    """What makes judges of a folder, whose model they share, and what it said before.

    Args:
        name: a folder as `save_pretrained` wrote it, or its URI; nothing is downloaded from a hub.
        device: torch device.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: the folder holds no classifier.
    """
    from parley.policies.ranking.hugging_face import load_hugging_face_ranker

    return partial(ThresholdJudge, Remembered(partial(ranked, load_hugging_face_ranker(fetched_model(name), device))))
