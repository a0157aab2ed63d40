"""Self-BLEU against the plain way, and the overlap of histograms in cases with a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.generation.metrics.tables import frontier_area, overlap, self_bleu

REPLIES = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=7), min_size=2, max_size=6)


@given(REPLIES)
@settings(max_examples=40, deadline=None)
def test_self_bleu_is_that_of_every_reply_against_all_others(replies: list[list[str]]) -> None:
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    smoothing = SmoothingFunction().method1
    plain = [
        sentence_bleu(replies[:row] + replies[row + 1 :], reply, smoothing_function=smoothing)
        for row, reply in enumerate(replies)
    ]
    assert self_bleu(replies) == pytest.approx(plain, abs=1e-9)


def test_self_bleu_of_equal_and_of_foreign_replies() -> None:
    assert self_bleu([["one", "two", "three", "four"]] * 3) == pytest.approx([1.0] * 3)
    assert self_bleu([["a", "b", "c", "d"], ["e", "f", "g", "h"], []]).tolist() == [0.0] * 3


def test_the_area_of_equal_histograms_is_1_and_of_disjoint_ones_has_a_closed_form() -> None:
    assert frontier_area(np.array([3, 1]), np.array([30, 10])) == pytest.approx(1.0)
    # With s of p and 1 - s of q: (1 - s)^5 and s^5, under which lies 5 B(5, 6), the integral of s^5 5 (1 - s)^4.
    beta = math.gamma(6) * math.gamma(5) / math.gamma(11)
    assert frontier_area(np.array([1, 0]), np.array([0, 1])) == pytest.approx(5 * beta, abs=1e-3)
    assert frontier_area(np.array([2, 1]), np.array([1, 2])) == pytest.approx(frontier_area(np.array([1, 2]), np.array([2, 1])))


def test_samples_of_one_distribution_overlap_more_than_others() -> None:
    rng = np.random.default_rng(1)
    own, like, other = rng.normal(size=(200, 6)), rng.normal(size=(200, 6)), rng.normal(size=(200, 6)) + 3
    assert overlap(own, own, 1) == pytest.approx(1.0)
    assert overlap(own, like, 1) > 0.6 > 0.3 > overlap(own, other, 1)
    assert overlap(own, like, 1) == overlap(own, like, 1)
    assert overlap(np.ones((30, 2)), np.ones((30, 2)), 1) == pytest.approx(1.0)
