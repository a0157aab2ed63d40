"""The fitting loop that supervised models share. Read `fit.py` first."""
