"""Pairs of an utterance and its reply: corpora for sequence-to-sequence dialogue models. Start with `corpora.py`."""
