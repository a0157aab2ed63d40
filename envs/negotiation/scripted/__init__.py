"""Scripted bargainers, and the corpus that they generate. Read `bargainers.py` first."""
