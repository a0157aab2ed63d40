"""Verbs of generation against a discriminator (Li et al. 2017). Read `discriminator.py` first."""
