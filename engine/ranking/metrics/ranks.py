"""Ranking metrics R_n@k, R_2@1, MAP, MRR and P@1 of groups of candidates, with ties as expectations.

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

Under attack (Li et al. 2019, section 5.2): a rule that keeps labels (IIW, RSW) is measured by R_n@k, MAP, MRR and P@1 again;
one that makes a wrong reply of a right one, by A_n@k, AAP, ARR and A@1: the same metrics, where the changed reply is the
relevant one.

  * # Paper: silent on examples that a rule cannot change. Ours: they are counted and left out by default, because the ranker
    was not attacked there. As an option they stay as failed attacks: with a rule that keeps labels the ranker's figure is then
    that of the clean group, else it is 0.
  * # Paper: no intervals. Ours: Wilson's for shares by dialogue (`clustered_rate`), and the paired bootstrap test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from parley.engine.core.stats.known import BEFORE, HIGHER, LOWER
from parley.engine.core.stats.rows import Columns, StoredFigures, linked_units
from parley.engine.core.stats.statistics import (
    NEITHER,
    Estimate,
    Metric,
    PairedTest,
    clustered_rate,
    paired_bootstrap,
    rate_difference,
)
from parley.envs.core.seeds import stable_hash
from parley.envs.ranking.groups import CandidateSplit

RANKER = "lower: ranker"
SUCCESS, UNTRAINED, RANDOM, GAIN = "success", "success_before", "success_random", "gain_over_random"
EDITS, QUERIES, TRIED = "words_changed", "queries", "tried"
EDITING = {
    SUCCESS: Metric("success", RANKER, "share of test contexts in which the policy's edits reach the goal", "rate", main=True),
    UNTRAINED: Metric("success before training", RANKER, "the same policy as it began", "rate"),
    RANDOM: Metric(
        "success of random edits", RANKER, "as many replacements, any that is allowed, all alike likely", "rate", main=True
    ),
    GAIN: Metric("more than random edits", RANKER, "success less that of random edits in the same contexts", main=True),
    EDITS: Metric("words changed", "lower: attack", "mean over the contexts"),
    QUERIES: Metric("queries", "lower: attack", "drafts scored, those to see what each word matters included; mean"),
    TRIED: Metric("contexts", NEITHER, "of the test split, in which there is a reply to edit and the goal is open", "count"),
}
"""Random edits are not chosen by queries, so that the policy asks more: its queries stand beside."""


Ties = Literal["expected", "right", "wrong"]
"""The order of tied candidates: the mean over all orders, relevant ones first, or relevant ones last."""
Unranked = Literal["left-out", "zero"]
"""The treatment of groups without anything to rank."""

PAIRWISE, MAP, MRR, PRECISION = "r2@1", "map", "mrr", "p@1"
KS = (1, 2, 5)
"""Ranks of R_n@k in the paper's tables."""


def recall_at(k: int) -> str:
    """Return the name of R_n@k."""
    return f"r@{k}"


