"""Beam search over positions: gibbs-enum that keeps the best few inputs instead of one.

At each visit every input of the beam is tried with the steepest words at the position, `candidates` of them each, and the
`beams` inputs of least loss stay, no two alike. With one beam it is gibbs-enum. An end comes after N visits in a row that
change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parley.engine.triggers.methods.method import WordMethod
from parley.engine.triggers.methods.settings import BEAMS
from parley.engine.triggers.scorers.scorer import LEAST_GAIN, Incumbent
from parley.engine.triggers.search.batch import SearchState, Task


@dataclass(eq=False, kw_only=True)
class BeamState(SearchState):
    """A search, the inputs it keeps (least loss first), and how many visits have not changed them."""

    beam: list[Incumbent]
    unmoved: int = 0


class Beam(WordMethod[BeamState]):
    """The best few inputs, position by position."""

    uses = (*WordMethod.uses, "beams")
    sizes = {**WordMethod.sizes, "beams": BEAMS}

    def begin(self, task: Task, incumbent: Incumbent) -> BeamState:
        return BeamState(task=task, best=incumbent, beam=[incumbent])

    def step(self, states: Sequence[BeamState]) -> None:
        choices = [self._choose(state) for state in states]
        joining = [(state.task, words_N) for state, (_, joins) in zip(states, choices, strict=True) for words_N in joins]
        measured = iter(self.measure([task for task, _ in joining], [words_N for _, words_N in joining]))
        for state, (staying, joins) in zip(states, choices, strict=True):
            tried = len(state.beam) * min(self.candidates, self.goal.num_searchable)
            new = [next(measured) for _ in joins]
            state.beam = sorted([*staying, *new], key=lambda incumbent: incumbent.loss)
            state.unmoved = 0 if new else state.unmoved + 1
            self.keep(state, next(filter(self.ends, state.beam), state.beam[0]))
            still = state.unmoved == self.victim.input_length
            ahead = len(state.beam) * min(self.candidates, self.goal.num_searchable)
            self.visited(state, tried=tried, moved=bool(new), converged=still, ahead=ahead)

    def _choose(self, state: BeamState) -> tuple[list[Incumbent], list[Tensor]]:
        """The inputs that stay in the beam, and those that join it."""
        position = state.visits % self.victim.input_length
        positions_B = torch.full((len(state.beam),), position, device=self.victim.searchable_V.device)
        words_BG = self.steepest(state.beam, positions_B, self.candidates)
        words_RN = torch.cat([incumbent.words.repeat(words_BG.shape[1], 1) for incumbent in state.beam])
        words_RN[:, position] = words_BG.flatten()
        loss_R = self.scorer.losses([state.task.target] * len(words_RN), words_RN)
        standing = {tuple(incumbent.words.tolist()): incumbent for incumbent in state.beam}
        ranked = {words: incumbent.loss for words, incumbent in standing.items()}
        for words, loss in zip(map(tuple, words_RN.tolist()), loss_R.tolist(), strict=True):
            # The handicap keeps the beam from going round in circles within rounding.
            ranked.setdefault(words, loss + LEAST_GAIN * max(1.0, loss))
        best = sorted(ranked, key=ranked.__getitem__)[: self.beams]
        staying = [standing[words] for words in best if words in standing]
        return staying, [words_RN.new_tensor(words) for words in best if words not in standing]
