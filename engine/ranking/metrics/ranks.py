"""How well scores rank: R_n@k, R_2@1, MAP, MRR and P@1 of each group of candidates, with ties as expectations.

Sources: Li et al. 2019, section 5.2; Wu et al. 2017 (arXiv 1612.01627), section 5; McSherry & Najork 2008, "Computing
information retrieval performance measures efficiently in the presence of tied scores".

A group is one context and its candidates; relevant ones are the right replies. Candidates of one score have no order, so each
metric is its expectation over all orders of the tied, in closed form:

    R_n@k   mean over relevant candidates of P(rank <= k); n is the size of the group
    R_2@1   mean over pairs of a relevant and another candidate of P(the relevant one is first)
    P@1     P(the first one is relevant)
    MRR     E[1 / rank of the first relevant one]
    MAP     E[mean over relevant candidates of the share of relevant ones down to its rank]

Departures:
  * # Released scripts of SMN and DAM: a tie is right. Ours: the expectation; "ties right" and "ties wrong" stand beside it, and
    say how much of a figure is luck.
  * # Released: R_2@1 of the positive and one negative, which a file names. Ours: the mean over all negatives.
  * # Released: MRFN skips groups without a positive, DAM fails. Ours: groups without a relevant candidate, or without another
    one, are counted and left out; as an option they score 0.

Shapes: V candidates, G groups, B blocks of candidates of one group and score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Ties = Literal["expected", "right", "wrong"]
"""What stands for the order of tied candidates: the mean over all, relevant ones first, or relevant ones last."""
Unranked = Literal["left-out", "zero"]
"""What becomes of groups in which there is nothing to rank."""

PAIRWISE, MAP, MRR, PRECISION = "r2@1", "map", "mrr", "p@1"
KS = (1, 2, 5)
"""Ranks of R_n@k in the paper's tables."""


def recall_at(k: int) -> str:
    """The name of R_n@k."""
    return f"r@{k}"


@dataclass(frozen=True)
class GroupMetrics:
    """The metrics of each group that counts.

    Args:
        keys: of those groups, in the order in which they came (G,).
        values: by metric: "r@1", "r@2", ..., "r2@1", "map", "mrr", "p@1" (G,) float64 in [0, 1].
        sizes: candidates of each group (G,) int64.
        num_tied: groups in which a relevant candidate has the score of another one that is not.
        num_without_relevant: groups without a relevant candidate.
        num_all_relevant: groups of relevant candidates alone.
    """

    keys: np.ndarray
    values: Mapping[str, np.ndarray]
    sizes: np.ndarray
    num_tied: int
    num_without_relevant: int
    num_all_relevant: int


class _Blocks(NamedTuple):
    """Candidates of one group and score, best first; groups in order."""

    group: np.ndarray
    """(B,) int64."""
    above: np.ndarray
    """Candidates of the group with a better score (B,) int64."""
    size: np.ndarray
    """(B,) int64."""
    relevant: np.ndarray
    """Relevant ones among them (B,) int64."""
    relevant_above: np.ndarray
    """(B,) int64."""


