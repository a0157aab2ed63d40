"""Metrics of negotiations and of attacks on them (cheng2019). Read `dialogues.py` first."""
