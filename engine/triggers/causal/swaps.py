"""The candidates of a visit of one incumbent, read in stages (`scorer.py` says why).

B rows, G candidates, N searched places, S tokens of a prompt, L tokens of a part, T words of a reply, E embedding
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.triggers.causal.kept_keys import KeysValues, in_line, one_below_the_other
from engine.triggers.causal.packed import TextBlock, read_blocks
from engine.triggers.causal.reader import CausalReader, said
from engine.triggers.scorer import Incumbent, require_numbers

if TYPE_CHECKING:
    from engine.triggers.causal.scorer import CausalScorer

WORTH = 0.2
"""Share of candidates that a stage has to end, so that another stage is worth its pass."""
AT_ONCE = 8
"""Words of a reply that is read to its end at once."""
FIRST = 8
"""Candidates that are read to their ends first where nothing is to be beaten."""
PASS, PASS_GPU = 64, 2048
"""What a pass costs beside its tokens, in tokens: on a CPU to fetch the weights from memory, on a GPU to start."""
_ROUNDING = 1e-5
"""Share of a loss by which a bound has to exceed it, so that rounding ends nothing that is as good."""


@dataclass(eq=False)
class _Reading:
    """Candidates whose replies are being read.

    Args:
        reader: who reads on.
        candidates: their indices.
        before: what they share.
        own: of each, what it has read itself; None where there is nothing left to read.
        nll_BT: nats of the words read so far.
        likeliest_BT: whether these are the likeliest.
    """

    reader: CausalReader
    candidates: Tensor
    before: list[KeysValues]
    own: KeysValues | None
    nll_BT: Tensor
    likeliest_BT: Tensor

    def of(self, rows_b: Tensor) -> _Reading:
        """Some of them."""
        nll_bT, likeliest_bT = self.nll_BT[rows_b], self.likeliest_BT[rows_b]
        own = None if self.own is None else self.own.rows(rows_b)
        return _Reading(self.reader, self.candidates[rows_b], self.before, own, nll_bT, likeliest_bT)


class SwapList:
    """The candidates of a visit of one incumbent.

    Args:
        scorer: who asks.
        incumbent: where the swaps start from.
        positions_G: where.
        words_G: which word is put there.
    """

    def __init__(self, scorer: CausalScorer, incumbent: Incumbent, positions_G: Tensor, words_G: Tensor) -> None:
        self.scorer, self.incumbent = scorer, incumbent
        self.target, self.prompt = incumbent.target, scorer.prompt(incumbent.target)
        self.positions_G, self.words_G = positions_G, words_G
        self.tried_GN = incumbent.words.repeat(len(words_G), 1)
        self.tried_GN[torch.arange(len(words_G), device=words_G.device), positions_G] = words_G
        self.ids_GS = self.prompt.read(self.tried_GN)
        # Of a short reply a pass of its own for the words behind the first costs more than it saves.
        self.num_first = len(self.target) if len(self.target) <= AT_ONCE else 1
        self.input_G = self._input_terms()
        self.best_choice, self.best_loss = -1, math.inf

    def best(self, beat: float) -> tuple[int, float]:
        """The candidate of least loss and that, ties to the first; -1 and `beat` where none undercuts it."""
        self.best_loss = beat
        self.scorer.pieces.in_pieces(self._try, self.distinct())
        return self.best_choice, self.best_loss

    def all(self) -> Tensor:
        """The loss of each candidate (G,)."""
        loss_G = torch.empty(len(self.words_G), device=self.words_G.device)

        def read(piece: Sequence[int]) -> None:
            loss_G[list(piece)] = self.ends(piece)

        self.scorer.pieces.in_pieces(read, self.by_position(range(len(self.words_G))))
        return loss_G

    def distinct(self) -> list[int]:
        """The candidates, of those that are alike the first."""
        first_of: dict[tuple[int, ...], int] = {}
        for candidate, words in enumerate(self.tried_GN.tolist()):
            first_of.setdefault(tuple(words), candidate)
        return self.by_position(first_of.values())

    def by_position(self, candidates: Iterable[int]) -> list[int]:
        """In the order in which they are read: those of a piece share as much as they can."""
        return sorted(candidates, key=self.positions_G.tolist().__getitem__)

    def ends(self, piece: Sequence[int]) -> Tensor:
        """The losses (B,) of some candidates that come in the order of their positions."""
        return self._bound(self._to_the_end(self._first_words(piece, self.scorer.reader), math.inf))

    def take(self, losses: Iterable[tuple[int, float]]) -> None:
        """Keeps the best of some candidates, if it is better than the one at hand."""
        for candidate, loss in losses:
            if loss < self.best_loss or (loss == self.best_loss and -1 < candidate < self.best_choice):
                self.best_choice, self.best_loss = candidate, loss

    def read(self, piece: Sequence[int], reader: CausalReader, beat: float, slack: float = 0.0) -> list[tuple[int, float]]:
        """Some candidates and their losses; those are left out that are seen to cost more than a loss or another candidate.

        Args:
            piece: the candidates, in the order of their positions.
            reader: who reads them.
            beat: the loss.
            slack: how much more they have to cost.
        """
        reading, found = self._first_words(piece, reader), list[tuple[int, float]]()
        waiting, bound_B = [reading], self._bound(reading)
        is_open = reading.own is not None and beat == math.inf and len(piece) > FIRST
        if is_open and float((bound_B > self.incumbent.loss).float().mean()) >= WORTH:
            cheapest_B = bound_B.argsort(stable=True)
            waiting = [reading.of(cheapest_B[:FIRST].sort().values), reading.of(cheapest_B[FIRST:].sort().values)]
        for part in waiting:
            ended = self._to_the_end(part, beat + slack)
            found.extend(zip(ended.candidates.tolist(), self._bound(ended).tolist(), strict=True))
            beat = min(beat, *(loss for _, loss in found)) if found else beat
        return found

    def _try(self, piece: Sequence[int]) -> None:
        self.take(self.read(piece, self.scorer.reader, self.best_loss))

    def _first_words(self, piece: Sequence[int], reader: CausalReader) -> _Reading:
        """Reads up to the first word of the reply, or all of a short one."""
        candidates_B = torch.tensor(piece, device=self.words_G.device)
        groups = list(self._groups(candidates_B))
        shared, known = self.scorer.known(self.prompt), self.incumbent.cache.known
        said_L = self.target[: self.num_first - 1]
        texts = [
            torch.cat([self.ids_GS[group_b, self.prompt.places[start] :], said_L.expand(len(group_b), -1)], dim=1)
            for start, group_b in groups
        ]
        embedded = [self.scorer.victim.embedding_VE[ids_bL] for ids_bL in texts]
        beginnings = [known.cut(0, self.prompt.places[start] - self.prompt.places[0]) for start, _ in groups]
        if self.scorer.packs:
            blocks = [TextBlock(each, self.prompt.places[start]) for each, (start, _) in zip(embedded, groups, strict=True)]
            logits_BLV, own = read_blocks(reader, blocks, in_line([*shared, known]), self.num_first)
        else:
            parts = zip(embedded, beginnings, strict=True)
            read = [reader.read(each, [*shared, before], self.num_first) for each, before in parts]
            logits_BLV, own = torch.cat([logits for logits, _ in read]), [kept for _, kept in read]
        nll_BL, likeliest_BL = said(logits_BLV, self.target[: self.num_first])
        require_numbers(nll_BL)
        if self.num_first == len(self.target):
            return _Reading(reader, candidates_B, shared, None, nll_BL, likeliest_BL)
        whole = [
            in_line([before.repeated(len(group_b)), new])
            for before, (_, group_b), new in zip(beginnings, groups, own, strict=True)
        ]
        return _Reading(reader, candidates_B, shared, one_below_the_other(whole), nll_BL, likeliest_BL)

    def _groups(self, candidates_B: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The first position that each group of candidates changes, and the group; candidates come in order of positions."""
        num_at = Counter(self.positions_G[candidates_B].tolist())
        ends = {position: self.ids_GS.shape[1] - self.prompt.places[position] for position in sorted(num_at)}
        pass_cost, done = 0 if self.scorer.packs else PASS_GPU if candidates_B.is_cuda else PASS, 0
        for group in cheapest_groups([(num_at[position], length) for position, length in ends.items()], pass_cost):
            positions = list(ends)[group.start : group.stop]
            num = sum(num_at[position] for position in positions)
            yield positions[0], candidates_B[done : done + num]
            done += num

    def _to_the_end(self, reading: _Reading, loss: float) -> _Reading:
        """Those whose replies were read to the end, because what was known of them did not exceed a loss."""
        num_read, stage = reading.nll_BT.shape[1], 1
        while num_read < len(self.target):
            left_b = self._left(reading, loss)
            if 1 - len(left_b) / max(1, len(reading.candidates)) < WORTH:
                stage = len(self.target)
            if len(left_b) < len(reading.candidates):
                reading = reading.of(left_b)
            if not len(left_b):
                break
            assert reading.own is not None, "there is something left to read"
            num = min(stage, len(self.target) - num_read)
            said_bL = self.target[num_read - 1 : num_read - 1 + num].expand(len(left_b), -1)
            embedded_bLE = self.scorer.victim.embedding_VE[said_bL]
            logits_bLV, new = reading.reader.read(embedded_bLE, [*reading.before, reading.own], num)
            nll_bL, likeliest_bL = said(logits_bLV, self.target[num_read : num_read + num])
            require_numbers(nll_bL)
            reading = _Reading(
                reading.reader,
                reading.candidates,
                reading.before,
                in_line([reading.own, new]),
                torch.cat([reading.nll_BT, nll_bL], dim=1),
                torch.cat([reading.likeliest_BT, likeliest_bL], dim=1),
            )
            num_read += num
            stage = num_read
        return reading

    def _left(self, reading: _Reading, loss: float) -> Tensor:
        """The rows that may still cost less than a loss."""
        return (self._bound(reading) <= loss + _ROUNDING * max(1.0, loss)).nonzero()[:, 0]

    def _bound(self, reading: _Reading) -> Tensor:
        """What candidates (B,) cost at least: the loss, were the words not read yet certain."""
        unread = len(self.target) - reading.nll_BT.shape[1]
        nll_BT = torch.nn.functional.pad(reading.nll_BT, (0, unread))
        likeliest_BT = torch.nn.functional.pad(reading.likeliest_BT, (0, unread), value=True)
        loss_B = self.scorer.objective.loss(nll_BT, likeliest_BT, torch.ones_like(likeliest_BT), None)
        return loss_B if self.input_G is None else loss_B + self.input_G[reading.candidates]

    def _input_terms(self) -> Tensor | None:
        """The language model's term (G,) of the candidates; None where it weighs nothing."""
        nll_G = self.scorer.input_nll(self.tried_GN)
        return None if nll_G is None else self.scorer.objective.input_weight(nll_G) * nll_G


def cheapest_groups(parts: Sequence[tuple[int, int]], pass_cost: int) -> list[range]:
    """Which neighbours are read together, so that all cost least.

    Args:
        parts: rows and tokens of each, the tokens falling; a group reads all its rows from where its first part begins.
        pass_cost: of one more group, in tokens of a row.
    """
    best: list[tuple[float, list[range]]] = [(0.0, [])]
    for stop in range(1, len(parts) + 1):
        options = []
        for start in range(stop):
            tokens = sum(rows for rows, _ in parts[start:stop]) * parts[start][1]
            options.append((best[start][0] + tokens + pass_cost, [*best[start][1], range(start, stop)]))
        best.append(min(options, key=lambda option: option[0]))
    return best[-1][1]
