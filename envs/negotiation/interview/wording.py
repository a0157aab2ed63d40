"""The words of the scripted interviews: every phrase that is said, by what it is for, and how utterances are read back.

All phrases were written for Parley. An utterance names options, and may accept, insist or break off; `understand` reads that
out of anything, sense or nonsense: the last option named of an issue counts.

Slots: `{deal}` is a list of options.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from parley.envs.negotiation.domain import Numbers
from parley.envs.negotiation.interview.rules import ISSUES, NAME, OPTION_INDEX, OPTIONS
from parley.envs.negotiation.vocabulary import SPECIALS, THEM, YOU, Vocabulary

SLOT = "{deal}"
PHRASES: dict[str, tuple[str, ...]] = {
    "greeting": ("hello .", "hi , thanks for coming .", "good morning .", "nice to meet you .", "hi ."),
    "open": (
        "i am looking for {deal} .",
        "i would like {deal} .",
        "how about {deal} ?",
        "i had {deal} in mind .",
        "what do you say to {deal} ?",
    ),
    "counter": (
        "i was hoping for {deal} instead .",
        "that is not enough , how about {deal} ?",
        "could we make it {deal} ?",
        "i would rather have {deal} .",
        "not quite , what about {deal} ?",
    ),
    "concede": (
        "all right , i can do {deal} .",
        "to meet you halfway , {deal} .",
        "okay , then let us try {deal} .",
        "i could live with {deal} .",
    ),
    "insist": (
        "i must have {deal} .",
        "i really need {deal} , take it or leave it .",
        "my offer stays {deal} .",
        "i insist on {deal} .",
    ),
    "accept": (
        "deal , {deal} .",
        "agreed : {deal} .",
        "that works for me , {deal} then .",
        "good , so {deal} .",
        "deal .",
        "agreed , thank you .",
    ),
    "part": ("then there is no deal .", "sorry , i will look elsewhere .", "we will not agree , no deal ."),
}
ACCEPTING = frozenset(("deal", "agreed", "works"))
PARTING = frozenset(("no", "elsewhere"))
FIRM = frozenset(("must", "really", "insist", "stays", "leave"))
FORMS = {
    "salary": ("{}", "{}", "{} a year"),
    "holidays": ("{} days", "{} days", "{} days off"),
    "office": ("{}", "an office in {}", "the {} office"),
    "role": ("{}", "{}", "a job as {}"),
}
"""Ways to name an option of each issue."""


@dataclass(frozen=True)
class HeardOffer:
    """What an utterance says.

    Args:
        named: the item named of each issue; -1 where none is.
        accepts: whether it accepts.
        parts: whether it breaks off.
        firm: whether it insists.
    """

    named: Numbers
    accepts: bool
    parts: bool
    firm: bool


def understand(words: Sequence[str]) -> HeardOffer:
    """The meaning of an utterance's words."""
    named = [-1] * len(ISSUES)
    for word in words:
        item = OPTION_INDEX.get(word)
        if item is not None:
            named[OPTIONS[item][0]] = item
    said = set(words)
    parts = not said.isdisjoint(PARTING)
    return HeardOffer(tuple(named), not parts and not said.isdisjoint(ACCEPTING), parts, not said.isdisjoint(FIRM))


def ways_to_name(item: int) -> tuple[str, ...]:
    """The ways to say an option."""
    issue, word = OPTIONS[item]
    return tuple(form.format(word) for form in FORMS[tuple(ISSUES)[issue]])


def interview_vocabulary() -> Vocabulary:
    """Every word that is said, in alphabetical order behind the specials and speaker markers."""
    named = itertools.chain.from_iterable(ways_to_name(item) for item in range(len(OPTIONS)))
    phrases = itertools.chain(named, *PHRASES.values(), (", and",))
    words = {word for phrase in phrases for word in phrase.split() if word != SLOT}
    return Vocabulary((*SPECIALS, YOU, THEM, *sorted(words)), NAME)
