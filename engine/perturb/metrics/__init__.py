"""Metrics of replies to perturbed contexts (niu2018). Read `table.py` first."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"robustness_metrics": "table"})
