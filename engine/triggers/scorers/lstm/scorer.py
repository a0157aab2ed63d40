"""The fast scorer of trigger searches in our own networks: the answers of `PlainScorer`, with a fraction of its arithmetic.

Of a list of candidates only the best counts, so every other one needs no more than a proof that it is worse:

    shared    common parts of candidates are computed once                      seq2seq.py, InputReader
    bounded   a lower bound of each word's nats costs little of a softmax       half_spaces.py
    pruned    a candidate whose first terms reach the least so far is left out  SwapBound
    exact     those that remain are measured, the most promising first, until no bound is below the best
    screened  optional: bfloat16 first finds the few of the list that all this is done for

Results of an incumbent do not depend on the other incumbents: products that serve several have fixed shapes, and on a CPU the
candidates of each incumbent are bounded by themselves. A GPU takes those of many at a time.

The language model (`InputReader`): R(x), its bound and its slopes. A candidate's words before the swap cost the same as the
incumbent's; the swapped word's nats stand in the incumbent's log softmax, because the words before it are the same; only the
words after it must be read again.

Bounds (`feasible`, `SwapBound`): no term of the loss is negative, and each rises with the nats of its word
(`engine/triggers/methods/objective.py`), so bounds of the first words are a bound of the loss, and candidates are left out
between words. The bound is a theorem about real numbers; `ROUNDING` is the error that float32 may add. `measure` yields it with
the gradient.

Screening (`few`): candidates are read with products in bfloat16, and these only of a candidate's difference from its
incumbent, for which the products are known; all else is float32, and bounded as always. On a network fitted to #ubuntu, whose
candidates differ by hundredths of a nat, losses were off by 0.00005 nats on average and 0.0017 at most. Products of whole
states left the best out of the best six in one visit of thirteen. A provable bound is of no use: carried through the steps of
a recurrence, it soon exceeds every distance between candidates. So no rough loss is ever reported. Float32 measures the few,
decides among them whether one undercuts the loss to beat, and measures the swap that a search takes. The search can differ from
the exact one only in its choice of a swap, if bfloat16 leaves the best out.

Shapes: B incumbents, G candidates each, n = B G, R inputs, N searched words, M = N + 1 words read with `<s>`, or predicted with
`</s>`, K of them read again (screening: the few), T words of a target with its end, c contenders, V words, E embedding,
H hidden
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.lstm.half_spaces import HalfSpaces, OutputLayer, joined
from parley.engine.triggers.scorers.lstm.seq2seq import Past, Replies, Seq2SeqReader, Swapped, WordCache, WordLstm
from parley.engine.triggers.scorers.scorer import BestInput, Swaps
from parley.engine.triggers.victims import Seq2SeqVictim
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID
from parley.policies.core.layers import ENOUGH, Weight, clock_of, cost_of_bfloat16, multiplies_bfloat16, shortest_share
from parley.policies.seq2seq.model import LanguageModel


@dataclass(frozen=True)
class InputTrace:
    """The stored readings of one incumbent under the language model, B = 1.

    Args:
        past: the network over `<s>` and the input.
        nll_1M: nats of each word of the input and of its end.
        log_NV: log probability of every word in the place of each.
        gradient_NE: of R(x) in the embeddings of the input.
        half_spaces: the bound.
    """

    past: Past
    nll_1M: Tensor
    log_NV: Tensor
    gradient_NE: Tensor
    half_spaces: HalfSpaces


@dataclass(frozen=True)
class Lookahead:
    """Candidates read on from their swaps.

    Args:
        first: the first word that stands behind a swap in any of them.
        states_nKH: states that predict that word and each later one.
        said_nK: those words.
        counted_nK: which of them stand behind the row's own swap.
        known_n: nats of the words up to the swapped one, summed.
    """

    first: int
    states_nKH: Tensor
    said_nK: Tensor
    counted_nK: Tensor
    known_n: Tensor

    def of(self, rows: Tensor) -> Lookahead:
        """Return some of the candidates."""
        return Lookahead(self.first, self.states_nKH[rows], self.said_nK[rows], self.counted_nK[rows], self.known_n[rows])

    def bound(self, half_spaces: HalfSpaces, rounding: float) -> Tensor:
        """Return the least value of R(x) (n,); the arguments as in `HalfSpaces.bound`."""
        batch, least_nK = len(half_spaces.bias_BS), []
        for word, states_nH in enumerate(self.states_nKH.unbind(1), start=self.first):
            least_nK.append(half_spaces.bound(word, states_nH.unflatten(0, (batch, -1)), rounding).nll.flatten())
        return self.mean(torch.stack(least_nK, 1))

    def mean(self, nll_nK: Tensor) -> Tensor:
        """Return R(x) of each candidate (n,), given the nats of its words; those that are not counted do not count."""
        length = self.first + self.said_nK.shape[1]
        return (self.known_n + torch.where(self.counted_nK, nll_nK, 0.0).sum(1)) / length


class InputReader:
    """A language model's weights, arranged for many candidates.

    Args:
        lm: the network.
        dtypes: precisions in which candidates are read.
    """

    def __init__(self, lm: LanguageModel, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> None:
        self.embedding_VE = lm.eval().embedding.weight.detach()
        self.lstm, self.output = WordLstm(lm.lstm, self.embedding_VE, dtypes), OutputLayer(lm.output)

    def read(self, words_BN: Tensor) -> list[InputTrace]:
        """Read whole inputs, always as many together."""
        words_BM, said_BM = pad(words_BN, (1, 0), value=BOS_ID), pad(words_BN, (0, 1), value=EOS_ID)
        batch, length = words_BM.shape
        with torch.enable_grad():
            embedded_BME = self.embedding_VE[words_BM].requires_grad_()
            states_BMH, past = self.lstm.unroll(words_BM, embedded_BME)
        states_nH = states_BMH.detach().flatten(0, 1)
        logits_nV = self.output.logits(states_nH)
        touched = self.output.touch(states_nH, logits_nV.clone(), said_BM)
        pull_BMH = torch.stack([touch.pull_TH for touch in touched]) / length
        (gradient_BME,) = torch.autograd.grad(states_BMH, embedded_BME, pull_BMH)
        logits_BMV = logits_nV[:, : self.output.num_words].unflatten(0, (batch, length))
        traces = []
        for row, touch in enumerate(touched):
            log_NV = (logits_BMV[row] - touch.log_whole_T[:, None])[:-1]
            gradient_NE = gradient_BME[row, 1:].clone()
            traces.append(InputTrace(past.of(row), touch.nats.nll[None], log_NV, gradient_NE, touch.half_spaces))
        return traces

    def mean_nll(self, words_BN: Tensor) -> Tensor:
        """Return R(x) of whole inputs (B,), always as many together."""
        words_BM, said_BM = pad(words_BN, (1, 0), value=BOS_ID), pad(words_BN, (0, 1), value=EOS_ID)
        states_BMH, _ = self.lstm.unroll(words_BM, self.embedding_VE[words_BM])
        return self.output.exact(states_BMH.flatten(0, 1), said_BM.flatten()).nll.unflatten(0, said_BM.shape).mean(1)

    def exact(self, lookahead: Sequence[Lookahead]) -> list[Tensor]:
        """Return the measured R(x) of candidates."""
        counted = [ahead.counted_nK.flatten() for ahead in lookahead]
        states_xH = torch.cat([ahead.states_nKH.flatten(0, 1)[rows] for ahead, rows in zip(lookahead, counted, strict=True)])
        said_x = torch.cat([ahead.said_nK.flatten()[rows] for ahead, rows in zip(lookahead, counted, strict=True)])
        parts = self.output.exact(states_xH, said_x).nll.split([int(rows.sum()) for rows in counted])
        return [
            ahead.mean(torch.zeros_like(ahead.said_nK, dtype=part.dtype).masked_scatter_(ahead.counted_nK, part))
            for ahead, part in zip(lookahead, parts, strict=True)
        ]

    def lookahead(
        self, traces: Sequence[InputTrace], positions_BG: Tensor, swaps_BG: Tensor, dtype: torch.dtype = torch.float32
    ) -> Lookahead:
        """Read candidates on from their swaps, with products of some precision."""
        past, group = joined([trace.past for trace in traces]), positions_BG.shape[1]
        swapped = Swapped.of(past.words_BM, positions_BG + 1, swaps_BG)
        states_KnH = self.lstm.reread(past, swapped, dtype)
        swaps = zip(traces, positions_BG, swaps_BG, strict=True)
        looked_up_n = torch.cat([trace.log_NV[positions_G, swaps_G] for trace, positions_G, swaps_G in swaps])
        places_M, positions_n1 = (
            torch.arange(past.words_BM.shape[1], device=positions_BG.device),
            positions_BG.flatten()[:, None],
        )
        nll_nM = torch.cat([trace.nll_1M for trace in traces]).repeat_interleave(group, 0)
        known_n = torch.where(places_M < positions_n1, nll_nM, 0.0).sum(1) - looked_up_n
        said_nM = pad(past.words_BM[:, 1:], (0, 1), value=EOS_ID).repeat_interleave(group, 0)
        said_nK, counted_nK = said_nM[:, swapped.first :], (places_M > positions_n1)[:, swapped.first :]
        return Lookahead(swapped.first, states_KnH.transpose(0, 1), said_nK, counted_nK, known_n)


ROUNDING = 1e-5
"""Nats by which a word's bound may be off in float32: ten times what is seen at the published sizes."""
LEFT = 0.75
"""Candidates are left out between words once no more than this share of them can win."""
TAKEN = 4
"""Contenders of a list measured together, after the first alone."""


