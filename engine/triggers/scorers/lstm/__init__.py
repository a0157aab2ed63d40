"""Exact trigger search against LSTM models: bounds that prove most words worse. Read `scorer.py` first."""
