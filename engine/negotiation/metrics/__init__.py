"""Metrics of negotiations and of attacks on them (cheng2019). Read `dialogues.py` first."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"attack_metrics": "attack", "negotiation_metrics": "dialogues"})
