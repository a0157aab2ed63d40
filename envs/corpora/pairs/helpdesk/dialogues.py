"""The generator of help-desk dialogues: talk about broken devices, passwords, networks, updates, mail and accounts.

This small corpus for sequence-to-sequence models makes every verb work offline on a new machine. A user greets, names a
problem, answers the agent's question, tries the advice, and reports success or failure. Some users are rude or ask for what the
agent must refuse. Neighbouring utterances are pairs. Dialogue i depends only on the seed and i, so a larger corpus begins with
the smaller one.

`phrases.json` holds the phrases. In a phrase, `[a|b]` is one of the alternatives and `{slot}` a word of the dialogue. A model
that learns from the pairs sees one utterance before each reply, so a phrase holds all that its reply depends on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.tokens import PairText, tokenise

Phrases = tuple[str, ...]


class Branch(NamedTuple):
    """One course of the diagnosis of a problem."""

    answers: Phrases
    """The user's answers to the question."""
    fixes: Phrases
    """The agent's advice."""


class HelpdeskProblem(NamedTuple):
    """A problem of a user."""

    says: Phrases
    """The user's words for the problem."""
    asks: Phrases
    """The agent's questions."""
    branches: tuple[Branch, ...]


class Topic(NamedTuple):
    """Problems with one kind of thing."""

    things: Phrases
    """Values of the slot `thing`."""
    problems: tuple[HelpdeskProblem, ...]


class Exchange(NamedTuple):
    """An utterance of the user and the agent's reply to it."""

    says: Phrases
    replies: Phrases


_KINDS: dict[tuple[str, ...], Any] = {kind._fields: kind for kind in (Branch, HelpdeskProblem, Topic, Exchange)}


def _typed(entry: dict[str, Any]) -> Any:
    """Return the entry of a JSON file as the kind that has its fields; other entries stay dictionaries."""
    values: dict[str, Any] = {name: value if isinstance(value, dict) else tuple(value) for name, value in entry.items()}
    kind = _KINDS.get(tuple(entry))
    return kind(**values) if kind else values


_PHRASES = json.loads(
    files("parley.envs.corpora.pairs.helpdesk").joinpath("phrases.json").read_text(encoding="utf-8"), object_hook=_typed
)
SLOTS: dict[str, Phrases] = _PHRASES["slots"]

NUM_DIALOGUES = 900
"""Number of dialogues; about 6,000 pairs."""
SPLITS_OF_TEN = ("train",) * 8 + ("val", "test")
"""The splits of every ten successive dialogues."""
TOPICS: tuple[Topic, ...] = (*_PHRASES["machines"], *_PHRASES["services"])

T = TypeVar("T")

_CHOICE = re.compile(r"\[([^\]]+)\]")


def helpdesk_pairs(num_dialogues: int = NUM_DIALOGUES, seed: int = 0) -> PairText:
    """Generate the corpus.

    Args:
        num_dialogues: dialogues of all splits together.
        seed: master seed, at least 0.

    Returns:
        Splits of about 8 : 1 : 1. No pair of "val" or "test" is in "train".
    """
    text = PairText()
    earlier: set[tuple[str, ...]] = set()
    dialogues = [[tokenise(utterance) for utterance in dialogue(i, seed)] for i in range(num_dialogues)]
    for i, utterances in sorted(enumerate(dialogues), key=lambda item: SPLITS_OF_TEN[item[0] % 10] != "train"):
        name = SPLITS_OF_TEN[i % 10]
        split = text.splits[name]
        rows = [split.add(words) for words in utterances]
        for (source, words), (reply, answer) in pairwise(zip(rows, utterances, strict=True)):
            pair = (*words, "\t", *answer)
            if name == "train":
                earlier.add(pair)
            if name == "train" or pair not in earlier:
                split.link(source, reply)
    return text


def dialogue(i: int, seed: int = 0) -> list[str]:
    """Return the utterances of one dialogue; user and agent alternate."""
    rng = stream(seed, "helpdesk", i)
    topic = _one(TOPICS, rng)
    problem = _one(topic.problems, rng)
    branch = _one(problem.branches, rng)
    slots = {slot: _one(values, rng) for slot, values in {**SLOTS, "thing": topic.things}.items()}
    phrases = [
        *_exchange("greetings", 0.3, rng),
        *_exchange("odd", 0.2, rng),
        _one(problem.says, rng),
        _one(problem.asks, rng),
        _one(branch.answers, rng),
        _one(branch.fixes, rng),
        *_ending(rng),
    ]
    return [_CHOICE.sub(lambda match: _one(match[1].split("|"), rng), phrase).format(**slots) for phrase in phrases]


def _ending(rng: np.random.Generator) -> Iterator[str]:
    if rng.random() < 0.5:
        yield from _exchange("failed", 1.0, rng)
        yield from _exchange("later", 0.6, rng)
    else:
        yield from _exchange("worked", 1.0, rng)
    yield from _exchange("farewells", 0.5, rng)


def _exchange(kind: str, chance: float, rng: np.random.Generator) -> Iterator[str]:
    if rng.random() < chance:
        exchange: Exchange = _one(_PHRASES[kind], rng)
        yield _one(exchange.says, rng)
        yield _one(exchange.replies, rng)


def _one(values: Sequence[T], rng: np.random.Generator) -> T:
    return values[int(rng.integers(len(values)))]
