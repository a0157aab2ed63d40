"""The fast scorer of trigger searches in causal models: the answers of `PlainScorer`, with what is shared read once.

    prompt      the tokens before the first searched word are read once for all searches
    visit       those before a changed word are known from the incumbent, so that a candidate costs what follows its change
    reply       the head is asked at the reply's positions alone
    early end   each word's nats are at least 0 (times a weight of at least 0). So what a candidate's first words cost is a
                lower bound of its loss, and candidates that cost more than the best one already end there, exactly

A list is read in stages: for all candidates up to the first word of the reply, then for those left some words more, as long as
stages end enough of them. Where nothing is to be beaten, as in gcg, the few of the cheapest first words are read to their ends
first. Candidates that are listed twice are read once.

What a search is told does not depend on other searches: they are not batched together, because sums of floats depend on what
shares their product. A list is batch enough: 100 candidates of 20 tokens are 2,000 rows.

    B rows, G candidates, S tokens of a prompt, N searched places, T words of a reply, V words, E embedding
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.triggers.batch_finder import BatchFinder
from engine.triggers.causal.reader import CausalReader, KeysValues, in_line, one_below_the_other, reads_in_parts, said
from engine.triggers.objective import TriggerObjective
from engine.triggers.scorer import Incumbent, InputModel, PlainScorer, Swaps, Victim, require_numbers

PROMPTS = 64
"""Prompts that are remembered; those asked for last."""
WORTH = 0.2
"""Share of candidates that a stage has to end, so that another stage is worth its pass."""
FIRST = 8
"""Candidates that are read to their ends first where nothing is to be beaten."""
PASS, PASS_GPU = 64, 2048
"""What a pass costs beside its tokens, in tokens: on a CPU to fetch the weights from memory, on a GPU to start."""
_ROUNDING = 1e-5
"""Share of a loss by which a bound has to exceed it, so that rounding ends nothing that is as good."""


class CausalVictim(Victim, Protocol):
    """A causal model with tokens around its searched words."""

    @property
    def model(self) -> Any:
        """The Hugging Face model."""

    def prompt(self, target_T: Tensor) -> tuple[Sequence[int], Sequence[int]]:
        """What is read before a reply.

        Args:
            target_T: the reply's tokens.

        Returns:
            All tokens before it (S,), any in the searched places, and these places (N,) in rising order.
        """


@dataclass(frozen=True, eq=False)
class _Prompt:
    """A prompt, its first tokens read.

    Args:
        ids_S: all tokens; those in the searched places mean nothing.
        places: the searched ones.
        known: of the tokens before the first place.
    """

    ids_S: Tensor
    places: tuple[int, ...]
    known: KeysValues | None

    def cut(self, num: int) -> _Prompt:
        """The same without the places behind the first so many."""
        if num == len(self.places):
            return self
        kept_S = torch.ones(len(self.ids_S), dtype=torch.bool, device=self.ids_S.device)
        kept_S[list(self.places[num:])] = False
        return _Prompt(self.ids_S[kept_S], self.places[:num], self.known)

    def read(self, words_BN: Tensor) -> Tensor:
        """The tokens (B, S) with words in the searched places."""
        ids_BS = self.ids_S.repeat(len(words_BN), 1)
        ids_BS[:, list(self.places)] = words_BN
        return ids_BS


@dataclass(eq=False)
class _Reading:
    """Candidates whose replies are being read.

    Args:
        candidates: their indices.
        before: what they share.
        own: of each, what it has read itself.
        nll_BT: nats of the words read so far.
        likeliest_BT: whether these are the likeliest.
    """

    candidates: Tensor
    before: list[KeysValues]
    own: KeysValues
    nll_BT: Tensor
    likeliest_BT: Tensor

    def of(self, rows_b: Tensor) -> _Reading:
        """Some of them."""
        nll_bT, likeliest_bT = self.nll_BT[rows_b], self.likeliest_BT[rows_b]
        return _Reading(self.candidates[rows_b], self.before, self.own.rows(rows_b), nll_bT, likeliest_bT)


class CausalScorer(PlainScorer):
    """Reads what follows a change.

    Args:
        victim: a model for which `is_causal` holds.
        objective: as of `PlainScorer`.
        input_model: as of `PlainScorer`.
        rows: candidates that are read together, until memory runs out.
    """

    victim: CausalVictim

    def __init__(
        self, victim: CausalVictim, objective: TriggerObjective, input_model: InputModel | None = None, *, rows: int = 128
    ) -> None:
        super().__init__(victim, objective, input_model, rows=rows)
        self.reader = CausalReader(victim.model)
        self._prompts: OrderedDict[tuple[int, ...], _Prompt] = OrderedDict()
        self.pieces = BatchFinder(rows, "candidates of a visit")

    @torch.no_grad()
    def best_swap(self, incumbents: Sequence[Incumbent], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """The argmin over the lists; what cannot be it is not read to its end."""
        rows = zip(incumbents, swaps.positions_BG, swaps.words_BG, beat_B.tolist(), strict=True)
        found = [_SwapList(self, incumbent, positions_G, words_G).best(beat) for incumbent, positions_G, words_G, beat in rows]
        choices, losses = zip(*found, strict=True)
        return torch.tensor(choices), beat_B.new_tensor(losses)

    @torch.no_grad()
    def swap_losses(self, incumbent: Incumbent, positions_G: Tensor, words_G: Tensor) -> Tensor:
        """The loss (G,) of each swap of a list, all read to their ends."""
        return _SwapList(self, incumbent, positions_G, words_G).all()

    @torch.no_grad()
    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """The loss of each input (R,); of neighbours that begin alike the beginning is read once."""
        loss_R = torch.empty(len(words_RN), device=words_RN.device)
        for rows in _runs(targets, words_RN):
            loss_R[rows.start : rows.stop] = self._run_losses(targets[rows.start], words_RN[rows.start : rows.stop])
        return loss_R

    @torch.no_grad()
    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        """Logits (B, V) of the word behind the first t words of inputs."""
        whole, num = self.prompt(target), words_Bt.shape[1]
        # The token that is read last is the one before the word.
        start = whole.places[0] - (num == 0)
        if start < 0:
            return torch.zeros(len(words_Bt), len(self.victim.searchable_V), device=words_Bt.device)
        ids_BS = whole.cut(num).read(words_Bt)
        before = [part.cut(0, start) for part in self.known(whole)]
        return self.reader.read(self._embedded(ids_BS[:, start : whole.places[num]]), before, 1)[0][:, 0].float()

    def _run_losses(self, target_T: Tensor, words_RN: Tensor) -> Tensor:
        prompt = self.prompt(target_T).cut(words_RN.shape[1])
        alike = int((words_RN == words_RN[0]).all(0).int().cumprod(0).sum())
        ids_RS = prompt.read(words_RN)
        first = prompt.places[0]
        start = ids_RS.shape[1] - 1 if alike == len(prompt.places) else prompt.places[alike]
        before = self.known(prompt)
        if start > first:
            before.append(self.reader.read(self._embedded(ids_RS[:1, first:start]), before, 1)[1])
        found: list[Tensor] = []

        def score(rows: Sequence[int]) -> None:
            part = slice(rows[0], rows[-1] + 1)
            ids_BL = torch.cat([ids_RS[part, start:], target_T[:-1].expand(len(rows), -1)], dim=1)
            logits_BTV = self.reader.read(self._embedded(ids_BL), before, len(target_T))[0]
            nll_BT, likeliest_BT = said(logits_BTV, target_T)
            input_nll_B = self.input_nll(words_RN[part])
            found.append(self.objective.loss(nll_BT, likeliest_BT, torch.ones_like(likeliest_BT), input_nll_B))

        self._finder.in_pieces(score, range(len(words_RN)))
        return torch.cat(found)

    def _read(self, embedded_1NE: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor, Any]:
        """Nats (1, T) and whether the likeliest (1, T), differentiable, and the keys and values from the first place on."""
        prompt = self.prompt(target_T)
        first = prompt.places[0]
        ids_L = torch.cat([prompt.ids_S[first:], target_T[:-1]])
        embedded_1LE = self._embedded(ids_L)[None].clone()
        embedded_1LE[:, [place - first for place in prompt.places]] = embedded_1NE
        logits_1TV, known = self.reader.read(embedded_1LE, self.known(prompt), len(target_T))
        log_1TV = logits_1TV.float().log_softmax(-1)
        said_1T = log_1TV.gather(-1, target_T[None, :, None])[..., 0]
        return -said_1T, said_1T.detach() >= log_1TV.detach().amax(-1), known.detached()

    def prompt(self, target_T: Tensor) -> _Prompt:
        """What is read before a reply, its beginning read at most once."""
        ids, places = self.victim.prompt(target_T)
        key = (*ids[: places[0]], -1, *ids[places[0] :], -1, *places)
        if key not in self._prompts:
            ids_S = torch.tensor(list(ids), device=target_T.device)
            known = None
            if places[0]:
                with torch.no_grad():
                    known = self.reader.read(self._embedded(ids_S[None, : places[0]]), (), 1)[1]
            self._prompts[key] = _Prompt(ids_S, tuple(places), known)
            if len(self._prompts) > PROMPTS:
                self._prompts.popitem(last=False)
        self._prompts.move_to_end(key)
        return self._prompts[key]

    def known(self, prompt: _Prompt) -> list[KeysValues]:
        """What was read of a prompt, as a list of parts that grows."""
        return [] if prompt.known is None else [prompt.known]

    def _embedded(self, ids: Tensor) -> Tensor:
        return self.victim.embedding_VE[ids]


class _SwapList:
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
        self.input_G = self._input_terms()
        self.best_choice, self.best_loss = -1, math.inf

    def best(self, beat: float) -> tuple[int, float]:
        """The candidate of least loss and that, ties to the first; -1 and `beat` where none undercuts it."""
        self.best_loss = beat
        first_of: dict[tuple[int, ...], int] = {}
        for candidate, words in enumerate(self.tried_GN.tolist()):
            first_of.setdefault(tuple(words), candidate)
        # Rising positions: the candidates of a piece share as much as they can.
        positions = self.positions_G.tolist()
        self.scorer.pieces.in_pieces(self._try, sorted(first_of.values(), key=lambda candidate: positions[candidate]))
        return self.best_choice, self.best_loss

    def all(self) -> Tensor:
        """The loss of each candidate (G,)."""
        loss_G, positions = torch.empty(len(self.words_G), device=self.words_G.device), self.positions_G.tolist()

        def read(piece: Sequence[int]) -> None:
            ended = self._to_the_end(self._first_words(torch.tensor(piece, device=self.words_G.device)), math.inf)
            loss_G[ended.candidates] = self._bound(ended)

        self.scorer.pieces.in_pieces(read, sorted(range(len(positions)), key=positions.__getitem__))
        return loss_G

    def _try(self, piece: Sequence[int]) -> None:
        """Reads some candidates, those that cannot be the best not to their ends."""
        reading = self._first_words(torch.tensor(piece, device=self.words_G.device))
        require_numbers(reading.nll_BT)
        choice, loss = self.best_choice, self.best_loss
        waiting, bound_B = [reading], self._bound(reading)
        if loss == math.inf and len(piece) > FIRST and float((bound_B > self.incumbent.loss).float().mean()) >= WORTH:
            cheapest_B = bound_B.argsort(stable=True)
            waiting = [reading.of(cheapest_B[:FIRST].sort().values), reading.of(cheapest_B[FIRST:].sort().values)]
        for part in waiting:
            ended = self._to_the_end(part, loss)
            loss_b = self._bound(ended)
            for candidate, cost in zip(ended.candidates.tolist(), loss_b.tolist(), strict=True):
                if cost < loss or (cost == loss and -1 < candidate < choice):
                    choice, loss = candidate, cost
        self.best_choice, self.best_loss = choice, loss

    def _first_words(self, candidates_B: Tensor) -> _Reading:
        """Reads up to the first word of the reply."""
        places, first = self.prompt.places, self.prompt.places[0]
        known = self.incumbent.cache.known
        shared = self.scorer.known(self.prompt)
        groups, nats, likeliest = [], [], []
        for start, group_b in self._groups(candidates_B):
            before = [*shared, known.cut(0, places[start] - first)]
            embedded_bLE = self.scorer.victim.embedding_VE[self.ids_GS[group_b, places[start] :]]
            logits_b1V, own = self.scorer.reader.read(embedded_bLE, before, 1)
            nll_b1, likeliest_b1 = said(logits_b1V, self.target[:1])
            groups.append(in_line([known.cut(0, places[start] - first).repeated(len(group_b)), own]))
            nats.append(nll_b1)
            likeliest.append(likeliest_b1)
        return _Reading(candidates_B, shared, one_below_the_other(groups), torch.cat(nats), torch.cat(likeliest))

    def _groups(self, candidates_B: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The first position that each group of candidates changes, and the group; candidates come in order of positions."""
        num_at = Counter(self.positions_G[candidates_B].tolist())
        ends = {position: self.ids_GS.shape[1] - self.prompt.places[position] for position in sorted(num_at)}
        pass_cost, done = PASS_GPU if candidates_B.is_cuda else PASS, 0
        for group in cheapest_groups([(num_at[position], length) for position, length in ends.items()], pass_cost):
            positions = list(ends)[group.start : group.stop]
            num = sum(num_at[position] for position in positions)
            yield positions[0], candidates_B[done : done + num]
            done += num

    def _to_the_end(self, reading: _Reading, loss: float) -> _Reading:
        """Those whose replies were read to the end, because what was known of them did not exceed a loss."""
        num_read, stage = 1, 1
        while num_read < len(self.target):
            left_b = self._left(reading, loss)
            if 1 - len(left_b) / max(1, len(reading.candidates)) < WORTH:
                stage = len(self.target)
            if len(left_b) < len(reading.candidates):
                reading = reading.of(left_b)
            if not len(left_b):
                break
            num = min(stage, len(self.target) - num_read)
            said_bL = self.target[num_read - 1 : num_read - 1 + num].expand(len(left_b), -1)
            embedded_bLE = self.scorer.victim.embedding_VE[said_bL]
            logits_bLV, new = self.scorer.reader.read(embedded_bLE, [*reading.before, reading.own], num)
            nll_bL, likeliest_bL = said(logits_bLV, self.target[num_read : num_read + num])
            require_numbers(nll_bL)
            reading = _Reading(
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


def is_causal(victim: Victim) -> bool:
    """Whether the fast scorer can serve a victim: a causal model that gives the same when it reads a text in parts."""
    if not (hasattr(victim, "prompt") and hasattr(victim, "model")):
        return False
    words = victim.searchable_V.nonzero()[:7, 0]
    return reads_in_parts(victim.model, victim.embedding_VE[words[torch.arange(7, device=words.device) % len(words)]])


def _runs(targets: Sequence[Tensor], words_RN: Tensor) -> Iterator[range]:
    """Rows one after the other that are read together: of one target, and beginning alike as far as most neighbours do."""
    same_rN = (words_RN[1:] == words_RN[:-1]).int().cumprod(1)
    alike = same_rN.sum(1).tolist()
    usual = Counter(alike).most_common(1)[0][0] if alike else 0
    start = 0
    for row, shared in enumerate(alike, 1):
        is_other = targets[row] is not targets[row - 1] and not torch.equal(targets[row], targets[row - 1])
        if shared < usual or is_other:
            yield range(start, row)
            start = row
    yield range(start, len(words_RN))
