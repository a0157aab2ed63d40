"""What models share: checkpoints, decoding, layers, fits, and the protocols of responders. Read `checkpoint.py` first."""
