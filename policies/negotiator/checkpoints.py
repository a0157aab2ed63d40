"""Negotiators on disk: a checkpoint folder (`policies/checkpoint.py`), or a run folder that holds one."""

from __future__ import annotations

from envs.negotiation.vocabulary import Vocabulary
from policies.checkpoint import ModelFormat
from policies.negotiator.model import Negotiator
from policies.negotiator.settings import KIND, NegotiatorSizes

NEGOTIATOR = ModelFormat(KIND, Vocabulary, NegotiatorSizes, Negotiator)
save_model, load_model, provenance = NEGOTIATOR.save, NEGOTIATOR.load, NEGOTIATOR.provenance
