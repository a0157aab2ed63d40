"""Models that match a reply with a context: SMN, DAM and MRFN, one file each (Li et al. 2019, section 5).

Read `matcher.py` first (the base class of the three), then `smn.py`; `batches.py` makes their inputs, `fit.py` trains them and
makes rankers of them.
"""
