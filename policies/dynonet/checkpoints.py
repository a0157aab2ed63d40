"""DynoNets on disk: a folder (`policies/checkpoint.py`); `corpus` of its provenance says whose schema and spellings it knows."""

from __future__ import annotations

from policies.checkpoint import ModelFormat
from policies.dynonet.model import DynoNet
from policies.dynonet.settings import DynoNetSizes
from policies.dynonet.vocabulary import FriendsVocabulary

DYNONET = ModelFormat("dynonet", FriendsVocabulary, DynoNetSizes, DynoNet)
load_dynonet = DYNONET.load
