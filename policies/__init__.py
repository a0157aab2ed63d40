"""Who speaks: torch models, how they are fitted, decoded and saved.

Read `negotiator/model.py` first; `checkpoint.py` is how every model is stored, `gru.py` the recurrent core they share.
"""
