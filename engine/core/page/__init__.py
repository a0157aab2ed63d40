"""Run folders as pages: one self-contained HTML file, and one picture.

Read `content.py` first (the values of a report), then `page.py` (how they are collected from runs, and written).
"""
