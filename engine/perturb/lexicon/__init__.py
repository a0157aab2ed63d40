"""Words, tags and phrases for perturbations. Read `opposites.py` first."""
