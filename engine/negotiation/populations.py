"""Meta-strategies: with which probabilities two populations, of targets and of adversaries, play each other.

Policy-space response oracles (PSRO, Lanctot et al. 2017) keep every agent that was trained, play all targets against all
adversaries, and solve this matrix game; each side then learns a best response to the other side's mixture.

The game is zero-sum: a payoff is the adversary's advantage, which it wants high and the target wants low. A game in which both
sides count their own points alone has no such value and is not solved here.

Shapes: T targets, A adversaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

LEAST_WEIGHT = 0.01
"""Keeps an opponent that never wins in the draw, since it may win again."""


@dataclass(frozen=True)
class Mixture:
    """Probabilities of the targets (T,) and of the adversaries (A,), in the order of the matrix: oldest first."""

    targets: np.ndarray
    adversaries: np.ndarray


def hard_weights(wins: np.ndarray) -> np.ndarray:
    """Prioritised fictitious self-play: who wins more often is drawn more often (Vinyals et al. 2019, f_hard with p = 2).

    Args:
        wins: share (K,) of dialogues that each opponent wins, a draw counting half.

    Returns:
        Probabilities (K,), proportional to the squares of the shares.
    """
    weights = np.maximum(wins**2, LEAST_WEIGHT)
    return np.asarray(weights / weights.sum())


def uniform(payoffs_TA: np.ndarray, wins_TA: np.ndarray) -> Mixture:
    """All alike: fictitious play (Brown 1951)."""
    num_targets, num_adversaries = payoffs_TA.shape
    return Mixture(np.full(num_targets, 1 / num_targets), np.full(num_adversaries, 1 / num_adversaries))


def prioritised(payoffs_TA: np.ndarray, wins_TA: np.ndarray) -> Mixture:
    """Each side by what it wins against the newest agent of the other (`hard_weights`)."""
    return Mixture(hard_weights(1 - wins_TA[:, -1]), hard_weights(wins_TA[-1]))


def nash(payoffs_TA: np.ndarray, wins_TA: np.ndarray) -> Mixture:
    """An equilibrium of the matrix game; where there are several, the one that the solver finds.

    Args:
        payoffs_TA: advantage of each adversary over each target.
        wins_TA: not read; all meta-strategies are called alike.
    """
    return Mixture(_maximin(-payoffs_TA), _maximin(payoffs_TA.T))


META_STRATEGIES: Mapping[str, Callable[[np.ndarray, np.ndarray], Mixture]] = {
    "uniform": uniform,
    "prioritised": prioritised,
    "nash": nash,
}
"""Meta-strategies by name: functions of the payoffs (T, A) and of the share (T, A) of dialogues that the adversary wins."""


def _maximin(gains_RC: np.ndarray) -> np.ndarray:
    """The mixture (R,) of rows whose least gain over all columns is largest: max v with p'G >= v, as a linear program."""
    from scipy.optimize import linprog

    num_rows, num_columns = gains_RC.shape
    found = linprog(
        c=np.append(np.zeros(num_rows), -1.0),
        A_ub=np.column_stack([-gains_RC.T, np.ones(num_columns)]),
        b_ub=np.zeros(num_columns),
        A_eq=np.append(np.ones(num_rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, 1.0)] * num_rows + [(None, None)],
    )
    assert found.success, f"a finite matrix game has a solution: {found.message}"
    shares = np.clip(found.x[:num_rows], 0.0, None)
    return np.asarray(shares / shares.sum())
