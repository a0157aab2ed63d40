"""Discriminators and judges of generated replies. Read `judges/judge.py` first."""
