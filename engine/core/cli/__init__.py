"""The command line `parley`. Read `main.py` first, then `runs.py` (verbs that run jobs) and `flags.py` (their settings).

The module of a verb is imported when the verb runs: help must not wait for torch, Ray or matplotlib.
"""
