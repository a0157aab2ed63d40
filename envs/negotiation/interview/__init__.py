"""The job interview, a second game: four issues, of each one option is settled. Read `domain.py`, then `bargainers.py`."""
