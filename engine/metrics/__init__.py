"""What a run's rows amount to: estimates with intervals, and the metrics of each task.

Read `statistics.py` first; `negotiation.py` is the table of negotiation metrics. Numpy only, no Ray, one process.
"""
