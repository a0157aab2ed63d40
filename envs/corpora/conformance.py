"""What corpora of every kind promise (`sources.Source`)."""

from __future__ import annotations

from typing import Any

from parley.envs.core.conformance import expect
from parley.envs.corpora.root import data_root


def has_its_files(source: Any) -> None:
    """Finds its files."""
    source.require_files(data_root())


def keeps_its_fingerprint(source: Any) -> None:
    """Has the same fingerprint while its files are the same."""
    first, second = source.fingerprint(data_root()), source.fingerprint(data_root())
    expect(isinstance(first, str) and bool(first), "hex digits", repr(first))
    expect(first == second, "the same digits twice", f"{first} and {second}")
