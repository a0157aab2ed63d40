"""Words, tags and phrases that perturbations lean on. Read `opposites.py` first."""
