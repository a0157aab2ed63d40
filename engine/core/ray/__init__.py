"""Sharded work on this machine or a Ray cluster: the only plain-Ray code of the project.

Read `record.py` first, which is what jobs call; then `pool.py` (actors, back-pressure, faults), `sharding.py` (how work is
cut) and `session.py` (how Ray is reached). `meters.py` and `logs.py` are what is seen of it while it runs. Nothing imports ray
before work is actually given to it.
"""
