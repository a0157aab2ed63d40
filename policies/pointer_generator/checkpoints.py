"""Pointer-generator networks on disk: a checkpoint folder (`policies/checkpoint.py`), or a run folder that holds one."""

from __future__ import annotations

from envs.pairs.vocabulary import PairVocabulary
from policies.checkpoint import ModelFormat
from policies.pointer_generator.model import PointerGenerator
from policies.pointer_generator.settings import PointerSizes

FORMAT = ModelFormat("pointer-generator", PairVocabulary, PointerSizes, PointerGenerator)
save_pointer_generator, load_pointer_generator = FORMAT.save, FORMAT.load
