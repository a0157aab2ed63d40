"""Figures of generated replies: whether judges tell them from those of people, and whether such judges can be trusted.

Read `scenarios.py` first (what is judged), then `adversarial.py` (what comes of it) and `tables.py`. Trainings report what
`training.py` and `minmax.py` name.
"""
