"""Scripted bargainers, and the corpus that they write. Read `bargainers.py` first."""
