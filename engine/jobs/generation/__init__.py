"""Verbs of generation against a discriminator (Li et al. 2017), and of judging what was generated.

Read `discriminator.py` first; `adversarial.py` stands by itself.
"""
