"""How alike replies are to each other, and how their distribution differs from that of recorded ones, whoever judges them.

Sources:
  * Self-BLEU: Zhu et al. 2018 (Texygen, arXiv 1802.01886), section 3.2: BLEU of each reply with all others as references, in
    the mean. As there: up to four words, equal weights; instead of no match a tenth of one (Chen & Cherry 2014, method 1).
    The references of a reply differ by one from those of the next, so that counting once is enough: linear in the words.
  * Histogram overlap: Pillutla et al. 2021 (MAUVE, arXiv 2102.01454), section 3: vectors of both sides are put into clusters
    together, and the area under the divergence curve of the two histograms is taken, with c = 5. Defaults of their code: a
    tenth as many clusters as replies of a side, on the directions that hold 90 % of the variance.
      * # Paper: one k-means with several starts. Ours: the mean over three clusterings, because the area depends on them.
      * # Paper: GPT-2's last state. Ours: whatever vectors are handed in, so that figures compare within a table alone.

Both depend on the number of replies: only samples of one size compare.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from parley.envs.core.seeds import derive_seed

LONGEST, SMOOTHED = 4, 0.1
SCALE, STEPS, NUM_CLUSTERINGS, VARIANCE, PER_CLUSTER = 5.0, 100, 3, 0.9, 10

Words = Sequence[str]


def self_bleu(replies: Sequence[Words]) -> np.ndarray:
    """BLEU of each reply (N,), 0 to 1, with all others as references.

    Args:
        replies: words of each, two at least.
    """
    assert len(replies) > 1, "a reply needs others to be compared with"
    lengths = sorted(map(len, replies))
    logs = np.zeros((len(replies), LONGEST))
    silent = np.zeros(len(replies), dtype=bool)
    for size in range(1, LONGEST + 1):
        counts = [Counter(tuple(reply[i : i + size]) for i in range(len(reply) - size + 1)) for reply in replies]
        most = _two_largest(counts)
        for row, own in enumerate(counts):
            # Where this reply holds the largest count, the others' largest is the second one.
            matches = sum(min(times, most[run][1 if most[run][0] == times else 0]) for run, times in own.items())
            silent[row] |= size == 1 and not matches
            logs[row, size - 1] = math.log((matches or SMOOTHED) / max(1, own.total()))
    penalties = np.array([_brevity(len(reply), lengths) for reply in replies])
    return np.where(silent, 0.0, penalties * np.exp(logs.mean(axis=1)))


def _two_largest(counts: Sequence[Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Of each run of words the largest and the second largest count of a reply; equal ones are both."""
    found: dict[tuple[str, ...], tuple[int, int]] = {}
    for own in counts:
        for run, times in own.items():
            first, second = found.get(run, (0, 0))
            found[run] = (times, first) if times > first else (first, max(second, times))
    return found


def _brevity(length: int, lengths: Sequence[int]) -> float:
    """The brevity penalty of a reply among others: against the nearest length, of two as near the shorter one.

    Args:
        length: of the reply.
        lengths: of all replies, sorted, itself included once.
    """
    if not length:
        return 0.0
    own = lengths.index(length)
    others = (*lengths[max(0, own - 1) : own], *lengths[own + 1 : own + 2])
    nearest = min(others, key=lambda other: (abs(other - length), other))
    return 1.0 if length > nearest else math.exp(1 - nearest / length)


def overlap(first_PE: np.ndarray, second_QE: np.ndarray, seed: int) -> float:
    """How far two samples of vectors have one distribution: 1 for equal histograms, near 0 where they share no cluster.

    Args:
        first_PE: vectors of the one side.
        second_QE: of the other.
        seed: of the clusterings.
    """
    from sklearn.cluster import KMeans

    lengths = [len(first_PE), len(second_QE)]
    vectors_NE = np.concatenate([first_PE, second_QE]).astype(np.float64)
    projected_ND = _main_directions(vectors_NE / np.maximum(np.linalg.norm(vectors_NE, axis=1, keepdims=True), 1e-12))
    # No more clusters than there are different vectors.
    num = max(1, min(min(lengths) // PER_CLUSTER, len(np.unique(projected_ND.round(9), axis=0))))
    found = []
    for number in range(NUM_CLUSTERINGS):
        chosen = derive_seed(seed, "clusters", number) % 2**32
        labels_N = KMeans(num, n_init=1, random_state=chosen).fit_predict(projected_ND)
        found.append(frontier_area(*(np.bincount(part, minlength=num) for part in np.split(labels_N, lengths[:1]))))
    return float(np.mean(found))


def frontier_area(first_K: np.ndarray, second_K: np.ndarray) -> float:
    """The area under the divergence curve of two histograms, 0 to 1.

    The curve has the points (exp(-c KL(q|r)), exp(-c KL(p|r))) for all mixtures r of p and q (equation 2).

    Args:
        first_K: counts of p by cluster.
        second_K: counts of q.
    """
    p_K, q_K = (np.asarray(counts) / np.sum(counts) for counts in (first_K, second_K))
    shares = np.linspace(0, 1, STEPS + 2)[1:-1]
    mixed_SK = shares[:, None] * p_K + (1 - shares[:, None]) * q_K
    x_S, y_S = (np.exp(-SCALE * _divergence(side_K, mixed_SK)) for side_K in (q_K, p_K))
    # Its ends: all of the one side and nothing of the other.
    x, y = np.concatenate([[1.0], x_S, [0.0]]), np.concatenate([[0.0], y_S, [1.0]])
    order = np.lexsort((-y, x))
    return float(np.trapezoid(y[order], x[order]))


def _divergence(side_K: np.ndarray, mixed_SK: np.ndarray) -> np.ndarray:
    """KL divergence of a histogram from each mixture (S,), which holds it."""
    there = side_K > 0
    return np.asarray((side_K[there] * np.log(side_K[there] / mixed_SK[:, there])).sum(axis=1))


def _main_directions(vectors_NE: np.ndarray) -> np.ndarray:
    """The vectors along the directions of largest variance that hold `VARIANCE` of it."""
    centred = vectors_NE - vectors_NE.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    share = np.cumsum(sizes**2) / max(float((sizes**2).sum()), 1e-12)
    num = int(np.searchsorted(share, VARIANCE)) + 1
    return np.asarray(left[:, :num] * sizes[:num])
