"""Metrics of trigger searches (he2018). Read `hits.py` first."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"search_metrics": "hits"})
