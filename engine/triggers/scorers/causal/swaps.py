"""The candidates of a visit of one incumbent, read in stages (`scorer.py` says why).

B rows, G candidates, N searched places, S tokens of a prompt, L tokens of a part, T words of a reply, E embedding
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from parley.engine.triggers.scorers.causal.kept_keys import KeysValues
from parley.engine.triggers.scorers.causal.passes import FoundT, Reads, ReadWords, WantedReads, read_together
from parley.engine.triggers.scorers.causal.reader import CausalReader
from parley.engine.triggers.scorers.scorer import Incumbent

if TYPE_CHECKING:
    from parley.engine.triggers.scorers.causal.scorer import CausalScorer

WORTH = 0.2
"""Share of candidates that a stage has to end, so that another stage is worth its pass."""
AT_ONCE = 8
"""Words of a reply that is read to its end at once."""
FIRST = 8
"""Candidates that are read to their ends first where nothing is to be beaten."""
_ROUNDING = 1e-5
"""Share of a loss by which a bound has to exceed it, so that rounding ends nothing that is as good."""


@dataclass(eq=False)
class _Reading:
    """Candidates whose replies are being read.

    Args:
        candidates: their indices.
        known: of each, what was read from the first searched place on; None where there is nothing left to read.
        nll_BT: nats of the words read so far.
        lead_BT: how far their logits are above all others.
    """

    candidates: Tensor
    known: KeysValues | None
    nll_BT: Tensor
    lead_BT: Tensor

    def of(self, rows_b: Tensor) -> _Reading:
        """Some of them."""
        known = None if self.known is None else self.known.rows(rows_b)
        return _Reading(self.candidates[rows_b], known, self.nll_BT[rows_b], self.lead_BT[rows_b])


class ReadLoss(NamedTuple):
    """The loss of a candidate as it was read, and the least and the most that it may be in other company."""

    candidate: int
    loss: float
    least: float
    most: float


class SwapList:
    """The candidates of a visit of one incumbent.

    Args:
        scorer: who asks.
        incumbent: where the swaps start from.
        positions_G: where.
        words_G: which word is put there.
        beat: the loss that has to be undercut.
    """

    def __init__(
        self, scorer: CausalScorer, incumbent: Incumbent, positions_G: Tensor, words_G: Tensor, beat: float = math.inf
    ) -> None:
        self.scorer, self.incumbent, self.beat = scorer, incumbent, beat
        self.target, self.prompt = incumbent.target, scorer.prompt(incumbent.target)
        self.words_G = words_G
        # On this side, because a GPU is waited for each time that it is asked.
        self.positions, self.words = torch.stack([positions_G, words_G]).tolist()
        self.tried_GN = incumbent.words.repeat(len(words_G), 1)
        self.tried_GN[torch.arange(len(words_G), device=words_G.device), positions_G] = words_G
        self.ids_GS = self.prompt.read(self.tried_GN)
        # Of a short reply a pass of its own for the words behind the first costs more than it saves.
        self.num_first = len(self.target) if len(self.target) <= AT_ONCE else 1
        self.input_G = self._input_terms()
        self.best_choice, self.best_loss = -1, beat

    def best(self) -> tuple[int, float]:
        """The candidate of least loss and that, ties to the first; -1 and `beat` where none undercuts it."""
        self.in_pieces(self._try, self.distinct)
        return self.best_choice, self.best_loss

    def all(self) -> Tensor:
        """The loss of each candidate (G,)."""
        loss_G = torch.empty(len(self.words_G), device=self.words_G.device)

        def read(piece: Sequence[int]) -> None:
            loss_G[list(piece)] = self.ends(piece)

        self.in_pieces(read, self.by_position(range(len(self.words_G))))
        return loss_G

    def in_pieces(self, call: Callable[[Sequence[int]], None], candidates: Sequence[int]) -> None:
        """Calls with as many candidates at once as are read together."""
        self.scorer.pieces.in_pieces(call, candidates, self.scorer.most(self.target))

    @cached_property
    def distinct(self) -> list[int]:
        """The candidates, of those that are alike the first; without the incumbent, where that undercuts nothing."""
        first_of: dict[tuple[int, int] | None, int] = {}
        own = self.incumbent.words.tolist()
        for candidate, (position, word) in enumerate(zip(self.positions, self.words, strict=True)):
            first_of.setdefault(None if own[position] == word else (position, word), candidate)
        if self.beat < self.incumbent.loss:
            first_of.pop(None, None)
        return self.by_position(first_of.values())

    def by_position(self, candidates: Iterable[int]) -> list[int]:
        """In the order in which they are read: those of a piece share as much as they can."""
        return sorted(candidates, key=self.positions.__getitem__)

    def num_tokens(self, candidates: Sequence[int]) -> int:
        """Tokens that are read of candidates first."""
        end = self.ids_GS.shape[1] + self.num_first - 1
        return sum(end - self.prompt.places[self.positions[candidate]] for candidate in candidates)

    def ends(self, piece: Sequence[int]) -> Tensor:
        """The losses (B,) of some candidates that come in the order of their positions."""

        def read() -> Generator[WantedReads, ReadWords, Tensor]:
            first = yield from self._first_words(piece)
            return self._bound((yield from self._to_the_end(first, math.inf)))

        return self.alone(read(), self.scorer.reader)

    def take(self, losses: Iterable[tuple[int, float]]) -> None:
        """Keeps the best of some candidates, if it is better than the one at hand."""
        for candidate, loss in losses:
            if loss < self.best_loss or (loss == self.best_loss and -1 < candidate < self.best_choice):
                self.best_choice, self.best_loss = candidate, loss

    def alone(self, reads: Reads[FoundT], reader: CausalReader) -> FoundT:
        """What comes of it in passes of its own."""
        return read_together([reads], self.scorer.reads(reader))[0]

    def read(self, piece: Sequence[int], beat: float, slack: float = 0.0, doubt: float = 0.0) -> Reads[list[ReadLoss]]:
        """Reads some candidates; those are left out that are seen to cost more than a loss or another candidate.

        Args:
            piece: the candidates, in the order of their positions.
            beat: the loss.
            slack: how much more they have to cost.
            doubt: nats by which those of a word, and the lead of its logit, may be off.
        """
        reading, found = (yield from self._first_words(piece)), list[ReadLoss]()
        waiting, bound_B = [reading], self._bound(reading)
        is_open = reading.known is not None and beat == math.inf and len(piece) > FIRST
        if is_open and float((bound_B > self.incumbent.loss).float().mean()) >= WORTH:
            cheapest_B = bound_B.argsort(stable=True)
            waiting = [reading.of(cheapest_B[:FIRST].sort().values), reading.of(cheapest_B[FIRST:].sort().values)]
        for part in waiting:
            ended = yield from self._to_the_end(part, beat + slack, doubt)
            losses_3B = torch.stack([self._bound(ended, off) for off in (0.0, -doubt, doubt)]).tolist()
            found.extend(map(ReadLoss._make, zip(ended.candidates.tolist(), *losses_3B, strict=True)))
            beat = min(beat, *(each.most for each in found)) if found else beat
        return found

    def settled(self, read: Sequence[ReadLoss]) -> tuple[int, float] | None:
        """The best candidate and its loss as in `best`, where the list read alone would name the same; None where that is open.

        Args:
            read: in company, all but those that are worse in any case.
        """
        able = [each for each in read if each.least < self.beat]
        if not able:
            return -1, self.beat
        best = min(able, key=lambda each: each.most)
        is_clear = best.most < self.beat and all(each is best or each.least > best.most for each in able)
        return (best.candidate, best.loss) if is_clear else None

    def _try(self, piece: Sequence[int]) -> None:
        read = self.alone(self.read(piece, self.best_loss), self.scorer.reader)
        self.take((each.candidate, each.loss) for each in read)

    def _first_words(self, piece: Sequence[int]) -> Reads[_Reading]:
        """Reads up to the first word of the reply, or all of a short one."""
        candidates_B = torch.tensor(piece, device=self.words_G.device)
        places = [self.prompt.places[self.positions[candidate]] for candidate in piece]
        known = self.incumbent.cache.known
        answer = yield self._texts(candidates_B, places, known, 0, self.num_first)
        return _Reading(candidates_B, answer.known, answer.nll_BK, answer.lead_BK)

    def _to_the_end(self, reading: _Reading, loss: float, doubt: float = 0.0) -> Reads[_Reading]:
        """Those whose replies were read to the end, because what was known of them did not exceed a loss."""
        num_read, stage = reading.nll_BT.shape[1], 1
        while num_read < len(self.target):
            left_b = self._left(reading, loss, doubt)
            if 1 - len(left_b) / max(1, len(reading.candidates)) < WORTH:
                stage = len(self.target)
            if len(left_b) < len(reading.candidates):
                reading = reading.of(left_b)
            if not len(left_b):
                break
            assert reading.known is not None, "there is something left to read"
            num = min(stage, len(self.target) - num_read)
            places = [self.ids_GS.shape[1] + num_read - 1] * len(left_b)
            answer = yield self._texts(reading.candidates, places, reading.known, num_read, num)
            nll_BT = torch.cat([reading.nll_BT, answer.nll_BK], dim=1)
            lead_BT = torch.cat([reading.lead_BT, answer.lead_BK], dim=1)
            reading = _Reading(reading.candidates, answer.known, nll_BT, lead_BT)
            num_read += num
            stage = num_read
        return reading

    def _texts(self, candidates_B: Tensor, places: Sequence[int], known: KeysValues, num_read: int, num: int) -> WantedReads:
        """What is to be read of candidates from these places on: the next so many words of the reply."""
        first, stop = self.prompt.places[0], num_read + num
        said_BL = self.target[: stop - 1].expand(len(candidates_B), -1)
        return WantedReads(
            ids_BL=torch.cat([self.ids_GS[candidates_B, first:], said_BL], dim=1),
            starts=[place - first for place in places],
            prompt=self.prompt.known,
            known=known,
            wanted_K=self.target[num_read:stop],
            keeps=stop < len(self.target),
        )

    def _left(self, reading: _Reading, loss: float, doubt: float) -> Tensor:
        """The rows that may still cost less than a loss."""
        return (self._bound(reading, -doubt) <= loss + _ROUNDING * max(1.0, loss)).nonzero()[:, 0]

    def _bound(self, reading: _Reading, off: float = 0.0) -> Tensor:
        """What candidates (B,) cost at least: the loss, were the words not read yet certain.

        Args:
            reading: what was read of them.
            off: nats that each word is taken to cost more, and its logit to be lower.
        """
        unread = len(self.target) - reading.nll_BT.shape[1]
        nll_BT = torch.nn.functional.pad((reading.nll_BT + off).clamp_min(0), (0, unread))
        likeliest_BT = torch.nn.functional.pad(reading.lead_BT >= off, (0, unread), value=True)
        loss_B = self.scorer.objective.loss(nll_BT, likeliest_BT, torch.ones_like(likeliest_BT), None)
        return loss_B if self.input_G is None else loss_B + self.input_G[reading.candidates]

    def _input_terms(self) -> Tensor | None:
        """The language model's term (G,) of the candidates; None where it weighs nothing."""
        nll_G = self.scorer.input_nll(self.tried_GN)
        return None if nll_G is None else self.scorer.objective.input_weight(nll_G) * nll_G
