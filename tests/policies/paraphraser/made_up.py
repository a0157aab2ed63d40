"""Pairs and a network small enough to compute with at once, for the tests of the paraphraser."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.paraphraser.model import PointerGenerator
from parley.policies.paraphraser.settings import PointerSizes
from tests.policies.large_weights import with_large_weights

VOCABULARY = PairVocabulary((*SPECIALS, *(f"w{number}" for number in range(10))))
FIRST, KNOWN = len(SPECIALS), len(VOCABULARY)
NUM_WORDS = KNOWN + 15
"""The corpus has words that the network does not know."""
SIZES = PointerSizes(embed=7, hidden=8, max_source=9, max_reply=9)


def split(rows: Sequence[Sequence[int]]) -> PairSplit:
    """Sentences by turns source and target."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    pairs = np.arange(len(rows), dtype=np.int64).reshape(-1, 2)
    return PairSplit(Ragged(np.array([word for row in rows for word in row], dtype=np.int32), offsets), pairs)


def copies(size: int, seed: int = 0) -> PairSplit:
    """Sentences of two to six words, most of them unknown; a target is its source without the first word."""
    rng = np.random.default_rng(seed)
    sources = [rng.integers(FIRST, NUM_WORDS, size=int(rng.integers(2, 7))).tolist() for _ in range(size)]
    return split([row for source in sources for row in (source, source[1:])])


def network(seed: int = 0, covers: bool = False, vocabulary: PairVocabulary = VOCABULARY) -> PointerGenerator:
    """A network of large random weights, in evaluation mode, so that every word read tells."""
    model = with_large_weights(PointerGenerator(vocabulary, SIZES), seed)
    model.cover(covers)
    return model
