"""Discriminators: was a reply written by a person or by a machine (Li et al. 2017, section 3.1)?

Read `model.py` first; `batches.py` is what they read, `judging.py` what they say of many replies, `critic.py` the baseline.
"""
