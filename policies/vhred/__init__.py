"""VHRED with attention, a response model with a latent variable (Serban et al. 2017; Niu & Bansal 2018).

Read `model.py` (the network and its loss), then `decoding.py` (its replies, its checkpoints, and the responder).
"""
