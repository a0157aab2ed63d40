"""The phrases of the scripted bargainers by purpose, and `Phrasebook`, which puts moves into words.

All phrases were written for Parley. `listening.understand` parses every proposal made of them exactly, and tests check this: a
new phrase is one line here and perhaps one word there. `bargainers.py` decides the moves.

Slots: `{mine}` and `{yours}` are lists of things, `{kind}` is all things of one kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import numpy as np

from parley.envs.core.errors import DataError, packaged_phrases
from parley.envs.negotiation.dealornodeal_rules import ITEM_NAMES, MAX_COUNT, NUM_ITEMS, Triple
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, SPECIALS, THEM, YOU, Vocabulary
from parley.envs.negotiation.scripted.listening import Meaning, understand

SLOTS = ("{mine}", "{yours}", "{kind}")
PHRASES = packaged_phrases("parley.envs.negotiation.scripted", "phrases.txt")
DISPENSABLE = frozenset(
    {"greeting", "small talk", "concession", "filler", "tail", "confirmation", "stop"}
    | {"remainder", "everything", "all but one kind", "one of each"}
)
"""Kinds of phrases that a bargainer can omit if the vocabulary lacks their words."""

_NUMBER_WORDS = ("zero", "one", "two", "three", "four")


def _amounts(item: int, number: int, count: int) -> tuple[str, ...]:
    """Return the ways to say `number` of the `count` things of one kind; a frequent way occurs twice."""
    singular, plural, word = ITEM_NAMES[item], f"{ITEM_NAMES[item]}s", _NUMBER_WORDS[number]
    noun = singular if number == 1 else plural
    forms = (f"{number} {noun}", f"{word} {noun}")
    if number == count == 1:
        return (*forms, f"the {singular}", f"the {singular}", singular)
    if number == count:
        every = ("both",) if count == 2 else (f"all {number}",)
        return (
            *forms,
            plural,
            plural,
            *(f"{amount} {plural}" for amount in (*every, "the", "the", "the", "all", f"the {number}")),
        )
    single = (f"a {singular}", f"just 1 {singular}") if number == 1 else ()
    return (*forms, *forms, *forms, f"{word} of the {plural}", *single)


KINDS = [(item, count) for item in range(NUM_ITEMS) for count in range(1, MAX_COUNT + 1)]
WHOLES = {(item, count): f"the {ITEM_NAMES[item]}{'s' * (count > 1)}" for item, count in KINDS}
AMOUNTS = {(item, n, count): _amounts(item, n, count) for item, count in KINDS for n in range(1, count + 1)}


def bargainer_vocabulary() -> Vocabulary:
    """Return all words of the scripted bargainers, sorted after the specials and speaker markers."""
    phrases = itertools.chain(WHOLES.values(), *PHRASES.values(), *AMOUNTS.values())
    words = {word for phrase in phrases for word in phrase.split() if word not in SLOTS}
    return Vocabulary((*SPECIALS, YOU, THEM, *sorted(words)))


ChoiceT = TypeVar("ChoiceT")


class Act(Enum):
    """The act of a turn."""

    OPEN = "makes a first proposal"
    COUNTER = "turns a proposal down and makes another"
    CONCEDE = "comes down from its last proposal"
    INSIST = "repeats its last proposal firmly"
    ACCEPT = "takes the proposal on the table"
    YIELD = "takes it under pressure"
    REFUSE = "turns a proposal down and says why"
    ASK = "asks what the other side wants"
    PART = "walks away without a deal"
    THANK = "says something friendly after the deal"
    END = "says <selection>"


@dataclass(frozen=True)
class Move:
    """A turn before it is put into words.

    Args:
        act: the act.
        share: the speaker's items in the proposal that it makes or accepts; None for other acts.
        prize: the item whose pieces are together worth most to the speaker.
        junk: an item worth nothing to the speaker; None if there is none.
    """

    act: Act
    share: Triple | None = None
    prize: int = 0
    junk: int | None = None


_REPLIES = {Act.ACCEPT: "acceptance", Act.YIELD: "surrender", Act.PART: "parting", Act.ASK: "question", Act.THANK: "thanks"}
_NEEDED_PROPOSALS = (
    ("claim", True, True),
    ("claim", True, False),
    ("gift", True, True),
    ("gift", False, True),
    ("split", True, True),
)
"""Kind of proposal, whether the speaker gets anything, whether the listener does."""
_MINE, _YOURS, _KIND = -1, -2, -3
_SLOT_NUMBERS = dict(zip(SLOTS, (_MINE, _YOURS, _KIND), strict=True))
_ORDERS = {
    items: tuple(itertools.permutations(items))
    for size in range(1, NUM_ITEMS + 1)
    for items in itertools.combinations(range(NUM_ITEMS), size)
}
_MEMORY = 1 << 15
"""Most utterances in the cache of meanings; both sides and all dialogues share it."""

_Phrase = tuple[int, ...]
"""Token ids; negative numbers are the slots of `_SLOT_NUMBERS`."""


def pick(choices: Sequence[ChoiceT], rng: np.random.Generator) -> ChoiceT:
    """Return one of the choices, all equally likely; it takes one draw."""
    return choices[int(rng.random() * len(choices))]


class Phrasebook:
    """Puts moves into the words of one vocabulary, and parses utterances in it.

    Args:
        vocabulary: phrases with other words are never used.

    Raises:
        DataError: a necessary kind of phrase has none left.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._meanings: dict[tuple[int, ...], Meaning] = {}
        self._phrases = {kind: self._sayable(phrases) for kind, phrases in PHRASES.items()}
        self._amounts = {key: self._sayable(phrases) for key, phrases in AMOUNTS.items()}
        self._wholes = {key: self._sayable([phrase]) for key, phrase in WHOLES.items()}
        self._proposals = {
            (kind, has_mine, has_yours): self._fitting(self._phrases[kind], has_mine, has_yours)
            for kind in ("claim", "gift", "split", "demand", "confirmation")
            for has_mine, has_yours in ((True, True), (True, False), (False, True))
        }
        missing = [kind for kind, phrases in self._phrases.items() if not phrases and kind not in DISPENSABLE]
        missing += [WHOLES[key] for key, phrases in self._wholes.items() if not phrases]
        missing += [f"{n} {ITEM_NAMES[item]} of {count}" for (item, n, count), phrases in self._amounts.items() if not phrases]
        missing += [f"a {key[0]}" for key in _NEEDED_PROPOSALS if not self._proposals[key]]
        if missing:
            raise DataError(
                "the vocabulary lacks words that a scripted bargainer cannot do without",
                where=f"a vocabulary of {len(vocabulary)} words",
                got=f"no way left to say: {', '.join(missing[:8])}",
                fix="take the vocabulary of a negotiation corpus, or bargainer_vocabulary()",
            )

    def say(self, move: Move, counts: Triple, chattiness: float, rng: np.random.Generator) -> list[int]:
        """Return a move in words.

        Args:
            move: the act and its proposal.
            counts: number of each item in the scenario.
            chattiness: 0..1, the amount of words beyond the necessary.
            rng: draws the wording.

        Returns:
            Token ids that end with `<eos>`, or `<selection>` alone.
        """
        if move.act is Act.END:
            return [SELECTION_ID]
        words: list[int] = []
        if move.act in (Act.OPEN, Act.ASK) and rng.random() < 0.2 + 0.6 * chattiness:
            words += self._any("greeting", rng)
            if rng.random() < 0.2 * chattiness:
                words += self._any("small talk", rng)
        if move.act in _REPLIES:
            words += self._any(_REPLIES[move.act], rng)
            if move.act is Act.ACCEPT and rng.random() < 0.3 * chattiness:
                words += self._any("stop", rng)
                words += self._proposal("confirmation", move, counts, rng)
        elif move.act is Act.REFUSE:
            refusal = self._any("refusal", rng)
            words += [*refusal, *self._reason(move, counts, rng)] if rng.random() < 0.6 else refusal[:-1]
        else:
            words += self._lead(move, counts, chattiness, rng)
            words += self._proposal("demand" if move.act is Act.INSIST else None, move, counts, rng)
            if self.vocabulary.words[words[-1]] != "?":
                words += self._any("tail" if rng.random() < 0.25 * chattiness else "stop", rng) if rng.random() < 0.6 else ()
        return [*words, EOS_ID]

    def hear(self, tokens: tuple[int, ...]) -> Meaning:
        """Return the meaning of an utterance given as token ids, without its speaker marker."""
        meaning = self._meanings.get(tokens)
        if meaning is None:
            if len(self._meanings) >= _MEMORY:
                self._meanings.clear()
            words = (self.vocabulary.words[token] for token in tokens)
            meaning = self._meanings[tokens] = understand([word for word in words if word not in SPECIALS])
        return meaning

    def _lead(self, move: Move, counts: Triple, chattiness: float, rng: np.random.Generator) -> _Phrase:
        """Return the words before a proposal: a refusal, a reason, or a concession."""
        words: _Phrase = ()
        if move.act is Act.COUNTER and rng.random() < 0.45:
            words = self._any("refusal", rng)
        elif move.act is Act.CONCEDE and rng.random() < 0.5:
            return self._any("concession", rng)
        if move.act in (Act.OPEN, Act.COUNTER) and rng.random() < 0.2 * chattiness:
            return (*words, *self._sentence(self._reason(move, counts, rng), rng))
        return words or (self._any("filler", rng) if rng.random() < 0.2 * chattiness else ())

    def _reason(self, move: Move, counts: Triple, rng: np.random.Generator) -> _Phrase:
        item, kind = (move.prize, "prize") if move.junk is None or rng.random() < 0.5 else (move.junk, "junk")
        return _fill(self._any(kind, rng), {_KIND: self._wholes[item, counts[item]][0]})

    def _sentence(self, phrase: _Phrase, rng: np.random.Generator) -> _Phrase:
        """Return the phrase with a full stop, which separates it from the next; nothing if no stop is known."""
        stop = self._any("stop", rng)
        return (*phrase, *stop) if stop else ()

    def _proposal(self, kind: str | None, move: Move, counts: Triple, rng: np.random.Generator) -> _Phrase:
        """Return a proposal of that kind if one fits, else of the natural kind."""
        assert move.share is not None, f"{move.act} names a share"
        first, second, third = (count - number for count, number in zip(counts, move.share, strict=True))
        things = {_MINE: move.share, _YOURS: (first, second, third)}
        has_mine, has_yours = any(things[_MINE]), any(things[_YOURS])
        if kind is None or not self._proposals[kind, has_mine, has_yours]:
            kind = _natural_kind(things[_MINE], things[_YOURS], rng)
        phrase = pick(self._proposals[kind, has_mine, has_yours], rng)
        slots = [part for part in phrase if part < 0]
        filling = {slot: self._things(things[slot], counts, rng) for slot in slots}
        if len(slots) == 2 and rng.random() < 0.5:
            filling[slots[1]] = self._any("remainder", rng) or filling[slots[1]]
        return _fill(phrase, filling)

    def _things(self, share: Triple, counts: Triple, rng: np.random.Generator) -> _Phrase:
        """Return a list of things such as "2 hats and the ball"."""
        lacking = [item for item in range(NUM_ITEMS) if share[item] < counts[item]]
        phrase: _Phrase = ()
        if not lacking and rng.random() < 0.5:
            phrase = self._any("everything", rng)
        elif share == (1, 1, 1) and rng.random() < 0.4:
            phrase = self._any("one of each", rng)
        elif len(lacking) == 1 and share[lacking[0]] == 0 and rng.random() < 0.2:
            phrase = _fill(self._any("all but one kind", rng), {_KIND: self._wholes[lacking[0], counts[lacking[0]]][0]})
        if phrase:
            return phrase
        items = pick(_ORDERS[tuple(item for item in range(NUM_ITEMS) if share[item])], rng)
        words: list[int] = []
        for i, item in enumerate(items):
            if i:
                words += self._any("last joint" if i == len(items) - 1 else "inner joint", rng)
            words += pick(self._amounts[item, share[item], counts[item]], rng)
        return tuple(words)

    def _any(self, kind: str, rng: np.random.Generator) -> _Phrase:
        phrases = self._phrases[kind]
        return pick(phrases, rng) if phrases else ()

    def _sayable(self, phrases: Iterable[str]) -> list[_Phrase]:
        ids = {**self.vocabulary.index, **_SLOT_NUMBERS}
        split = [phrase.split() for phrase in phrases]
        return [tuple(ids[word] for word in words) for words in split if all(word in ids for word in words)]

    def _fitting(self, phrases: Iterable[_Phrase], has_mine: bool, has_yours: bool) -> list[_Phrase]:
        """Return the phrases for a proposal in which a side may get nothing."""
        unfit = set() if has_mine else {_MINE}
        unfit |= set() if has_yours else {_YOURS}
        if unfit:
            unfit |= {self.vocabulary.index[word] for word in ("rest", "else") if word in self.vocabulary.index}
        return [phrase for phrase in phrases if unfit.isdisjoint(phrase)]


def _natural_kind(mine: Triple, yours: Triple, rng: np.random.Generator) -> str:
    """Return the kind of proposal that people mostly use: the one with the shorter list."""
    num_mine, num_yours = NUM_ITEMS - mine.count(0), NUM_ITEMS - yours.count(0)
    if not num_mine or not num_yours:
        return "claim" if num_mine else "gift"
    if rng.random() < 0.08:
        return "split"
    return "gift" if num_yours < num_mine - (rng.random() < 0.4) else "claim"


def _fill(phrase: _Phrase, filling: Mapping[int, _Phrase]) -> _Phrase:
    return tuple(itertools.chain.from_iterable(filling[part] if part < 0 else (part,) for part in phrase))
