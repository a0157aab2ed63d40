"""The only RLlib code: both sides of the game as a multi-agent environment, and their learning. Read `env.py` first."""