@dataclass(frozen=True)
class GroupMetrics:
    """The metrics of each group that counts.

    Args:
        keys: of those groups, in the order in which they came (G,).
        values: by metric: "r@1", "r@2", ..., "r2@1", "map", "mrr", "p@1" (G,) float64 in [0, 1].
        num_tied: groups in which a relevant candidate has the score of another one that is not.
    """

    keys: np.ndarray
    values: Mapping[str, np.ndarray]
    num_tied: int


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
    """Compute the metrics of every group.

    Args:
        groups: the key of each candidate's group, integers or texts (V,); candidates of a group need not stand together.
        scores: finite, higher is better (V,).
        relevant: whether each is to be found (V,) bool.
        ks: of R_n@k, each at least 1.
        ties: the order of tied candidates.
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
    # Divisions by 0 concern only groups that do not count.
    of_relevant, num_others = np.maximum(num_relevant, 1), np.maximum(sizes - num_relevant, 1)
    share = blocks.relevant / blocks.size
    metrics = {recall_at(k): _per_group(blocks, share * np.clip(k - blocks.above, 0, blocks.size)) / of_relevant for k in ks}
    metrics[PAIRWISE] = _per_group(blocks, _pairs_won(blocks, sizes, num_relevant)) / (of_relevant * num_others)
    metrics[MAP] = _per_group(blocks, _precisions(blocks)) / of_relevant
    has_first = (blocks.relevant > 0) & (blocks.relevant_above == 0)
    metrics[MRR] = _per_group(blocks, np.where(has_first, _reciprocals(blocks), 0.0))
    metrics[PRECISION] = _per_group(blocks, np.where(blocks.above == 0, share, 0.0))
    counts = (num_relevant > 0) & (num_relevant < sizes)
    stays = counts if unranked == "left-out" else np.ones_like(counts)
    return GroupMetrics(
        keys[stays],
        {name: np.where(counts, values, 0.0)[stays] for name, values in metrics.items()},
        num_tied,
    )


def together(parts: Iterable[GroupMetrics]) -> GroupMetrics:
    """Return the metrics of groups that were measured in parts, in their order; the values lie in a temporary file.

    Args:
        parts: one at least, of one set of metrics; their keys are integers.
    """
    columns, names, num_tied = Columns(), list[str](), 0
    for part in parts:
        names, num_tied = [*part.values], num_tied + part.num_tied
        columns.add(None, "q", part.keys)
        for name, values in part.values.items():
            columns.add(name, "d", values)
    return GroupMetrics(columns.get(None, "q"), StoredFigures(columns, names), num_tied)


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys in order of appearance (G,), and the number of each key (V,).

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
    """Return the blocks, and the number of groups with a tie of a relevant and another candidate."""
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
    """Find the blocks that hold relevant candidates and others (B,) bool."""
    starts = np.flatnonzero(begins)
    relevant = np.add.reduceat(wanted.astype(np.int64), starts)
    return (relevant > 0) & (relevant < np.diff(starts, append=len(wanted)))


def _per_group(blocks: _Blocks, values: np.ndarray) -> np.ndarray:
    """Sum the values of the blocks of each group (G,)."""
    return np.bincount(blocks.group, values)


def _pairs_won(blocks: _Blocks, sizes: np.ndarray, num_relevant: np.ndarray) -> np.ndarray:
    """Count the pairs that a block's relevant candidates win against other ones; a tie is half a pair."""
    num_others = blocks.size - blocks.relevant
    num_others_above = blocks.above - blocks.relevant_above
    below = (sizes - num_relevant)[blocks.group] - num_others_above - num_others
    return blocks.relevant * (below + num_others / 2)


def _precisions(blocks: _Blocks) -> np.ndarray:
    """Sum the expected precision at the ranks of a block's relevant candidates (B,).

    One of them stands at each place j of the block with probability r / t; above it stand the relevant ones of better blocks
    and, of the block's other r - 1, expectedly (j - 1) (r - 1) / (t - 1).
    """
    size = blocks.size
    ends = np.cumsum(size)
    offset = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - size, size)
    relevant, total = np.repeat(blocks.relevant, size), np.repeat(size, size)
    relevant_so_far = np.repeat(blocks.relevant_above, size) + 1 + offset * (relevant - 1) / np.maximum(total - 1, 1)
    precision = relevant / total * relevant_so_far / (np.repeat(blocks.above, size) + offset + 1)
    return np.add.reduceat(precision, ends - size) if len(ends) else precision


def _reciprocals(blocks: _Blocks) -> np.ndarray:
    """Return the expected 1 / rank of a block's first relevant candidate (B,); 0 without one."""
    base = int(blocks.size.max(initial=0)) + 1
    kinds, kind = np.unique((blocks.above * base + blocks.size) * base + blocks.relevant, return_inverse=True)
    return np.array([_reciprocal(*_digits(number, base)) for number in kinds.tolist()], dtype=np.float64)[kind]


def _digits(number: int, base: int) -> tuple[int, int, int]:
    rest, relevant = divmod(number, base)
    above, size = divmod(rest, base)
    return above, size, relevant


def _reciprocal(above: int, size: int, relevant: int) -> float:
    """Sum P(the first of `relevant` in `size` stands at j) / (above + j) over the places j."""
    if not relevant:
        return 0.0
    position = np.arange(1, size - relevant + 2)
    # P(first at j + 1) = P(first at j) (t - j - r + 1) / (t - j).
    factors = (size - position[:-1] - relevant + 1) / (size - position[:-1])
    shares = np.concatenate([[1.0], np.cumprod(factors)]) * (relevant / size)
    return float((shares / (above + position)).sum())


