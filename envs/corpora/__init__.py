"""Corpora: locate, read, check and compile their files. Read `arrow.py` first."""
