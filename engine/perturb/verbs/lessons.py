"""Splits of a corpus made into lessons: each example perturbed by one of the strategies.

Choices:
  * # Paper: silent about how strategies are mixed. Ours: each example meets one of them, drawn by its key.
  * # Released: perturbed afresh in every epoch. Ours: once, from a seed of the example, because a tagger costs more than a
    step of training; `random-swap` alone would be cheap.
  * What a strategy cannot change is learned as it is, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.engine.core.verbs.job import Reporter
from parley.engine.perturb.metrics.robustness import CONTROL
from parley.engine.perturb.strategy import Expectation, Strategy
from parley.engine.perturb.verbs.examples import perturbation_seed
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Example, Turns

if TYPE_CHECKING:
    from parley.policies.core.margin import Lesson

RANDOM_SOURCE = "random-source"
"""The sanity check: contrasts that are contexts of other examples, drawn at random."""
NONE = CONTROL
"""The control: as many steps on contexts as they were recorded."""
_BLOCK = 256


@dataclass(frozen=True)
class LessonSplit:
    """A split as lessons, those of one strategy after those of another.

    Args:
        should_not_change: replies to be learned from perturbed contexts.
        should_change: replies to be learned from recorded contexts, with contrasts where there is one.
        met: examples by the strategy that they met.
        untouched: those of them that it could not change.
    """

    should_not_change: Sequence[Lesson]
    should_change: Sequence[Lesson]
    met: Counter[str]
    untouched: Counter[str]

    @property
    def lessons(self) -> Sequence[Lesson]:
        """All of them."""
        return [*self.should_not_change, *self.should_change]


class RandomSource:
    """Contexts of other examples, drawn uniformly; how long they are and where turns end is not kept.

    Args:
        contexts: to draw from.
    """

    name = RANDOM_SOURCE
    expectation = Expectation.SHOULD_CHANGE

    def __init__(self, contexts: Sequence[Turns]) -> None:
        self._contexts = contexts

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """As many drawn contexts."""
        return [self._contexts[int(stream(seed, self.name).integers(len(self._contexts)))] for seed in seeds]


class AsRecorded:
    """Contexts as they are."""

    name = NONE
    expectation = Expectation.SHOULD_NOT_CHANGE

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """The same contexts."""
        return list(contexts)


def make_lessons(
    examples: Sequence[Example], strategies: Sequence[Strategy], seed: int, reporter: Reporter, title: str
) -> LessonSplit:
    """Perturbs a split.

    Args:
        examples: of the split.
        strategies: that may be met.
        seed: master seed.
        reporter: is told how far it is.
        title: of this piece of work.
    """
    from parley.policies.core.margin import Lesson

    drawn = [int(stream(seed, "strategy", example.key).integers(len(strategies))) for example in examples]
    met: Counter[str] = Counter()
    untouched: Counter[str] = Counter()
    should_not_change: list[Lesson] = []
    should_change: list[Lesson] = []
    reporter.stage(title, len(examples), "examples")
    done = 0
    for number, strategy in enumerate(strategies):
        own = [example for example, choice in zip(examples, drawn, strict=True) if choice == number]
        for start in range(0, len(own), _BLOCK):
            block = own[start : start + _BLOCK]
            seeds = [perturbation_seed(seed, strategy.name, example.key) for example in block]
            for example, context in zip(block, strategy.perturb([each.context for each in block], seeds), strict=True):
                touched = context != example.context
                untouched[strategy.name] += not touched
                if strategy.expectation is Expectation.SHOULD_NOT_CHANGE:
                    should_not_change.append(Lesson(context, example.reply))
                else:
                    should_change.append(Lesson(example.context, example.reply, context if touched else None))
            done += len(block)
            reporter.advance(done)
        met[strategy.name] += len(own)
    return LessonSplit(should_not_change, should_change, met, untouched)
