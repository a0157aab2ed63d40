"""The goal of a method: the model and objective, the test for a hit, and the first inputs of a search.

B inputs, N searched positions, V words
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from parley.engine.triggers.budget import Spending, clock_on
from parley.engine.triggers.hits import Reading
from parley.engine.triggers.scorers.scorer import Scorer, Victim
from parley.envs.core.seeds import stream

Initial = Callable[[Sequence[int]], Tensor]
"""Draw inputs (B, N) int64, one for each seed; an input may depend on its own seed only."""
Satisfied = Callable[[Reading], bool]
"""Return True if a reading is a hit as wanted."""


class Goal:
    """The goal that a method is bound to.

    Args:
        scorer: answers for the model and the objective.
        satisfied: a hit; ends a restart when the method stops on hits.
        initial: draws inputs; uniform when None. Language-model samples for hits that limit the input (paper, section 4.3).
        budget: tokens and seconds that a restart may cost beside the limits of its settings.

    Attributes:
        clock: the clock of the model's work.
    """

    def __init__(
        self, scorer: Scorer, satisfied: Satisfied, initial: Initial | None = None, budget: Spending | None = None
    ) -> None:
        self.scorer, self.satisfied, self.budget = scorer, satisfied, budget or Spending()
        self.clock = clock_on(self.victim.searchable_V.device.type)
        self.initial = initial or uniform_inputs(self.victim.searchable_V, self.victim.input_length)
        self.num_searchable = int(self.victim.searchable_V.sum())

    @property
    def victim(self) -> Victim:
        """Return the model under test."""
        return self.scorer.victim

    def refused(self, target: Tensor) -> int:
        """Return the candidates of a search that the victim's rules refused since the last call; see `attack.RuledScorer`."""
        counted = getattr(self.scorer, "refused", None)
        return counted(target) if counted else 0

    def num_read(self, target: Tensor) -> int:
        """Return the tokens of one reading of an input: prompt, input and reply (T,), behind all prompts."""
        victims = getattr(self.victim, "victims", (self.victim,))
        before = sum(getattr(victim, "num_before_reply", victim.input_length) for victim in victims)
        return int(before) + len(target)


def uniform_inputs(searchable_V: Tensor, length: int) -> Initial:
    """Return a function that draws words uniformly from those allowed, as the paper starts unless the input is judged."""
    words = searchable_V.nonzero()[:, 0].cpu().numpy()

    def draw(seeds: Sequence[int]) -> Tensor:
        drawn = [words[stream(seed, "uniform").integers(len(words), size=length)] for seed in seeds]
        return torch.from_numpy(np.stack(drawn)).to(searchable_V.device)

    return draw
