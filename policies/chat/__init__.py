"""Chat models in any seat: one address for each, one protocol for all.

Read `model.py` first (messages, answers and the protocol), then `loading.py` (the addresses of models).
"""
