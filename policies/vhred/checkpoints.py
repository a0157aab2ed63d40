"""VHRED on disk: a folder (`policies/core/checkpoint.py`) of kind `vhred`; a run folder that has one stands for it."""

from __future__ import annotations

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.vhred.model import VHRED
from parley.policies.vhred.settings import VhredSizes

FORMAT = ModelFormat("vhred", PairVocabulary, VhredSizes, VHRED)
save_model, load_model = FORMAT.save, FORMAT.load
