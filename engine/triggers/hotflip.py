"""HotFlip: words changed by first-order estimates alone (Ebrahimi et al. 2018, equations 3 to 10).

A visit takes, at each position, the word of largest estimated descent; orders the positions by it; and flips the best one,
the best two, ... at once, up to `flips`. The least loss of these nested flips is measured exactly and taken if it is lower,
otherwise the search has converged.

# Ebrahimi et al. and TextAttack's recipe: one flip after the other, chosen in a beam. The released code of He & Glass holds a
# variant that they did not publish, `adv_greedyflip`: the n best flips at once, taken better or not. Ours: both ends and all
# between, for the price of one forward pass of `flips` inputs, because either end alone stalls where the other moves on.

    N searched positions, V words, K flips
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from engine.triggers.batch import SearchState, Task
from engine.triggers.method import WordMethod
from engine.triggers.scorer import Incumbent


class HotFlip(WordMethod[SearchState]):
    """Several words at once, by gradient."""

    uses = ("flips", "max_sweeps", "restarts", "stop_on_hit")

    def begin(self, task: Task, incumbent: Incumbent) -> SearchState:
        return SearchState(task, incumbent)

    def step(self, states: Sequence[SearchState]) -> None:
        length = self.victim.input_length
        slopes = self.slopes(*self.everywhere([state.best for state in states])).view(len(states), length, -1)
        flipped = [self._nested(state.best.words, slopes_NV) for state, slopes_NV in zip(states, slopes, strict=True)]
        moved = self.move_to_best(states, flipped)
        for state, words_KN, has_moved in zip(states, flipped, moved, strict=True):
            self.visited(state, tried=len(words_KN), moved=has_moved, converged=not has_moved)

    def _nested(self, words_N: Tensor, slopes_NV: Tensor) -> Tensor:
        """The input with its 1, 2, ... K best flips (K, N)."""
        steepest = slopes_NV.min(1)
        change_N = steepest.values - slopes_NV.gather(1, words_N[:, None])[:, 0]
        order_K = change_N.argsort(stable=True)[: self.settings.flips]
        words_KN = words_N.repeat(len(order_K), 1)
        for row, position in enumerate(order_K.tolist()):
            words_KN[row:, position] = steepest.indices[position]
        return words_KN
