"""Negotiators on disk: a checkpoint folder (`policies/core/checkpoint.py`), or a run folder that holds one."""

from __future__ import annotations

from parley.envs.negotiation.vocabulary import Vocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.settings import KIND, NegotiatorSizes

NEGOTIATOR = ModelFormat(KIND, Vocabulary, NegotiatorSizes, Negotiator)
save_model, load_model, provenance = NEGOTIATOR.save, NEGOTIATOR.load, NEGOTIATOR.provenance
