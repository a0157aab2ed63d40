"""DynoNets on disk: a folder (`policies/core/checkpoint.py`); `corpus` of its provenance says whose schema it knows."""

from __future__ import annotations

from pathlib import Path

from parley.policies.core.checkpoint import ModelFormat
from parley.policies.dynonet.model import DynoNet
from parley.policies.dynonet.settings import DynoNetSizes
from parley.policies.dynonet.vocabulary import FriendsVocabulary

DYNONET = ModelFormat("dynonet", FriendsVocabulary, DynoNetSizes, DynoNet)
load_dynonet = DYNONET.load


def corpus_of(folder: Path) -> str:
    """The name of the corpus that the model of a run or checkpoint folder was fitted to; raises as `load_dynonet` does."""
    return str(DYNONET.provenance(folder)["corpus"])
