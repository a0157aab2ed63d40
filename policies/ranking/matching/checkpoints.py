"""Matching models on disk: a folder (`policies/core/checkpoint.py`) of kind `smn`, `dam` or `mrfn`."""

from __future__ import annotations

from typing import Any

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.ranking.matching.dam import DAM
from parley.policies.ranking.matching.matcher import Matcher
from parley.policies.ranking.matching.mrfn import MRFN
from parley.policies.ranking.matching.settings import DamSizes, MatcherSizes, MrfnSizes, SmnSizes
from parley.policies.ranking.matching.smn import SMN

FORMATS: dict[str, ModelFormat[PairVocabulary, Any, Any]] = {
    "smn": ModelFormat("smn", PairVocabulary, SmnSizes, SMN),
    "dam": ModelFormat("dam", PairVocabulary, DamSizes, DAM),
    "mrfn": ModelFormat("mrfn", PairVocabulary, MrfnSizes, MRFN),
}
"""Storage formats by kind."""


def format_of(sizes: MatcherSizes) -> ModelFormat[PairVocabulary, Any, Any]:
    """Return the storage format of a model of such sizes."""
    return next(candidate for candidate in FORMATS.values() if isinstance(sizes, candidate.sizes))


def build(vocabulary: PairVocabulary, sizes: MatcherSizes) -> Matcher:
    """Return a new model of the kind that the sizes are of; its weights are not drawn yet."""
    model: Matcher = format_of(sizes).network(vocabulary, sizes)
    return model
