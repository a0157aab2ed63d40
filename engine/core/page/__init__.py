"""Run folders as pages for people: one self-contained HTML file, and one picture.

Read `content.py` first (what a report shows), then `collect.py` (where it comes from) and `page.py` (how it is written).
"""
