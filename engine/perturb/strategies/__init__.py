"""Perturbation strategies, one file each; what several share stands beside them. Read `swap.py` first."""
