"""Random search: fresh inputs, the best kept. The floor that a search with gradients has to beat.

A visit draws as many inputs as gibbs-enum tries words, in the way in which first inputs are drawn: uniformly, or from the
language model where the input is judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from parley.engine.triggers.methods.method import WordMethod
from parley.engine.triggers.scorers.scorer import Incumbent
from parley.engine.triggers.search.batch import SearchState, Task
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.model import Access


class RandomSearch(WordMethod[SearchState]):
    """The best of many random inputs."""

    access = Access.SCORES

    def begin(self, task: Task, incumbent: Incumbent) -> SearchState:
        return SearchState(task, incumbent)

    def step(self, states: Sequence[SearchState]) -> None:
        moved = self.move_to_best(states, [self._draw(state) for state in states])
        for state, has_moved in zip(states, moved, strict=True):
            self.visited(state, tried=self.candidates, moved=has_moved)

    def _draw(self, state: SearchState) -> Tensor:
        """The inputs of a visit (R, N)."""
        task = state.task
        name = ("random", task.key, task.restart, state.visits)
        return self.goal.initial([derive_seed(task.seed, *name, number) for number in range(self.candidates)])
