"""Tokens written as people write them: the way back from `tokens.py`.

    do n't you see ( here ) , " it works " ?     don't you see (here), "it works"?

A contraction's second half stands at its word, a closing mark at the word before it, an opening one at the word behind it;
quotation marks open and close in turn. Where that would read as other tokens the blank stays. What a text's own blanks and
capitals were the tokens do not say: who has the text keeps them (`engine/perturb/strategies/texts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from parley.envs.corpora.pairs.tokens import tokenise

CLITICS = frozenset({"n't", "'s", "'m", "'d", "'re", "'ve", "'ll"})
"""Second halves of contractions."""
CLOSING = frozenset({".", ",", ";", ":", "?", "!", "...", ")", "]", "}", "%"})
"""Marks at the end of what they belong to."""
OPENING = frozenset({"(", "[", "{", "#"})
"""Marks at its beginning."""
QUOTES = frozenset({'"', "`"})
"""Marks that open and close."""
_NUM_TEXTS = 1 << 16


def detokenise(tokens: Sequence[str]) -> str:
    """A text of tokens."""
    return "".join(piece for pair in written(tokens) for piece in pair).lstrip(" ")


def written(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What stands before each token, a blank or nothing, and what the token is written as."""
    is_open: dict[str, bool] = {}
    run: list[str] = []
    holds = False
    for place, token in enumerate(tokens):
        glued = holds or token in CLOSING or token in CLITICS
        holds = token in OPENING
        if token in QUOTES:
            is_open[token] = not is_open.get(token, False)
            holds, glued = is_open[token], glued or not is_open[token]
        token = first_half(token, tokens[place + 1] if place + 1 < len(tokens) else "")
        run = [*run, token] if place and glued and reads("".join(run) + token) == [*run, token] else [token]
        yield " " if place and len(run) == 1 else "", token


def first_half(token: str, following: str) -> str:
    """What a token is written as before another one: "can" loses a letter in "can't"."""
    return "ca" if (token, following) == ("can", "n't") else token


@lru_cache(_NUM_TEXTS)
def reads(text: str) -> list[str]:
    """The tokens that a text of no blank is read as; not to be changed by whoever gets them."""
    return tokenise(text)
