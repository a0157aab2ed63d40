"""Pointer-generator networks on disk: a checkpoint folder (`policies/core/checkpoint.py`), or a run folder that holds one."""

from __future__ import annotations

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.paraphraser.model import PointerGenerator
from parley.policies.paraphraser.settings import PointerSizes

FORMAT = ModelFormat("pointer-generator", PairVocabulary, PointerSizes, PointerGenerator)
save_pointer_generator, load_pointer_generator = FORMAT.save, FORMAT.load
