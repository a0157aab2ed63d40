"""What becomes of an utterance between two bots, as pure algorithms. Read `strategies.py` first."""
