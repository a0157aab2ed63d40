"""Metrics of trigger searches (he2018). Read `hits.py` first."""
