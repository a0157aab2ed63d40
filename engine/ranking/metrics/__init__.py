"""Metrics of rankers that choose a reply among candidates (li2019). Read `ranks.py` first."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"attack_metrics": "ranks", "group_metrics": "ranks"})
