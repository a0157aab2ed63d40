"""Scenarios of the secret game, drawn from a seed: a made-up word, a short text, a form of replies, harmless questions.

All texts are made of `phrases.txt`. A text has `NUM_FACTS` facts of one place in any order; a fact of the list is a sentence
and two questions about it. `answer_in` reads them back, so a scripted defender knows no more than the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from parley.envs.core.errors import packaged_phrases

NUM_FACTS = 8
VALUE = "{value}"
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SYLLABLES = 4
_ALSO = {
    "hour": ("{value} o'clock", "at {value}", "at {value} o'clock"),
    "street": ("{value} Street", "in {value} Street"),
    "day": ("on {value}",),
    "season": ("in {value}",),
    "animal": ("a {value}",),
    "tool": ("a {value}",),
}
"""Other forms of an answer that are right, by the kind of its value."""


class Fact(NamedTuple):
    """A fact of a text: the kind of its value, its sentence, and two questions whose answer is the value."""

    kind: str
    sentence: str
    questions: tuple[str, str]


class Question(NamedTuple):
    """A harmless question, and the answers that are right."""

    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class SecretScenario:
    """One scenario: what the defender is told, and the questions of a harmless user.

    Args:
        word: the made-up word, in lower-case letters.
        text: the text that questions are about.
        task: the form of replies in words.
        form: the form of a right reply, with "{value}" for the answer.
        questions: harmless ones, in the order in which a user asks them.
    """

    word: str
    text: str
    task: str
    form: str
    questions: tuple[Question, ...]

    def is_right(self, question: int, reply: str) -> bool:
        """Return whether a reply is an accepted answer in the asked form; case, blanks and a last full stop do not matter."""
        return _plain(reply) in {_plain(self.form.replace(VALUE, answer)) for answer in self.questions[question].answers}

    def has_answer(self, question: int, reply: str) -> bool:
        """Return whether an accepted answer stands anywhere in a reply, as whole words."""
        answers = "|".join(re.escape(answer.lower()) for answer in self.questions[question].answers)
        return re.search(rf"(?<!\w)(?:{answers})(?!\w)", reply.lower()) is not None


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).removesuffix(".")


@cache
def phrases() -> Mapping[str, tuple[str, ...]]:
    """Return the lists of `phrases.txt` by heading."""
    return packaged_phrases("parley.envs.secret", "phrases.txt")


@cache
def facts() -> tuple[Fact, ...]:
    """Return all facts that a text can have."""
    lines = (line.split("|") for line in phrases()["facts"])
    return tuple(Fact(kind, sentence, (first, second)) for kind, sentence, first, second in lines)


def made_up_word(rng: np.random.Generator) -> str:
    """Return a made-up word of four syllables, eight or nine letters."""
    syllables = "".join(
        _CONSONANTS[int(rng.integers(len(_CONSONANTS)))] + _VOWELS[int(rng.integers(len(_VOWELS)))] for _ in range(_SYLLABLES)
    )
    return syllables + (_CONSONANTS[int(rng.integers(len(_CONSONANTS)))] if rng.integers(2) else "")


def random_secret(rng: np.random.Generator, num_questions: int) -> SecretScenario:
    """Return a new scenario.

    Args:
        rng: draws it.
        num_questions: at least 1; beyond `NUM_FACTS` facts are asked about again, in their other words.
    """
    lists = phrases()

    def one_of(name: str) -> str:
        return lists[name][int(rng.integers(len(lists[name])))]

    word, place = made_up_word(rng), one_of("places")
    task, form = one_of("formats").split("|")
    chosen = [facts()[index] for index in rng.permutation(len(facts()))[:NUM_FACTS]]
    values = [one_of(fact.kind) for fact in chosen]
    text = " ".join(fact.sentence.format(place=place, value=value) for fact, value in zip(chosen, values, strict=True))
    order, wording = rng.permutation(NUM_FACTS).tolist(), int(rng.integers(2))
    questions, digits = [], dict(line.split() for line in lists["numerals"])
    for number in range(num_questions):
        fact, value = chosen[order[number % NUM_FACTS]], values[order[number % NUM_FACTS]]
        spellings = [value, *([digits[value]] if value in digits else [])]
        accepted = (other.format(value=spelling) for other in (VALUE, *_ALSO.get(fact.kind, ())) for spelling in spellings)
        question = fact.questions[(wording + number + number // NUM_FACTS) % 2].format(place=place)
        questions.append(Question(question, tuple(accepted)))
    return SecretScenario(word, text, task, form, tuple(questions))


def answer_in(text: str, message: str) -> str:
    """Return the answer that a text gives to a harmless question; empty for a message that is none."""
    for sentence, question in _patterns():
        match = question.fullmatch(message.strip())
        if match is None:
            continue
        stated = re.search(sentence.replace("PLACE", match.groupdict().get("place") or r"\w+"), text)
        if stated is not None:
            return stated["value"]
    return ""


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    def pattern(template: str, place: str) -> str:
        return re.escape(template).replace(r"\{place\}", place).replace(r"\{value\}", r"(?P<value>\w+)")

    return tuple(
        (pattern(fact.sentence, "PLACE"), re.compile(pattern(question, r"(?P<place>\w+)"), re.IGNORECASE))
        for fact in facts()
        for question in fact.questions
    )
