"""Corpora: where their files lie, how they are read, checked and compiled. Read `root.py` first."""
