"""Pairs made up for the tests of sequence-to-sequence models, and networks small enough to compute with at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from torch import nn

from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq
from parley.policies.seq2seq.settings import Attention, LanguageModelSizes, Seq2SeqSizes
from tests.policies.large_weights import with_large_weights

VOCABULARY = PairVocabulary((*SPECIALS, *(f"w{number}" for number in range(25))))
FIRST = len(SPECIALS)
"""The first id that is a word."""
ATTENTIONS: tuple[Attention, ...] = ("none", "general", "released")
ModelT = TypeVar("ModelT", bound=nn.Module)
LM_SIZES = LanguageModelSizes(embed=7, hidden=8, max_length=6)


def sizes(attention: Attention = "general", dropout: float = 0.0) -> Seq2SeqSizes:
    return Seq2SeqSizes(embed=7, hidden=8, attention=attention, dropout=dropout, max_source=5, max_reply=6)


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Ragged(np.array([word for row in rows for word in row], dtype=np.int32), offsets)


def split(size: int, seed: int = 0) -> PairSplit:
    """Sources of one to seven words; a reply says its source's first word again and again, as often as the source is long."""
    rng = np.random.default_rng(seed)
    sources = [rng.integers(FIRST, len(VOCABULARY), size=int(rng.integers(1, 8))).tolist() for _ in range(size)]
    replies = [[source[0]] * len(source) for source in sources]
    pairs = np.stack([np.arange(size), size + np.arange(size)], axis=1)
    return PairSplit(ragged([*sources, *replies]), pairs)


def seq2seq(attention: Attention = "general", seed: int = 0) -> Seq2Seq:
    """A network of large random weights, in evaluation mode, so that every word read tells."""
    return with_large_weights(Seq2Seq(VOCABULARY, sizes(attention)), seed)


def language_model(seed: int = 0) -> LanguageModel:
    """Another one."""
    return with_large_weights(LanguageModel(VOCABULARY, LM_SIZES), seed)
