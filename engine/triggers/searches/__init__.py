"""Searches: a method, a model and targets, one after the other or side by side. Read `attack.py` first."""
