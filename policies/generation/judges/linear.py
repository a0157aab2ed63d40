"""A linear support vector machine on unigrams: the first judge of Li et al. 2017 (table 2, "SVM+Unigram").

A pair is the set of its words, those of all turns before the reply and of the reply together as in the paper, or apart; its
vector has length 1. Words of the fit are known, others are not looked at. The margin is exactly 0 for a pair without a known
word alone, because there is no free term: equal sides make no verdict.

Source: Joachims 1999, "Making large-scale SVM learning practical"; here liblinear's dual solver, by scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from parley.envs.corpora.pairs.replied import RepliedPair
from parley.policies.generation.judges.judge import Judge, JudgeSettings

OF_SOURCE = "s:"
"""Before words of the source where they are features of their own."""
_C = 1.0
_MAX_ITERATIONS = 2000


class LinearJudge(Judge):
    """A linear SVM.

    Args:
        words: of a pair.
        numbers: further features (N, F) of N pairs; none when not given.
    """

    def __init__(
        self,
        words: Callable[[RepliedPair], Iterator[str]],
        numbers: Callable[[Sequence[RepliedPair]], np.ndarray] | None = None,
    ) -> None:
        self._words, self._numbers = words, numbers
        self._ids: dict[str, int] = {}
        self._svm: Any = None

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        from sklearn.svm import LinearSVC

        for pair in pairs:
            for word in self._words(pair):
                self._ids.setdefault(word, len(self._ids))
        self._svm = LinearSVC(C=_C, fit_intercept=False, dual=True, max_iter=_MAX_ITERATIONS, random_state=seed % 2**32)
        self._svm.fit(self._features(pairs), labels)

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        return np.asarray(self._svm.decision_function(self._features(pairs)))

    def features(self, num: int) -> list[tuple[str, float]]:
        """As `Featured`."""
        words = list(self._ids)
        weights = self._svm.coef_[0][: len(words)]
        order = np.argsort(weights, kind="stable")
        return [(words[place], float(weights[place])) for place in dict.fromkeys([*order[:num], *order[-num:]])]

    def _features(self, pairs: Sequence[RepliedPair]) -> Any:
        """(N, V + F) sparse."""
        from scipy.sparse import csr_matrix, hstack

        known = [sorted({self._ids[word] for word in self._words(pair) if word in self._ids}) for pair in pairs]
        sizes = np.array([len(each) for each in known])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        values = np.repeat(1 / np.sqrt(np.maximum(sizes, 1)), sizes)
        places = np.fromiter((place for each in known for place in each), dtype=np.int32, count=int(ends[-1]))
        unigrams = csr_matrix((values, places, ends), shape=(len(pairs), len(self._ids)))
        return unigrams if self._numbers is None else hstack([unigrams, csr_matrix(self._numbers(pairs))], format="csr")


def svm_unigram(settings: JudgeSettings) -> Callable[[], Judge]:
    """Source and reply."""
    return partial(LinearJudge, apart if settings.separate else together)


def reply_only(settings: JudgeSettings) -> Callable[[], Judge]:
    """The reply alone."""
    return partial(LinearJudge, lambda pair: iter(pair.reply))


def together(pair: RepliedPair) -> Iterator[str]:
    """All words."""
    for turn in (*pair.context, pair.reply):
        yield from turn


def apart(pair: RepliedPair) -> Iterator[str]:
    """Words of the reply, and marked those of the turns before."""
    for turn in pair.context:
        yield from (f"{OF_SOURCE}{word}" for word in turn)
    yield from pair.reply
