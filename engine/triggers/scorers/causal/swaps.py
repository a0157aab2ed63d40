"""The candidates of a visit of one incumbent in a causal model: read in stages, in shared passes, and screened in bfloat16.

Stages (`SwapList`): see `scorer.py`.

Shared passes (`read_together`): a list yields the texts that it wants read next, and gets the results; so lists of different
searches share passes without knowing of each other. If the model reads packed texts one pass reads all (`packed.py`).
Otherwise texts that begin at the same place share one, the shorter padded at their ends, each behind its own beginning;
neighbours begin together if that costs less.

Screening (`ScreenedSwapList`): bfloat16 finds the few swaps that may be the best, and float32 decides among them. All
candidates are read with products in bfloat16, except those of the head; the keys and values of shared tokens are float32's. The
`FEW` that then look best are read again in float32. The error of bfloat16 on these estimates its error on the others: those
that may still be better by that are read too, until none is left. So no rough loss is ever reported. The search can differ from
the exact one only in its choice of a swap, if bfloat16 is further off on the best one than on those read. On a GPU small models
lose by screening: there are two passes to start instead of one.

    B rows or texts of a list, n texts of a part, G candidates, N searched places, S tokens of a prompt, L tokens of a part, K
    last positions whose words are wanted, T words of a reply, E embedding
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from parley.engine.triggers.scorers.causal.packed import (
    TOLERANCE,
    TOLERANCE_HALF,
    CausalReader,
    KeysValues,
    TextBlock,
    in_line,
    one_below_the_other,
    read_blocks,
    read_grid,
    said,
)
from parley.engine.triggers.scorers.lstm.scorer import require_bfloat16
from parley.engine.triggers.scorers.scorer import BestInput, require_numbers
from parley.envs.core.errors import ConfigError
from parley.policies.core.layers import LinearOfNewSizes

if TYPE_CHECKING:
    from parley.engine.triggers.scorers.causal.scorer import CausalScorer


PASS, PASS_GPU = 64, 2048
"""Fixed cost of a pass, in tokens: on a CPU to fetch the weights from memory, on a GPU to start."""

FoundT = TypeVar("FoundT")
_packs: WeakKeyDictionary[Any, dict[str, bool]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class ReadPlan:
    """The texts that a list wants read next.

    Args:
        ids_BL: its texts.
        starts: of each, how many of its tokens are known; rising.
        prompt: what was read before the first searched place; None for nothing.
        keys_values: what was read of the texts, of one row that all share or of a row for each.
        wanted_K: the last words of a reply, the same for all; the last K positions are to predict them.
        keeps: whether what the layers keep is wanted too.
    """

    ids_BL: Tensor
    starts: Sequence[int]
    prompt: KeysValues | None
    keys_values: KeysValues
    wanted_K: Tensor
    keeps: bool

    def beginning(self, rows: slice, start: int) -> KeysValues:
        """Return the cache of some texts before a token."""
        cache = self.keys_values.cut(0, start)
        return cache if cache.num_rows == 1 else cache.rows(rows)


class ReadWords(NamedTuple):
    """The result of reading the texts of a list.

    Args:
        nll_BK: nats of the wanted words.
        lead_BK: how far their logits are above all others.
        keys_values: of each text, from the first searched place on; None where it is not wanted.
    """

    nll_BK: Tensor
    lead_BK: Tensor
    keys_values: KeysValues | None

    def layers(self) -> list[Tensor]:
        """Return the cache, layer by layer."""
        return [] if self.keys_values is None else [*self.keys_values.keys, *self.keys_values.values]


Reads = Generator[ReadPlan, ReadWords, FoundT]
"""A generator that yields plans of texts, takes their read words, and returns a result."""
Part = tuple[int, slice]
"""Texts of a list: its number, and which."""
Read = tuple[int, Sequence[Part], Sequence[tuple[Tensor, KeysValues]]]
"""From which token on parts were read; of each the logits (n, K, V), and what the layers keep of it."""


def read_together(lists: Sequence[Reads[FoundT]], read: Callable[[Sequence[ReadPlan]], list[ReadWords]]) -> list[FoundT]:
    """Return the results of lists that are read side by side."""
    results = dict[int, FoundT]()
    answers: dict[int, ReadWords | None] = dict.fromkeys(range(len(lists)))
    while answers:
        plans = dict[int, ReadPlan]()
        for number, answer in answers.items():
            try:
                plans[number] = next(lists[number]) if answer is None else lists[number].send(answer)
            except StopIteration as end:
                results[number] = end.value
        answers = dict(zip(plans, read(list(plans.values())), strict=True)) if plans else {}
    return [results[number] for number in range(len(lists))]


@torch.no_grad()
def read_texts(reader: CausalReader, texts: Sequence[ReadPlan], embedding_VE: Tensor, *, packs: bool) -> list[ReadWords]:
    """Read the texts that lists want."""
    if packs and embedding_VE.is_cuda:
        read_all = zip(texts, read_grid(reader, texts, embedding_VE), strict=True)
        return [_words(plan, [logits_BKV], cache) for plan, (logits_BKV, cache) in read_all]
    words: list[list[tuple[int, slice, Tensor, KeysValues]]] = [[] for _ in texts]
    for start, parts, read in _packed(reader, texts, embedding_VE) if packs else _apart(reader, texts, embedding_VE):
        for (number, rows), (logits_nKV, new) in zip(parts, read, strict=True):
            words[number].append((start, rows, logits_nKV, new))
    return [_answer(plan, of) for plan, of in zip(texts, words, strict=True)]


def reads_packed(reader: CausalReader, embedded_LE: Tensor) -> bool:
    """Return True if a model gives the same for texts read in one pass; tried once per model and kind of device.

    Args:
        reader: of a model that reads in parts.
        embedded_LE: a text of at least six tokens to try it with.
    """
    tried = _packs.setdefault(reader.model, {})
    device = embedded_LE.device.type
    if device not in tried:
        tried[device] = _tried(reader, embedded_LE)
    return tried[device]


@torch.no_grad()
def _tried(reader: CausalReader, embedded_LE: Tensor) -> bool:
    # Three texts of two lists, which begin at other places behind other prompts.
    ids_2L = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 5, 4, 3, 2]], device=embedded_LE.device)
    prompt = reader.read(embedded_LE[None, 3:6], (), 1)[1]
    prompts = [prompt, prompt.cut(0, 1)]
    caches = [reader.read(embedded_LE[None, :4], [item], 1)[1] for item in prompts]
    lists = [
        ReadPlan(ids_2L, [1, 2], prompts[0], caches[0], ids_2L[0, :2], True),
        ReadPlan(ids_2L[:1, :5], [3], prompts[1], caches[1], ids_2L[0, 4:], True),
    ]
    read_apart = read_texts(reader, lists, embedded_LE, packs=False)
    try:
        results = read_texts(reader, lists, embedded_LE, packs=True)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, AttributeError, RuntimeError, IndexError, KeyError):
        # Models may compute attention by themselves.
        return False
    words, expected = (torch.cat([part.flatten() for item in of for part in item[:2]]) for of in (results, read_apart))
    bound = TOLERANCE.get(embedded_LE.dtype, TOLERANCE_HALF) * float(expected.std())
    same_kept = all(
        float((together - other).abs().max()) <= TOLERANCE_HALF
        for item, apart in zip(results, read_apart, strict=True)
        for together, other in zip(item.layers(), apart.layers(), strict=True)
    )
    return same_kept and float((words - expected).abs().max()) <= bound


def _packed(reader: CausalReader, texts: Sequence[ReadPlan], embedding_VE: Tensor) -> Iterator[Read]:
    groups = list(_groups(texts, 0))
    blocks = []
    for start, parts in groups:
        for number, rows in parts:
            plan = texts[number]
            before = [part for part in (plan.prompt, plan.beginning(rows, start)) if part is not None]
            blocks.append(TextBlock(embedding_VE[plan.ids_BL[rows, start:]], before, len(plan.wanted_K)))
    read = iter(read_blocks(reader, blocks))
    for start, parts in groups:
        yield start, parts, [next(read) for _ in parts]


def _apart(reader: CausalReader, texts: Sequence[ReadPlan], embedding_VE: Tensor) -> Iterator[Read]:
    # Behind another prompt no text begins at the same place.
    for prompt in {id(plan.prompt): plan.prompt for plan in texts}.values():
        numbers = [number for number, plan in enumerate(texts) if plan.prompt is prompt]
        cost = PASS_GPU if embedding_VE.is_cuda else PASS
        for start, parts in _groups([texts[number] for number in numbers], cost):
            parts = [(numbers[number], rows) for number, rows in parts]
            yield start, parts, _read_rows(reader, texts, start, parts, embedding_VE)


def _read_rows(
    reader: CausalReader, texts: Sequence[ReadPlan], start: int, parts: Sequence[Part], embedding_VE: Tensor
) -> list[tuple[Tensor, KeysValues]]:
    """Read parts in one pass, all of them from one token on."""
    lengths, reply_lengths = (
        [getattr(texts[number], name).shape[-1] for number, _ in parts] for name in ("ids_BL", "wanted_K")
    )
    length, first = max(lengths), min(length_of - num for length_of, num in zip(lengths, reply_lengths, strict=True))
    ids = [
        pad(texts[number].ids_BL[rows, start:], (0, length - length_of))
        for (number, rows), length_of in zip(parts, lengths, strict=True)
    ]
    beginnings = [texts[number].beginning(rows, start) for number, rows in parts]
    if len(parts) > 1:
        nums = [len(part_rows) for part_rows in ids]
        beginnings = [one_below_the_other([part_rows.repeated(num) for part_rows, num in zip(beginnings, nums, strict=True)])]
    prompt = texts[parts[0][0]].prompt
    before = beginnings if prompt is None else [prompt, *beginnings]
    logits_BKV, new = reader.read(embedding_VE[torch.cat(ids)], before, length - first)
    parts_read, done = [], 0
    for part_rows, length_of, num in zip(ids, lengths, reply_lengths, strict=True):
        rows = slice(done, done + len(part_rows))
        done = rows.stop
        parts_read.append(
            (logits_BKV[rows, length_of - num - first : length_of - first], new.rows(rows).cut(0, length_of - start))
        )
    return parts_read


def _answer(texts: ReadPlan, read: Sequence[tuple[int, slice, Tensor, KeysValues]]) -> ReadWords:
    cache = None
    if texts.keeps:
        cache = one_below_the_other([in_line([texts.beginning(rows, start), new]) for start, rows, _, new in read])
    return _words(texts, [logits_nKV for _, _, logits_nKV, _ in read], cache)


def _words(texts: ReadPlan, logits: Sequence[Tensor], cache: KeysValues | None) -> ReadWords:
    nll, lead = zip(*(said(logits_nKV, texts.wanted_K) for logits_nKV in logits), strict=True)
    nll_BK = torch.cat(nll)
    require_numbers(nll_BK)
    return ReadWords(nll_BK, torch.cat(lead), cache)


def _groups(texts: Sequence[ReadPlan], pass_cost: int) -> Iterator[tuple[int, list[Part]]]:
    """Yield the token from which each group of texts is read, and the group's texts."""
    num_at = Counter(start for plan in texts for start in plan.starts)
    starts, end = sorted(num_at), max(plan.ids_BL.shape[1] for plan in texts)
    for group in cheapest_groups([(num_at[start], end - start) for start in starts], pass_cost):
        first, last = starts[group.start], starts[group.stop - 1]
        rows = [slice(bisect_left(plan.starts, first), bisect_right(plan.starts, last)) for plan in texts]
        yield first, [(number, plan) for number, plan in enumerate(rows) if plan.start < plan.stop]


