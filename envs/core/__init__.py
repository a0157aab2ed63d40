"""Errors, seed streams, registries and configuration, for all packages.

Standard library, numpy and PyYAML only. Read `errors.py` first: every package raises these errors.
"""
