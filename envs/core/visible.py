"""Escape text for display: invisible and control characters, lone surrogates, and cells that a spreadsheet would run."""

from __future__ import annotations

import unicodedata

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
"""Unicode categories: controls (with ESC and C1), format (bidirectional overrides), private, surrogates, line ends."""
FORMULA = r"^(?: *[=+\-@\t\r]|')"
"""Matches cells that need an apostrophe in front: formulas of a spreadsheet, and cells that begin with an apostrophe.

A reader can then remove one apostrophe from each.
"""


def visible(text: str, keep: str = "") -> str:
    r"""Return the text with invisible and reordering characters as code points, such as \u001b.

    Args:
        text: any text, such as a name or words out of a file.
        keep: characters to leave unchanged, such as line ends.
    """
    if text.isprintable():
        return text
    return "".join(
        f"\\u{ord(character):04x}"
        if unicodedata.category(character) in _HIDDEN_CATEGORIES and character not in keep
        else character
        for character in text
    )


def is_blank(text: str) -> bool:
    """Return whether a text holds only blanks and characters without a shape, such as a zero-width space."""
    if text[:1].isalnum():
        return False
    return all(character.isspace() or unicodedata.category(character) in _HIDDEN_CATEGORIES for character in text)


def well_formed(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate; two halves that meet become one character.

    No file can hold a lone surrogate. Truncated replies of servers have some, and user code may give some.
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
