"""What methods ask of a model: losses and slopes of many inputs at once. Read `scorer.py` first."""
