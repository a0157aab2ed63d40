"""What strategies ask of a lexicon: tags, inflections, opposites, stop words, paraphrases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written with blanks between them."""
    return frozenset(text.split())


class Lexicon(Protocol):
    """Knowledge of English; every answer is a pure function of the question."""

    def tag(self, words: Sequence[str]) -> list[str]:
        """Penn Treebank tags of the words of an utterance."""

    def tag_all(self, utterances: Sequence[tuple[str, ...]]) -> list[list[str]]:
        """The tags of many utterances, sooner than one by one; not to be changed by whoever gets them."""

    def are_tags(self, utterances: Sequence[tuple[str, ...]], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Whether utterances have these tags; sooner than tagging them, and not remembered."""

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        """Opposites of a word in any of its senses, in a fixed order, without repetition.

        Args:
            word: lower case.
            part_of_speech: "v", "n", "a" or "r"; None for any.
        """

    def opposites(self, word: str, part_of_speech: str) -> tuple[str, ...]:
        """Opposites of a base form in the sense that it mostly has, beside the project's own (`opposites.py`).

        Args:
            word: lower case.
            part_of_speech: "v", "a" or "r".
        """

    def same_sense(self, word: str, other: str, part_of_speech: str) -> bool:
        """Whether two words mean the same where each is used as it mostly is.

        Args:
            word: base form, lower case.
            other: likewise.
            part_of_speech: of both: "v", "n", "a" or "r".
        """

    def synonyms(self, word: str, part_of_speech: str, *, every_sense: bool = False, names: bool = False) -> tuple[str, ...]:
        """Base forms that mean the same as a base form, single words, the most usual first.

        Args:
            word: lower case.
            part_of_speech: "v", "n", "a" or "r".
            every_sense: of all senses of the word, not of the most usual one alone.
            names: names have synonyms and are some; else neither.
        """

    def inflect(self, word: str, tag: str) -> str | None:
        """The form of a word's base that has a Penn Treebank tag, such as ("installed", "VB") -> "install"; None if unknown."""

    @property
    def stopwords(self) -> frozenset[str]:
        """Stop words, lower case, contractions as the project's tokeniser cuts them ("n't", "'s")."""

    @property
    def paraphrases(self) -> Mapping[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """Phrases (words) and their paraphrases, lower case."""
