"""What the scripted players say: wordings of each act, written for the project. `bots.py` picks among them.

Words in braces are filled in: {n} a number, {friends} "friend" or "friends", {clause} and {does} an entity in a clause, {x} an
entity as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

Phrase = tuple[str, ...]


class Wordings(NamedTuple):
    """What stands before entities of one category.

    Args:
        one: of one friend.
        many: of several; as many as `one`.
        nouns: what follows "friend" without a verb.
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
    "name": Wordings(_cut("is named", "is called"), _cut("are named", "are called"), _cut("named", "called")),
    "school": Wordings(
        _cut("went to", "was a student at"),
        _cut("went to", "were students at"),
        _cut("from", "at"),
    ),
    "major": Wordings(
        _cut("studied", "majored in", "did"),
        _cut("studied", "majored in", "did"),
        _cut("in", "majoring in"),
    ),
    "company": Wordings(
        _cut("works at", "works for"),
        _cut("work at", "work for"),
        _cut("working at", "from", "at"),
    ),
    "hobby": Wordings(
        _cut("likes", "is into", "enjoys"),
        _cut("like", "are into", "enjoy"),
        _cut("into", "fond of"),
    ),
    "time_pref": Wordings(_cut("prefers the", "likes the"), _cut("prefer the", "like the"), _cut("free in the", "for the")),
    "loc_pref": Wordings(_cut("prefers", "likes being"), _cut("prefer", "like being"), _cut("for")),
}
ANY_TYPE = Wordings(_cut("has", "is for"), _cut("have", "are for"), _cut("with"))
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


@cache
def clauses(kind: str, is_one: bool, has_verb: bool) -> list[tuple[Phrase, bool]]:
    """What may stand before an entity, and whether one of `WHO` stands before that.

    Args:
        kind: the entity's category.
        is_one: whether it is said of one friend.
        has_verb: whether there must be a verb, and what it is said of stands there already.
    """
    wordings = OF_TYPE.get(kind, ANY_TYPE)
    spoken = wordings.one if is_one else wordings.many
    return (
        [(clause, False) for clause in spoken]
        if has_verb
        else [(clause, clause not in wordings.nouns) for clause in (*spoken, *wordings.nouns)]
    )


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
