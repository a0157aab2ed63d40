"""Metrics of replies to perturbed contexts (niu2018). Read `robustness.py` first."""
