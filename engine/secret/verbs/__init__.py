"""Verbs of the secret game."""
