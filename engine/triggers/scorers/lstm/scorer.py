"""The fast scorer of trigger searches in our own networks: the answers of `PlainScorer`, with a fraction of its arithmetic.

Of a list of candidates only the best counts, so every other one needs no more than a proof that it is worse:

    shared    what candidates have in common is computed once                seq2seq.py, input.py, cells.py
    bounded   a lower bound of each word's nats costs little of a softmax    half_spaces.py
    pruned    a candidate whose first terms reach the least so far is left out  swap_bound.py
    exact     those that remain are measured, the most promising first, until no bound is below the best
    screened  where it is wanted, bfloat16 says first which few of the list all this is done for   screening.py

The bound is a theorem about real numbers; `ROUNDING` is what float32 may add. `measure` yields it with the gradient.

Figures of an incumbent do not depend on what else is asked: products that serve several have fixed shapes, and on a CPU the
candidates of each incumbent are bounded by themselves. A GPU takes those of many at a time.

Shapes: B incumbents, G candidates each, n = B G, R inputs, N searched positions, T words of a target with its end,
c contenders, V words, E embedding, H hidden
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.lstm.half_spaces import HalfSpaces
from parley.engine.triggers.scorers.lstm.input import InputReader, InputTrace, Lookahead
from parley.engine.triggers.scorers.lstm.screening import SLACK, few, require_bfloat16
from parley.engine.triggers.scorers.lstm.seq2seq import Read, Seq2SeqReader, WordCache
from parley.engine.triggers.scorers.lstm.swap_bound import ROUNDING, FeasibleSet, SwapBound, feasible
from parley.engine.triggers.scorers.scorer import Incumbent, Swaps
from parley.engine.triggers.victims import Seq2SeqVictim

INPUTS = 8
"""Inputs read together, always as many."""
TRIED = 32
"""The same of inputs that are only to be scored."""
GROUP = 32
"""Incumbents whose candidates a GPU takes together."""


@dataclass(eq=False)
class _Trace:
    """What is kept with an incumbent; its cache is anchored when it is first screened."""

    cache: WordCache
    half_spaces: HalfSpaces
    gradient_NE: Tensor
    input: InputTrace | None


class LstmScorer:
    """A `Scorer` for a sequence-to-sequence model of ours, on the device that the networks are on.

    Args:
        victim: the network; its language model is needed when the objective weighs it, else for readings alone.
        objective: what is minimised.
        screening: whether bfloat16 finds the best few swaps of a list, and float32 decides among these alone (`screening.py`).

    Raises:
        ConfigError: it is to be screened, and the device does not multiply bfloat16.
    """

    def __init__(self, victim: Seq2SeqVictim, objective: TriggerObjective, *, screening: bool = False) -> None:
        model, lm = victim.model, victim.lm
        assert objective.lm_weight == 0 or lm is not None, "the objective weighs a language model"
        self.victim, self.objective, self.screening = victim, objective, screening
        dtypes = (torch.float32, torch.bfloat16) if screening else (torch.float32,)
        if screening:
            require_bfloat16(victim.embedding_VE.device, model.sizes.hidden)
        self._replies, self._inputs = Seq2SeqReader(model, dtypes), None if lm is None else InputReader(lm, dtypes)
        self._device = self._replies.embedding_VE.device

    @torch.no_grad()
    def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[Incumbent]:
        """Measures inputs, with the slopes and the bounds at them."""
        measured: dict[int, Incumbent] = {}
        for rows in _alike(targets, INPUTS):
            measured.update(zip(rows, self._measure([targets[row] for row in rows], words_BN[rows]), strict=True))
        return [measured[row] for row in range(len(targets))]

    @torch.no_grad()
    def slopes(self, incumbents: Sequence[Incumbent], positions_B: Tensor) -> Tensor:
        """The one-hot gradient at a position, as `PlainScorer.slopes`."""
        places = list(zip([incumbent.cache for incumbent in incumbents], positions_B.tolist(), strict=True))
        gradient_BE = torch.stack([trace.gradient_NE[position] for trace, position in places])
        slopes_BV = _in_blocks(gradient_BE, self._replies.embedding_VE)
        if self.objective.lm_weight == 0:
            return slopes_BV
        assert self._inputs is not None
        weights = [self.objective.input_weight(trace.input.nll_1M.mean(1)) for trace, _ in places]
        gradient_BE = torch.stack([w * trace.input.gradient_NE[p] for w, (trace, p) in zip(weights, places, strict=True)])
        slopes_BV += _in_blocks(gradient_BE, self._inputs.embedding_VE)
        for slope_V, weight, (trace, position) in zip(slopes_BV, weights, places, strict=True):
            slope_V -= weight / (self.victim.input_length + 1) * trace.input.log_NV[position]
        return slopes_BV

    def gradients(self, incumbents: Sequence[Incumbent]) -> Tensor:
        """What was kept of the pass backward (B, N, E)."""
        return torch.stack([incumbent.cache.gradient_NE for incumbent in incumbents])

    @torch.no_grad()
    def best_swap(self, incumbents: Sequence[Incumbent], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """The argmin over the lists, or over the few that are left of them: proved where `PlainScorer` looks."""
        bounds: dict[int, SwapBound] = {}
        left: dict[int, list[int]] = {}
        if self.screening:
            self._anchor(incumbents)
        for group in self._groups(incumbents):
            chosen, asked = torch.tensor(group, device=self._device), [incumbents[i] for i in group]
            some, beat_b = Swaps(swaps.positions_BG[chosen], swaps.words_BG[chosen]), beat_B[chosen]
            if self.screening:
                few_BK = self._few(asked, some, beat_b)
                left.update(zip(group, few_BK.tolist(), strict=True))
                some = Swaps(some.positions_BG.gather(1, few_BK), some.words_BG.gather(1, few_BK))
            bounds.update(zip(group, self._bounds(asked, some, beat_b), strict=True))
        while taken := [(bound, places) for bound in bounds.values() if (places := bound.next()) is not None]:
            for (bound, _), losses in zip(taken, self._exact(taken), strict=True):
                bound.settle(losses)
        ended = [bounds[i] for i in range(len(incumbents))]
        choices = [bound.choice for bound in ended]
        if self.screening:
            choices = [left[i][choice] if choice >= 0 else -1 for i, choice in enumerate(choices)]
        choice_B = torch.tensor(choices, device=beat_B.device)
        return choice_B, torch.tensor([bound.loss for bound in ended], dtype=beat_B.dtype, device=beat_B.device)

    @torch.no_grad()
    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """The loss of each input (R,)."""
        loss_R = torch.empty(len(words_RN), device=self._device)
        for rows in _alike(targets, TRIED):
            said_BT, words_BN = torch.stack([targets[row] for row in rows]), words_RN[rows]
            states_BTH = self._replies.decoded(_filled(said_BT, TRIED), _filled(words_BN, TRIED))[: len(rows)]
            nats = self._replies.output.exact(states_BTH.flatten(0, 1), said_BT.flatten())
            nll_BT, likeliest_BT = (part.view_as(said_BT) for part in nats)
            input_nll_B = None
            if self.objective.lm_weight > 0:
                assert self._inputs is not None
                input_nll_B = self._inputs.mean_nll(_filled(words_BN, TRIED))[: len(rows)]
            loss_R[rows] = self.objective.loss(nll_BT, likeliest_BT, torch.ones_like(likeliest_BT), input_nll_B)
        return loss_R

    def _read(self, targets_BT: Tensor, words_BN: Tensor) -> Read:
        """Reads at most `INPUTS` inputs and their targets."""
        return self._replies.read(_filled(targets_BT), _filled(words_BN))

    def _measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[Incumbent]:
        """Measures at most `INPUTS` inputs, whose targets are of one length."""
        said_BT = torch.stack(list(targets))
        read, output = self._read(said_BT, words_BN), self._replies.output
        states_nH = read.decoded_BTH.detach()[: len(targets)].flatten(0, 1)
        touched = output.touch(states_nH, output.logits(states_nH), said_BT)
        pull_BTH = torch.zeros_like(read.decoded_BTH)
        for pull_TH, each in zip(pull_BTH, touched, strict=False):
            pull_TH.copy_(self.objective.weights(*each.nats)[:, None] * each.pull_TH / len(each.pull_TH))
        (gradient_BME,) = torch.autograd.grad(read.decoded_BTH, read.embedded_BME, pull_BTH)
        inputs, input_nll = self._measure_inputs(words_BN)
        measured = []
        for row, (target_T, words_N, each) in enumerate(zip(targets, words_BN, touched, strict=True)):
            nll_1T, likeliest_1T = (part[None] for part in each.nats)
            weighed_1 = None if self.objective.lm_weight == 0 else input_nll[row, None]
            loss = float(self.objective.loss(nll_1T, likeliest_1T, torch.ones_like(likeliest_1T), weighed_1))
            reading = Reading(
                (-each.nats.nll).tolist(),
                each.nats.likeliest.tolist(),
                None if self._inputs is None else -float(input_nll[row]),
            )
            cache = self._replies.cache(read.past.of(row), target_T)
            trace = _Trace(cache, each.half_spaces, gradient_BME[row, :-1].clone(), inputs[row])
            measured.append(Incumbent(target_T, words_N, loss, reading, trace))
        return measured

    def _measure_inputs(self, words_BN: Tensor) -> tuple[list[InputTrace | None], Tensor]:
        """What is kept of each input under the language model, where the objective weighs it, and R(x), where there is one."""
        if self._inputs is None:
            return [None] * len(words_BN), words_BN.new_empty(0)
        if self.objective.lm_weight == 0:
            return [None] * len(words_BN), self._inputs.mean_nll(_filled(words_BN))
        traces = self._inputs.read(_filled(words_BN))[: len(words_BN)]
        return list(traces), torch.cat([trace.nll_1M.mean(1) for trace in traces])

    def _groups(self, incumbents: Sequence[Incumbent]) -> list[list[int]]:
        """Incumbents whose candidates are taken together: on a CPU each by itself."""
        if self._device.type == "cpu":
            return [[i] for i in range(len(incumbents))]
        return _alike([incumbent.target for incumbent in incumbents], GROUP)

    def _feasible(
        self, incumbents: Sequence[Incumbent], swaps: Swaps, beat_B: Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[FeasibleSet, Lookahead | None]:
        """Those candidates of a group that may undercut what is to be beaten, their rows counted over the whole group.

        Swaps for the word that is there are left out: they cost what the incumbent does.
        """
        traces: list[_Trace] = [incumbent.cache for incumbent in incumbents]
        if not swaps.words_BG.numel():
            return FeasibleSet.none(swaps.words_BG.flatten(), beat_B, self._replies.embedding_VE), None
        (batch, group), positions_BG, words_BG = swaps.words_BG.shape, swaps.positions_BG, swaps.words_BG
        least_n, beat_n = beat_B.new_zeros(batch * group), beat_B.repeat_interleave(group)
        lookahead = self._lookahead(traces, swaps, dtype)
        if lookahead is not None:
            half_spaces = HalfSpaces.joined([trace.input.half_spaces for trace in traces if trace.input is not None])
            input_nll_n = lookahead.bound(half_spaces, ROUNDING)
            least_n = self.objective.input_weight(input_nll_n) * input_nll_n
        least_n = least_n.masked_fill(_stays(incumbents, swaps).flatten(), torch.inf)
        rows_n = torch.arange(batch * group, device=self._device)
        if batch == 1:
            rows_n = torch.nonzero(least_n < beat_n)[:, 0]
            positions_BG, words_BG, least_n, beat_n = (
                positions_BG[:, rows_n],
                words_BG[:, rows_n],
                least_n[rows_n],
                beat_n[rows_n],
            )
        if not len(rows_n):
            return FeasibleSet.none(rows_n, least_n, self._replies.embedding_VE), lookahead
        cache = WordCache.joined([trace.cache for trace in traces])
        half_spaces = HalfSpaces.joined([trace.half_spaces for trace in traces])
        replies = self._replies.candidates(cache, positions_BG, words_BG, dtype)
        return feasible(replies, half_spaces, self.objective, rows_n, least_n, beat_n), lookahead

    def _anchor(self, incumbents: Sequence[Incumbent]) -> None:
        """Reads incumbents once more that are screened for the first time, always as many together."""
        new = [incumbent for incumbent in incumbents if not incumbent.cache.cache.is_anchored]
        for rows in _alike([incumbent.target for incumbent in new], INPUTS):
            traces: list[_Trace] = [new[row].cache for row in rows]
            filled = [trace.cache for trace in traces] + [traces[0].cache] * (INPUTS - len(rows))
            anchored = self._replies.anchored(filled, _filled(torch.stack([new[row].words for row in rows])))
            for trace, cache in zip(traces, anchored, strict=False):
                trace.cache = cache

    def _few(self, incumbents: Sequence[Incumbent], swaps: Swaps, beat_B: Tensor) -> Tensor:
        """The candidates (B, K) of a group that bfloat16 leaves to float32."""
        found, _ = self._feasible(incumbents, swaps, beat_B + SLACK, torch.bfloat16)
        stays_BG, loss_B = _stays(incumbents, swaps), beat_B.new_tensor([incumbent.loss for incumbent in incumbents])
        return few(found, torch.where(stays_BG & (loss_B < beat_B)[:, None], loss_B[:, None], torch.inf))

    def _bounds(self, incumbents: Sequence[Incumbent], swaps: Swaps, beat_B: Tensor) -> list[SwapBound]:
        """Bounds the candidates of a group."""
        found, lookahead = self._feasible(incumbents, swaps, beat_B)
        group, stays_BG = swaps.words_BG.shape[1], _stays(incumbents, swaps)
        bounds, owners_c = [], found.rows_c // max(1, group)
        for i, (incumbent, beat) in enumerate(zip(incumbents, beat_B.tolist(), strict=True)):
            own = torch.nonzero(owners_c == i)[:, 0]
            mine = FeasibleSet(*(part[own] for part in found))
            bounds.append(SwapBound.of(incumbent, mine, i * group, lookahead, beat, torch.nonzero(stays_BG[i])[:, 0].tolist()))
        return bounds

    def _lookahead(self, traces: Sequence[_Trace], swaps: Swaps, dtype: torch.dtype) -> Lookahead | None:
        """The candidates under the language model, where the objective weighs it."""
        if self.objective.lm_weight == 0:
            return None
        assert self._inputs is not None
        kept = [trace.input for trace in traces if trace.input is not None]
        return self._inputs.lookahead(kept, swaps.positions_BG, swaps.words_BG, dtype)

    def _exact(self, taken: Sequence[tuple[SwapBound, Tensor]]) -> list[list[float]]:
        """The losses of some contenders of each bound."""
        states = [bound.states_cTH[places].flatten(0, 1) for bound, places in taken]
        said = [bound.target_T.repeat(len(places)) for bound, places in taken]
        nats = self._replies.output.exact(torch.cat(states), torch.cat(said))
        input_nll: list[Tensor] | list[None] = [None] * len(taken)
        if self.objective.lm_weight > 0:
            assert self._inputs is not None
            contenders = [bound.lookahead.of(places) for bound, places in taken if bound.lookahead is not None]
            input_nll = self._inputs.exact(contenders)
        losses = []
        parts = zip(taken, *(part.split([len(words) for words in said]) for part in nats), input_nll, strict=True)
        for (_, places), nll, likeliest, input_nll_c in parts:
            nll_cT, likeliest_cT = (part.unflatten(0, (len(places), -1)) for part in (nll, likeliest))
            loss_c = self.objective.loss(nll_cT, likeliest_cT, torch.ones_like(likeliest_cT), input_nll_c)
            losses.append(loss_c.tolist())
        return losses


def _stays(incumbents: Sequence[Incumbent], swaps: Swaps) -> Tensor:
    """Which swaps (B, G) put the word that is there already."""
    words_BN = torch.stack([incumbent.words for incumbent in incumbents])
    return words_BN.gather(1, swaps.positions_BG) == swaps.words_BG


def _alike(targets: Sequence[Tensor], most: int) -> list[list[int]]:
    """Indices of targets of one length together, at most so many."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for row, target_T in enumerate(targets):
        by_length[len(target_T)].append(row)
    return [rows[start : start + most] for rows in by_length.values() for start in range(0, len(rows), most)]


def _filled(rows_BX: Tensor, num: int = INPUTS) -> Tensor:
    """As many rows as are read together, the first one repeated."""
    return torch.cat([rows_BX, rows_BX[:1].expand(num - len(rows_BX), -1)])


def _in_blocks(gradient_BE: Tensor, embedding_VE: Tensor) -> Tensor:
    """Products (B, V) of gradients and all embeddings."""
    blocks = [_filled(block) @ embedding_VE.t() for block in gradient_BE.split(INPUTS)]
    return torch.cat(blocks)[: len(gradient_BE)]
