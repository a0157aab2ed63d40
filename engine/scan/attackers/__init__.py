"""Attackers of a scan: recipes of papers that talk to a target under one budget, and their controls."""
