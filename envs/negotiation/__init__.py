"""The negotiation games Deal or No Deal and job interview. Read `domain.py`, then `game.py`; Gymnasium: `env.py`."""
