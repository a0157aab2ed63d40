"""gibbs-enum, the paper's search, and random search, its baseline.

gibbs-enum: one word after the other, the best of the words that the gradient points to (He & Glass 2018, algorithm 1).

    x <- an initial input
    for sweep = 1 .. max_sweeps:
        for t = 1 .. N:
            G <- the |G| words of highest -dL/dx_t, x_t taken as a continuous one-hot vector      equation 8
            x_t <- argmin over j in G of L(x_<t, j, x_>t; y), if that lowers L                      equation 7
        stop if the sweep lowered nothing

- The list may hold the current word, as in the paper; it is no improvement on itself (`to_beat`).
- A search stops at N visits in a row that move nothing. Its input, and so its lists, stayed the same all the while: the sweep
  that the paper would let run on to find no improvement would try these lists again.
- A measured input keeps its gradients, so that a visit after one that moved nothing costs no gradient.

# Paper: a word is kept if it improves the loss. Released code, `first_visit_unconditional`: the best of the first list is
# taken in any case. Released code, `stop_on_batch_mean`: the targets of a batch go on until a sweep leaves their mean loss
# where it was, so that which targets share a batch matters.

Random search: the best of fresh inputs. A search with gradients has to beat it. A visit draws as many inputs as gibbs-enum
tries words, in the way in which first inputs are drawn: uniformly, or from the language model if the input is judged.

    B searches, R inputs, N searched positions, G words of a list
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from parley.engine.triggers.budget import GRADIENT
from parley.engine.triggers.methods.method import WordMethod
from parley.engine.triggers.scorers.scorer import BestInput, Swaps, to_beat
from parley.engine.triggers.searches.batch import NOT_SAVED, SearchState, Task
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.model import Access


class RandomSearch(WordMethod[SearchState]):
    """A search that keeps the best of many random inputs: the control of the other methods."""

    access = Access.SCORES
    shortens = True

    @property
    def first_visit(self) -> int:
        return self.candidates

    def begin(self, task: Task, incumbent: BestInput) -> SearchState:
        return SearchState(task, incumbent)

    def step(self, states: Sequence[SearchState]) -> None:
        inputs = [self._draw(state) for state in states]
        moved = self.move_to_best(states, inputs)
        for state, words_RN, has_moved in zip(states, inputs, moved, strict=True):
            self.visited(state, tried=len(words_RN), moved=has_moved)

    def _draw(self, state: SearchState) -> Tensor:
        """Return the inputs of a visit (R, N)."""
        task = state.task
        name = ("random", task.key, task.restart, state.visits)
        num = self.affordable(state, self.candidates)
        return self.goal.initial([derive_seed(task.seed, *name, number) for number in range(num)])


@dataclass(eq=False)
class _Group:
    """The searches of a batch that stop as one."""

    states: list[GibbsState] = field(default_factory=list)
    mean: float = torch.inf


@dataclass(eq=False)
class GibbsState(SearchState):
    """A search at its input `best`, with the number of visits since it last moved."""

    unmoved: int = 0
    group: _Group = field(default_factory=_Group, metadata=NOT_SAVED)


class GibbsEnum(WordMethod[GibbsState]):
    """The search of He & Glass 2018: position by position, the best of the steepest words."""

    shortens = True
    uses = (*WordMethod.uses, "first_visit_unconditional", "stop_on_batch_mean", "screening", "draft")

    def start(self, tasks: Sequence[Task]) -> list[GibbsState]:
        """Return states at their first inputs, as one group."""
        states = super().start(tasks)
        group = _Group(states)
        for state in states:
            state.group = group
        return states

    def begin(self, task: Task, incumbent: BestInput) -> GibbsState:
        return GibbsState(task, incumbent)

    def step(self, states: Sequence[GibbsState]) -> None:
        device = self.victim.searchable_V.device
        incumbents = [state.best for state in states]
        positions_B = torch.tensor([self.position(state.task, state.visits) for state in states], device=device)
        words_BG = self.steepest(incumbents, positions_B, self.candidates)
        tried = [self.affordable(state, words_BG.shape[1]) for state in states]
        for row, num in enumerate(tried):
            # What is not tried is the steepest word again.
            words_BG[row, num:] = words_BG[row, 0]
        swaps = Swaps(positions_B[:, None].expand_as(words_BG), words_BG)
        beat_B = torch.tensor([to_beat(self._at_most(state)) for state in states], device=device)
        choices = self.scorer.best_swap(incumbents, swaps, beat_B)[0].tolist()
        moving = [row for row, choice in enumerate(choices) if choice >= 0]
        inputs = [self._swapped(states[row], words_BG[row, choices[row]]) for row in moving]
        reached = dict(zip(moving, self.measure([states[row].task for row in moving], inputs), strict=True))
        for row, state in enumerate(states):
            # Measured alone a swap may cost some units in the last place more than in its list.
            moved = row in reached and reached[row].loss < self._at_most(state)
            if moved:
                state.best = reached[row]
            state.unmoved = 0 if moved else state.unmoved + 1
            still = not self.settings.stop_on_batch_mean and self._tried_everywhere(state)
            self.visited(state, tried=tried[row], moved=moved, converged=still, beside=GRADIENT)
        if self.settings.stop_on_batch_mean:
            for group in {id(state.group): state.group for state in states}.values():
                self._stop_as_one(group)

    def position(self, task: Task, visit: int) -> int:
        """Return the position at which a visit, counted from 0, tries words."""
        return visit % self.victim.input_length

    def _tried_everywhere(self, state: GibbsState) -> bool:
        visits = range(state.visits + 1 - state.unmoved, state.visits + 1)
        return len({self.position(state.task, visit) for visit in visits}) == self.victim.input_length

    def _swapped(self, state: GibbsState, word: Tensor) -> Tensor:
        """Return the state's input (N,) with a word at the visited position."""
        words_N = state.best.words.clone()
        words_N[self.position(state.task, state.visits)] = word
        return words_N

    def _at_most(self, state: GibbsState) -> float:
        return torch.inf if self.settings.first_visit_unconditional and state.visits == 0 else state.best.loss

    def _stop_as_one(self, group: _Group) -> None:
        """End a group after a sweep that has not lowered its mean loss; the first sweep never ends it."""
        going = [state for state in group.states if not state.finished]
        visits = {state.visits for state in going}
        # A batch that does not fit into memory is stepped in pieces: the sweep ends with the last piece.
        if len(visits) != 1 or visits.pop() % self.victim.input_length:
            return
        mean = sum(state.best.loss for state in group.states) / len(group.states)
        if mean >= group.mean:
            for state in going:
                state.stopped = "converged"
        group.mean = mean
