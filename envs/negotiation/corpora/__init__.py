"""Negotiation corpora: readers and compiled form. Read `catalogue.py` first."""
