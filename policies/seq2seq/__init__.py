"""Sequence-to-sequence dialogue models and language models over LSTMs (He & Glass 2018).

Read `model.py` (the networks), then `decoding.py` (what they say), `fit.py` (supervised training).
"""
