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
_TOLERANCE, _OTHER = 1e-9, 1e-4
"""Of the value of a game, by its largest payoff; the least difference of a share that makes another mixture."""


@dataclass(frozen=True)
class Mixture:
    """Probabilities of the targets (T,) and of the adversaries (A,), in the order of the matrix: oldest first.

    Args:
        targets: their probabilities.
        adversaries: their probabilities.
        is_one_of_several: whether other mixtures would do as well.
    """

    targets: np.ndarray
    adversaries: np.ndarray
    is_one_of_several: bool = False


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
    """An equilibrium of the matrix game; of several the one that spreads most evenly, so that equal agents have equal shares.

    Args:
        payoffs_TA: advantage of each adversary over each target.
        wins_TA: not read; all meta-strategies are called alike.
    """
    (targets, other_targets), (adversaries, other_adversaries) = _maximin(-payoffs_TA), _maximin(payoffs_TA.T)
    return Mixture(targets, adversaries, other_targets or other_adversaries)


META_STRATEGIES: Mapping[str, Callable[[np.ndarray, np.ndarray], Mixture]] = {
    "uniform": uniform,
    "prioritised": prioritised,
    "nash": nash,
}
"""Meta-strategies by name: functions of the payoffs (T, A) and of the share (T, A) of dialogues that the adversary wins."""


def _maximin(gains_RC: np.ndarray) -> tuple[np.ndarray, bool]:
    """Find the mixture of rows whose least gain over all columns is largest: max v with p'G >= v, as a linear program.

    Returns:
        The mixture (R,), and whether it is one of several. Of several it is the one with the least sum of squares: there is
        one such mixture, and rows that are alike have alike shares in it.
    """
    from scipy.optimize import linprog

    num_rows, num_columns = gains_RC.shape
    sums_to_one = np.append(np.ones(num_rows), 0.0)[None]
    at_least = np.column_stack([-gains_RC.T, np.ones(num_columns)])
    found = linprog(
        c=np.append(np.zeros(num_rows), -1.0),
        A_ub=at_least,
        b_ub=np.zeros(num_columns),
        A_eq=sums_to_one,
        b_eq=[1.0],
        bounds=[(0.0, 1.0)] * num_rows + [(None, None)],
    )
    assert found.success, f"a finite matrix game has a solution: {found.message}"
    shares, value = _normed(found.x[:num_rows]), found.x[num_rows]
    slack = _TOLERANCE * max(1.0, float(np.abs(gains_RC).max()))
    # Another mixture is as good if some row can have another share at the same value.
    for direction in (*np.eye(num_rows), *-np.eye(num_rows)):
        other = linprog(
            c=direction,
            A_ub=-gains_RC.T,
            b_ub=np.full(num_columns, slack - value),
            A_eq=np.ones((1, num_rows)),
            b_eq=[1.0],
            bounds=[(0.0, 1.0)] * num_rows,
        )
        if other.success and np.abs(other.x - shares).max() > _OTHER:
            return _most_even(gains_RC, value - slack, shares), True
    return shares, False


def _most_even(gains_RC: np.ndarray, least: float, start_R: np.ndarray) -> np.ndarray:
    """Find the mixture with the least sum of squares among those that gain at least so much in every column.

    The problem of least distance, min |p| with Gp >= h, by non-negative least squares (Lawson & Hanson 1974, chapter 23).
    """
    from scipy.optimize import nnls

    num_rows, num_columns = gains_RC.shape
    ones = np.ones((1, num_rows))
    bounds = np.concatenate([gains_RC.T, np.eye(num_rows), ones, -ones])
    limits = np.concatenate([np.full(num_columns, least), np.zeros(num_rows), [1.0, -1.0]])
    system = np.concatenate([bounds.T, limits[None]])
    wanted = np.append(np.zeros(num_rows), 1.0)
    residual = system @ nnls(system, wanted)[0] - wanted
    # What was found first stands where rounding leaves no solution.
    return _normed(-residual[:-1] / residual[-1]) if abs(residual[-1]) > _TOLERANCE else start_R


def _normed(shares: np.ndarray) -> np.ndarray:
    clipped = np.clip(shares, 0.0, None)
    return np.asarray(clipped / clipped.sum())
