"""What a page shows of trainings. Read `chapter.py` first."""