def cheapest_groups(parts: Sequence[tuple[int, int]], pass_cost: int) -> list[range]:
    """Return the groups of neighbours to read together at least cost in all.

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
        keys_values: of each, what was read from the first searched place on; None where there is nothing left to read.
        nll_BT: nats of the words read so far.
        lead_BT: how far their logits are above all others.
    """

    candidates: Tensor
    keys_values: KeysValues | None
    nll_BT: Tensor
    lead_BT: Tensor

    def of(self, rows_b: Tensor) -> _Reading:
        """Return some of them."""
        cache = None if self.keys_values is None else self.keys_values.rows(rows_b)
        return _Reading(self.candidates[rows_b], cache, self.nll_BT[rows_b], self.lead_BT[rows_b])


class ReadLoss(NamedTuple):
    """The loss of a candidate as it was read, with its least and its greatest value in other company."""

    candidate: int
    loss: float
    least: float
    most: float


class SwapList:
    """The candidates of a visit of one incumbent.

    Args:
        scorer: the scorer that reads.
        incumbent: the input that the swaps change.
        positions_G: the positions.
        words_G: the new words.
        beat: the loss that has to be undercut.
    """

    def __init__(
        self, scorer: CausalScorer, incumbent: BestInput, positions_G: Tensor, words_G: Tensor, beat: float = math.inf
    ) -> None:
        self.scorer, self.incumbent, self.beat = scorer, incumbent, beat
        self.target, self.prompt = incumbent.target, scorer.prompt(incumbent.target)
        self.words_G = words_G
        # On the CPU, because each read of a GPU waits for it.
        self.positions, self.words = torch.stack([positions_G, words_G]).tolist()
        self.tried_GN = incumbent.words.repeat(len(words_G), 1)
        self.tried_GN[torch.arange(len(words_G), device=words_G.device), positions_G] = words_G
        self.ids_GS = self.prompt.read(self.tried_GN)
        # Of a short reply a pass of its own for the words behind the first costs more than it saves.
        self.num_first = len(self.target) if len(self.target) <= AT_ONCE else 1
        # The language model's term of each candidate; None if it weighs nothing.
        nll_G = scorer.input_nll(self.tried_GN)
        self.input_G = None if nll_G is None else scorer.objective.input_weight(nll_G) * nll_G
        self.best_choice, self.best_loss = -1, beat

    def best(self) -> tuple[int, float]:
        """Return the candidate of least loss and that loss, ties to the first; -1 and `beat` if none undercuts it."""
        self.in_pieces(self._try, self.distinct)
        return self.best_choice, self.best_loss

    def all(self) -> Tensor:
        """Return the loss of each candidate (G,)."""
        return self.losses(range(len(self.words_G)))

    def losses(self, candidates: Sequence[int]) -> Tensor:
        """Return the losses (B,) of some candidates, all read to their ends."""
        loss_G = torch.empty(len(self.words_G), device=self.words_G.device)

        def read(piece: Sequence[int]) -> None:
            loss_G[list(piece)] = self.ends(piece)

        self.in_pieces(read, self.by_position(candidates))
        return loss_G[list(candidates)]

    def in_pieces(self, call: Callable[[Sequence[int]], None], candidates: Sequence[int]) -> None:
        """Call with as many candidates at once as are read together."""
        self.scorer.pieces.in_pieces(call, candidates, self.scorer.most(self.target))

    @cached_property
    def distinct(self) -> list[int]:
        """Return the candidates, the first of equal ones, without the incumbent if that cannot win."""
        first_of: dict[tuple[int, int] | None, int] = {}
        current = self.incumbent.words.tolist()
        for candidate, (position, word) in enumerate(zip(self.positions, self.words, strict=True)):
            first_of.setdefault(None if current[position] == word else (position, word), candidate)
        if self.beat < self.incumbent.loss:
            first_of.pop(None, None)
        return self.by_position(first_of.values())

    def by_position(self, candidates: Iterable[int]) -> list[int]:
        """Return candidates in the order in which they are read: those of a piece share as much as they can."""
        return sorted(candidates, key=self.positions.__getitem__)

    def num_tokens(self, candidates: Sequence[int]) -> int:
        """Return the number of tokens that are read of candidates first."""
        end = self.ids_GS.shape[1] + self.num_first - 1
        return sum(end - self.prompt.places[self.positions[candidate]] for candidate in candidates)

    def ends(self, piece: Sequence[int]) -> Tensor:
        """Return the losses (B,) of some candidates that come in the order of their positions."""

        def read() -> Generator[ReadPlan, ReadWords, Tensor]:
            first = yield from self._first_words(piece)
            return self._bound((yield from self._to_the_end(first, math.inf)))

        return self.alone(read(), self.scorer.reader)

    def take(self, losses: Iterable[tuple[int, float]]) -> None:
        """Keep the best of some candidates, if it is better than the current one."""
        for candidate, loss in losses:
            if loss < self.best_loss or (loss == self.best_loss and -1 < candidate < self.best_choice):
                self.best_choice, self.best_loss = candidate, loss

    def alone(self, reads: Reads[FoundT], reader: CausalReader) -> FoundT:
        """Return the result of a reading in passes of its own."""
        return read_together([reads], self.scorer.reads(reader))[0]

    def read(self, piece: Sequence[int], beat: float, slack: float = 0.0, doubt: float = 0.0) -> Reads[list[ReadLoss]]:
        """Read some candidates; leave out those that cost more than a loss or another candidate.

        Args:
            piece: the candidates, in the order of their positions.
            beat: the loss.
            slack: how much more they have to cost.
            doubt: nats by which those of a word, and the lead of its logit, may be off.
        """
        reading, losses = (yield from self._first_words(piece)), list[ReadLoss]()
        waiting, bound_B = [reading], self._bound(reading)
        is_open = reading.keys_values is not None and beat == math.inf and len(piece) > FIRST
        if is_open and float((bound_B > self.incumbent.loss).float().mean()) >= WORTH:
            cheapest_B = bound_B.argsort(stable=True)
            waiting = [reading.of(cheapest_B[:FIRST].sort().values), reading.of(cheapest_B[FIRST:].sort().values)]
        for part in waiting:
            ended = yield from self._to_the_end(part, beat + slack, doubt)
            losses_3B = torch.stack([self._bound(ended, off) for off in (0.0, -doubt, doubt)]).tolist()
            losses.extend(map(ReadLoss._make, zip(ended.candidates.tolist(), *losses_3B, strict=True)))
            beat = min(beat, *(loss.most for loss in losses)) if losses else beat
        return losses

    def settled(self, read: Sequence[ReadLoss]) -> tuple[int, float] | None:
        """Return the best candidate and its loss as in `best`, if the list read alone would name the same; else None.

        Args:
            read: in company, all but those that are worse in any case.
        """
        able = [loss for loss in read if loss.least < self.beat]
        if not able:
            return -1, self.beat
        best = min(able, key=lambda loss: loss.most)
        is_clear = best.most < self.beat and all(loss is best or loss.least > best.most for loss in able)
        return (best.candidate, best.loss) if is_clear else None

    def _try(self, piece: Sequence[int]) -> None:
        read = self.alone(self.read(piece, self.best_loss), self.scorer.reader)
        self.take((loss.candidate, loss.loss) for loss in read)

    def _first_words(self, piece: Sequence[int]) -> Reads[_Reading]:
        """Read up to the first word of the reply, or all of a short one."""
        candidates_B = torch.tensor(piece, device=self.words_G.device)
        places = [self.prompt.places[self.positions[candidate]] for candidate in piece]
        cache = self.incumbent.cache.keys_values
        answer = yield self._texts(candidates_B, places, cache, 0, self.num_first)
        return _Reading(candidates_B, answer.keys_values, answer.nll_BK, answer.lead_BK)

    def _to_the_end(self, reading: _Reading, loss: float, doubt: float = 0.0) -> Reads[_Reading]:
        """Return the candidates whose replies were read to the end, because their known part did not exceed a loss."""
        num_read, stage = reading.nll_BT.shape[1], 1
        while num_read < len(self.target):
            # Others cost more than the loss in any case.
            left_b = (self._bound(reading, -doubt) <= loss + _ROUNDING * max(1.0, loss)).nonzero()[:, 0]
            if 1 - len(left_b) / max(1, len(reading.candidates)) < WORTH:
                stage = len(self.target)
            if len(left_b) < len(reading.candidates):
                reading = reading.of(left_b)
            if not len(left_b):
                break
            assert reading.keys_values is not None, "there is something left to read"
            num = min(stage, len(self.target) - num_read)
            places = [self.ids_GS.shape[1] + num_read - 1] * len(left_b)
            answer = yield self._texts(reading.candidates, places, reading.keys_values, num_read, num)
            nll_BT = torch.cat([reading.nll_BT, answer.nll_BK], dim=1)
            lead_BT = torch.cat([reading.lead_BT, answer.lead_BK], dim=1)
            reading = _Reading(reading.candidates, answer.keys_values, nll_BT, lead_BT)
            num_read += num
            stage = num_read
        return reading

    def _texts(self, candidates_B: Tensor, places: Sequence[int], cache: KeysValues, num_read: int, num: int) -> ReadPlan:
        """Return the next plan of candidates from these places on: the next words of the reply."""
        first, stop = self.prompt.places[0], num_read + num
        said_BL = self.target[: stop - 1].expand(len(candidates_B), -1)
        return ReadPlan(
            ids_BL=torch.cat([self.ids_GS[candidates_B, first:], said_BL], dim=1),
            starts=[position - first for position in places],
            prompt=self.prompt.keys_values,
            keys_values=cache,
            wanted_K=self.target[num_read:stop],
            keeps=stop < len(self.target),
        )

    def _bound(self, reading: _Reading, off: float = 0.0) -> Tensor:
        """Return the least cost of candidates (B,): the loss if the unread words were certain.

        Args:
            reading: what was read of them.
            off: nats that each word is taken to cost more, and its logit to be lower.
        """
        unread = len(self.target) - reading.nll_BT.shape[1]
        nll_BT = torch.nn.functional.pad((reading.nll_BT + off).clamp_min(0), (0, unread))
        likeliest_BT = torch.nn.functional.pad(reading.lead_BT >= off, (0, unread), value=True)
        loss_B = self.scorer.objective.loss(nll_BT, likeliest_BT, torch.ones_like(likeliest_BT), None)
        return loss_B if self.input_G is None else loss_B + self.input_G[reading.candidates]


