"""Packages that only some need: the extras of pyproject.toml."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The command that brings an extra, as the fix of an error says it: Parley comes from its folder, not from a registry."""
    return f'in the folder of Parley: pip install --constraint constraints.txt --editable ".[{extra}]"'
