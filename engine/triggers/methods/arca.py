"""ARCA: coordinate ascent by averaged first-order estimates (Jones et al. 2023, arXiv 2303.04381, section 3.2, algorithm 1).

    for t = 1 .. N, in turn:
        v_1 .. v_k <- random words                           k = `candidates`
        list <- the k words w of least 1/k sum_j e_w . grad_t L(x with v_j at t)      equations 4 and 5
        x_t <- the best of the list by the exact loss, even where that is worse

The estimate is taken from where the word may go, not from the one that stands there. Reading the k inputs of the slopes costs
as much as reading candidates, and they are counted among these. The fluency term of the paper is the language model's of the
objective (`--lm`, hits io-...): its part of a list is exact, as there. The result is the best input met. Sizes are those
of the released experiments: k = 32, 50 rounds over all positions.
# Paper: output and input are optimised together in some experiments. Ours: the target is given ("reversing").

    B searches, G words of a list, N searched positions, V words
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parley.engine.triggers.budget import GRADIENT
from parley.engine.triggers.methods.gcg import Gcg, GcgState
from parley.engine.triggers.methods.method import WordMethod
from parley.engine.triggers.methods.settings import CANDIDATES_ARCA
from parley.engine.triggers.scorers.scorer import Swaps
from parley.envs.core.seeds import stream


class Arca(Gcg):
    """A search that takes, position by position, the best of the words that slopes at random words name (Jones et al. 2023)."""

    uses = (*WordMethod.uses, "buffer")
    sizes = {"candidates": CANDIDATES_ARCA}
    cost, shortens = 2, False

    @property
    def tried(self) -> int:
        """Return the size of the list plus the number of inputs that slopes are taken at."""
        return self.candidates + min(self.candidates, self.goal.num_searchable)

    @property
    def first_visit(self) -> int:
        return self.tried + (GRADIENT - 1) * self.candidates

    def beside(self, state: GcgState) -> int:
        """Return the readings of the gradients alone: the inputs that they are taken at count as tried."""
        return (GRADIENT - 1) * self.candidates

    def choose(self, states: Sequence[GcgState]) -> Tensor:
        """Return each input with the best word of its list (B, N)."""
        words_BG = torch.stack([self._list(state) for state in states])
        positions_B = words_BG.new_tensor([self._position(state) for state in states])
        return self.best_swaps(states, Swaps(positions_B[:, None].expand_as(words_BG), words_BG))

    def _position(self, state: GcgState) -> int:
        return state.visits % self.victim.input_length

    def _list(self, state: GcgState) -> Tensor:
        """Return the words (G,) of least estimated loss at a search's position."""
        task, position = state.task, self._position(state)
        rng = stream(task.seed, "arca", task.key, task.restart, state.visits)
        words_V = self.victim.searchable_V.nonzero()[:, 0]
        drawn_R = torch.from_numpy(rng.integers(len(words_V), size=self.candidates)).to(words_V.device)
        inputs_RN = state.current.words.repeat(self.candidates, 1)
        inputs_RN[:, position] = words_V[drawn_R]
        measured = self.measure([task] * self.candidates, inputs_RN.unbind())
        # They are no candidates, so none of them is refused.
        self.goal.refused(task.target)
        slopes_V = self.slopes(measured, drawn_R.new_full((self.candidates,), position)).mean(0)
        return slopes_V.topk(min(self.candidates, self.goal.num_searchable), largest=False).indices
