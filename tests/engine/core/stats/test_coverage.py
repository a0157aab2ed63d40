"""Coverage: how often 95 % intervals hold the true value, and how often tests find a difference where none is, by simulation.

Nominal .95. With 1,000 draws a cell has a standard error of .007, and may lie two of them below .93. Of few clusters coverage
may be above .97 where values take few forms: the skewness moves the interval towards the mean and makes it no wider.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from parley.engine.core.stats.statistics import Estimate, clustered_rate, mean, paired_bootstrap, rate_difference, ratio_of_sums
from parley.engine.generation.metrics.adversarial import JudgedScores, chance_range
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.policies.generation.judges.judge import JudgeSettings, first_word, length

NUM_DRAWS = 1_000
MARGIN = 0.014
SIZES = (8, 15, 30, 100)
Draw = Callable[[np.random.Generator, int], Estimate]


def reciprocal_ranks(rng: np.random.Generator, size: int) -> Estimate:
    return clustered_rate(rng.choice([1, 1 / 2, 1 / 3, 1 / 4, 0.1], size, p=[0.3, 0.2, 0.2, 0.15, 0.15]))


def seldom_whole(rng: np.random.Generator, size: int) -> Estimate:
    return clustered_rate(rng.choice([1.0, 0.005, 0.0], size, p=[0.02, 0.3, 0.68]))


def coins(rng: np.random.Generator, size: int) -> Estimate:
    # Of few coins with one rate no interval covers exactly .95: over all rates it does.
    likely = rng.uniform(0.1, 0.9)
    estimate = clustered_rate(rng.random(size) < likely)
    return Estimate(estimate.value - likely, estimate.low - likely, estimate.high - likely, size)


def clustered_coins(rng: np.random.Generator, size: int) -> Estimate:
    likely = np.repeat(rng.beta(2.0, 2.0, size), 5)
    return clustered_rate(rng.random(5 * size) < likely, np.repeat(range(size), 5))


def points(rng: np.random.Generator, size: int) -> Estimate:
    return mean(rng.choice([0, 5, 6, 7, 8, 10], size, p=[0.4, 0.1, 0.15, 0.15, 0.1, 0.1]))


def perplexities(rng: np.random.Generator, size: int) -> Estimate:
    words = rng.integers(5, 30, size)
    return ratio_of_sums(words * rng.normal(4.0, 0.5, size), words, transform=np.exp)


def utterances(rng: np.random.Generator, size: int) -> Estimate:
    num = rng.geometric(0.1, size)
    of_dialogue, dialogues = np.repeat(rng.normal(4.0, 0.5, size), num), np.repeat(range(size), num)
    return mean(of_dialogue + rng.normal(0.0, 1.0, num.sum()), dialogues)


def pairs(rng: np.random.Generator, size: int) -> Estimate:
    likely = rng.beta(2.0, 2.0, size)
    return rate_difference(rng.random(size) < likely, rng.random(size) < likely)


KINDS: dict[str, tuple[Draw, float]] = {
    "mean, normal": (lambda rng, size: mean(rng.normal(3.0, 1.0, size)), 3.0),
    "mean, exponential": (lambda rng, size: mean(rng.exponential(1.0, size)), 1.0),
    "mean, points": (points, 4.25),
    "mean, dialogues of unequal length": (utterances, 4.0),
    "perplexity": (perplexities, float(np.exp(4.0))),
    "share, coins": (coins, 0.0),
    "share, five coins a cluster": (clustered_coins, 0.5),
    "share, reciprocal ranks": (reciprocal_ranks, 0.3 + 0.1 + 0.2 / 3 + 0.15 / 4 + 0.015),
    "share, seldom whole": (seldom_whole, 0.0215),
    "difference of shares": (pairs, 0.0),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_the_true_value(kind: str, size: int) -> None:
    draw, true = KINDS[kind]
    rng = np.random.default_rng(size)
    estimates = [draw(rng, size) for _ in range(NUM_DRAWS)]
    coverage = np.mean([each.low <= true <= each.high for each in estimates])
    assert coverage >= 0.93 - MARGIN
    assert size < 30 or coverage <= 0.97 + MARGIN


DIFFERENCES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, size: rng.normal(0.0, 1.0, size),
    "exponential": lambda rng, size: rng.exponential(1.0, size) - 1.0,
    "better or worse": lambda rng, size: rng.choice([-1.0, 0.0, 1.0], size, p=[0.25, 0.5, 0.25]),
    "seldom changed": lambda rng, size: rng.choice([-1.0, 0.0, 1.0], size, p=[0.05, 0.9, 0.05]),
}


@pytest.mark.parametrize("size", [8, 20])
@pytest.mark.parametrize("kind", DIFFERENCES)
def test_tests_find_a_difference_where_there_is_none_as_often_as_they_may(kind: str, size: int) -> None:
    rng, none = np.random.default_rng(size), np.zeros(size)
    p_values = [paired_bootstrap(DIFFERENCES[kind](rng, size), none, 1_000).p_value for _ in range(NUM_DRAWS)]
    rejected = np.mean(np.array(p_values) < 0.05)
    # Of 8 skewed differences one in 14 is found; of those that take three values few are, as by every exact test.
    assert rejected <= (0.07 if (kind, size) == ("exponential", 8) else 0.05) + MARGIN
    assert kind not in ("normal", "exponential") or rejected >= 0.05 - 1.5 * MARGIN


def cross_fitted(make: Callable[[JudgeSettings], Callable[[], object]], rng: np.random.Generator, size: int) -> JudgedScores:
    """What a judge says that is fitted, in five folds, on two sides that are drawn alike."""
    drawn = [RepliedPair((("hi",),), tuple(rng.choice(list("abcdef"), rng.geometric(0.2)))) for _ in range(2 * size)]
    labels, sources = np.tile([True, False], size), np.repeat(np.arange(size), 2)
    folds, scores = sources % 5, np.zeros(2 * size)
    for fold in range(5):
        judge, seen, unseen = make(JudgeSettings())(), np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        judge.fit([drawn[place] for place in seen], labels[seen], 0)  # type: ignore[attr-defined]
        scores[unseen] = judge.score([drawn[place] for place in unseen])  # type: ignore[attr-defined]
    return JudgedScores(sources.astype(str), labels, scores, 5)


@pytest.mark.parametrize("size", [60, 120])
@pytest.mark.parametrize("make", [length, first_word], ids=["length", "first word"])
def test_judges_with_nothing_to_learn_hold_a_half(make: Callable[[JudgeSettings], Callable[[], object]], size: int) -> None:
    rng, held, plain, within = np.random.default_rng(size), [], [], []
    for _ in range(150):
        judged = cross_fitted(make, rng, size)
        estimate, alone = judged.adversuc(), clustered_rate(judged.errors, judged.sources)
        held.append(estimate.low <= 0.5 <= estimate.high)
        plain.append(alone.low <= 0.5 <= alone.high)
        chance = chance_range(2 * size, 5)
        within.append(chance.low <= estimate.value <= chance.high)
    assert np.mean(held) >= 0.93
    assert np.mean(within) >= 0.93
    assert np.mean(plain) < np.mean(held) - 0.05, "the fit moves it as much as its pairs"
