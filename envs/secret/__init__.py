"""A secret word that a defender must not say: scenarios, the decoder, the game, scripted players, environments.

Read `game.py` first.
"""
