"""Greedy coordinate gradient: random single swaps among the steepest words of all positions (Zou et al. 2023, algorithm 1).

A visit draws `candidates` swaps, each a uniform position and a uniform one of its `words_per_position` steepest words, and
moves to the best of them even where that is worse, as nanoGCG does without a buffer. With `buffer` it keeps the best few inputs
met, no two alike, and each visit starts from the best of them. What is returned is the best input seen.
# nanoGCG: a buffer begins with as many drawn inputs. Ours: with the first input alone, which costs no candidates.

    num_replaced    words that each candidate replaces, at different positions (nanoGCG's n_replace)
    momentum        lists by g_t = momentum g_(t-1) + slopes of step t (MAC: Zhang & Wei 2024, arXiv 2405.01229)

# MAC: all steps so far. Ours: those whose weight is a thousandth or more, so that words alone are kept of them.

Sizes are nanoGCG's when not given: 512 swaps, lists of 256; `settings.gcg` has its number of steps too.

    B searches, N searched positions, W words of a list, G candidates, R words that one replaces
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log

import numpy as np
import torch
from torch import Tensor

from parley.engine.triggers.budget import GRADIENT
from parley.engine.triggers.methods.method import WordMethod
from parley.engine.triggers.methods.settings import CANDIDATES_GCG
from parley.engine.triggers.scorers.scorer import BestInput, Swaps
from parley.engine.triggers.searches.batch import SearchState, Task
from parley.envs.core.seeds import stream

LEAST_WEIGHT = 1e-3
"""Least weight of an earlier step that momentum remembers."""


@dataclass(eq=False, kw_only=True)
class GcgState(SearchState):
    """A search with its current input, its buffer (least loss first) and the inputs of its steps (the last first)."""

    current: BestInput
    buffer: list[BestInput] = field(default_factory=list)
    past: list[BestInput] = field(default_factory=list)


class Gcg(WordMethod[GcgState]):
    """A search by random single swaps from the gradient's lists (GCG: Zou et al. 2023, arXiv 2307.15043)."""

    shortens = True
    uses = (*WordMethod.uses, "words_per_position", "num_replaced", "momentum", "buffer", "screening", "draft")
    sizes = {"candidates": CANDIDATES_GCG}

    def begin(self, task: Task, incumbent: BestInput) -> GcgState:
        alone = [incumbent]
        buffer, past = alone if self.settings.buffer else [], alone if self.settings.momentum else []
        return GcgState(task=task, best=incumbent, current=incumbent, buffer=buffer, past=past)

    def step(self, states: Sequence[GcgState]) -> None:
        words_BN = self.choose(states)
        for state, incumbent in zip(states, self.measure([state.task for state in states], words_BN.unbind()), strict=True):
            beside, state.current = self.beside(state), incumbent
            if self.settings.buffer:
                self._remember(state, incumbent)
            if self.settings.momentum:
                state.past = [state.current, *state.past][: ceil(log(LEAST_WEIGHT) / log(self.settings.momentum))]
            self.keep(state, incumbent)
            tried = self.affordable(state, self.tried)
            self.visited(state, tried=tried, moved=True, beside=beside, beside_ahead=self.beside(state))

    @property
    def tried(self) -> int:
        """Return the number of inputs that a visit costs."""
        return self.candidates

    @property
    def first_visit(self) -> int:
        return self.tried + GRADIENT

    def beside(self, state: GcgState) -> int:
        """Return the readings that slopes of a visit cost beside its candidates."""
        return GRADIENT * max(1, len(state.past))

    def choose(self, states: Sequence[GcgState]) -> Tensor:
        """Return the next inputs of the searches (B, N)."""
        lists = self._lists(states)
        if self.settings.num_replaced > 1:
            return self._best_inputs(states, lists)
        draws = [self._draw(state, lists.shape[2]) for state in states]
        positions_BG, ranks_BG = torch.from_numpy(np.stack(draws, axis=1)).to(lists.device)
        rows_B1 = torch.arange(len(states), device=lists.device)[:, None]
        return self.best_swaps(states, Swaps(positions_BG, lists[rows_B1, positions_BG, ranks_BG]))

    def _lists(self, states: Sequence[GcgState]) -> Tensor:
        """Return the steepest words (B, N, W) of every position, by the current slopes and, with momentum, earlier ones."""
        num, length = self.settings.words_per_position, self.victim.input_length
        if not self.settings.momentum:
            return self.steepest(*self.everywhere([state.current for state in states]), num).view(len(states), length, -1)
        lists = []
        for state in states:
            slopes_NV = self.slopes(*self.everywhere(state.past[:1]))
            for steps, incumbent in enumerate(state.past[1:], start=1):
                slopes_NV += self.settings.momentum**steps * self.slopes(*self.everywhere([incumbent]))
            lists.append(slopes_NV.topk(min(num, self.goal.num_searchable), largest=False).indices)
        return torch.stack(lists)

    def best_swaps(self, states: Sequence[GcgState], swaps: Swaps) -> Tensor:
        """Return each input with the best of its single swaps (B, N)."""
        device, current = swaps.words_BG.device, [state.current for state in states]
        to_beat_B = torch.full((len(states),), torch.inf, device=device)
        choices_B = self.scorer.best_swap(current, swaps, to_beat_B)[0].to(device)[:, None]
        words_BN = torch.stack([incumbent.words for incumbent in current])
        return words_BN.scatter(1, swaps.positions_BG.gather(1, choices_B), swaps.words_BG.gather(1, choices_B))

    def _best_inputs(self, states: Sequence[GcgState], lists: Tensor) -> Tensor:
        """Return the best (B, N) of inputs in which several words are replaced."""
        best_inputs, length = [], self.victim.input_length
        several = min(self.settings.num_replaced, length)
        for state, words_NW in zip(states, lists, strict=True):
            num = self.affordable(state, self.candidates)
            rng = stream(state.task.seed, "gcg", state.task.key, state.task.restart, state.visits)
            positions_GR = torch.from_numpy(rng.random((num, length)).argsort(1)[:, :several].copy()).to(lists.device)
            ranks_GR = torch.from_numpy(rng.integers(words_NW.shape[1], size=(num, several))).to(lists.device)
            tried_GN = state.current.words.repeat(num, 1).scatter(1, positions_GR, words_NW[positions_GR, ranks_GR])
            loss_G = self.scorer.losses([state.task.target] * num, tried_GN)
            best_inputs.append(tried_GN[int(loss_G.argmin())])
        return torch.stack(best_inputs)

    def _remember(self, state: GcgState, incumbent: BestInput) -> None:
        """Put a new input into the buffer, drop the worst if it is full, and continue from the best."""
        if not any(torch.equal(incumbent.words, stored.words) for stored in state.buffer):
            by_loss = sorted([*state.buffer, incumbent], key=lambda item: item.loss)
            state.buffer = by_loss[: self.settings.buffer]
        state.current = state.buffer[0]

    def _draw(self, state: GcgState, num_words: int) -> np.ndarray:
        """Return positions and ranks (2, G) of a visit's swaps."""
        rng = stream(state.task.seed, "gcg", state.task.key, state.task.restart, state.visits)
        num = self.candidates
        drawn = np.stack([rng.integers(self.victim.input_length, size=num), rng.integers(num_words, size=num)])
        # What is not tried is the first swap again.
        drawn[:, self.affordable(state, num) :] = drawn[:, :1]
        return drawn