FIRST = recall_at(1)
RANKS = {FIRST: "R@1", recall_at(2): "R@2", recall_at(5): "R@5", PAIRWISE: "R2@1", MRR: "MRR", MAP: "MAP"}
"""Titles of metrics of groups."""
_MEANINGS = {
    FIRST: "share of right replies ranked first",
    recall_at(2): "share of right replies among the first two",
    recall_at(5): "share of right replies among the first five",
    PAIRWISE: "share of pairs of a right and a wrong reply in which the right one is first",
    MRR: "mean of 1 / rank of the first right reply",
    MAP: "mean average precision of right replies",
}
_TIES = "mean over contexts, ties as chance decides them"
ATTACKED = "_attacked"
"""The ending of metrics on groups that rules or the search changed."""
PROMOTED = "test_promoted"
"""Success of the attack search on the model itself, of trainings against it."""
_OWN = {
    **{
        f"test_{name}": Metric(f"test {title}", HIGHER, f"{_MEANINGS[name]}; {_TIES}", "rate", main=name == FIRST)
        for name, title in RANKS.items()
    },
    f"test_{FIRST}{ATTACKED}": Metric(
        "test R@1, attacked",
        HIGHER,
        "right replies ranked first where rules replace replies, or rules and the search add wrong ones",
        "rate",
        main=True,
    ),
    PROMOTED: Metric(
        "test contexts that the search upsets",
        LOWER,
        "contexts without a wrong reply at the top in which the search brings one there, at the model itself",
        "rate",
        main=True,
    ),
    "test_loss": Metric("test loss", LOWER, "cross-entropy of a pair of context and reply in nats"),
    f"validation_{FIRST}": Metric("validation R@1", HIGHER, f"{_MEANINGS[FIRST]}; {_TIES}", "rate"),
    f"validation_{FIRST}{ATTACKED}": Metric("validation R@1, attacked", HIGHER, "as of the test split", "rate"),
    "validation_loss": Metric("validation loss", LOWER, "cross-entropy of a pair of context and reply in nats"),
}
MATCHING = {
    name + suffix: metric._replace(title=metric.title + when, main=metric.main)
    for name, metric in _OWN.items()
    for suffix, when in (("", ""), (BEFORE, ", before"))
}
"""Figures of a matching model; those before are of the model that a training began with."""


Untouched = Literal["left-out", "kept"]
"""The treatment of groups that a rule left unchanged."""

_ADVERSARIAL = {PAIRWISE: "A2@1", MAP: "AAP", MRR: "ARR", PRECISION: "A@1"}
_STANDARD = {PAIRWISE: "R2@1", MAP: "MAP", MRR: "MRR", PRECISION: "P@1"}


def title(name: str, size: int | None = None, *, adversarial: bool = False) -> str:
    """Return the name of a metric in papers.

    Args:
        name: of `GroupMetrics.values`.
        size: candidates of every group; None where groups differ.
        adversarial: whether changed replies are the relevant ones.
    """
    titles = _ADVERSARIAL if adversarial else _STANDARD
    if name in titles:
        return titles[name]
    return f"{'A' if adversarial else 'R'}{'' if size is None else size}{name.removeprefix('r')}"


