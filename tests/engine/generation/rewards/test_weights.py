"""Weights of replies by tf-idf."""

from __future__ import annotations

import numpy as np
import pytest

from parley.policies.core.response_weights import ResponseWeights

REPLIES = [[5, 9], [5, 6, 9], [5, 7, 9], [8, 9]]
STOP = 9


def weights() -> ResponseWeights:
    return ResponseWeights.of(REPLIES, 10, [STOP])


def test_a_score_is_the_mean_over_words_that_are_no_stop_words() -> None:
    common, rare = np.log(4 / 3), np.log(4)
    assert weights().score([5, 9, 9, 9]) == pytest.approx(common)
    assert weights().score([5, 6]) == pytest.approx((common + rare) / 2)
    assert weights().score([6, 6, 5]) == pytest.approx((2 * 2 * rare + common) / 3)
    assert weights().score([9]) == weights().score([]) == 0


def test_a_score_counts_for_three_times_the_lowest_at_most_and_weights_have_mean_one() -> None:
    found = weights()([[5], [5], [6]])
    np.testing.assert_allclose(found, 3 * np.array([1, 1, 3]) / 5)
    assert weights()([[5], [5, 6]]).mean() == pytest.approx(1)


def test_replies_of_stop_words_weigh_as_the_lowest_of_the_others() -> None:
    np.testing.assert_allclose(weights()([[9], [5], [6]]), 3 * np.array([1, 1, 3]) / 5)
    np.testing.assert_allclose(weights()([[9], [], [9, 9]]), 1)


def test_a_word_that_no_reply_of_the_split_says_is_as_rare_as_one_that_a_single_reply_says() -> None:
    assert weights().score([4]) == weights().score([8])
