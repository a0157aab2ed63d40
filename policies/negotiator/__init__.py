"""The negotiation agent of Lewis et al. 2017 with its selection module.

Read `model.py` (the networks), then `speaker.py` (the agent that plays, and its supervised training).
"""
