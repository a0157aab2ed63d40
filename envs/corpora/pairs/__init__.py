"""Corpora of pairs (an utterance and its reply) for sequence-to-sequence dialogue models. Start with `corpora.py`."""
