"""Sequence-to-sequence dialogue models and language models over LSTMs (He & Glass 2018; Li et al. 2017).

Read `model.py` (the networks), then `decoding.py` (their replies) and `scoring.py` (likelihoods and checkpoints).
"""
