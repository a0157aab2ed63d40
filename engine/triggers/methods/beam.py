"""Beam search over positions, and BEAST, a beam of inputs that the victim writes.

Beam: gibbs-enum that keeps the best few inputs instead of one. At each visit every input of the beam is tried with the steepest
words at the position, `candidates` of them each, and the `beams` inputs of least loss stay, no two alike. With one beam it is
gibbs-enum. It ends after N visits in a row that change nothing.

BEAST: inputs that grow by the victim's own next words (Sadasivan et al. 2024, arXiv 2402.15570, algorithm 1).

    beam <- k2 first words, drawn from P(. | prompt)
    until inputs have N words:
        candidates <- each input of the beam with k2 words drawn from P(. | prompt, input), no word twice
        beam       <- the k1 candidates of least loss

It takes no gradient, and its inputs read like texts. k1 = `beams` and k2 = `candidates` are 15, the temperature is 1, and all
words that an input may hold take part. Its losses are those of inputs that are shorter than N: the searched part ends there.
# Released code: k1 first words, not scored, and the best input of any length is kept. Ours: those of N words alone, as in all
methods. With candidates left for it (`max_candidates`, `max_sweeps`) it grows inputs anew from other draws. If
`max_candidates` are too few to let one input become whole, k1 and k2 are smaller, the larger of them first.
Behind several prompts, and of several models (`parley search universal`), words are drawn from the geometric mean of all
next-word distributions. Released code: from the first model alone.

    B inputs of a beam, G words drawn for each, R candidates, t words so far, N searched positions, V words
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, cast

import torch
from torch import Tensor

from parley.engine.triggers.budget import GRADIENT
from parley.engine.triggers.methods.goal import Goal
from parley.engine.triggers.methods.method import WordMethod
from parley.engine.triggers.methods.settings import BEAMS, BEAMS_BEAST, CANDIDATES_BEAST
from parley.engine.triggers.scorers.scorer import LEAST_GAIN, BestInput, ContinuingScorer
from parley.engine.triggers.searches.batch import SearchState, Task
from parley.envs.core.seeds import stream
from parley.policies.chat.model import Access


@dataclass(eq=False, kw_only=True)
class BeamState(SearchState):
    """A search with its beam (least loss first) and the number of visits that have not changed it."""

    beam: list[BestInput]
    unmoved: int = 0


class Beam(WordMethod[BeamState]):
    """`GibbsEnum` with the best few inputs kept, not one."""

    shortens = True
    uses = (*WordMethod.uses, "beams")
    sizes = {**WordMethod.sizes, "beams": BEAMS}

    def begin(self, task: Task, incumbent: BestInput) -> BeamState:
        return BeamState(task=task, best=incumbent, beam=[incumbent])

    def step(self, states: Sequence[BeamState]) -> None:
        choices = [self._choose(state) for state in states]
        joining = [(state.task, words_N) for state, (_, joins) in zip(states, choices, strict=True) for words_N in joins]
        measured = iter(self.measure([task for task, _ in joining], [words_N for _, words_N in joining]))
        for state, (staying, joins) in zip(states, choices, strict=True):
            beside = GRADIENT * len(state.beam)
            tried = self.affordable(state, len(state.beam) * min(self.candidates, self.goal.num_searchable))
            new = [next(measured) for _ in joins]
            state.beam = sorted([*staying, *new], key=lambda incumbent: incumbent.loss)
            state.unmoved = 0 if new else state.unmoved + 1
            self.keep(state, next(filter(self.ends, state.beam), state.beam[0]))
            still = state.unmoved == self.victim.input_length
            ahead = len(state.beam) * min(self.candidates, self.goal.num_searchable)
            next_beside = GRADIENT * len(state.beam)
            self.visited(
                state, tried=tried, moved=bool(new), converged=still, ahead=ahead, beside=beside, beside_ahead=next_beside
            )

    def _choose(self, state: BeamState) -> tuple[list[BestInput], list[Tensor]]:
        """Return the inputs that stay in the beam, and those that join it."""
        position = state.visits % self.victim.input_length
        positions_B = torch.full((len(state.beam),), position, device=self.victim.searchable_V.device)
        words_BG = self.steepest(state.beam, positions_B, self.candidates)
        words_RN = torch.cat([incumbent.words.repeat(words_BG.shape[1], 1) for incumbent in state.beam])
        words_RN[:, position] = words_BG.flatten()
        words_RN = words_RN[: self.affordable(state, len(words_RN))]
        loss_R = self.scorer.losses([state.task.target] * len(words_RN), words_RN)
        standing = {tuple(incumbent.words.tolist()): incumbent for incumbent in state.beam}
        ranked = {words: incumbent.loss for words, incumbent in standing.items()}
        for words, loss in zip(map(tuple, words_RN.tolist()), loss_R.tolist(), strict=True):
            # The handicap keeps the beam from going round in circles within rounding.
            ranked.setdefault(words, loss + LEAST_GAIN * max(1.0, loss))
        best = sorted(ranked, key=ranked.__getitem__)[: self.beams]
        staying = [standing[words] for words in best if words in standing]
        return staying, [words_RN.new_tensor(words) for words in best if words not in standing]


@dataclass(eq=False, kw_only=True)
class BeastState(SearchState):
    """A search with the inputs of its beam as far as they have grown, least loss first; none at the beginning."""

    beam: list[list[int]] = field(default_factory=list)


class Beast(WordMethod[BeastState]):
    """A beam search over inputs that the victim itself writes (BEAST: Sadasivan et al. 2024)."""

    uses = (*WordMethod.uses, "beams")
    sizes = {"candidates": CANDIDATES_BEAST, "beams": BEAMS_BEAST}
    access = Access.LOGITS
    continues = True
    _num_drawn: int
    _num_kept: int

    def fewest_candidates(self, length: int) -> int:
        """Return one candidate for each word."""
        return length

    def bind(self, goal: Goal) -> Self:
        """Return the same method, with sizes by which inputs become whole.

        Raises:
            ConfigError: a restart may try fewer candidates than an input has words.
        """
        bound, length = super().bind(goal), goal.victim.input_length
        bound.require_length(length)
        drawn, beams, most = min(bound.candidates, goal.num_searchable), bound.beams, bound.settings.max_candidates
        while most and _cost(length, drawn, beams) > most:
            drawn, beams = (drawn - 1, beams) if drawn > beams else (drawn, beams - 1)
        bound._num_drawn, bound._num_kept = drawn, beams
        return bound

    @property
    def first_visit(self) -> int:
        """Return the readings of a whole input."""
        return _cost(self.victim.input_length, self._num_drawn, self._num_kept)

    def begin(self, task: Task, incumbent: BestInput) -> BeastState:
        return BeastState(task=task, best=incumbent)

    def step(self, states: Sequence[BeastState]) -> None:
        grown = [self._grown(state) for state in states]
        full_length = [
            (state, beam_BN[0]) for state, (_, beam_BN) in zip(states, grown, strict=True) if self._is_whole(beam_BN)
        ]
        reached = iter(self.measure([state.task for state, _ in full_length], [words_N for _, words_N in full_length]))
        for state, (tried, beam_Bt) in zip(states, grown, strict=True):
            before = state.best
            state.beam = beam_Bt.tolist()
            if self._is_whole(beam_Bt):
                self.keep(state, next(reached))
                state.beam = []
            # An input is begun only where it can become whole.
            whole_cost = _cost(self.victim.input_length, self._num_drawn, self._num_kept)
            ahead = self._num_drawn * len(state.beam) or whole_cost
            self.visited(state, tried=tried, moved=state.best is not before, ahead=ahead)

    def _is_whole(self, words_Bt: Tensor) -> bool:
        return words_Bt.shape[1] == self.victim.input_length

    def _grown(self, state: BeastState) -> tuple[int, Tensor]:
        """Return the number of inputs tried, and the best of them (B, t + 1)."""
        task, allowed_V = state.task, self.victim.searchable_V
        inputs_Bt = torch.tensor(state.beam or [[]], dtype=torch.int64, device=allowed_V.device)
        logits_BV = cast(ContinuingScorer, self.scorer).next_logits(task.target, inputs_Bt).masked_fill(~allowed_V, -torch.inf)
        rng = stream(task.seed, "beast", task.key, task.restart, state.visits)
        # The largest of logits with Gumbel noise are draws without replacement.
        noise_BV = torch.from_numpy(rng.gumbel(size=tuple(logits_BV.shape))).to(logits_BV.device)
        drawn_BG = (logits_BV.double() + noise_BV).topk(self._num_drawn).indices
        tried_Rt = torch.cat([inputs_Bt.repeat_interleave(drawn_BG.shape[1], 0), drawn_BG.flatten()[:, None]], dim=1)
        loss_R = self.scorer.losses([task.target] * len(tried_Rt), tried_Rt)
        return len(tried_Rt), tried_Rt[loss_R.argsort(stable=True)[: self._num_kept]]


def _cost(length: int, drawn: int, beams: int) -> int:
    """Return the number of candidates that are tried until an input of that length is whole."""
    tried, beam = 0, 1
    for _ in range(length):
        tried += beam * drawn
        beam = min(beams, beam * drawn)
    return tried
