"""The chapter of trigger searches on the page. Read `chapter.py` first."""
