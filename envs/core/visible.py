"""Text made fit to be shown: what a terminal or a page would obey, or a reader would not see, is spelled.

Also which cells of a table a spreadsheet would run.
"""

from __future__ import annotations

import unicodedata

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
"""Controls (ESC and C1 among them), format characters (bidirectional overrides), private ones, surrogates, line ends."""
FORMULA = r"^(?: *[=+\-@\t\r]|')"
"""A regular expression of cells that need an apostrophe in front: those that a spreadsheet takes for formulas, and those that
begin with one, so that what reads the cells back may take one away from each."""


def visible(text: str, keep: str = "") -> str:
    r"""The text with every character that is not seen, or reorders its neighbours, as its code point, such as \u001b.

    Args:
        text: any text, such as a name or words out of a file.
        keep: characters that are left as they are, such as the line ends of a text that has lines.
    """
    if text.isprintable():
        return text
    return "".join(
        f"\\u{ord(each):04x}" if unicodedata.category(each) in _HIDDEN_CATEGORIES and each not in keep else each
        for each in text
    )


def is_blank(text: str) -> bool:
    """Return whether a text holds nothing that is seen: blanks and characters without a shape, such as a zero-width space."""
    return all(character.isspace() or unicodedata.category(character) in _HIDDEN_CATEGORIES for character in text)


def well_formed(text: str) -> str:
    """The text with U+FFFD for each lone half of a surrogate pair, which no file holds; halves that meet become one character.

    Cut answers of servers have some, and what a user's own code says may.
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