class FeasibleSet(NamedTuple):
    """The candidates that may cost less than the loss to beat."""

    rows_c: Tensor
    """Their rows."""
    least_c: Tensor
    """Their least losses."""
    states_cTH: Tensor
    """Decoder states that predict the words of the target."""

    @classmethod
    def none(cls, rows_n: Tensor, least_n: Tensor, states: Tensor) -> FeasibleSet:
        """Return an empty set, of the kinds of the tensors given."""
        return cls(rows_n[:0], least_n[:0], states.new_zeros(0, 0, 0))


def feasible(
    replies: Replies, half_spaces: HalfSpaces, objective: TriggerObjective, rows_n: Tensor, least_n: Tensor, beat_n: Tensor
) -> FeasibleSet:
    """Decode candidates as far as they may win.

    Args:
        replies: the candidates.
        half_spaces: the bound of their incumbents.
        objective: what is minimised.
        rows_n: the numbers of the candidates.
        least_n: lower bounds of the language model's terms.
        beat_n: the loss that each must undercut.
    """
    batch, length = half_spaces.targets_BT.shape
    states_tnH: list[Tensor] = []
    for word in range(length):
        states_nH = replies.step()
        bound = half_spaces.bound(word, states_nH.unflatten(0, (batch, -1)), ROUNDING)
        nll_n, likeliest_n = bound.nll.flatten(), bound.likeliest.flatten()
        least_n = least_n + objective.weights(nll_n, likeliest_n) * nll_n / length
        states_tnH.append(states_nH.clone())
        # On a GPU the rows of many incumbents keep their order, and asking how many are left would wait for it.
        if batch > 1:
            continue
        left = torch.nonzero(least_n < beat_n)[:, 0]
        if len(left) <= LEFT * len(least_n):
            rows_n, least_n, beat_n = rows_n[left], least_n[left], beat_n[left]
            states_tnH = [states_nH[left] for states_nH in states_tnH]
            replies.keep(left)
        if not len(left):
            break
    left = torch.nonzero(least_n < beat_n)[:, 0]
    return FeasibleSet(rows_n[left], least_n[left], torch.stack(states_tnH, 1)[left])


