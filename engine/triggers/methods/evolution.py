"""Evolution of inputs whose replies alone are seen: for models that give no likelihoods, such as those behind a server.

    ask for the replies to `population` inputs of random words
    until one succeeds, or `max_queries` replies were asked for:
        parents <- two, each the fitter of two drawn members                 tournament
        child   <- each word from either parent, then words exchanged with probability `mutation`, one at least
        the fittest `population` of members and children stay                (mu + lambda)

A genetic search over words in the manner of Alzantot et al. 2018 (arXiv 1804.07998) and Lapid et al. 2023 (arXiv 2309.01446).
# Theirs: exp(fitness) selection, single elite; embeddings of replies. Ours: tournaments, members stay while fit; characters.

The control is the same without choice: every input of random words, as many as the search may try, the best of which counts.

What is fit, `fitness.py` says, by default `closeness`. Nothing is asked twice. What is drawn follows
from the seed and from what was answered, so a search whose answers are kept goes on by asking itself through them again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import NamedTuple

from numpy.random import Generator

from parley.envs.core.config import Configuration, NumItems, Share
from parley.envs.core.seeds import stream

Words = tuple[str, ...]
"""An input."""
NO_FITNESS = -math.inf
"""Fitness of an input to which there was no reply: every reply is fitter."""
_TRIES = 64
"""Children that are drawn until one is new."""


@dataclass(frozen=True, kw_only=True)
class EvolutionSettings(Configuration):
    """How inputs evolve."""

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
    """An input that was asked about.

    Args:
        words: it.
        fitness: the higher the better.
    """

    words: Words
    fitness: float


class ToldReply(NamedTuple):
    """What came of an input.

    Args:
        fitness: the higher the better; `NO_FITNESS` of an answer that is no reply.
        reply: what the model replied; empty where it did not.
        problem: the kind of an answer that is no reply; empty of a reply.
    """

    fitness: float
    reply: str
    problem: str = ""


class Proposals(ABC):
    """Inputs that are proposed to a model, of which replies alone are seen: `ask`, then `tell`, until it is `finished`.

    Args:
        max_queries: replies that are asked for at most.
        kept: inputs that are remembered as the fittest.

    Attributes:
        members: the fittest first.
        num_asked: replies that were asked for.
        generations: after the first inputs.
        best_by_generation: the best fitness after the first inputs, then after each generation.
    """

    def __init__(self, max_queries: int, kept: int) -> None:
        self.max_queries, self._kept = max_queries, kept
        self.members: list[Member] = []
        self.num_asked, self.generations = 0, -1
        self.best_by_generation: list[float] = []
        self._known: set[Words] = set()
        self._waiting: list[Words] = []
        self._stopped = False

    @property
    def finished(self) -> bool:
        """Whether nothing more is asked."""
        return self._stopped or self.num_asked >= self.max_queries

    @property
    def best(self) -> Member:
        """The fittest so far."""
        return self.members[0]

    @abstractmethod
    def ask(self) -> list[Words]:
        """The inputs whose replies are wanted next, none of them asked about before; none where there are no more."""

    def tell(self, heard: Sequence[ToldReply], *, success: bool) -> None:
        """What came of the inputs that were asked about.

        Args:
            heard: of each.
            success: whether one of them is all that is wanted.
        """
        new = [Member(words, each.fitness) for words, each in zip(self._waiting, heard, strict=True)]
        # A tie goes to who was there before.
        self.members = sorted([*self.members, *new], key=lambda member: -member.fitness)[: self._kept]
        self.num_asked += len(new)
        self.generations += 1
        self.best_by_generation.append(self.best.fitness)
        self._waiting, self._stopped = [], success


class Evolution(Proposals):
    """Inputs of words that evolve.

    Args:
        settings: how.
        words: that they are made of.
        seed: of all draws.
        start: the first input, of which the others of its generation are children; all are drawn when empty.
        allows: which inputs may be asked about.
        blind: whether all inputs are of random words, whatever came of others.
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
        assert not self._waiting, "what was asked is told first"
        rng = stream(self._seed, "generation", self.generations + 1)
        num = min(self.settings.population, self.settings.max_queries - self.num_asked)
        found: list[Words] = [self._start] if self._start and not self.members else []
        self._known.update(found)
        for _ in range(num - len(found)):
            for _ in range(_TRIES):
                words = self._child(rng) if (self._parents or self._start) and not self._blind else self._drawn(rng)
                if words not in self._known and self._allows(words):
                    self._known.add(words)
                    found.append(words)
                    break
        self._waiting, self._stopped = found, not found
        return found

    def _drawn(self, rng: Generator) -> Words:
        return tuple(self._list[place] for place in rng.integers(len(self._list), size=self.settings.num_words))

    def _child(self, rng: Generator) -> Words:
        mother, father = self._parent(rng), self._parent(rng)
        heads = rng.random(len(mother)) < 0.5
        words = [one if head else other for one, other, head in zip(mother, father, heads, strict=True)]
        exchanged = rng.random(len(words)) < self.settings.mutation
        exchanged[rng.integers(len(words))] = True
        drawn = self._drawn(rng)
        return tuple(new if changes else word for word, new, changes in zip(words, drawn, exchanged, strict=True))

    def _parent(self, rng: Generator) -> Words:
        """Return the fitter of two parents, which stand in that order; the start where there is none yet."""
        parents = self._parents
        return parents[min(rng.integers(len(parents), size=2).tolist())].words if parents else self._start

    @property
    def _parents(self) -> list[Member]:
        """Members that got a reply, the fittest first: what is blocked leads nowhere."""
        return [member for member in self.members if member.fitness > NO_FITNESS]


def closeness(reply: str, target: str) -> float:
    """How alike a reply's beginning and a target are, 0 to 1: the share of the target that is said, and of matching characters.

    Args:
        reply: as it was said.
        target: as it is wanted; what stands behind as many characters of a reply does not count.
    """
    wanted = " ".join(target.lower().split())
    said = " ".join(reply.lower().split())[: len(wanted)]
    if not wanted:
        return 0.0
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(said, wanted, strict=False)))
    return (alike / len(wanted) + SequenceMatcher(None, said, wanted, autojunk=False).ratio()) / 2
