"""What a run's rows amount to: estimates with intervals, and the metrics of each task.

Read `statistics.py` first; `negotiation.py` is the table of negotiation metrics, `attack.py` that of attacks, and
`attack_table.py` sets attacks beside each other and the figures of `published.py`. Numpy only, no Ray, one process.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__, {"Estimate": "statistics", "mean": "statistics", "paired_difference": "statistics", "rate": "statistics"}
)
