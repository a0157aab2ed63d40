"""Paired bootstrap: resamples a second of `engine.core.stats.statistics.paired_bootstrap` against one resample at a time.

The reference is what one writes first: for each resample `Generator.choice` of as many items as there are, their mean
and their standard deviation.
"identical" says that p-values agree within four standard errors of both, and that the loop, given the draws that ours makes
where it draws one by one, comes to the same p-value and interval.

Measured on differences of F1 as replies give them (most are 0, the others take some dozens of values; "ratio"), on those with
a similarity in place of an F1 (most are 0, no others alike), and on numbers that are all distinct, where there is nothing to
gain: both draw every item, and drawing is what takes the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from parley.engine.core.stats.statistics import paired_bootstrap
from parley.envs.core.seeds import stream

SEED = 1
_SHARE_ALIKE = 0.8


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """The paired bootstrap test against a plain loop."""

    items: int = 10_000
    """Examples."""

    @property
    def resamples(self) -> int:
        """Return the resamples of ours."""
        return 5000 if self.quick else 100_000

    @property
    def plain_resamples(self) -> int:
        """Return the resamples of the loop: enough to time one and to compare p-values."""
        return 1000 if self.quick else 10_000


def plain_bootstrap(differences: np.ndarray, num_resamples: int, draw: Callable[[], np.ndarray]) -> float:
    """Return the p-value, one resample at a time; `draw` gives one."""
    drawn = [draw() for _ in range(num_resamples)]
    observed = differences.mean()
    errors = np.array([(sample.mean() - observed) / sample.std() for sample in drawn])
    num_far = np.count_nonzero(np.abs(errors) >= abs(observed / differences.std()))
    return float((1 + num_far) / (1 + num_resamples))


def draw_pairs(num: int) -> dict[str, np.ndarray]:
    """Draw differences between two systems, by kind."""
    rng = np.random.default_rng(SEED)

    def f1() -> np.ndarray:
        both = rng.binomial(1, 0.12, size=num) * rng.integers(1, 3, size=num)
        named = 2 * both + rng.integers(0, 4, size=num) + rng.integers(1, 5, size=num)
        return np.asarray(2 * both / named)

    alike = rng.random(num) < _SHARE_ALIKE
    return {
        "f1": f1() - f1(),
        "similarity": np.where(alike, 0.0, rng.normal(0.01, 0.5, size=num)),
        "distinct": rng.normal(0.005, 0.5, size=num),
    }


def measure(options: Options) -> Result:
    """Time both on the same differences."""
    figures: dict[str, Any] = {"items": options.items, "resamples": options.resamples}
    agrees, rng = [], np.random.default_rng(SEED)
    # The first test imports what it needs.
    paired_bootstrap(np.ones(2), np.zeros(2), 2, SEED)
    for name, differences in draw_pairs(options.items).items():
        before = np.zeros_like(differences)
        ours, plain = Clock(), Clock()
        with plain.running():
            p_value = plain_bootstrap(differences, options.plain_resamples, partial(_choose, rng, differences))
        with ours.running():
            test = paired_bootstrap(differences, before, options.resamples, SEED)
        plain_s = plain.cpu_s * options.resamples / options.plain_resamples
        agrees.append(_agree(test.p_value, options.resamples, p_value, options.plain_resamples))
        figures |= {
            f"{name}_s": ours.cpu_s,
            f"{name}_ratio": plain_s / ours.cpu_s,
            f"{name}_p": [test.p_value, p_value],
            f"{name}_distinct_values": len(np.unique(differences)),
        }
    same = _same_draws(draw_pairs(options.items)["distinct"], options.plain_resamples // 10)
    return Result(ratio=figures["f1_ratio"], identical=all(agrees) and same, figures=figures)


def _choose(rng: np.random.Generator, differences: np.ndarray) -> np.ndarray:
    return np.asarray(rng.choice(differences, size=len(differences)))


def _agree(first: float, num_first: int, second: float, num_second: int) -> bool:
    share = (first * num_first + second * num_second) / (num_first + num_second)
    return abs(first - second) <= 4 * math.sqrt(share * (1 - share) * (1 / num_first + 1 / num_second))


def _same_draws(differences: np.ndarray, num_resamples: int) -> bool:
    """Return True if the same draws give the same test."""
    test = paired_bootstrap(differences, np.zeros_like(differences), num_resamples, SEED)
    rng, size = stream(SEED, "paired bootstrap"), len(differences)
    expected = plain_bootstrap(differences, num_resamples, lambda: differences[rng.integers(size, size=size, dtype=np.int32)])
    return math.isclose(test.p_value, expected, rel_tol=1e-9)


if __name__ == "__main__":
    run("bootstrap", Options, measure)
