"""Dialogues made up for the tests of VHRED, and networks small enough to compute with at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.vhred.model import VHRED, Context, DialogueExamples, context_ids
from parley.policies.vhred.settings import VhredAttention, VhredSizes
from tests.policies.large_weights import with_large_weights

VOCABULARY = PairVocabulary((*SPECIALS, *(f"w{number}" for number in range(25))))
ATTENTIONS: tuple[VhredAttention, ...] = ("words", "turns")
SIZES = VhredSizes(
    embed=7,
    encoder=5,
    context=6,
    decoder=8,
    latent=4,
    score=9,
    readout=10,
    dropout=0.0,
    anneal_steps=0,
    turns=3,
    max_turn=7,
    max_reply=6,
)


def sizes(**changes: Any) -> VhredSizes:
    return replace(SIZES, **changes)


def turn(rng: np.random.Generator, longest: int = 9) -> Turn:
    """One or two utterances, an unknown word now and then."""
    drawn = [f"w{number}" for number in rng.integers(0, 27, size=int(rng.integers(1, longest + 1)))]
    cut = int(rng.integers(0, len(drawn)))
    return (tuple(drawn[:cut]), tuple(drawn[cut:])) if cut else (tuple(drawn),)


def dialogues(size: int, seed: int = 0) -> tuple[list[Turns], list[Turn]]:
    """Contexts of one to four turns, and replies."""
    rng = np.random.default_rng(seed)
    contexts = [tuple(turn(rng) for _ in range(int(rng.integers(1, 5)))) for _ in range(size)]
    return contexts, [turn(rng) for _ in range(size)]


def examples(size: int, seed: int = 0, of: VhredSizes = SIZES) -> DialogueExamples:
    return DialogueExamples(*dialogues(size, seed), VOCABULARY, of)


def contexts(size: int, seed: int = 0, of: VhredSizes = SIZES) -> list[Context]:
    """The same contexts as ids."""
    return [context_ids(context, VOCABULARY, of) for context in dialogues(size, seed)[0]]


def vhred(seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> VHRED:
    """A network of large random weights, in evaluation mode, so that every word read tells."""
    return with_large_weights(VHRED(VOCABULARY, sizes(**changes)).to(dtype), seed, most=1.0)
