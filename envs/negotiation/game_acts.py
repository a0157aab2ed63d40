"""What a game says of its dialogue acts: which there are, what they say, what is chosen when the talk is over.

`acts.py` is the wrapper that plays by them; a game has them by `Domain.acts`. They follow one dialogue from one side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np


class GameActs(ABC):
    """Acts of one side in one dialogue at a time: proposals in order of what they are worth to it, then all others.

    Attributes:
        num_proposals: the most deals that may be proposed in any scenario.
        others: what the acts behind the proposals do, in words; the last one ends the talk.
        num_features: of what is seen.
    """

    num_proposals: ClassVar[int]
    others: ClassVar[tuple[str, ...]]
    num_features: ClassVar[int]

    @abstractmethod
    def begin(self, context: np.ndarray) -> None:
        """A new dialogue in a scenario, which this side sees as (2K,): how many of each item, and its points for one."""

    @abstractmethod
    def hear(self, mine: bool, said: Sequence[int]) -> None:
        """Takes in an utterance, its token ids without the mark of who spoke."""

    @abstractmethod
    def mask(self) -> np.ndarray:
        """Which acts are legal now (num_proposals + len(others),) bool."""

    @abstractmethod
    def say(self, action: int, chattiness: float, rng: np.random.Generator) -> list[int]:
        """An act in words: token ids, closed by `<eos>`, or `<selection>` alone."""

    @abstractmethod
    def selection(self) -> int:
        """What is chosen now that the talk is over: what was agreed, or stands on the table, or else no agreement."""

    @abstractmethod
    def features(self) -> list[float]:
        """What a learner sees (num_features,), each about 0..1."""

    @abstractmethod
    def name(self, action: int) -> str:
        """What an act does, in words."""