def group_metrics(
    groups: ArrayLike,
    scores: ArrayLike,
    relevant: ArrayLike,
    *,
    ks: Sequence[int] = KS,
    ties: Ties = "expected",
    unranked: Unranked = "left-out",
) -> GroupMetrics:
    """The metrics of every group.

    Args:
        groups: the key of each candidate's group, integers or texts (V,); candidates of a group need not stand together.
        scores: finite, higher is better (V,).
        relevant: whether each is to be found (V,) bool.
        ks: of R_n@k, each at least 1.
        ties: what stands for the order of tied candidates.
        unranked: whether groups without a relevant candidate, or without another one, are left out or score 0.
    """
    score, wanted = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    keys, group = _numbered(np.asarray(groups))
    assert score.shape == wanted.shape == group.shape, f"got {score.shape}, {wanted.shape}, {group.shape}"
    assert np.isfinite(score).all(), "every score must be finite"
    assert all(k >= 1 for k in ks), f"ranks begin at 1, got {ks}"
    sizes = np.bincount(group, minlength=len(keys))
    num_relevant = np.bincount(group[wanted], minlength=len(keys))
    blocks, num_tied = _blocks(group, score, wanted, ties)
    # What is divided by 0 here belongs to groups that do not count.
    of_relevant, others = np.maximum(num_relevant, 1), np.maximum(sizes - num_relevant, 1)
    share = blocks.relevant / blocks.size
    found = {recall_at(k): _per_group(blocks, share * np.clip(k - blocks.above, 0, blocks.size)) / of_relevant for k in ks}
    found[PAIRWISE] = _per_group(blocks, _pairs_won(blocks, sizes, num_relevant)) / (of_relevant * others)
    found[MAP] = _per_group(blocks, _precisions(blocks)) / of_relevant
    has_first = (blocks.relevant > 0) & (blocks.relevant_above == 0)
    found[MRR] = _per_group(blocks, np.where(has_first, _reciprocals(blocks), 0.0))
    found[PRECISION] = _per_group(blocks, np.where(blocks.above == 0, share, 0.0))
    counts = (num_relevant > 0) & (num_relevant < sizes)
    stays = counts if unranked == "left-out" else np.ones_like(counts)
    return GroupMetrics(
        keys[stays],
        {name: np.where(counts, values, 0.0)[stays] for name, values in found.items()},
        sizes[stays],
        num_tied,
        int(np.count_nonzero(num_relevant == 0)),
        int(np.count_nonzero((num_relevant == sizes) & (sizes > 0))),
    )


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys in the order in which they come (G,), and the number of each (V,).

    Rows of a group mostly stand together, so only where a key differs from the one before it is it looked up.
    """
    if not len(keys):
        return keys, np.zeros(0, dtype=np.int64)
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    distinct, first, of_run = np.unique(keys[begins], return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return distinct[order], np.repeat(number[of_run], np.diff(begins, append=len(keys)))


def _blocks(group: np.ndarray, score: np.ndarray, wanted: np.ndarray, ties: Ties) -> tuple[_Blocks, int]:
    """The blocks, and in how many groups one holds relevant candidates and others."""
    if not len(group):
        return _Blocks(*[np.zeros(0, dtype=np.int64)] * 5), 0
    last = {"expected": (), "right": (~wanted,), "wrong": (wanted,)}[ties]
    order = np.lexsort((*last, -score, group))
    group, score, wanted = group[order], score[order], wanted[order]
    begins = np.concatenate([[True], (group[1:] != group[:-1]) | (score[1:] != score[:-1])])
    is_mixed = _are_mixed(begins, wanted)
    num_tied = len(np.unique(group[begins][is_mixed]))
    if ties != "expected":
        begins[1:] |= wanted[1:] != wanted[:-1]
    starts = np.flatnonzero(begins)
    groups = group[starts]
    of_group = np.searchsorted(groups, groups)
    relevant = np.add.reduceat(wanted.astype(np.int64), starts)
    before = np.cumsum(relevant) - relevant
    size = np.diff(starts, append=len(group))
    return _Blocks(groups, starts - starts[of_group], size, relevant, before - before[of_group]), num_tied


def _are_mixed(begins: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which blocks hold relevant candidates and others (B,) bool."""
    starts = np.flatnonzero(begins)
    relevant = np.add.reduceat(wanted.astype(np.int64), starts)
    return (relevant > 0) & (relevant < np.diff(starts, append=len(wanted)))


def _per_group(blocks: _Blocks, values: np.ndarray) -> np.ndarray:
    """Sums of values of blocks (G,)."""
    return np.bincount(blocks.group, values)


def _pairs_won(blocks: _Blocks, sizes: np.ndarray, num_relevant: np.ndarray) -> np.ndarray:
    """Pairs of a relevant candidate of a block and another one of its group that the former wins; a tie is half a pair."""
    others = blocks.size - blocks.relevant
    others_above = blocks.above - blocks.relevant_above
    below = (sizes - num_relevant)[blocks.group] - others_above - others
    return blocks.relevant * (below + others / 2)


def _precisions(blocks: _Blocks) -> np.ndarray:
    """Sums over a block's relevant candidates of the expected share of relevant ones down to their ranks.

    One of them stands at each place j of the block with probability r / t; above it stand the relevant ones of better blocks
    and, of the block's other r - 1, expectedly (j - 1) (r - 1) / (t - 1).
    """
    size = blocks.size
    ends = np.cumsum(size)
    place = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - size, size)
    relevant, total = np.repeat(blocks.relevant, size), np.repeat(size, size)
    found = np.repeat(blocks.relevant_above, size) + 1 + place * (relevant - 1) / np.maximum(total - 1, 1)
    precision = relevant / total * found / (np.repeat(blocks.above, size) + place + 1)
    return np.add.reduceat(precision, ends - size) if len(ends) else precision


def _reciprocals(blocks: _Blocks) -> np.ndarray:
    """The expected 1 / rank of a block's first relevant candidate (B,); 0 where it has none."""
    base = int(blocks.size.max(initial=0)) + 1
    kinds, kind = np.unique((blocks.above * base + blocks.size) * base + blocks.relevant, return_inverse=True)
    return np.array([_reciprocal(*_digits(number, base)) for number in kinds.tolist()], dtype=np.float64)[kind]


def _digits(number: int, base: int) -> tuple[int, int, int]:
    rest, relevant = divmod(number, base)
    above, size = divmod(rest, base)
    return above, size, relevant


def _reciprocal(above: int, size: int, relevant: int) -> float:
    """The sum over places j of P(the first of `relevant` in `size` stands at j) / (above + j)."""
    if not relevant:
        return 0.0
    place = np.arange(1, size - relevant + 2)
    # P(first at j + 1) = P(first at j) (t - j - r + 1) / (t - j).
    factors = (size - place[:-1] - relevant + 1) / (size - place[:-1])
    shares = np.concatenate([[1.0], np.cumprod(factors)]) * (relevant / size)
    return float((shares / (above + place)).sum())
