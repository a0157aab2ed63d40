"""Hugging Face models and tokenizers from folders and files. Read `models.py` first."""
