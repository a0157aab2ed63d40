"""Edits of replies for RLlib. Read `editing.py` first."""
