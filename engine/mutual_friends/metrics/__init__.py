"""Figures of collaborative chats: `chats.py` has the metrics, `table.py` shows them as the paper does."""
