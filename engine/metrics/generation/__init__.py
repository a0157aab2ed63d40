"""What is counted of generated replies: in training against a discriminator, and before judges.

Of judges read `scenarios.py` first (what is judged), then `adversarial.py` (what comes of it) and `tables.py`.
"""
