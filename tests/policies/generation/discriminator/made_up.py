"""Contexts and replies made up for the tests of discriminators, and networks small enough to compute with at once."""

from __future__ import annotations

import numpy as np

from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.contexts import with_eot
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.generation.discriminator.batches import Discriminator, JudgedReplies
from parley.policies.generation.discriminator.settings import DiscriminatorSizes
from tests.policies.large_weights import with_large_weights
from tests.policies.seq2seq import made_up as pairs

VOCABULARY: PairVocabulary = with_eot(pairs.VOCABULARY)
EOT_ID = VOCABULARY.index[EOT]
FIRST = pairs.FIRST
KINDS = ("hierarchical", "concatenated")


def sizes(kind: str = "hierarchical", dropout: float = 0.0) -> DiscriminatorSizes:
    assert kind in ("hierarchical", "concatenated")
    return DiscriminatorSizes(kind=kind, embed=6, hidden=8, turns=2, words=7, dropout=dropout)


def network(kind: str = "hierarchical", seed: int = 0) -> Discriminator:
    """Large random weights, in evaluation mode, so that every word read tells."""
    return with_large_weights(Discriminator(VOCABULARY, sizes(kind)), seed)


def judged(size: int, seed: int = 0) -> list[JudgedReplies]:
    """Contexts of one to three turns, and two replies of up to nine words; a person begins with one of six words."""
    rng = np.random.default_rng(seed)

    def words(most: int, least: int = 0) -> list[int]:
        return rng.integers(FIRST, EOT_ID, size=int(rng.integers(least, most + 1))).tolist()

    found = []
    for number in range(size):
        source = words(7, least=1)
        for _ in range(int(rng.integers(3))):
            source = [*source, EOT_ID, *words(7, least=1)]
        replies = [[int(rng.integers(FIRST, FIRST + 6)), *words(8)], [int(rng.integers(FIRST, EOT_ID)), *words(8)]]
        found.append(JudgedReplies(source, replies, (True, False), derive_seed(seed, number)))
    return found
