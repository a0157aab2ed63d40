"""HotFlip and AutoPrompt: flips chosen by first-order estimates.

HotFlip: a beam over flips, sorted by the estimates alone (Ebrahimi et al. 2018, equations 3 to 10 and section 3.2).

    dL(t: a -> b) = dL/dx_tb - dL/dx_ta                       equation 6: one word for another at position t
    L(x with the flip) = L(x) + dL(t: a -> b)                 the key that a beam is sorted by

A visit takes the gradient at each input of the beam and estimates every flip of a word at every position by it. It keeps the
`beams` flips of least estimated loss, of all inputs together; only these are measured, one pass forward and one backward each,
and are the next beam. So a visit costs as many candidates as the beam is wide. The result is the best input measured.

TextAttack's recipe has a beam of 10, as here; it sorts by measured losses the single best flip of each position.
# Paper: goes on until the prediction changes, in texts whose meaning has to be kept. Ours: until a hit or a limit, from any
input; inputs that were measured are not measured again, so that a beam does not go round in circles.

AutoPrompt: gibbs-enum at positions that are drawn (Shin et al. 2020, arXiv 2010.15980, section 2.2).

    e . grad L(x)    ranks the words for a position (equation 3, with HotFlip's estimate); the `candidates` best are tried
    x_t <- the best of them, if that lowers L

The paper averages gradient and loss over prompts, as `parley search universal` does. Its code draws the position of each step
("so the gradients don't get stale") and tries 10 words in each of 100 steps; `settings.autoprompt` has these sizes.
# Released code: gradient and candidates see different batches of prompts, and inputs start from [MASK]. Ours: all prompts, and
drawn inputs. A search ends when every position was visited since it last moved: all lists would be the same again.

    B inputs of a beam, N searched positions, V words
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parley.engine.triggers.budget import GRADIENT
from parley.engine.triggers.methods.gibbs_enum import GibbsEnum
from parley.engine.triggers.methods.method import WordMethod
from parley.engine.triggers.methods.settings import BEAMS_HOTFLIP, CANDIDATES_AUTOPROMPT
from parley.engine.triggers.scorers.scorer import BestInput
from parley.engine.triggers.searches.batch import SearchState, Task
from parley.envs.core.seeds import stream


class AutoPrompt(GibbsEnum):
    """A search that takes the best of the steepest words at a drawn position (Shin et al. 2020)."""

    sizes = {"candidates": CANDIDATES_AUTOPROMPT}

    def position(self, task: Task, visit: int) -> int:
        drawn = stream(task.seed, "autoprompt", task.key, task.restart, visit).integers(self.victim.input_length)
        return int(drawn)


@dataclass(eq=False, kw_only=True)
class HotFlipState(SearchState):
    """A search with its beam and the inputs that it has measured."""

    beam: list[BestInput]
    measured: list[list[int]]


class HotFlip(WordMethod[HotFlipState]):
    """A beam search over replaced words, sorted by gradient (Ebrahimi et al. 2018)."""

    shortens = True
    uses = ("beams", "max_candidates", "max_sweeps", "restarts", "stop_on_hit")
    sizes = {"beams": BEAMS_HOTFLIP}

    def begin(self, task: Task, incumbent: BestInput) -> HotFlipState:
        return HotFlipState(task=task, best=incumbent, beam=[incumbent], measured=[incumbent.words.tolist()])

    def step(self, states: Sequence[HotFlipState]) -> None:
        flipped = [self._flipped(state) for state in states]
        reached = iter(
            self.measure(
                [state.task for state, inputs in zip(states, flipped, strict=True) for _ in inputs],
                [words_N for inputs in flipped for words_N in inputs],
            )
        )
        for state, inputs in zip(states, flipped, strict=True):
            before, beside = state.best, GRADIENT * len(state.beam)
            state.beam = [next(reached) for _ in inputs]
            state.measured += [words_N.tolist() for words_N in inputs]
            for incumbent in state.beam:
                self.keep(state, incumbent)
            moved = state.best is not before
            next_beside, over = GRADIENT * len(state.beam), not inputs
            self.visited(
                state,
                tried=len(inputs),
                moved=moved,
                converged=over,
                ahead=self._width,
                beside=beside,
                beside_ahead=next_beside,
            )

    @property
    def first_visit(self) -> int:
        return self._width + GRADIENT

    @property
    def _width(self) -> int:
        return min(self.beams, self.settings.max_candidates or self.beams)

    def _flipped(self, state: HotFlipState) -> list[Tensor]:
        """Return the flips (N,) of least estimated loss of a beam, none measured before."""
        length, width = self.victim.input_length, self.affordable(state, self._width)
        slopes_BNV = self.slopes(*self.everywhere(state.beam)).unflatten(0, (len(state.beam), length))
        words_BN = torch.stack([incumbent.words for incumbent in state.beam])
        loss_B = slopes_BNV.new_tensor([incumbent.loss for incumbent in state.beam])
        current_BN1 = slopes_BNV.gather(2, words_BN[..., None])
        estimate_BNV = loss_B[:, None, None] + slopes_BNV - current_BN1
        # The current word is no flip.
        estimate_BNV.scatter_(2, words_BN[..., None], torch.inf)
        measured, flips = set(map(tuple, state.measured)), dict[tuple[int, ...], Tensor]()
        looked_at = 0
        while len(flips) < width and looked_at < estimate_BNV.numel():
            # Some flips were measured before, or occur for another input too.
            most = min(estimate_BNV.numel(), max(4 * width, 8 * looked_at))
            best = estimate_BNV.flatten().topk(most, largest=False)
            indices = torch.stack(torch.unravel_index(best.indices, estimate_BNV.shape), 1)[best.values < torch.inf]
            for row, position, word in indices[looked_at:].tolist():
                words_N = words_BN[row].clone()
                words_N[position] = word
                key = tuple(words_N.tolist())
                if key not in measured and len(flips) < width:
                    flips.setdefault(key, words_N)
            looked_at = most
        return list(flips.values())
