"""Verbs of chat models that learn."""
