"""Attacks on rankers as pure algorithms, without Ray. Read `attack.py` first."""
