"""VHRED with attention, a response model with a latent variable (Serban et al. 2017; Niu & Bansal 2018).

Read `model.py` (the network and its loss), then `decoding.py` (what it says), `responder.py` (asked in words).
"""
