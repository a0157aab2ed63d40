"""The command line `parley`. Read `main.py` first, then `jobs.py` (verbs that run jobs) and `flags.py` (how they are set).

Modules are imported when their verb is asked for: help must not wait for torch, Ray or anything that draws.
"""