FEW = 8
"""Candidates of a list that float32 reads in any case."""
SPREADS = 4.0
"""Largest error of bfloat16, in standard deviations of its differences."""
SLACK = 0.1
"""Nats above what is to be beaten from which on candidates are left out before it is known how far bfloat16 is off."""


def rough_reader(model: Any) -> CausalReader:
    """Return a reader of a model in bfloat16.

    Raises:
        ConfigError: the model is not in float32, has no layers that bfloat16 would help, or the device no such products.
    """
    where, fix = "search.screening", "leave out search.screening"
    if model.dtype != torch.float32:
        raise ConfigError("only models in float32 are screened in bfloat16", where=where, got=str(model.dtype), fix=fix)
    if sum(type(module) in (nn.Linear, LinearOfNewSizes) for module in model.modules()) < 2:
        what = "only the products of torch's linear layers are formed in bfloat16, and the model has others"
        raise ConfigError(what, where=where, got=type(model).__name__, fix=fix)
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        raise ConfigError("models on several devices are not screened", where=where, got=type(model).__name__, fix=fix)
    require_bfloat16(model.device, model.config.hidden_size)
    return CausalReader(model, rough=True)


class ScreenedSwapList(SwapList):
    """The candidates of a visit, of which bfloat16 finds the best few first."""

    def best(self) -> tuple[int, float]:
        """Return the candidate of least loss among those that may be the best, and its float32 loss; see `SwapList.best`."""
        distinct, rough = self.distinct, dict[int, float]()
        if len(distinct) <= FEW:
            return super().best()

        def screen(piece: Sequence[int]) -> None:
            assert self.scorer.rough is not None
            read = self.read(piece, min([self.beat, *rough.values()]), SLACK)
            rough.update((loss.candidate, loss.loss) for loss in self.alone(read, self.scorer.rough))

        self.in_pieces(screen, distinct)
        self._decide(rough, self.beat + SLACK)
        return self.best_choice, self.best_loss

    def _decide(self, rough: dict[int, float], limit: float) -> None:
        """Read candidates in float32, those that look best first, as long as others may be better.

        Args:
            rough: what they cost roughly.
            limit: rough losses above are left out.
        """
        left = sorted((candidate for candidate in rough if rough[candidate] <= limit), key=lambda index: (rough[index], index))
        differences: list[float] = []
        chosen = left[:FEW]
        while chosen:
            losses: list[tuple[int, float]] = []

            def read(piece: Sequence[int], losses: list[tuple[int, float]] = losses) -> None:
                losses.extend(zip(piece, self.ends(piece).tolist(), strict=True))

            self.in_pieces(read, self.by_position(chosen))
            self.take(losses)
            differences.extend(rough[candidate] - loss for candidate, loss in losses)
            left = left[len(chosen) :]
            limit = self.best_loss + fmean(differences) + SPREADS * pstdev(differences)
            chosen = [candidate for candidate in left if rough[candidate] <= limit]
