"""Negotiations: Deal or No Deal, a job interview. Read `domain.py`, `scenario.py`, `game.py`; Gymnasium: `env.py`."""
