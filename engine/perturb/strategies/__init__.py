"""Perturbation strategies, one file each; `texts.py`, `draws.py` and `commands.py` are shared. Read `swap.py` first."""
