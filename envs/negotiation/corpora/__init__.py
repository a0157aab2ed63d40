"""Negotiation corpora: their readers, and their compiled form. Read `catalogue.py` first."""
