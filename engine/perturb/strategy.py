"""What a perturbation strategy is.

Source: Niu & Bansal 2018 (arXiv 1809.02079), "Adversarial Over-Sensitivity and Over-Stability Strategies for Dialogue
Models", section 3. A Should-Not-Change strategy edits a context so that a good model answers as before; a Should-Change
strategy so that it must not. Only the context is edited, never the reply; utterance and turn boundaries keep their places.

A strategy takes many contexts at once, because some are models that decode in batches; what it makes of one depends on that
context and its seed alone. One of a user's own that looks at one utterance at a time inherits from `OnUtterances`; one that
says what it changes, and not what comes out, from `ByEdits`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np

from parley.engine.perturb.strategies.flat import Edits, FlatContexts
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Turns, Utterance


class Expectation(StrEnum):
    """What a good model does with a perturbed context."""

    SHOULD_NOT_CHANGE = "should-not-change"
    """Answers as before; answering otherwise is over-sensitivity."""
    SHOULD_CHANGE = "should-change"
    """Answers otherwise; answering as before is over-stability."""


class Strategy(Protocol):
    """A perturbation; a user's own needs these three members."""

    @property
    def name(self) -> str:
        """The registered name, such as "random-swap"."""

    @property
    def expectation(self) -> Expectation:
        """What a good model does."""

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """The perturbed contexts.

        Args:
            contexts: turns, oldest first.
            seeds: one for each context, at least 0; equal seeds draw alike.

        Returns:
            As many turns of as many utterances each; a context in which nothing can be done comes back as it was.
        """


class ByEdits(ABC):
    """The base of a strategy that says which words it changes to what: a text keeps all else as it is (`augment.py`)."""

    name: str
    expectation: Expectation

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """The perturbed contexts, see `Strategy`."""
        flat = FlatContexts(contexts)
        return flat.replaced(self.edits(flat, seeds))

    @abstractmethod
    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed.

        Args:
            flat: the contexts.
            seeds: one for each context, at least 0; equal seeds draw alike.
        """


class OnUtterances(ABC):
    """The base of a strategy of one's own that looks at one utterance at a time: override `utterance`, name it and its kind."""

    name: str
    expectation: Expectation

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """The perturbed contexts, see `Strategy`; empty utterances stay."""
        return [self._context(turns, stream(seed, self.name)) for turns, seed in zip(contexts, seeds, strict=True)]

    def _context(self, turns: Turns, rng: np.random.Generator) -> Turns:
        return tuple(tuple(self.utterance(words, rng) if words else words for words in turn) for turn in turns)

    @abstractmethod
    def utterance(self, words: Utterance, rng: np.random.Generator) -> Utterance:
        """The perturbed utterance; `words` holds at least one word."""
