"""Attacks on negotiators as pure algorithms, without Ray. Read `reinforce.py` first, then `adversary.py`."""
