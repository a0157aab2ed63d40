"""Evolution of inputs by replies alone: for models that give no likelihoods, such as those behind a server.

    ask for the replies to `population` inputs of random words
    until one succeeds, or `max_queries` replies were asked for:
        parents <- two, each the fitter of two drawn members                 tournament
        child   <- each word from either parent, then words exchanged with probability `mutation`, one at least
        the fittest `population` of members and children stay                (mu + lambda)

A genetic search over words in the manner of Alzantot et al. 2018 (arXiv 1804.07998) and Lapid et al. 2023 (arXiv 2309.01446).
# Theirs: exp(fitness) selection, single elite; embeddings of replies. Ours: tournaments, members stay while fit; characters.

The control is the same without selection: every input is of random words, and the best of `max_queries` counts.

`engine/triggers/success.py` defines fitness, by default `closeness`. No input is tried twice. Draws follow from the seed and
from the replies, so a search whose answers are stored can resume by asking the same questions again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import ClassVar, NamedTuple

from numpy.random import Generator

from parley.envs.core.config import Configuration, NumItems, Share
from parley.envs.core.seeds import stream

Words = tuple[str, ...]
"""An input."""
NO_FITNESS = -math.inf
"""Fitness of an input to which there was no reply: every reply is fitter."""
_TRIES = 64
"""Most draws for a new child."""


@dataclass(frozen=True, kw_only=True)
class EvolutionSettings(Configuration):
    """Settings of the evolution of inputs."""

    topic: ClassVar[str] = "search text"

    num_words: NumItems = 8
    """Words of an input."""
    population: NumItems = 16
    """Inputs that are kept, and children of a generation."""
    max_queries: NumItems = 200
    """Replies that are asked for, for a target, before its search ends."""
    mutation: Share = 0.15
    """Probability that a word of a child is exchanged for one of the list; one at least is."""


@dataclass(frozen=True)
class Member:
    """An input whose reply is known.

    Args:
        words: the input.
        fitness: the higher the better.
    """

    words: Words
    fitness: float


class RatedReply(NamedTuple):
    """The reply to an input, with its fitness.

    Args:
        fitness: the higher the better; `NO_FITNESS` of an answer that is no reply.
        reply: the model's reply; empty if there is none.
        problem: the kind of an answer that is no reply; empty of a reply.
    """

    fitness: float
    reply: str
    problem: str = ""


class Proposals(ABC):
    """A search by replies alone: `ask` for inputs, then `tell` their replies, until it is `finished`.

    Args:
        max_queries: most replies.
        kept: number of fittest inputs that are remembered.

    Attributes:
        members: the fittest first.
        num_asked: replies that were asked for.
        generations: after the first inputs.
        best_by_generation: the best fitness after the first inputs, then after each generation.
    """

    def __init__(self, max_queries: int, num_members: int) -> None:
        self.max_queries, self._kept = max_queries, num_members
        self.members: list[Member] = []
        self.num_asked, self.generations = 0, -1
        self.best_by_generation: list[float] = []
        self._known: set[Words] = set()
        self._waiting: list[Words] = []
        self._stopped = False

    @property
    def finished(self) -> bool:
        """Return True if the search asks for no more replies."""
        return self._stopped or self.num_asked >= self.max_queries

    @property
    def best(self) -> Member:
        """Return the fittest input so far."""
        return self.members[0]

    @abstractmethod
    def ask(self) -> list[Words]:
        """Return the inputs whose replies are needed next, all of them new; none if there are no more."""

    def end(self, replies: Sequence[RatedReply], *, success: bool) -> None:
        """Record the replies to the first inputs of the last `ask`, and ask for no more: what they may cost is spent."""
        self._waiting = self._waiting[: len(replies)]
        if replies:
            self.tell(replies, success=success)
        self._waiting, self._stopped = [], True

    def tell(self, replies: Sequence[RatedReply], *, success: bool) -> None:
        """Record the replies to the inputs of the last `ask`.

        Args:
            replies: one to each input.
            success: True if one of them is a success, which ends the search.
        """
        new = [Member(words, reply.fitness) for words, reply in zip(self._waiting, replies, strict=True)]
        # A tie goes to the earlier member.
        self.members = sorted([*self.members, *new], key=lambda member: -member.fitness)[: self._kept]
        self.num_asked += len(new)
        self.generations += 1
        self.best_by_generation.append(self.best.fitness)
        self._waiting, self._stopped = [], success


class Evolution(Proposals):
    """A search whose inputs evolve.

    Args:
        settings: population and limits.
        words: the words that inputs are made of.
        seed: of all draws.
        start: the first input, of which the others of its generation are children; all are drawn when empty.
        allows: returns True for an allowed input.
        blind: True if all inputs are of random words, whatever the replies.
    """

    def __init__(
        self,
        settings: EvolutionSettings,
        words: Sequence[str],
        seed: int,
        *,
        start: Words = (),
        allows: Callable[[Words], bool] = lambda words: True,
        blind: bool = False,
    ) -> None:
        assert words, "there is no word to begin with"
        super().__init__(settings.max_queries, settings.population)
        self.settings, self._list, self._seed, self._blind = settings, tuple(dict.fromkeys(words)), seed, blind
        self._start, self._allows = start, allows

    def ask(self) -> list[Words]:
        assert not self._waiting, "replies to the last inputs come first"
        rng = stream(self._seed, "generation", self.generations + 1)
        num = min(self.settings.population, self.settings.max_queries - self.num_asked)
        inputs: list[Words] = [self._start] if self._start and not self.members else []
        self._known.update(inputs)
        for _ in range(num - len(inputs)):
            for _ in range(_TRIES):
                words = self._child(rng) if (self._parents or self._start) and not self._blind else self._drawn(rng)
                if words not in self._known and self._allows(words):
                    self._known.add(words)
                    inputs.append(words)
                    break
        self._waiting, self._stopped = inputs, not inputs
        return inputs

    def _drawn(self, rng: Generator) -> Words:
        return tuple(self._list[index] for index in rng.integers(len(self._list), size=self.settings.num_words))

    def _child(self, rng: Generator) -> Words:
        mother, father = self._parent(rng), self._parent(rng)
        heads = rng.random(len(mother)) < 0.5
        words = [first if head else second for first, second, head in zip(mother, father, heads, strict=True)]
        exchanged = rng.random(len(words)) < self.settings.mutation
        exchanged[rng.integers(len(words))] = True
        drawn = self._drawn(rng)
        return tuple(new if changes else word for word, new, changes in zip(words, drawn, exchanged, strict=True))

    def _parent(self, rng: Generator) -> Words:
        """Return the fitter of two drawn members, which are sorted by fitness; the start if there is no member yet."""
        parents = self._parents
        return parents[min(rng.integers(len(parents), size=2).tolist())].words if parents else self._start

    @property
    def _parents(self) -> list[Member]:
        """Return the members that got a reply, the fittest first: blocked inputs lead nowhere."""
        return [member for member in self.members if member.fitness > NO_FITNESS]


def closeness(reply: str, target: str) -> float:
    """Return the similarity of a reply's beginning and a target, 0 to 1: shared prefix and matching characters, averaged.

    Args:
        reply: the model's reply.
        target: the wanted text; of a longer reply only as many characters count.
    """
    text = " ".join(target.lower().split())
    beginning = " ".join(reply.lower().split())[: len(text)]
    if not text:
        return 0.0
    num_equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(beginning, text, strict=False)))
    return (num_equal / len(text) + SequenceMatcher(None, beginning, text, autojunk=False).ratio()) / 2
