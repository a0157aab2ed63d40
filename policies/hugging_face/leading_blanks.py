"""Tokenizers of SentencePiece's kind: a word's token begins with its blank, which is lost where the token is decoded first.

Such a tokenizer also puts a blank of its own before texts. So parts of a text have other tokens than they have in it, and
tokens another text: "▁you" behind "tell me" is "tell me you", though alone it decodes to "you"; and "you!" has the tokens
"▁you" and "!", though "!" alone is "▁!". Here both are told as they stand behind others. Byte-level tokenizers need none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

BLANK = "\u2581"
"""Stands for a blank in the tokens of such a vocabulary."""
_MOST_WORDS = 20
"""Words that are tried in front of a text until one leaves its tokens as they are."""


class LeadingBlanks:
    """What tokens and texts are behind others, of a tokenizer whose words' tokens begin with their blanks.

    Args:
        tokenizer: of a model.
        words: tokens that begin so, at least one.
    """

    def __init__(self, tokenizer: Any, words: Sequence[int]) -> None:
        self._tokenizer, self._words = tokenizer, list(words)
        self._before = self._decoded(self._words[:1])

    def text(self, ids: Sequence[int], *, implied: bool) -> str:
        """What to type for tokens.

        Args:
            ids: of an input.
            implied: whether the place that it is typed into has their first blank already (`implies`).
        """
        whole = self._decoded([self._words[0], *ids])[len(self._before) :]
        return whole.removeprefix(" ") if implied else whole

    def implies(self, before: str) -> bool:
        """Whether a word has its blank where it is typed behind a text, because that ends in one or the tokenizer puts it."""
        word = self._decoded(self._words[:1])
        return before.endswith(" ") or self._ids(f"{before}{word}") == self._ids(f"{before} {word}")

    def ids(self, text: str, *, follows: bool, leads: bool) -> list[int]:
        """The tokens of a part of a prompt.

        Args:
            text: it.
            follows: whether searched tokens stand before it.
            leads: whether some stand behind it, the first of which holds the blank that it ends in.
        """
        shown = text.removesuffix(" ") if leads else text
        for word in self._words if follows else []:
            before = self._decoded([word])
            head, whole = self._ids(before), self._ids(f"{before}{shown}")
            rest = whole[len(head) :]
            if whole[: len(head)] == head and rest and _begins(shown, self.text(rest[:1], implied=False)):
                return rest
        return self._ids(shown)

    def _ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return found

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return text


class PromptTokens:
    """The tokens around searched places, and what is typed into these.

    Args:
        tokenizer: of a model.
        pieces: texts around the places, one more than there are places.
        blanks: of the tokenizer; None where it has no such tokens.

    Attributes:
        pieces: the tokens of each piece.
    """

    def __init__(self, tokenizer: Any, pieces: Sequence[str], blanks: LeadingBlanks | None) -> None:
        self._tokenizer, self._blanks, last = tokenizer, blanks, len(pieces) - 1
        self.pieces: list[list[int]]
        if blanks is None:
            self.pieces = [tokenizer(text, add_special_tokens=False).input_ids for text in pieces]
            return
        self.pieces = [blanks.ids(text, follows=place > 0, leads=place < last) for place, text in enumerate(pieces)]
        self._implied = [blanks.implies(text) for text in pieces[:-1]]

    def texts(self, slots: Sequence[Sequence[int]]) -> list[str]:
        """What to type into each place for the tokens that are to be read there."""
        if self._blanks is None:
            found: list[str] = self._tokenizer.batch_decode(list(map(list, slots)), clean_up_tokenization_spaces=False)
            return found
        return [self._blanks.text(slot, implied=implied) for slot, implied in zip(slots, self._implied, strict=True)]


def _begins(text: str, part: str) -> bool:
    return bool(part) and text.startswith(part)


def leading_blanks(tokenizer: Any) -> LeadingBlanks | None:
    """What tokens are behind others; None of a tokenizer whose tokens' texts are the same wherever they stand."""
    names: list[str] = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    words = list(islice((i for i, name in enumerate(names) if name[:1] == BLANK and name[1:].isalpha()), _MOST_WORDS))
    loses = words and not tokenizer.decode(words[:1]).startswith(" ") and " " in tokenizer.decode([words[0]] * 2)
    return LeadingBlanks(tokenizer, words) if loses else None
