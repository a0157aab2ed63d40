"""Metrics of generated replies: adversarial success, and the reliability of the judges.

Read `adversarial.py` first, then `tables.py`. The metrics of trainings are in `trained.py` and `tables.py`.
"""
