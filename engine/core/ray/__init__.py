"""Sharded work on this machine or a Ray cluster: the only plain-Ray code of the project.

Read `record.py` first, which jobs call; then `pool.py` (pools), `actors.py` (back-pressure, faults), `worker.py` (workers and
shards) and `session.py` (connection to Ray). `logs.py` and the meters of `record.py` show the work while it runs. Nothing
imports ray before it is given work.
"""
