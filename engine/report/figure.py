"""A drawing as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption."""

    name: str
    caption: str
    svg: Markup


def told_apart(names: Sequence[str]) -> list[str]:
    """The names, numbered where some are equal, so that each can name a series of its own."""
    return [f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name for place, name in enumerate(names)]
