"""A drawing as the page shows it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption."""

    name: str
    caption: str
    svg: Markup


def told_apart(names: Sequence[str]) -> list[str]:
    """The names, numbered where some are equal, so that each can name a series of its own."""
    return [f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name for place, name in enumerate(names)]


def visible(text: str) -> str:
    """The text with characters that would not be seen, or would reorder their neighbours, written as their code points."""
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) in _HIDDEN_CATEGORIES else c for c in text)
