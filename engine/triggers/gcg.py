"""Greedy coordinate gradient: random single swaps among the steepest words of all positions (Zou et al. 2023, algorithm 1).

A visit draws `candidates` swaps, each a uniform position and a uniform one of its `words_per_position` steepest words, and
moves to the best of them even where that is worse, as nanoGCG does without a buffer. With `buffer` it keeps the best few inputs
met, no two alike, and each visit starts from the best of them. What is returned is the best input seen.
# nanoGCG: a buffer begins with as many drawn inputs. Ours: with the first input alone, which costs no candidates.

Sizes are nanoGCG's when not given: 512 swaps, lists of 256; `settings.gcg` has its number of steps too.

    B searches, N searched positions, G candidates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from engine.triggers.batch import SearchState, Task
from engine.triggers.method import WordMethod
from engine.triggers.scorer import Incumbent, Swaps
from engine.triggers.settings import CANDIDATES_GCG
from envs.core.seeds import stream


@dataclass(eq=False, kw_only=True)
class GcgState(SearchState):
    """A search, the input where it stands, and those of its buffer, least loss first."""

    current: Incumbent
    buffer: list[Incumbent] = field(default_factory=list)


class Gcg(WordMethod[GcgState]):
    """Random swaps from the gradient's lists."""

    uses = (*WordMethod.uses, "words_per_position", "buffer", "screening")
    sizes = {"candidates": CANDIDATES_GCG}

    def begin(self, task: Task, incumbent: Incumbent) -> GcgState:
        return GcgState(task=task, best=incumbent, current=incumbent, buffer=[incumbent] if self.settings.buffer else [])

    def step(self, states: Sequence[GcgState]) -> None:
        device = self.victim.searchable_V.device
        num, length = self.candidates, self.victim.input_length
        current = [state.current for state in states]
        lists = self.steepest(*self.everywhere(current), self.settings.words_per_position).view(len(states), length, -1)
        draws = [self._draw(state, lists.shape[2]) for state in states]
        positions_BG, ranks_BG = torch.from_numpy(np.stack(draws, axis=1)).to(device)
        words_BG = lists[torch.arange(len(states), device=device)[:, None], positions_BG, ranks_BG]
        to_beat_B = torch.full((len(states),), torch.inf, device=device)
        choices_B = self.scorer.best_swap(current, Swaps(positions_BG, words_BG), to_beat_B)[0].to(device)[:, None]
        words_BN = torch.stack([incumbent.words for incumbent in current])
        words_BN = words_BN.scatter(1, positions_BG.gather(1, choices_B), words_BG.gather(1, choices_B))
        for state, incumbent in zip(states, self.measure([state.task for state in states], words_BN.unbind()), strict=True):
            state.current = incumbent
            if self.settings.buffer:
                self._remember(state, incumbent)
            self.keep(state, incumbent)
            self.visited(state, tried=num, moved=True)

    def _remember(self, state: GcgState, incumbent: Incumbent) -> None:
        """Puts an input that is new into the buffer, in the place of the worst where it is full; the best is gone on from."""
        if not any(torch.equal(incumbent.words, known.words) for known in state.buffer):
            by_loss = sorted([*state.buffer, incumbent], key=lambda each: each.loss)
            state.buffer = by_loss[: self.settings.buffer]
        state.current = state.buffer[0]

    def _draw(self, state: GcgState, num_words: int) -> np.ndarray:
        """Positions and ranks (2, G) of a visit's swaps."""
        rng = stream(state.task.seed, "gcg", state.task.key, state.task.restart, state.visits)
        num = self.candidates
        return np.stack([rng.integers(self.victim.input_length, size=num), rng.integers(num_words, size=num)])
