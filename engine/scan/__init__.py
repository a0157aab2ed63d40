"""Scans: prompts and rules in, breaches out. `policy.py` reads what a chat model must keep, `verbs.py` asks the model."""
