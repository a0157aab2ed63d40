"""Random search on the log probability of the target's first token (Andriushchenko et al. 2024, arXiv 2404.02151).

    input <- drawn words
    until the reply is a success, or `max_queries` replies were asked for:
        changed <- the input with a few neighbouring words at a random position drawn anew
        input   <- changed, if it makes the first token of the target likelier

It needs the log probabilities of the likeliest first tokens (`Access.FIRST_TOKENS`), as servers of OpenAI's protocol show them,
and neither weights nor gradients. The number of changed words follows the probability p that is reached: `max_changed` up to
p = .1, half of it up to .5, then a quarter, one at least (released code).

# Paper: the log probability of one named token, "Sure". Ours: of all shown tokens that the target begins with, summed.
# Paper: an equal value is dropped, like a lower one. Ours: it is taken, so that it moves while no token is shown.
# Paper: 10,000 steps, 10 restarts, first inputs of other requests. Ours: one start, until replies are used up.
# Paper: a step asks for one token, and for a whole reply once the token is likely. Ours: each reply is whole, and judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from parley.engine.triggers.methods.evolution import NO_FITNESS, Member, Proposals, RatedReply, Words
from parley.envs.core.config import Configuration, PositiveInt
from parley.envs.core.seeds import stream

_TRIES = 64
"""Most draws for a new input."""


@dataclass(frozen=True, kw_only=True)
class PrsSettings(Configuration):
    """Settings of the random search."""

    topic: ClassVar[str] = "search text"

    max_changed: PositiveInt = 4
    """Neighbouring words that a step changes at most."""


def num_changed(most: int, probability: float) -> int:
    """Return the number of words that a step changes, by the probability of the token so far."""
    share = 1 if probability <= 0.1 else 2 if probability <= 0.5 else 4
    return max(1, most // share)


class Prs(Proposals):
    """A search that changes words at random, and keeps what makes the target's first token likelier.

    Args:
        settings: of the steps.
        words: the words that inputs are made of.
        seed: of all draws.
        num_words: words of an input.
        max_queries: most replies.
        probability: function from a fitness to the probability of the token.
        start: the first input; drawn when empty.
        allows: returns True for an allowed input.
    """

    def __init__(
        self,
        settings: PrsSettings,
        words: Sequence[str],
        seed: int,
        *,
        num_words: int,
        max_queries: int,
        probability: Callable[[float], float],
        start: Words = (),
        allows: Callable[[Words], bool] = lambda words: True,
    ) -> None:
        super().__init__(max_queries, 1)
        self.settings, self._list, self._seed, self._num_words = settings, tuple(dict.fromkeys(words)), seed, num_words
        self._probability, self._start, self._allows = probability, start, allows

    def ask(self) -> list[Words]:
        assert not self._waiting, "the reply to the last input comes first"
        rng = stream(self._seed, "prs", self.num_asked)
        for _ in range(_TRIES):
            if not self.members and self._start:
                changed = self._start
            else:
                begin, most = 0, self._num_words
                if self.members:
                    fitness = self.best.fitness
                    known = self._probability(fitness) if fitness > NO_FITNESS else 0.0
                    begin, most = int(rng.integers(self._num_words)), num_changed(self.settings.max_changed, known)
                new = tuple(
                    self._list[index] for index in rng.integers(len(self._list), size=min(most, self._num_words - begin))
                )
                before = self.best.words if self.members else new
                changed = before[:begin] + new + before[begin + len(new) :]
            if changed not in self._known and self._allows(changed):
                self._known.add(changed)
                self._waiting = [changed]
                return [changed]
        self._stopped = True
        return []

    def tell(self, replies: Sequence[RatedReply], *, success: bool) -> None:
        (words,), (reply,) = self._waiting, replies
        if self.members and reply.fitness == self.best.fitness:
            self.members = [Member(words, reply.fitness)]
        super().tell(replies, success=success)
