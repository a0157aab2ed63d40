"""Judges: what is fitted to tell the replies of one side, such as people, from those of another (Li et al. 2017, section 4).

Read `judge.py` first: the protocol, and where judges are found by name.
"""
