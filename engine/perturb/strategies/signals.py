"""Signs of broken English that need no parser: counted before and after an edit, they tell what the edit broke.

A sign is no proof. "He did n't do it" is fine, and no rule here counts it; "that that" is fine at times, and none counts it
either. What recorded text breaks itself is counted on both sides, so only a rise is laid to an edit. Words are as the project's
tokeniser cuts them ("do n't"), tags are Penn Treebank's.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import pairwise

DOUBLED_AUXILIARIES, DOUBLE_NEGATIONS, ARTICLES = "doubled_auxiliaries", "double_negations", "articles"
DOUBLED_WORDS, UNKNOWN_WORDS = "doubled_words", "unknown_words"
SIGNALS = {
    DOUBLED_AUXILIARIES: 'a second auxiliary where there is no room for one ("did n\'t do you test", "can will")',
    DOUBLE_NEGATIONS: 'two negations in a clause ("wo n\'t not help")',
    ARTICLES: '"a" before a vowel or "an" before a consonant',
    DOUBLED_WORDS: "one word twice in a row",
    UNKNOWN_WORDS: "words outside of the corpus' vocabulary",
}
"""What is counted, by name."""

_NOT = ("n't", "not")
_DO, _HAVE, _BE = ("do", "does", "did"), ("have", "has", "had"), ("am", "is", "are", "was", "were")
_MODALS = ("can", "could", "will", "would", "shall", "should", "may", "might", "must", "ca", "wo", "sha")
_SUBJECTS, _OBJECTS = ("i", "he", "she", "we", "they", "there"), ("you", "it", "this", "that")
"""Pronouns that are only subjects, and those that may be objects too."""
_NEVER_AFTER_MODALS = (*_BE, "does", "did", "has", "had")
_NEVER_AFTER_NEGATED = {
    **dict.fromkeys(_DO, (*_BE, *_MODALS, "does", "did", "has", "had", "been")),
    **dict.fromkeys(_HAVE, (*_DO, *_MODALS, "have", "has")),
    **dict.fromkeys(_BE, (*_DO, *_MODALS, *_BE, "have", "has")),
}
"""What cannot follow a negated auxiliary, by that auxiliary."""
_NEGATIONS = (*_NOT, "never", "cannot", "nothing", "nobody", "none", "nowhere")
_CLAUSES = (
    *("and", "but", "or", "because", "if", "so", "that", "which", "when", "while", "unless", "until", "since", "though"),
    *("although", "then", "as", "who", "what", "why", "how", "where"),
)
"""Words that begin a clause."""
_WORD = re.compile(r"n't|'?\w[\w'-]*")
_RIGHTLY_DOUBLED = ("had", "that")
_VOWEL = re.compile(r"[aei]|o(?!ne|nce|uija)|un(?!i|anim)|u[gpt]|hour|honest|heir")
_NO_VOWEL = re.compile(r"eu|ewe|[bcdfgjklmnpqrstvwz]|h(?!our|onest|onor|onour|eir|istor)|uni(?!n|m)|use|usu")
_SPELLED_OUT = re.compile(r"[^aeiouy]+|.|x.*")
"""What may be read letter by letter, so that its first sound is not that of its first letter: "an ssh key"."""


def signals(words: Sequence[str], tags: Sequence[str], known: Container[str]) -> dict[str, int]:
    """How often each sign stands in an utterance, by its name in `SIGNALS`."""
    return {
        DOUBLED_AUXILIARIES: sum(_is_doubled(words, tags, place) for place in range(len(words))),
        DOUBLE_NEGATIONS: _double_negations(words),
        ARTICLES: sum(_disagree(article, word) for article, word in pairwise(words)),
        DOUBLED_WORDS: sum(one == other and one.isalpha() and one not in _RIGHTLY_DOUBLED for one, other in pairwise(words)),
        UNKNOWN_WORDS: sum(word not in known for word in words),
    }


def _is_doubled(words: Sequence[str], tags: Sequence[str], place: int) -> bool:
    """Whether the auxiliary at a place is followed by one that cannot stand there."""
    first, after = words[place], place + 1
    is_negated = after < len(words) and words[after] in _NOT
    after += is_negated
    if after >= len(words):
        return False
    second, third = words[after], next(iter(words[after + 1 : after + 2]), "")
    if tags[place] == "MD":
        return second in _NEVER_AFTER_MODALS or (second in _MODALS and tags[after] == "MD")
    if not is_negated:
        return False
    if first in _DO and second == "do":
        # "did n't do it" has one verb; "did n't do you test" has a subject and a verb behind.
        return third in _SUBJECTS or (third in _OBJECTS and any(tag.startswith("VB") for tag in tags[after + 2 : after + 3]))
    if first in _DO and second == "have":
        return third == "been"
    return second in _NEVER_AFTER_NEGATED.get(first, ())


def _double_negations(words: Sequence[str]) -> int:
    found = in_clause = length = 0
    for word in words:
        if word in _CLAUSES or not _WORD.fullmatch(word):
            in_clause = length = 0
            continue
        # At the beginning of a clause "no" is an answer.
        if word in _NEGATIONS or (word == "no" and length):
            in_clause += 1
            found += in_clause > 1
        length += 1
    return found


def _disagree(article: str, word: str) -> bool:
    if article not in ("a", "an") or not word.isalpha() or _SPELLED_OUT.fullmatch(word):
        return False
    return bool((_VOWEL if article == "a" else _NO_VOWEL).match(word))
