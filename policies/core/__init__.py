"""Shared parts of models: checkpoints, decoding, layers, fits, and the protocols of responders. Read `checkpoint.py` first."""
