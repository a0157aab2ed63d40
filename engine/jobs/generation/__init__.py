"""Verbs about generated replies."""
