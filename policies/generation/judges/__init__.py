"""Judges, fitted to tell the replies of one side, such as people, from those of another (Li et al. 2017, section 4).

Read `judge.py` first (the protocol), then `asked.py` (judges by name).
"""
