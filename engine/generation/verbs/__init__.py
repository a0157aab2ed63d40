"""Verbs of generation against a discriminator, and about generated replies (Li et al. 2017).

Read `discriminator.py` first (its training), then `minmax.py` (both against each other) and `adversarial.py` (evaluation).
"""
