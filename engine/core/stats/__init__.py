"""Statistics: estimates with intervals, tables, known adversaries, and the metrics of trainings.

Read `statistics.py` first. The metrics of each task are in the folder `metrics` of its system. Numpy only, no Ray, one
process.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__, {"Estimate": "statistics", "mean": "statistics", "paired_difference": "statistics", "rate": "statistics"}
)
