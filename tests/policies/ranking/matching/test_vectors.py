"""Word vectors: trained ones know who stands beside whom, read ones are as the file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.vocabulary import PAD_ID, SPECIALS, UNK_ID, PairVocabulary
from parley.policies.ranking.matching.matcher import SkipGramConfig, read_vectors, skip_gram

WORDS = PairVocabulary((*SPECIALS, *"abcdxyzw", "never"))


def sentences(number: int = 400) -> list[list[str]]:
    """Words of the first half of the alphabet stand with one another, and so do those of the second."""
    rng = np.random.default_rng(0)
    return [[str(word) for word in rng.choice(list("abcd" if number % 2 else "xyzw"), size=6)] for number in range(number)]


def cosine(vectors: np.ndarray, first: str, second: str) -> float:
    a, b = vectors[WORDS.index[first]], vectors[WORDS.index[second]]
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_words_that_stand_together_have_like_vectors() -> None:
    found = skip_gram(sentences(), WORDS, 10, 1, SkipGramConfig(subsample=1.0, epochs=20))
    assert found.shape == (len(WORDS), 10)
    assert found.dtype == np.float32
    assert min(cosine(found, "a", "b"), cosine(found, "x", "w")) > cosine(found, "a", "x") + 0.5
    assert not found[PAD_ID].any()
    assert found[WORDS.index["never"]].any(), "a word that the text lacks has a vector to start from"


def test_vectors_are_of_the_seed() -> None:
    first, same, other = (skip_gram(sentences(40), WORDS, 4, seed, SkipGramConfig(epochs=1)) for seed in (1, 1, 2))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("text", [[], [[]], [["a"]], [["unheard", "of"]]], ids=str)
def test_a_text_without_neighbours_teaches_nothing(text: list[list[str]]) -> None:
    found = skip_gram(text, WORDS, 4, 1)
    assert np.isfinite(found).all()
    assert found[UNK_ID].any()


def test_a_file_of_vectors_is_read_with_and_without_its_header(tmp_path: Path) -> None:
    body = "a 1 2 3\nunheard 0 0 0\nb 0.5 -1e-1 7\n"
    for text in (body, "3 3\n" + body):
        path = tmp_path / "vectors.txt"
        path.write_text(text, encoding="utf-8")
        found = read_vectors(path, WORDS, 3, 1)
        assert found.num_found == 2
        assert found.vectors_VE[WORDS.index["b"]].tolist() == pytest.approx([0.5, -0.1, 7])
        assert found.vectors_VE[WORDS.index["c"]].any()
        assert not found.vectors_VE[PAD_ID].any()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"a 1 2 3\nb 1 2\n", "vectors.txt:2"),
        (b"a 1 2 x\n", "vectors.txt:1"),
        (b"a 1 2 nan\n", "no number"),
        (b"a 1 2 \xff\n", "UTF-8"),
    ],
    ids=["width", "number", "nan", "encoding"],
)
def test_a_broken_file_is_named_with_its_line(text: bytes, named: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(text)
    with pytest.raises(DataError, match=named):
        read_vectors(path, WORDS, 3, 1)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_vectors(tmp_path / "none.txt", WORDS, 3, 1)
