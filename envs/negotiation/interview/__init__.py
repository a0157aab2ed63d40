"""The job interview, a second game: two sides settle one option of each of four issues. Read `domain.py` first."""
