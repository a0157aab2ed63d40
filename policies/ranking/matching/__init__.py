"""Models that match a reply with a context: SMN, DAM and MRFN, one file each (Li et al. 2019, section 5).

Read `matcher.py` first (what the three share), then `smn.py`; `batches.py` is what they read, `fit.py` how they are trained,
`ranker.py` how they are asked in words.
"""
