"""Dialogues of users and agents of a help desk: a small corpus for sequence-to-sequence models, written for the project.

It makes every verb work on a fresh machine, offline. A user greets, names a problem, answers the agent's question, tries what
is advised, and comes back with success or failure; now and then somebody is rude or asks what must be refused. Neighbouring
utterances are pairs. Dialogue i depends on the seed and i alone, so that a larger corpus begins with the smaller one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.helpdesk.machines import MACHINES
from parley.envs.corpora.pairs.helpdesk.phrases import FAILED, FAREWELLS, GREETINGS, LATER, ODD, SLOTS, WORKED, Exchange
from parley.envs.corpora.pairs.helpdesk.services import SERVICES
from parley.envs.corpora.pairs.text import PairText
from parley.envs.corpora.pairs.tokens import tokenise

NUM_DIALOGUES = 900
"""Enough for some 6,000 pairs."""
SPLITS_OF_TEN = ("train",) * 8 + ("val", "test")
"""The splits of each ten successive dialogues."""
TOPICS = (*MACHINES, *SERVICES)

T = TypeVar("T")

_CHOICE = re.compile(r"\[([^\]]+)\]")


def helpdesk_pairs(num_dialogues: int = NUM_DIALOGUES, seed: int = 0) -> PairText:
    """Generates the corpus.

    Args:
        num_dialogues: dialogues of all splits together.
        seed: master seed, at least 0.

    Returns:
        Splits of about 8 : 1 : 1. A pair of "val" or "test" never has the words of a pair of "train".
    """
    text = PairText()
    known: set[tuple[str, ...]] = set()
    dialogues = [[tokenise(each) for each in dialogue(i, seed)] for i in range(num_dialogues)]
    for i, utterances in sorted(enumerate(dialogues), key=lambda item: SPLITS_OF_TEN[item[0] % 10] != "train"):
        name = SPLITS_OF_TEN[i % 10]
        split = text.splits[name]
        rows = [split.add(words) for words in utterances]
        for (source, words), (reply, answer) in pairwise(zip(rows, utterances, strict=True)):
            pair = (*words, "\t", *answer)
            if name == "train":
                known.add(pair)
            if name == "train" or pair not in known:
                split.link(source, reply)
    return text


def dialogue(i: int, seed: int = 0) -> list[str]:
    """The utterances of one dialogue, user and agent in turn."""
    rng = stream(seed, "helpdesk", i)
    topic = _one(TOPICS, rng)
    problem = _one(topic.problems, rng)
    branch = _one(problem.branches, rng)
    slots = {slot: _one(values, rng) for slot, values in {**SLOTS, "thing": topic.things}.items()}
    phrases = [
        *_exchange(GREETINGS, 0.3, rng),
        *_exchange(ODD, 0.2, rng),
        _one(problem.says, rng),
        _one(problem.asks, rng),
        _one(branch.answers, rng),
        _one(branch.fixes, rng),
        *_ending(rng),
    ]
    return [_CHOICE.sub(lambda found: _one(found[1].split("|"), rng), phrase).format(**slots) for phrase in phrases]


def _ending(rng: np.random.Generator) -> Iterator[str]:
    if rng.random() < 0.5:
        yield from _exchange(FAILED, 1.0, rng)
        yield from _exchange(LATER, 0.6, rng)
    else:
        yield from _exchange(WORKED, 1.0, rng)
    yield from _exchange(FAREWELLS, 0.5, rng)


def _exchange(exchanges: Sequence[Exchange], chance: float, rng: np.random.Generator) -> Iterator[str]:
    if rng.random() < chance:
        exchange = _one(exchanges, rng)
        yield _one(exchange.says, rng)
        yield _one(exchange.replies, rng)


def _one(values: Sequence[T], rng: np.random.Generator) -> T:
    return values[int(rng.integers(len(values)))]
