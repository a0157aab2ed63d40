"""What a page shows of sweeps. Read `chapter.py` first."""
