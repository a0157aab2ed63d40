"""What every room needs: errors, seed streams, registries and configuration.

Standard library, numpy and PyYAML only. Read `errors.py` first; it is the vocabulary of failure everywhere else.
"""