@dataclass
class SwapBound:
    """The candidates of one incumbent that may be its best swap.

    Args:
        target_T: the incumbent's target.
        rows: which candidates they are, the most promising first.
        least: what each costs at least.
        states_cTH: decoder states that predict the words of the target.
        lookahead: the same under the language model, where the objective weighs it.
        loss: the best so far; at first what is to be beaten.
        choice: which candidate that is; -1 for none.
        measured: how many are measured.
    """

    target_T: Tensor
    rows: list[int]
    least: list[float]
    states_cTH: Tensor
    lookahead: Lookahead | None
    loss: float
    choice: int
    measured: int = 0

    @classmethod
    def of(
        cls, incumbent: BestInput, feasible: FeasibleSet, first: int, lookahead: Lookahead | None, beat: float, stays: list[int]
    ) -> SwapBound:
        """Return the bound of an incumbent's swaps.

        Args:
            incumbent: where the swaps start from.
            feasible: its candidates that may win.
            first: the row of its first candidate; in `lookahead` and `feasible` the rows of a whole group are numbered.
            lookahead: candidates under the language model.
            beat: the loss that must be undercut.
            stays: candidates that are the incumbent itself.
        """
        order_c = feasible.least_c.argsort(stable=True)
        rows_c = feasible.rows_c[order_c]
        stay = stays and incumbent.loss < beat
        return cls(
            incumbent.target,
            (rows_c - first).tolist(),
            feasible.least_c[order_c].tolist(),
            feasible.states_cTH[order_c],
            None if lookahead is None else lookahead.of(rows_c),
            incumbent.loss if stay else beat,
            stays[0] if stay else -1,
        )

    def next(self) -> Tensor | None:
        """Return the candidates to measure now; None when all others are proved worse."""
        last = self.measured + (TAKEN if self.measured else 1)
        places = [index for index in range(self.measured, min(last, len(self.rows))) if self.least[index] < self.loss]
        return torch.tensor(places, device=self.states_cTH.device) if places else None

    def settle(self, losses: list[float]) -> None:
        """Record the measured losses of those candidates."""
        for row, loss in zip(self.rows[self.measured :], losses, strict=False):
            if loss < self.loss or (loss == self.loss and row < self.choice):
                self.choice, self.loss = row, loss
        self.measured += len(losses)


