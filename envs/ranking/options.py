"""How groups of candidates are made of what a corpus holds; every setting is part of a compiled corpus' key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parley.envs.core.config import check
from parley.envs.core.ranges import AtLeastTwo, Configuration, NonNegativeInt, PositiveInt


@dataclass(frozen=True, kw_only=True)
class CandidateOptions(Configuration):
    """Contexts, and the wrong replies that are drawn where a corpus lists none."""

    negatives: Literal["random", "hard", "half"] = "random"
    """Wrong replies: right ones of other dialogues of the split, drawn at random, the nearest to the context by BM25, or
    half and half."""
    size: AtLeastTwo = 10
    """Candidates of a group of validation and test, the right ones included."""
    train_size: AtLeastTwo = 2
    """The same of a group of training."""
    turns: PositiveInt = 10
    """The most turns of a context; those nearest to the reply are kept."""
    min_turns: PositiveInt = 1
    """Replies that follow fewer turns are left out."""
    seed: NonNegativeInt = 0
    """Names what is drawn, and the order of candidates."""
    file_order: bool = False
    """Candidates stay in the order of the files, right ones first where they are drawn, instead of being shuffled."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "negatives", self.negatives in ("random", "hard", "half"), "random, hard or half")
        check(self, "min_turns", self.min_turns <= self.turns, f"at most turns, {self.turns}")
