"""Statistics: estimates with intervals, tables, known adversaries, and the metrics of trainings.

Read `statistics.py` first. The metrics of each task are in the folder `metrics` of its system. Numpy only, no Ray, one
process.
"""

from parley.envs.core.errors import public

_NAMES = ("Estimate", "clustered_rate", "mean", "paired_difference", "rate", "rate_difference")
__all__, __getattr__ = public(__name__, dict.fromkeys(_NAMES, "statistics"))
