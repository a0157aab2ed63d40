"""Meta-strategies on games whose solutions are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from parley.engine.core.stats.known import META_STRATEGIES, hard_weights, nash, prioritised

# What the adversary of the column gains from the target of the line.
ROCK_PAPER_SCISSORS = np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])
games = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.integers(-10, 10).map(float))
shares = arrays(np.float64, (2, 3), elements=st.floats(0, 1))


def test_equilibrium_of_rock_paper_scissors_is_a_third_each() -> None:
    found = nash(ROCK_PAPER_SCISSORS, ROCK_PAPER_SCISSORS)
    assert found.targets == pytest.approx([1 / 3] * 3)
    assert found.adversaries == pytest.approx([1 / 3] * 3)


def test_nobody_plays_a_dominated_row_or_column() -> None:
    # The second target gives less to everybody; the third adversary gains less from everybody.
    found = nash(np.array([[4.0, 3.0, 1.0], [2.0, 1.0, 0.0]]), np.zeros((2, 3)))
    assert found.targets == pytest.approx([0, 1])
    assert found.adversaries == pytest.approx([1, 0, 0])


def test_mixed_equilibrium_of_matching_pennies_with_unequal_stakes() -> None:
    # By hand: p such that 3p - (1 - p) = -p + (1 - p), so p = 1/3, and the value is 1/3.
    payoffs = np.array([[3.0, -1.0], [-1.0, 1.0]])
    found = nash(payoffs, payoffs)
    assert found.targets == pytest.approx([1 / 3, 2 / 3])
    assert found.adversaries == pytest.approx([1 / 3, 2 / 3])
    assert found.targets @ payoffs @ found.adversaries == pytest.approx(1 / 3)


def test_equal_agents_have_equal_shares_and_it_is_said_that_there_are_several() -> None:
    once = np.array([[3.0, -1.0], [-1.0, 1.0]])
    found = nash(once, once)
    assert not found.is_one_of_several
    twice = once[:, [0, 0, 1]]
    found = nash(twice, twice)
    assert found.adversaries == pytest.approx([1 / 6, 1 / 6, 2 / 3], abs=1e-6)
    assert found.is_one_of_several
    alike = nash(np.zeros((2, 3)), np.zeros((2, 3)))
    assert alike.targets == pytest.approx([1 / 2] * 2)
    assert alike.adversaries == pytest.approx([1 / 3] * 3)
    dominated = np.array([[2.0, 2.0, 0.0]])
    assert nash(dominated, dominated).adversaries == pytest.approx([1 / 2, 1 / 2, 0], abs=1e-6)


@settings(max_examples=50)
@given(arrays(np.float64, (3, 4), elements=st.integers(-3, 3).map(float)), st.integers(0, 3))
def test_an_agent_that_stands_twice_shares_alike(payoffs: np.ndarray, number: int) -> None:
    twice = np.column_stack([payoffs, payoffs[:, number]])
    found = nash(twice, twice)
    assert found.adversaries[number] == pytest.approx(found.adversaries[-1], abs=1e-5)
    if found.adversaries[number] > 1e-3:
        assert found.is_one_of_several


@given(games)
def test_every_meta_strategy_gives_probabilities_and_at_an_equilibrium_nobody_gains_by_leaving(payoffs: np.ndarray) -> None:
    wins = 1 / (1 + np.exp(-payoffs))
    mixtures = {name: meta(payoffs, wins) for name, meta in META_STRATEGIES.items()}
    for found in mixtures.values():
        for mixture, num in zip((found.targets, found.adversaries), payoffs.shape, strict=True):
            assert mixture.shape == (num,)
            assert mixture.sum() == pytest.approx(1)
            assert (mixture >= 0).all()
    found = mixtures["nash"]
    value = found.targets @ payoffs @ found.adversaries
    assert (found.targets @ payoffs).max() == pytest.approx(value, abs=1e-7)
    assert (payoffs @ found.adversaries).min() == pytest.approx(value, abs=1e-7)


def test_weights_of_prioritised_fictitious_self_play_are_squared_shares() -> None:
    assert hard_weights(np.array([0.9, 0.3, 0.6])) == pytest.approx(np.array([81, 9, 36]) / 126)
    assert hard_weights(np.array([1.0, 0.0])) == pytest.approx([1 / 1.01, 0.01 / 1.01])


@given(shares)
def test_prioritised_looks_at_the_newest_agent_of_the_other_side(wins: np.ndarray) -> None:
    found = prioritised(np.zeros((2, 3)), wins)
    assert found.adversaries == pytest.approx(hard_weights(wins[1]))
    assert found.targets == pytest.approx(hard_weights(1 - wins[:, 2]))