def attack_metrics(
    groups: ArrayLike,
    scores: ArrayLike,
    labels: ArrayLike,
    changed: ArrayLike,
    *,
    keeps_labels: bool,
    ks: Sequence[int] = KS,
    untouched: Untouched = "left-out",
    ties: Ties = "expected",
    unranked: Unranked = "left-out",
) -> GroupMetrics:
    """Compute the metrics of groups that a rule attacked.

    Args:
        groups: the key of each candidate's group (V,).
        scores: of the candidates as the rule left them (V,).
        labels: whether each was a right reply before (V,) bool.
        changed: words that the rule changed of each (V,) int.
        keeps_labels: whether the rule keeps labels; else the changed right replies are the relevant candidates.
        ks: as in `group_metrics`.
        untouched: whether groups without a changed candidate are left out, or kept as attacks that failed.
        ties: as in `group_metrics`.
        unranked: of groups without a right reply or without a wrong one, as in `group_metrics`.
    """
    keys, right, touched = np.asarray(groups), np.asarray(labels, dtype=bool), np.asarray(changed) > 0
    relevant = right if keeps_labels else right & touched
    _, group = np.unique(keys, return_inverse=True)
    can_rank = _holds(group, right) & _holds(group, ~right)
    is_touched = _holds(group, touched if keeps_labels else relevant)
    left_out = ~can_rank & (unranked == "left-out") | can_rank & ~is_touched & (untouched == "left-out")
    stays = ~left_out[group]
    # A group that stays without a relevant candidate is an attack that failed, or one that asks for 0.
    return group_metrics(keys[stays], np.asarray(scores)[stays], relevant[stays], ks=ks, ties=ties, unranked="zero")


def _holds(group: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Find the groups that hold a marked candidate (G,) bool."""
    return np.bincount(group, marked) > 0


def units_of(split: CandidateSplit) -> np.ndarray:
    """Return the unit of each context of a split (G,) int64: dialogues that share a context are one."""
    return linked_units(split.dialogues, [stable_hash(*split.contexts[row].tolist()) for row in range(len(split))])


class TiedFigure(NamedTuple):
    """A metric as tables show it.

    Args:
        estimate: the mean over groups, of each the expectation over all orders of tied candidates.
        ties_wrong: the mean if every tie went against the relevant candidates; None where none is tied with another.
        ties_right: the mean if every tie went for them; likewise.
    """

    estimate: Estimate
    ties_wrong: float | None
    ties_right: float | None


def figures(measure: Callable[[Ties], GroupMetrics], clusters: np.ndarray | None = None) -> dict[str, TiedFigure]:
    """Compute each metric with its interval, and its bounds over the orders of ties.

    Args:
        measure: gives the metrics under an order of ties, such as `lambda ties: group_metrics(..., ties=ties)`.
        clusters: as in `estimates`.
    """
    expected = measure("expected")
    means = estimates(expected, clusters)
    if not expected.num_tied or not len(expected.keys):
        return {name: TiedFigure(estimate, None, None) for name, estimate in means.items()}
    orders: tuple[Ties, Ties] = ("wrong", "right")
    wrong, right = ({name: float(values.mean()) for name, values in measure(ties).values.items()} for ties in orders)
    return {name: TiedFigure(estimate, wrong[name], right[name]) for name, estimate in means.items()}


def estimates(metrics: GroupMetrics, clusters: np.ndarray | None = None) -> dict[str, Estimate]:
    """Compute the mean of each metric over groups, with its interval.

    Args:
        metrics: of groups.
        clusters: the cluster of each group by its key, an index; by default each group is its own.
    """
    drawn_with = None if clusters is None else clusters[metrics.keys]
    return {name: clustered_rate(values, drawn_with) for name, values in metrics.values.items()}


def compared(
    after: GroupMetrics, before: GroupMetrics, clusters: np.ndarray | None = None, seed: int = 0
) -> dict[str, PairedTest]:
    """Compare two rankers, or one before and after an attack or a training, on the groups of both.

    Args:
        after: of one.
        before: of the other.
        clusters: as in `estimates`; clusters are drawn whole.
        seed: names the resampling stream.

    Returns:
        For each metric of both the mean of after minus before, its interval, and the p-value of the paired bootstrap.
    """
    rows: slice | np.ndarray = slice(None)
    other_rows = rows
    if not np.array_equal(after.keys, before.keys) or (after.keys[1:] <= after.keys[:-1]).any():
        _, rows, other_rows = np.intersect1d(after.keys, before.keys, return_indices=True)
    drawn_with = None if clusters is None else clusters[after.keys[rows]]
    tests = {}
    for name in (name for name in after.values if name in before.values):
        here, there = after.values[name][rows], before.values[name][other_rows]
        p_value = paired_bootstrap(here, there, seed=seed, clusters=drawn_with).p_value
        tests[name] = PairedTest(rate_difference(here, there, drawn_with), p_value)
    return tests
