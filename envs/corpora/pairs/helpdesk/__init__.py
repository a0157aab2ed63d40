"""A small corpus of help-desk dialogues, written for the project and generated on this machine. Start with `dialogues.py`."""
