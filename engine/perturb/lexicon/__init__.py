"""Words, tags and phrases that perturbations lean on. Read `lexicon.py` first."""
