"""The fitting loop that supervised models share. Read `loop.py` first, then `batches.py`."""
