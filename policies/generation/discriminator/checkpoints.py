"""Discriminators on disk: a folder (`policies/core/checkpoint.py`); `prefixes` of its provenance says what it was fitted to."""

from __future__ import annotations

from pathlib import Path

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.generation.discriminator.model import Discriminator
from parley.policies.generation.discriminator.settings import DiscriminatorSizes

DISCRIMINATOR = ModelFormat("discriminator", PairVocabulary, DiscriminatorSizes, Discriminator)
load_discriminator = DISCRIMINATOR.load
PREFIXES = "prefixes"
"""In the provenance: whether it was fitted to beginnings of replies."""


def require_prefixes(folder: Path) -> None:
    """Refuses a discriminator that does not know beginnings of replies.

    Args:
        folder: a run or checkpoint folder.

    Raises:
        CheckpointError: it was fitted to whole replies, or is no discriminator.
    """
    if not DISCRIMINATOR.provenance(folder).get(PREFIXES):
        raise CheckpointError(
            "the discriminator was fitted to whole replies, and is asked about their beginnings",
            where=folder,
            got=f"{PREFIXES}: false in its provenance",
            fix="name one that was fitted to prefixes, or take the rewards from rollouts",
        )