_LOG = logging.getLogger(__name__)

FEW = 3
"""Candidates of a list that float32 measures."""
SLACK = 0.005
"""Nats above what is to be beaten from which on all are left out: bfloat16 may find a candidate worse than it is."""
MADE_UP = 100
"""Rows of the product by which bfloat16 is measured."""


def require_bfloat16(device: torch.device, width: int) -> None:
    """Raise ConfigError if a device cannot multiply bfloat16, and warn if that saves nothing.

    Args:
        device: of the network.
        width: of its states.

    Raises:
        ConfigError: it has no instructions for such products.
    """
    if not multiplies_bfloat16(device):
        what, fix = "a screened search multiplies in bfloat16, and the processor cannot", "leave it out, or take another device"
        raise ConfigError(what, where="search.screening", got=str(device), fix=fix)
    cost = cost_of_bfloat16(device, {"decoder_step": width}, lambda: _cost(device, width))
    if cost >= ENOUGH:
        _LOG.warning("bfloat16 takes %.0f %% of float32's time: a screened search may be slower than an exact one", 100 * cost)


def few(feasible: FeasibleSet, known_BG: Tensor) -> Tensor:
    """Return the candidates (B, K) that may be the best, in rising order; of one incumbent alone, maybe fewer than `FEW`.

    Args:
        feasible: those that may undercut what is to be beaten, with what they cost roughly.
        known_BG: what candidates cost that need not be read; infinity for the others.
    """
    rough_n = known_BG.flatten()
    rough_n[feasible.rows_c] = feasible.least_c
    best_BG = rough_n.view_as(known_BG).sort(dim=1, stable=True)
    chosen_BK = best_BG.indices[:, :FEW]
    if len(known_BG) == 1:
        chosen_BK = chosen_BK[:, best_BG.values[0, :FEW].isfinite()]
    return chosen_BK.sort(1).values


