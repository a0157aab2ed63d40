"""Chat models in any seat: one address for each, one protocol for all.

Read `model.py` first (what a chat model is asked, and what it answers), then `loading.py` (which names stand for one).
"""
