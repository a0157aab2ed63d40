"""Pointer-generator networks on disk: a checkpoint folder (`policies/checkpoint.py`), or a run folder that holds one."""

from __future__ import annotations

from parley.envs.pairs.vocabulary import PairVocabulary
from parley.policies.checkpoint import ModelFormat
from parley.policies.pointer_generator.model import PointerGenerator
from parley.policies.pointer_generator.settings import PointerSizes

FORMAT = ModelFormat("pointer-generator", PairVocabulary, PointerSizes, PointerGenerator)
save_pointer_generator, load_pointer_generator = FORMAT.save, FORMAT.load