def _cost(device: torch.device, width: int) -> float:
    """Return the time of a step of a decoder in bfloat16 as a share of float32's."""
    rows_nI, weight_JI = torch.ones(MADE_UP, 2 * width, device=device), torch.ones(4 * width, 2 * width, device=device)
    half, single = (Weight(weight_JI, dtype) for dtype in (torch.bfloat16, torch.float32))
    # A number on this side is there when a GPU is done.
    return shortest_share(lambda: float(half(rows_nI)[0, 0]), lambda: float(single(rows_nI)[0, 0]), clock_of(device))


INPUTS = 8
"""Inputs read together, always as many."""
TRIED = 32
"""The same of inputs that are only to be scored."""
GROUP = 32
"""Incumbents whose candidates a GPU takes together."""


@dataclass(eq=False)
class _Trace:
    """The stored readings of an incumbent; its cache is anchored when it is first screened."""

    cache: WordCache
    half_spaces: HalfSpaces
    gradient_NE: Tensor
    input: InputTrace | None


class LstmScorer:
    """A `Scorer` for a sequence-to-sequence model of ours, on the device that the networks are on.

    Args:
        victim: the network; its language model is needed when the objective weighs it, else for readings alone.
        objective: what is minimised.
        screening: whether bfloat16 finds the best few swaps of a list, and float32 decides among these alone.

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
    def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[BestInput]:
        """Measure inputs, with the slopes and the bounds at them."""
        measured: dict[int, BestInput] = {}
        for rows in _alike(targets, INPUTS):
            measured.update(zip(rows, self._measure([targets[row] for row in rows], words_BN[rows]), strict=True))
        return [measured[row] for row in range(len(targets))]

    @torch.no_grad()
    def slopes(self, incumbents: Sequence[BestInput], positions_B: Tensor) -> Tensor:
        """Return the one-hot gradient at a position, as `PlainScorer.slopes`."""
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

    def gradients(self, incumbents: Sequence[BestInput]) -> Tensor:
        """Return the stored gradients of the backward pass (B, N, E)."""
        return torch.stack([incumbent.cache.gradient_NE for incumbent in incumbents])

    @torch.no_grad()
    def best_swap(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the argmin over the lists, or over the few that screening leaves; proved without measuring all."""
        bounds: dict[int, SwapBound] = {}
        left: dict[int, list[int]] = {}
        if self.screening:
            self._anchor(incumbents)
        for group in self._groups(incumbents):
            chosen, group_incumbents = torch.tensor(group, device=self._device), [incumbents[i] for i in group]
            some, beat_b = Swaps(swaps.positions_BG[chosen], swaps.words_BG[chosen]), beat_B[chosen]
            if self.screening:
                few_BK = self._few(group_incumbents, some, beat_b)
                left.update(zip(group, few_BK.tolist(), strict=True))
                some = Swaps(some.positions_BG.gather(1, few_BK), some.words_BG.gather(1, few_BK))
            bounds.update(zip(group, self._bounds(group_incumbents, some, beat_b), strict=True))
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
        """Return the loss of each input (R,)."""
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

    def _measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[BestInput]:
        """Measure at most `INPUTS` inputs, whose targets are of one length."""
        said_BT = torch.stack(list(targets))
        read, output = self._replies.read(_filled(said_BT), _filled(words_BN)), self._replies.output
        states_nH = read.decoded_BTH.detach()[: len(targets)].flatten(0, 1)
        touched = output.touch(states_nH, output.logits(states_nH), said_BT)
        pull_BTH = torch.zeros_like(read.decoded_BTH)
        for pull_TH, touch in zip(pull_BTH, touched, strict=False):
            pull_TH.copy_(self.objective.weights(*touch.nats)[:, None] * touch.pull_TH / len(touch.pull_TH))
        (gradient_BME,) = torch.autograd.grad(read.decoded_BTH, read.embedded_BME, pull_BTH)
        inputs, input_nll = self._measure_inputs(words_BN)
        measured = []
        for row, (target_T, words_N, touch) in enumerate(zip(targets, words_BN, touched, strict=True)):
            nll_1T, likeliest_1T = (part[None] for part in touch.nats)
            weighed_1 = None if self.objective.lm_weight == 0 else input_nll[row, None]
            loss = float(self.objective.loss(nll_1T, likeliest_1T, torch.ones_like(likeliest_1T), weighed_1))
            reading = Reading(
                (-touch.nats.nll).tolist(),
                touch.nats.likeliest.tolist(),
                None if self._inputs is None else -float(input_nll[row]),
            )
            cache = self._replies.cache(read.past.of(row), target_T)
            trace = _Trace(cache, touch.half_spaces, gradient_BME[row, :-1].clone(), inputs[row])
            measured.append(BestInput(target_T, words_N, loss, reading, trace))
        return measured

    def _measure_inputs(self, words_BN: Tensor) -> tuple[list[InputTrace | None], Tensor]:
        """Return the language model's readings of each input, if the objective weighs it, and R(x), if there is a model."""
        if self._inputs is None:
            return [None] * len(words_BN), words_BN.new_empty(0)
        if self.objective.lm_weight == 0:
            return [None] * len(words_BN), self._inputs.mean_nll(_filled(words_BN))
        traces = self._inputs.read(_filled(words_BN))[: len(words_BN)]
        return list(traces), torch.cat([trace.nll_1M.mean(1) for trace in traces])

    def _groups(self, incumbents: Sequence[BestInput]) -> list[list[int]]:
        """Return groups of incumbents whose candidates are taken together: on a CPU each by itself."""
        if self._device.type == "cpu":
            return [[i] for i in range(len(incumbents))]
        return _alike([incumbent.target for incumbent in incumbents], GROUP)

    def _feasible(
        self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[FeasibleSet, Lookahead | None]:
        """Return the candidates of a group that may undercut the loss to beat, their rows counted over the whole group.

        Swaps for the word that is there are left out: they cost what the incumbent does.
        """
        traces: list[_Trace] = [incumbent.cache for incumbent in incumbents]
        if not swaps.words_BG.numel():
            return FeasibleSet.none(swaps.words_BG.flatten(), beat_B, self._replies.embedding_VE), None
        (batch, group), positions_BG, words_BG = swaps.words_BG.shape, swaps.positions_BG, swaps.words_BG
        least_n, beat_n = beat_B.new_zeros(batch * group), beat_B.repeat_interleave(group)
        lookahead = self._lookahead(traces, swaps, dtype)
        if lookahead is not None:
            half_spaces = joined([trace.input.half_spaces for trace in traces if trace.input is not None])
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
        cache = joined([trace.cache for trace in traces])
        half_spaces = joined([trace.half_spaces for trace in traces])
        replies = self._replies.candidates(cache, positions_BG, words_BG, dtype)
        return feasible(replies, half_spaces, self.objective, rows_n, least_n, beat_n), lookahead

    def _anchor(self, incumbents: Sequence[BestInput]) -> None:
        """Read incumbents again that are screened for the first time, always as many together."""
        new = [incumbent for incumbent in incumbents if not incumbent.cache.cache.is_anchored]
        for rows in _alike([incumbent.target for incumbent in new], INPUTS):
            traces: list[_Trace] = [new[row].cache for row in rows]
            filled = [trace.cache for trace in traces] + [traces[0].cache] * (INPUTS - len(rows))
            anchored = self._replies.anchored(filled, _filled(torch.stack([new[row].words for row in rows])))
            for trace, cache in zip(traces, anchored, strict=False):
                trace.cache = cache

    def _few(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> Tensor:
        """Return the candidates (B, K) of a group that bfloat16 leaves to float32."""
        feasible_set, _ = self._feasible(incumbents, swaps, beat_B + SLACK, torch.bfloat16)
        stays_BG, loss_B = _stays(incumbents, swaps), beat_B.new_tensor([incumbent.loss for incumbent in incumbents])
        return few(feasible_set, torch.where(stays_BG & (loss_B < beat_B)[:, None], loss_B[:, None], torch.inf))

    def _bounds(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> list[SwapBound]:
        """Return the bounds of the candidates of a group."""
        feasible_set, lookahead = self._feasible(incumbents, swaps, beat_B)
        group, stays_BG = swaps.words_BG.shape[1], _stays(incumbents, swaps)
        bounds, owners_c = [], feasible_set.rows_c // max(1, group)
        for i, (incumbent, beat) in enumerate(zip(incumbents, beat_B.tolist(), strict=True)):
            rows = torch.nonzero(owners_c == i)[:, 0]
            mine = FeasibleSet(*(part[rows] for part in feasible_set))
            bounds.append(SwapBound.of(incumbent, mine, i * group, lookahead, beat, torch.nonzero(stays_BG[i])[:, 0].tolist()))
        return bounds

    def _lookahead(self, traces: Sequence[_Trace], swaps: Swaps, dtype: torch.dtype) -> Lookahead | None:
        """Return the candidates under the language model, if the objective weighs it."""
        if self.objective.lm_weight == 0:
            return None
        assert self._inputs is not None
        input_traces = [trace.input for trace in traces if trace.input is not None]
        return self._inputs.lookahead(input_traces, swaps.positions_BG, swaps.words_BG, dtype)

    def _exact(self, taken: Sequence[tuple[SwapBound, Tensor]]) -> list[list[float]]:
        """Return the losses of some contenders of each bound."""
        states = [bound.states_cTH[places].flatten(0, 1) for bound, places in taken]
        targets = [bound.target_T.repeat(len(places)) for bound, places in taken]
        nats = self._replies.output.exact(torch.cat(states), torch.cat(targets))
        input_nll: list[Tensor] | list[None] = [None] * len(taken)
        if self.objective.lm_weight > 0:
            assert self._inputs is not None
            contenders = [bound.lookahead.of(places) for bound, places in taken if bound.lookahead is not None]
            input_nll = self._inputs.exact(contenders)
        losses = []
        parts = zip(taken, *(part.split([len(words) for words in targets]) for part in nats), input_nll, strict=True)
        for (_, places), nll, likeliest, input_nll_c in parts:
            nll_cT, likeliest_cT = (part.unflatten(0, (len(places), -1)) for part in (nll, likeliest))
            loss_c = self.objective.loss(nll_cT, likeliest_cT, torch.ones_like(likeliest_cT), input_nll_c)
            losses.append(loss_c.tolist())
        return losses


def _stays(incumbents: Sequence[BestInput], swaps: Swaps) -> Tensor:
    """Return a mask of the swaps (B, G) that keep the current word."""
    words_BN = torch.stack([incumbent.words for incumbent in incumbents])
    return words_BN.gather(1, swaps.positions_BG) == swaps.words_BG


def _alike(targets: Sequence[Tensor], most: int) -> list[list[int]]:
    """Return indices of targets of one length together, at most `most` in a group."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for row, target_T in enumerate(targets):
        by_length[len(target_T)].append(row)
    return [rows[start : start + most] for rows in by_length.values() for start in range(0, len(rows), most)]


def _filled(rows_BX: Tensor, num: int = INPUTS) -> Tensor:
    return torch.cat([rows_BX, rows_BX[:1].expand(num - len(rows_BX), -1)])


def _in_blocks(gradient_BE: Tensor, embedding_VE: Tensor) -> Tensor:
    """Return products (B, V) of gradients and all embeddings."""
    blocks = [_filled(block) @ embedding_VE.t() for block in gradient_BE.split(INPUTS)]
    return torch.cat(blocks)[: len(gradient_BE)]
