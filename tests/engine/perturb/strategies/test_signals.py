"""Signs of broken English: what each counts, and what it lets pass."""

from __future__ import annotations

import pytest

from parley.engine.perturb.lexicon.built_in import BuiltInLexicon
from parley.engine.perturb.strategies.stopwords import (
    ARTICLES,
    DOUBLE_NEGATIONS,
    DOUBLED_AUXILIARIES,
    DOUBLED_WORDS,
    SIGNALS,
    UNKNOWN_WORDS,
    signals,
)

BROKEN = {
    DOUBLED_AUXILIARIES: (
        "how do n't do i view dvds",
        "did n't do you test it",
        "the lease does n't have been removed",
        "it does n't is there",
        "i have n't have it",
        "you can will see",
        "he did n't did it",
    ),
    DOUBLE_NEGATIONS: ("it wo n't not help", "it is n't not open", "i did n't not have it", "you do n't have no file"),
    ARTICLES: ("a apple", "an file", "a old file", "an user", "a hour", "an house", "a unknown user"),
    DOUBLED_WORDS: ("the the file", "do n't go go"),
    UNKNOWN_WORDS: ("xyzzy",),
}
FINE = {
    DOUBLED_AUXILIARIES: (
        "i did n't do it",
        "do n't do that",
        "you can do it",
        "i do n't have it",
        "what i did is fine",
        "do n't be late",
        "he has n't had it",
        "could it be",
        "you can n't",
    ),
    DOUBLE_NEGATIONS: ("no , it is not", "no it does not", "i do n't know why it does n't", "not now , not ever", "do n't"),
    ARTICLES: ("an apple", "a file", "an hour", "a user", "an unknown user", "a unix file", "an ssh key", "a ssh key", "an"),
    DOUBLED_WORDS: ("that that", "1 1", ". .", "he had had it"),
    UNKNOWN_WORDS: ("file",),
}
KNOWN = {"file"}


def counted(text: str, name: str) -> int:
    words = tuple(text.split())
    return signals(words, BuiltInLexicon().tag(words), KNOWN)[name]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BROKEN.items() for text in texts])
def test_what_is_broken_is_counted_once(name: str, text: str) -> None:
    assert counted(text, name) == 1


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FINE.items() for text in texts])
def test_what_is_fine_is_not(name: str, text: str) -> None:
    assert counted(text, name) == 0


def test_nothing_has_no_signs_and_every_sign_is_counted() -> None:
    assert signals((), (), KNOWN) == dict.fromkeys(SIGNALS, 0)
