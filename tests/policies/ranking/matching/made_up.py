"""Contexts and replies made up for the tests of matching models, and networks small enough to compute with at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.envs.ranking.groups import Context
from parley.policies.ranking.matching.fit import build
from parley.policies.ranking.matching.matcher import Matcher
from parley.policies.ranking.matching.settings import DamSizes, MatcherSizes, MrfnSizes, SmnSizes

VOCABULARY = PairVocabulary((*SPECIALS, *(f"w{number}" for number in range(25))))
_LENGTHS = {"embed": 8, "turns": 4, "words": 11}
SIZES: dict[str, MatcherSizes] = {
    "smn": SmnSizes(**_LENGTHS, gru=6, maps=3, match=5, session=4),
    "dam": DamSizes(**_LENGTHS, stack=2, first_maps=4, second_maps=3),
    "mrfn": MrfnSizes(**_LENGTHS, letters=3, alphabet=9, letter_embed=4, letter_maps=6, maps=2, heads=2, dropout=0.0),
}
KINDS = tuple(SIZES)


def text(rng: np.random.Generator, longest: int = 14) -> Utterance:
    """Words, an unknown one now and then, sometimes none."""
    return tuple(f"w{number}" for number in rng.integers(0, 28, size=rng.integers(0, longest)))


def pairs(number: int, seed: int = 0, candidates: int = 3) -> list[tuple[Context, list[Utterance]]]:
    """Contexts of one to six turns, and candidates."""
    rng = np.random.default_rng(seed)
    return [
        (tuple(text(rng) for _ in range(rng.integers(1, 7))), [text(rng) for _ in range(candidates)]) for _ in range(number)
    ]


def matcher(kind: str, seed: int = 1, **changes: Any) -> Matcher:
    """A network whose weights, biases included, are large enough that all of it matters; in evaluation mode."""
    model = build(VOCABULARY, replace(SIZES[kind], **changes))
    generator = torch.Generator().manual_seed(seed)
    model.initialise(generator)
    for name, value in model.named_parameters():
        if name != "embedding.weight" and "norm" not in name:
            value.data.normal_(0, 0.4, generator=generator)
    model.embedding.weight.data[1:].normal_(0, 0.7, generator=generator)
    return model.eval()
