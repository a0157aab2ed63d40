"""The Deal or No Deal negotiation game. Read `scenario.py`, then `game.py`; `env.py` is the Gymnasium face."""
