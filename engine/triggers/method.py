"""What the searches share: first inputs, lists of steep words, the bookkeeping of a visit.

A technique derives from `Method`, says what it remembers (`begin`) and what one visit does (`step`).

    B searches, N searched positions, V words, G words of a list
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from engine.triggers.batch import StateT, Task
from engine.triggers.hits import Reading
from engine.triggers.scorer import Incumbent, Scorer, to_beat
from engine.triggers.settings import SearchSettings
from envs.core.errors import CheckpointError
from envs.core.seeds import derive_seed, stream

Initial = Callable[[Sequence[int]], Tensor]
"""From one seed each to inputs (B, N) int64; an input may depend on its own seed only."""
Satisfied = Callable[[Reading], bool]
"""Whether a reading is all that the search is for."""


def uniform_inputs(searchable_V: Tensor, length: int) -> Initial:
    """Inputs of words drawn uniformly from those that an input may hold, as the paper starts unless the input is judged."""
    words = searchable_V.nonzero()[:, 0].cpu().numpy()

    def draw(seeds: Sequence[int]) -> Tensor:
        drawn = [words[stream(seed, "uniform").integers(len(words), size=length)] for seed in seeds]
        return torch.from_numpy(np.stack(drawn)).to(searchable_V.device)

    return draw


class Method(ABC, Generic[StateT]):
    """A search technique; see `engine.triggers.batch.Search`.

    Args:
        scorer: answers for the model.
        settings: how long to go on, and how much to try.
        satisfied: a hit; ends a restart when `settings.stop_on_hit`.
        initial: draws inputs; uniform when None. Language-model samples for hits that limit the input (paper, section 5).
    """

    def __init__(
        self, scorer: Scorer, settings: SearchSettings, *, satisfied: Satisfied, initial: Initial | None = None
    ) -> None:
        self.scorer, self.settings, self.satisfied = scorer, settings, satisfied
        self.initial = initial or uniform_inputs(scorer.searchable_V, scorer.input_length)
        self.num_searchable = int(scorer.searchable_V.sum())

    @abstractmethod
    def begin(self, task: Task, incumbent: Incumbent) -> StateT:
        """The state of a search that stands at its first input."""

    @abstractmethod
    def step(self, states: Sequence[StateT]) -> None:
        """One visit of each search."""

    def start(self, tasks: Sequence[Task]) -> list[StateT]:
        """States at their first inputs; every technique starts a (seed, key, restart) from the same one."""
        seeds = [derive_seed(task.seed, "input", task.key, task.restart) for task in tasks]
        incumbents = self.measure(tasks, self.initial(seeds).unbind())
        states = [self.begin(task, incumbent) for task, incumbent in zip(tasks, incumbents, strict=True)]
        for state in states:
            state.loss_by_sweep.append(state.best.loss)
            if self.ends(state.best):
                state.stopped = "satisfied"
        return states

    def ends(self, incumbent: Incumbent) -> bool:
        """Whether nothing better is wanted, or possible."""
        return incumbent.loss == 0 or (self.settings.stop_on_hit and self.satisfied(incumbent.reading))

    def keep(self, state: StateT, incumbent: Incumbent) -> None:
        """Remembers an input if it is the best so far, or one that ends the search."""
        if incumbent.loss < state.best.loss or self.ends(incumbent):
            state.best = incumbent

    def visited(self, state: StateT, *, tried: int, moved: bool, converged: bool = False) -> None:
        """Notes a visit, and whether it was the last.

        Args:
            state: of the search.
            tried: candidates of the visit.
            moved: whether it changed where the search stands.
            converged: whether no further visit could move it.
        """
        state.visits += 1
        state.candidates += tried
        state.accepted += moved
        length = self.scorer.input_length
        if self.ends(state.best):
            state.stopped = "satisfied"
        elif converged:
            state.stopped = "converged"
        elif state.visits == self.settings.max_sweeps * length:
            state.stopped = "limit"
        if state.finished or state.visits % length == 0:
            state.loss_by_sweep.append(state.best.loss)

    def move_to_best(self, states: Sequence[StateT], inputs: Sequence[Tensor]) -> list[bool]:
        """Moves each search to the best of its inputs (R, N), if that lowers the loss; whether each has moved."""
        found = []
        for state, words_RN in zip(states, inputs, strict=True):
            loss_R = self.scorer.losses([state.task.target] * len(words_RN), words_RN)
            best = int(loss_R.argmin())
            found.append(words_RN[best] if float(loss_R[best]) < to_beat(state.best.loss) else None)
        moving = [(state, words_N) for state, words_N in zip(states, found, strict=True) if words_N is not None]
        measured = self.measure([state.task for state, _ in moving], [words_N for _, words_N in moving])
        for (state, _), incumbent in zip(moving, measured, strict=True):
            state.best = incumbent
        return [words_N is not None for words_N in found]

    def measure(self, tasks: Sequence[Task], inputs: Sequence[Tensor]) -> list[Incumbent]:
        """Measures an input (N,) for each task.

        Raises:
            CheckpointError: a loss is no number.
        """
        if not tasks:
            return []
        incumbents = self.scorer.measure([task.target for task in tasks], torch.stack(list(inputs)))
        for task, incumbent in zip(tasks, incumbents, strict=True):
            _check_finite(math.isfinite(incumbent.loss), "loss", task.key)
        return incumbents

    def steepest(self, incumbents: Sequence[Incumbent], positions_B: Tensor, num: int) -> Tensor:
        """The searchable words of steepest descent at a position of each incumbent (B, G), steepest first (equation 8).

        Raises:
            CheckpointError: a slope is no number.
        """
        return self.slopes(incumbents, positions_B).topk(min(num, self.num_searchable), largest=False).indices

    def slopes(self, incumbents: Sequence[Incumbent], positions_B: Tensor) -> Tensor:
        """First-order changes (B, V), infinite for words that an input may not hold."""
        slopes_BV = self.scorer.slopes(incumbents, positions_B).masked_fill(~self.scorer.searchable_V, torch.inf)
        _check_finite(not bool(slopes_BV.isnan().any()), "gradient", "")
        return slopes_BV

    def everywhere(self, incumbents: Sequence[Incumbent]) -> tuple[list[Incumbent], Tensor]:
        """Each incumbent at each of its positions: (B N) incumbents and positions, for `slopes` and `steepest`."""
        length = self.scorer.input_length
        positions = torch.arange(length, device=self.scorer.searchable_V.device).repeat(len(incumbents))
        return [incumbent for incumbent in incumbents for _ in range(length)], positions


def _check_finite(ok: bool, what: str, key: str) -> None:
    if not ok:
        raise CheckpointError(
            f"the model's {what} is no number",
            where=f"target {key}" if key else None,
            fix="the weights have left all bounds: fit the model again, or name another checkpoint",
        )
