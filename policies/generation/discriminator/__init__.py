"""Discriminators: was a reply written by a person or by a machine (Li et al. 2017, section 3.1)? Read `batches.py`."""
