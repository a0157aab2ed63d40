"""PEZ: gradients at the nearest words move an input of real numbers (Wen et al. 2023, arXiv 2302.03668, algorithm 1).

    P   <- embeddings of an initial input (N, E)
    x   <- the words nearest to P                             by cosine, as in the released code
    P   <- P - lr dL/dx                                       the gradient at the words, the step at P, by AdamW

A visit reads one input, forward and backward. The result is the best input met. Learning rate and weight decay are those
of the released configuration (0.1, 0.1; 3000 steps: `settings.pez`), which is for images.
# Ours: only words that an input may hold are near. The slope of a language model's term (hits io-...) moves nothing; it counts
in the loss by which the best input is known.

    B searches, N searched positions, S words that an input may hold, E embedding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.optim.adamw import adamw

from parley.engine.triggers.budget import GRADIENT
from parley.engine.triggers.methods.goal import Goal
from parley.engine.triggers.methods.method import WordMethod
from parley.engine.triggers.methods.settings import PEZ_DECAY, PEZ_RATE
from parley.engine.triggers.scorers.scorer import BestInput
from parley.engine.triggers.searches.batch import SearchState, Task


@dataclass(eq=False, kw_only=True)
class PezState(SearchState):
    """A search with its continuous input (N, E), AdamW's moments and its step count (), float32."""

    soft_NE: Tensor
    mean_NE: Tensor
    square_NE: Tensor
    steps: Tensor


class Pez(WordMethod[PezState]):
    """A descent on embeddings, read at the nearest words (PEZ: Wen et al. 2023)."""

    embeds = True
    uses = ("max_candidates", "max_sweeps", "restarts", "stop_on_hit")

    def bind(self, goal: Goal) -> Self:
        bound = super().bind(goal)
        bound.__dict__.pop("_directions", None)
        return bound

    @property
    def most_visits(self) -> int:
        """Return the limit of visits; a visit is one candidate, so a limit of candidates replaces it."""
        return self.settings.max_candidates or super().most_visits

    @property
    def first_visit(self) -> int:
        return GRADIENT

    def begin(self, task: Task, incumbent: BestInput) -> PezState:
        soft_NE = self.victim.embedding_VE[incumbent.words].detach().float().clone()
        mean_NE, square_NE, steps = torch.zeros_like(soft_NE), torch.zeros_like(soft_NE), torch.zeros(())
        state = PezState(task=task, best=incumbent, soft_NE=soft_NE, mean_NE=mean_NE, square_NE=square_NE, steps=steps)
        self._descend(state, incumbent)
        return state

    def step(self, states: Sequence[PezState]) -> None:
        reached = self.measure([state.task for state in states], [self._nearest(state.soft_NE) for state in states])
        for state, incumbent in zip(states, reached, strict=True):
            before = state.best
            self._descend(state, incumbent)
            self.keep(state, incumbent)
            self.visited(state, tried=1, moved=state.best is not before, beside=GRADIENT - 1)

    def _descend(self, state: PezState, incumbent: BestInput) -> None:
        """Move the continuous input by the gradient at its words."""
        slope_NE = self.scorer.gradients([incumbent])[0].to(state.soft_NE)
        adamw(
            [state.soft_NE],
            [slope_NE],
            exp_avgs=[state.mean_NE],
            exp_avg_sqs=[state.square_NE],
            max_exp_avg_sqs=[],
            state_steps=[state.steps],
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=PEZ_RATE,
            weight_decay=PEZ_DECAY,
            eps=1e-8,
            maximize=False,
        )

    def _nearest(self, soft_NE: Tensor) -> Tensor:
        """Return the words (N,) whose embeddings are nearest to an input by cosine."""
        words_S, directions_SE = self._directions
        return words_S[(normalize(soft_NE, dim=-1) @ directions_SE.T).argmax(-1)]

    @cached_property
    def _directions(self) -> tuple[Tensor, Tensor]:
        """Return the words (S,) that an input may hold, and their embeddings (S, E) at length 1."""
        words_S = self.victim.searchable_V.nonzero()[:, 0]
        return words_S, normalize(self.victim.embedding_VE[words_S].detach().float(), dim=-1)
