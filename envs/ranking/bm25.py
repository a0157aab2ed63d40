"""The replies nearest to a context by BM25 (Robertson & Zaragoza 2009, "The probabilistic relevance framework", section 3.4).

    score = sum over the distinct words of the context of  idf(word) count (k + 1) / (count + k (1 - b + b length / average))
    idf   = log(1 + (M - df + 0.5) / (df + 0.5)),  k = 1.2, b = 0.75

M, df and the average length are those of the training split's replies, whichever split is searched: no test text is counted.
"""

from __future__ import annotations

import numpy as np

from parley.envs.corpora.pairs.compiled import Ragged

SATURATION, LENGTH_SHARE = 1.2, 0.75
"""k and b."""


class ReplyStatistics:
    """What is counted in the replies of the training split, each distinct one once.

    Args:
        replies: word ids.
        num_words: of the corpus.
    """

    def __init__(self, replies: Ragged, num_words: int) -> None:
        words, _, _ = _counted(replies)
        holding = np.bincount(words, minlength=num_words)
        self.idf = np.log(1 + (len(replies) - holding + 0.5) / (holding + 0.5)).astype(np.float32)
        """Of each word of the corpus (V,) float32."""
        self.average = float(replies.lengths.mean()) if len(replies) else 1.0
        """Words of a reply."""


class ReplyIndex:
    """Replies that can be searched.

    Args:
        replies: word ids, R rows.
        statistics: of the training split.
    """

    def __init__(self, replies: Ragged, statistics: ReplyStatistics) -> None:
        words, rows, counts = _counted(replies)
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * replies.lengths / statistics.average)
        weights = statistics.idf[words] * counts * (SATURATION + 1) / (counts + damping[rows])
        self._num_replies = len(replies)
        self._rows, self._weights = rows, weights
        # Entries are in the order of words: those of word w stand from the w-th place to the next.
        self._starts = np.searchsorted(words, np.arange(len(statistics.idf) + 1))

    def scores(self, words: np.ndarray) -> np.ndarray:
        """The score of every reply (R,) float64.

        Args:
            words: ids of a context's words (n,), repeated ones count once.
        """
        spans = [slice(self._starts[word], self._starts[word + 1]) for word in np.unique(words)]
        if not spans:
            return np.zeros(self._num_replies)
        rows = np.concatenate([self._rows[span] for span in spans])
        return np.bincount(rows, np.concatenate([self._weights[span] for span in spans]), self._num_replies)

    def nearest(self, words: np.ndarray, eligible: np.ndarray, num: int) -> np.ndarray:
        """The eligible replies that score highest.

        Args:
            words: as for `scores`.
            eligible: which may be found (R,) bool.
            num: how many are wanted.

        Returns:
            Their rows, best first, ties by row; at most `num`, for what shares no word with the context is not near.
        """
        scores = np.where(eligible, self.scores(words), 0.0)
        num = min(num, int((scores > 0).sum()))
        if not num:
            return np.zeros(0, dtype=np.int64)
        least = np.partition(scores, len(scores) - num)[len(scores) - num]
        found = np.flatnonzero(scores >= least)
        return found[np.argsort(-scores[found], kind="stable")][:num]


def _counted(replies: Ragged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words, rows and counts of all (word, row) that occur, in the order of words and then rows."""
    rows = np.repeat(np.arange(len(replies)), replies.lengths)
    entries, counts = np.unique(replies.values.astype(np.int64) * max(len(replies), 1) + rows, return_counts=True)
    words, rows = np.divmod(entries, max(len(replies), 1))
    return words, rows, counts
