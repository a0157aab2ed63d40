"""How alike two texts are: closed forms, and what is said where there is nothing to compare."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from parley.engine.perturb.metrics.activity import average_similarity, sentence_bleu

ROWS = {"a": (1.0, 0.0), "b": (0.0, 1.0), "c": (3.0, 3.0), "away": (-1.0, 0.0)}


def vectors(words: Sequence[str]) -> np.ndarray:
    """Embeddings of four words."""
    return np.array([ROWS[word] for word in words if word in ROWS], dtype=np.float32).reshape(-1, 2)


def cosine(first: str, second: str) -> float | None:
    (found,) = average_similarity([first.split()], [second.split()], vectors)
    return found


def test_cosine_is_of_the_summed_vectors() -> None:
    assert cosine("a b", "c") == pytest.approx(1.0)
    assert cosine("a", "b") == 0.0
    assert cosine("a", "c") == pytest.approx(0.5**0.5)
    assert cosine("a a a b", "a") == pytest.approx(3 / 10**0.5)
    assert cosine("a", "away") == -1.0


def test_words_without_a_vector_do_not_count() -> None:
    assert cosine("a what", "a") == pytest.approx(1.0)
    assert cosine("what", "a") is None
    assert cosine("", "") is None
    assert cosine("a away", "a") is None, "vectors that cancel each other point nowhere"
    assert cosine("a", "what") == 0.0
    assert cosine("a", "") == 0.0


def test_many_pairs_are_those_pairs_one_by_one() -> None:
    texts, others = [["a"], ["what"], ["c", "b"]], [["c"], ["a"], ["a", "a"]]
    alone = [average_similarity([text], [other], vectors)[0] for text, other in zip(texts, others, strict=True)]
    assert average_similarity(texts, others, vectors) == pytest.approx(alone)
    assert average_similarity([], [], vectors) == []


def test_bleu_is_one_for_equal_replies_of_any_length() -> None:
    assert sentence_bleu(["yes"], ["yes"]) == 1.0
    assert sentence_bleu([], []) == 1.0
    assert sentence_bleu(["try", "to", "install", "it"], ["try", "to", "install", "it"]) == 1.0


def test_bleu_of_pairs_worked_by_hand() -> None:
    # Unigrams 3/4; pairs (2+1)/(3+1), threes (1+1)/(2+1), fours (0+1)/(1+1); as long as the other.
    expected = (3 / 4 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert sentence_bleu(["try", "to", "install", "this"], ["try", "to", "install", "it"]) == pytest.approx(expected)
    # Half as long: the same n-grams all match, up to the pairs that it has, times the brevity penalty.
    assert sentence_bleu(["try", "to"], ["try", "to", "install", "it"]) == pytest.approx(np.exp(1 - 4 / 2))


def test_bleu_is_zero_without_a_common_word() -> None:
    assert sentence_bleu(["no"], ["yes"]) == 0.0
    assert sentence_bleu([], ["yes"]) == 0.0
    assert sentence_bleu(["yes"], []) == 0.0
