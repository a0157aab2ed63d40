"""What a page shows of perturbations. Read `chapter.py` first."""
