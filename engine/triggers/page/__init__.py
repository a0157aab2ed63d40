"""What a page shows of trigger searches. Read `chapter.py` first."""
