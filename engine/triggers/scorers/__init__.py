"""Scorers: losses and slopes of many inputs at once, for methods of search. Read `scorer.py` first."""
