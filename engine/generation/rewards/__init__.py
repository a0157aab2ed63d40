"""Rewards of words and the losses that they weigh, as pure functions of tensors. Read `rewards.py` first."""
