"""The chapter of rankers. Read `chapter.py` first."""
