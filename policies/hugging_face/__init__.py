"""Hugging Face models and tokenizers from folders and files. Read `models.py` first.

Alphabets of searched inputs stand here, without torch: the texts of tokens that may be in them, by a name or as a regular
expression.
"""

from __future__ import annotations

import re

from parley.envs.core.errors import ConfigError

ANY, ASCII = "any", "ascii"
ALPHABETS = {ANY: r"(?s:.*)", ASCII: r"[\x00-\x7f]*", "letters": "[A-Za-z ]*", "lower": "[a-z ]*"}
"""Regular expressions of whole tokens by name; all allow blanks, as tokens begin with them."""


def alphabet_pattern(alphabet: str) -> re.Pattern[str]:
    """Return the pattern that the text of an allowed token matches as a whole.

    Args:
        alphabet: one of `ALPHABETS`, or a regular expression.

    Raises:
        ConfigError: it is neither.
    """
    try:
        return re.compile(ALPHABETS.get(alphabet, alphabet))
    except re.error as error:
        fix = f"{', '.join(ALPHABETS)}, or a regular expression of allowed tokens, such as [a-z0-9 ]*"
        raise ConfigError("there is no such alphabet", where="alphabet", got=f"{alphabet!r}: {error}", fix=fix) from None
