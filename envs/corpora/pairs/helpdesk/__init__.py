"""A small generated corpus of help-desk dialogues, written for the project. Start with `dialogues.py`."""
