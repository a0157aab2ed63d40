"""What the scripted players say: wordings of each act, written for the project. `bots.py` picks among them.

Words in braces are filled in: {n} a number, {friends} "friend" or "friends", {clause} and {does} an entity in a clause, {x} an
entity as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Phrase = tuple[str, ...]


class Wordings(NamedTuple):
    """How entities of one category are said.

    Args:
        one: of one friend, with {x}.
        many: of several, with {x}; as many as `one`.
        nouns: what follows "friend" without a verb, with {x}.
    """

    one: tuple[Phrase, ...]
    many: tuple[Phrase, ...]
    nouns: tuple[Phrase, ...]


def _cut(*lines: str) -> tuple[Phrase, ...]:
    return tuple(tuple(line.split()) for line in lines)


GREETINGS = _cut("hi", "hello", "hey", "hiya", "hi there", "hello !", "hey , how are you ?", "good day")
INFORMS = _cut(
    "i have {n} {friends} {clause}",
    "i have {n} {friends} {clause} .",
    "i got {n} {clause}",
    "{n} {friends} {clause}",
    "{n} of my friends {does}",
    "{n} of mine {does} .",
    "there is {n} {clause} on my list",
    "my list has {n} {friends} {clause}",
)
ASKS = _cut(
    "do you have any friends {clause} ?",
    "do you have any {clause} ?",
    "any friends {clause} ?",
    "any {clause} ?",
    "anyone on your list who {does} ?",
    "do you know people {clause} ?",
    "how about {x} ?",
    "{x} ?",
)
YES = _cut(
    "yes , i have {n} {friends} {clause}",
    "yes , {n} {clause}",
    "yeah {n} of mine {does}",
    "yep , {n} {friends} {clause}",
    "sure , {n} of them {does}",
)
NO = _cut(
    "no , i have none {clause}",
    "no {friends} {clause}",
    "sorry , none {clause}",
    "nope , nobody {clause}",
    "none of mine {does}",
    "i don't have any friends {clause}",
    "zero {friends} {clause}",
)
BARE_NO = _cut("no", "nope", "none , sorry", "no , none", "not a single one , no")
NEGATIONS = frozenset({"no", "nope", "none", "nobody", "don't", "zero", "not"})
"""Words by which an utterance denies what it mentions."""
QUESTION_STARTS = frozenset({"do", "does", "what", "any", "anyone"})
"""First words of a question, whether or not a question mark follows."""

OF_TYPE = {
    "name": Wordings(
        _cut("is named {x}", "is called {x}"), _cut("are named {x}", "are called {x}"), _cut("named {x}", "called {x}")
    ),
    "school": Wordings(
        _cut("went to {x}", "was a student at {x}"),
        _cut("went to {x}", "were students at {x}"),
        _cut("from {x}", "at {x}"),
    ),
    "major": Wordings(
        _cut("studied {x}", "majored in {x}", "did {x}"),
        _cut("studied {x}", "majored in {x}", "did {x}"),
        _cut("in {x}", "majoring in {x}"),
    ),
    "company": Wordings(
        _cut("works at {x}", "works for {x}"),
        _cut("work at {x}", "work for {x}"),
        _cut("working at {x}", "from {x}", "at {x}"),
    ),
    "hobby": Wordings(
        _cut("likes {x}", "is into {x}", "enjoys {x}"),
        _cut("like {x}", "are into {x}", "enjoy {x}"),
        _cut("into {x}", "fond of {x}"),
    ),
    "time_pref": Wordings(
        _cut("prefers the {x}", "likes the {x}"), _cut("prefer the {x}", "like the {x}"), _cut("free in the {x}", "for the {x}")
    ),
    "loc_pref": Wordings(_cut("prefers {x}", "likes being {x}"), _cut("prefer {x}", "like being {x}"), _cut("for {x}")),
}
ANY_TYPE = Wordings(_cut("has {x}", "is for {x}"), _cut("have {x}", "are for {x}"), _cut("with {x}"))
"""For categories of somebody's own."""
WHO = ("who", "that")
_NUMBERS = {number: _cut(f"{number}", word) for number, word in enumerate(("one", "two", "three", "four", "five", "six"), 1)}
"""Small numbers, in figures and in words."""
_ALL, _MANY, _SOME = _cut("all", "all"), _cut("many", "most"), _cut("some", "a few")


def all_words() -> frozenset[str]:
    """Every word that scripted players say, entities apart."""
    acts = (*GREETINGS, *INFORMS, *ASKS, *YES, *NO, *BARE_NO)
    numbers = (number for forms in (*_NUMBERS.values(), _ALL, _MANY, _SOME) for number in forms)
    others = (*numbers, WHO, ("friend", "friends", "and"))
    clauses = (clause for wordings in (*OF_TYPE.values(), ANY_TYPE) for clauses in wordings for clause in clauses)
    words = {word for phrase in (*acts, *others, *clauses) for word in phrase}
    return frozenset(word for word in words if not word.startswith("{"))


def is_question(words: Sequence[str]) -> bool:
    """Whether an utterance asks something."""
    return bool(words) and (words[-1] == "?" or words[0] in QUESTION_STARTS)


def number_words(count: int, total: int, spelt: int) -> Phrase:
    """How many friends out of a table: "all", a small number, "many" beyond two thirds, else "some".

    Args:
        count: at least 1.
        total: friends of the table.
        spelt: 0 for figures, 1 for words.
    """
    if count == total and total > 1:
        chosen = _ALL
    elif count > 2 / 3 * total and count > 2:
        chosen = _MANY
    else:
        chosen = _NUMBERS.get(count, _SOME)
    return chosen[spelt]
