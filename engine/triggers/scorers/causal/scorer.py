"""The fast scorer of trigger searches in causal models: the answers of `PlainScorer`, with shared tokens read once.

    prompt      the tokens before the first searched word are read once for all searches
    visit       those before a changed word are known from the incumbent, so that a candidate costs the tokens after its change;
                candidates that change other positions share a pass without padding (`packed.py`)
    reply       the head computes the reply's positions alone
    company     short lists of several searches share passes (`swaps.py`)
    early end   each word's nats are at least 0 (times a weight of at least 0). So the cost of a candidate's first words is a
                lower bound of its loss, and candidates that cost more than the best one already end there, exactly

A list is read in stages, but for short replies: for all candidates up to the first word of the reply, then for those left
some words more, as long as stages end enough of them. If there is no loss to beat, as in gcg, the few of the cheapest first
words are read to their ends first. Candidates that are listed twice are read once.

Sums of floats depend on the other rows of their product, and the results of a search must not depend on other searches. So only
short lists, to which the cost of a pass matters, share passes. The result of such a pass counts only if it names the same swap
whichever way each word is off by `DOUBT`; otherwise the list is read again alone. Read alone are

    measure       although its passes are short: losses are reported and slopes make lists, so that rounding would show
    next_logits   for the same reason; it is a small part of the cost of a visit
    lists         that are screened, or read in half precision, where rounding is coarse
    prompts       searches behind another prompt, which is a model of its own to a method (`side_by_side.ByPrompt`)

    B rows, G candidates, S tokens of a prompt, N searched places, T words of a reply, V words, E embedding
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.packed import CausalReader, KeysValues, reads_in_parts, said
from parley.engine.triggers.scorers.causal.probes import ProbedSwapList
from parley.engine.triggers.scorers.causal.swaps import (
    PASS,
    PASS_GPU,
    ReadLoss,
    ReadPlan,
    ReadWords,
    ScreenedSwapList,
    SwapList,
    read_texts,
    read_together,
    reads_packed,
    rough_reader,
)
from parley.engine.triggers.scorers.scorer import BestInput, InputModel, PlainScorer, Slope, Swaps, Victim
from parley.engine.triggers.searches.batch_finder import BatchFinder

ROWS, ROWS_GPU = 128, 1024
"""Candidates that are read together, until memory runs out; few leave most of a GPU idle."""
LOGITS = 2**28
"""Most logits of a pass, 1 GB in float32: of longer replies, or more words, fewer candidates are read together."""
PROMPTS = 64
"""Prompts that are remembered; those asked for last."""
SHORT = 8
"""On a CPU lists of at most so many times the tokens that a pass costs share passes: longer ones have hardly more to gain. On a
GPU those of no more tokens than it reads while a pass is started."""
DOUBT = 5e-4
"""Nats by which a word's may differ by what shares its pass, in float32, and a logit's lead over the others."""


class CausalVictim(Victim, Protocol):
    """A causal model with tokens around its searched words."""

    @property
    def model(self) -> Any:
        """Return the Hugging Face model."""

    def prompt(self, target_T: Tensor) -> tuple[Sequence[int], Sequence[int]]:
        """Return the tokens before a reply.

        Returns:
            All tokens before it (S,), any in the searched places, and these places (N,) in rising order.
        """


@dataclass(frozen=True, eq=False)
class _Prompt:
    """A prompt whose first tokens are read.

    Args:
        ids_S: all tokens; those in the searched places mean nothing.
        places: the searched ones.
        keys_values: of the tokens before the first place.
    """

    ids_S: Tensor
    places: tuple[int, ...]
    keys_values: KeysValues | None

    def cut(self, num: int) -> _Prompt:
        """Return the prompt without the places behind the first `num` ones."""
        if num == len(self.places):
            return self
        kept_S = torch.ones(len(self.ids_S), dtype=torch.bool, device=self.ids_S.device)
        kept_S[list(self.places[num:])] = False
        return _Prompt(self.ids_S[kept_S], self.places[:num], self.keys_values)

    def read(self, words_BN: Tensor) -> Tensor:
        """Return the tokens (B, S) with words in the searched places."""
        ids_BS = self.ids_S.repeat(len(words_BN), 1)
        ids_BS[:, list(self.places)] = words_BN
        return ids_BS


class CausalScorer(PlainScorer):
    """A scorer that reads only the tokens that follow a change.

    Args:
        victim: a model for which `is_causal` holds.
        objective: as of `PlainScorer`.
        input_model: as of `PlainScorer`.
        rows: candidates that are read together, until memory runs out; None for as many as suit the device.
        screening: the best few of a list are found in bfloat16, and float32 decides among them.
        draft: scorer of a draft model, which ranks the candidates of a list first (`probes.py`); None for none.

    Attributes:
        num_listed: candidates that were listed for a draft.
        num_read: those of them that the model itself has read.

    Raises:
        ConfigError: screening, of a model or on a device that it is not for.
    """

    victim: CausalVictim

    def __init__(
        self,
        victim: CausalVictim,
        objective: TriggerObjective,
        input_model: InputModel | None = None,
        *,
        rows: int | None = None,
        screening: bool = False,
        draft: CausalScorer | None = None,
    ) -> None:
        rows = rows or (ROWS_GPU if victim.searchable_V.is_cuda else ROWS)
        super().__init__(victim, objective, input_model, rows=rows)
        self.rough = rough_reader(victim.model) if screening else None
        self.reader = CausalReader(victim.model)
        self.draft, self.num_listed, self.num_read = draft, 0, 0
        self._drafted = WeakKeyDictionary[BestInput, BestInput]()
        self.joins = self.rough is None and draft is None and victim.model.dtype in (torch.float32, torch.float64)
        self.packs = reads_packed(self.reader, _some_words(victim))
        self._prompts: OrderedDict[tuple[int, ...], _Prompt] = OrderedDict()
        self.pieces = BatchFinder(rows, "candidates of a visit")

    @torch.no_grad()
    def best_swap(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the argmin over the lists; candidates that cannot be it are not read to their end."""
        kind = ProbedSwapList if self.draft else SwapList if self.rough is None else ScreenedSwapList
        rows = zip(incumbents, swaps.lists(), beat_B.tolist(), strict=True)
        lists = [kind(self, incumbent, *swaps_G, beat) for incumbent, swaps_G, beat in rows]
        settled = self._together(lists)
        results = [swap_list.best() if result is None else result for swap_list, result in zip(lists, settled, strict=True)]
        choices, losses = zip(*results, strict=True)
        return torch.tensor(choices), beat_B.new_tensor(losses)

    def _together(self, lists: Sequence[SwapList]) -> list[tuple[int, float] | None]:
        """Return the results of short lists that share passes; None for those that have to be read alone."""
        most = PASS_GPU if self.victim.searchable_V.is_cuda else SHORT * PASS
        distinct = {number: item.distinct for number, item in enumerate(lists) if self.joins}
        short = {number: indices for number, indices in distinct.items() if lists[number].num_tokens(indices) <= most}
        if len(short) < 2:
            return [None] * len(lists)
        read: dict[int, list[ReadLoss]] = {number: [] for number in short}

        def score(piece: Sequence[tuple[int, int]]) -> None:
            of = {number: [candidate for _, candidate in indices] for number, indices in groupby(piece, key=itemgetter(0))}
            reads = []
            for number, candidates in of.items():
                beat = min([lists[number].beat, *(item.most for item in read[number])])
                reads.append(lists[number].read(candidates, beat, doubt=DOUBT))
            for number, losses in zip(of, read_together(reads, self.reads(self.reader)), strict=True):
                read[number] += losses

        items = [(number, candidate) for number, indices in short.items() for candidate in indices]
        self.pieces.in_pieces(score, items, min(self.most(lists[number].target) for number in short))
        return [item.settled(read[number]) if number in read else None for number, item in enumerate(lists)]

    def most(self, target_T: Tensor) -> int:
        """Return the most candidates whose replies are read together, whatever memory there is."""
        return max(1, LOGITS // (len(target_T) * len(self.victim.searchable_V)))

    def reads(self, reader: CausalReader) -> Callable[[Sequence[ReadPlan]], list[ReadWords]]:
        """Return the function that reads the texts that lists want."""
        return partial(read_texts, reader, embedding_VE=self.victim.embedding_VE, packs=self.packs)

    @torch.no_grad()
    def swap_losses(self, incumbent: BestInput, positions_G: Tensor, words_G: Tensor) -> Tensor:
        """Return the loss (G,) of each swap of a list, all read to their ends."""
        return SwapList(self, incumbent, positions_G, words_G).all()

    @torch.no_grad()
    def drafted(self, incumbent: BestInput) -> BestInput:
        """Return an incumbent as the draft model has read it, without slopes."""
        assert self.draft is not None, "the scorer has a draft model"
        if incumbent not in self._drafted:
            embedded_1NE = self.draft.victim.embedding_VE[incumbent.words][None]
            read = Slope(embedded_1NE, None, None, self.draft._read(embedded_1NE, incumbent.target)[2])
            self._drafted[incumbent] = replace(incumbent, cache=read)
        return self._drafted[incumbent]

    @torch.no_grad()
    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """Return the loss of each input (R,); the common beginning of neighbours is read once."""
        loss_R = torch.empty(len(words_RN), device=words_RN.device)
        for rows in _runs(targets, words_RN):
            loss_R[rows.start : rows.stop] = self._run_losses(targets[rows.start], words_RN[rows.start : rows.stop])
        return loss_R

    @torch.no_grad()
    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        """Return logits (B, V) of the word behind the first t words of inputs."""
        prompt, num = self.prompt(target), words_Bt.shape[1]
        # The token that is read last is the one before the word.
        start = prompt.places[0] - (num == 0)
        if start < 0:
            return torch.zeros(len(words_Bt), len(self.victim.searchable_V), device=words_Bt.device)
        ids_BS = prompt.cut(num).read(words_Bt)
        before = [part.cut(0, start) for part in self.keys_values_of(prompt)]
        return self.reader.read(self._embedded(ids_BS[:, start : prompt.places[num]]), before, 1)[0][:, 0].float()

    def _run_losses(self, target_T: Tensor, words_RN: Tensor) -> Tensor:
        prompt = self.prompt(target_T).cut(words_RN.shape[1])
        num_equal = int((words_RN == words_RN[0]).all(0).int().cumprod(0).sum())
        ids_RS = prompt.read(words_RN)
        first = prompt.places[0]
        start = ids_RS.shape[1] - 1 if num_equal == len(prompt.places) else prompt.places[num_equal]
        before = self.keys_values_of(prompt)
        if start > first:
            before.append(self.reader.read(self._embedded(ids_RS[:1, first:start]), before, 1)[1])
        losses: list[Tensor] = []

        def score(rows: Sequence[int]) -> None:
            part = slice(rows[0], rows[-1] + 1)
            ids_BL = torch.cat([ids_RS[part, start:], target_T[:-1].expand(len(rows), -1)], dim=1)
            logits_BTV = self.reader.read(self._embedded(ids_BL), before, len(target_T))[0]
            nll_BT, lead_BT = said(logits_BTV, target_T)
            input_nll_B = self.input_nll(words_RN[part])
            losses.append(self.objective.loss(nll_BT, lead_BT >= 0, torch.ones_like(lead_BT, dtype=torch.bool), input_nll_B))

        self._finder.in_pieces(score, range(len(words_RN)), self.most(target_T))
        return torch.cat(losses)

    def _read(self, embedded_1NE: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor, Any]:
        """Return nats (1, T) and whether the likeliest (1, T), differentiable, and the cache from the first place on."""
        prompt = self.prompt(target_T)
        first = prompt.places[0]
        ids_L = torch.cat([prompt.ids_S[first:], target_T[:-1]])
        embedded_1LE = self._embedded(ids_L)[None].clone()
        embedded_1LE[:, [position - first for position in prompt.places]] = embedded_1NE
        logits_1TV, cache = self.reader.read(embedded_1LE, self.keys_values_of(prompt), len(target_T))
        log_1TV = logits_1TV.float().log_softmax(-1)
        said_1T = log_1TV.gather(-1, target_T[None, :, None])[..., 0]
        return -said_1T, said_1T.detach() >= log_1TV.detach().amax(-1), cache.detached()

    def prompt(self, target_T: Tensor) -> _Prompt:
        """Return the tokens before a reply; their beginning is read at most once."""
        ids, places = self.victim.prompt(target_T)
        key = (*ids[: places[0]], -1, *ids[places[0] :], -1, *places)
        if key not in self._prompts:
            ids_S = torch.tensor(list(ids), device=target_T.device)
            cache = None
            if places[0]:
                with torch.no_grad():
                    cache = self.reader.read(self._embedded(ids_S[None, : places[0]]), (), 1)[1]
            self._prompts[key] = _Prompt(ids_S, tuple(places), cache)
            if len(self._prompts) > PROMPTS:
                self._prompts.popitem(last=False)
        self._prompts.move_to_end(key)
        return self._prompts[key]

    def keys_values_of(self, prompt: _Prompt) -> list[KeysValues]:
        """Return the cache of a prompt, as a list of parts that grows."""
        return [] if prompt.keys_values is None else [prompt.keys_values]

    def _embedded(self, ids: Tensor) -> Tensor:
        return self.victim.embedding_VE[ids]


def is_causal(victim: Victim) -> bool:
    """Return True if the fast scorer can serve a victim: a causal model that gives the same when it reads a text in parts."""
    if not (hasattr(victim, "prompt") and hasattr(victim, "model")):
        return False
    return reads_in_parts(victim.model, _some_words(victim))


def _some_words(victim: Victim) -> Tensor:
    words = victim.searchable_V.nonzero()[:7, 0]
    return victim.embedding_VE[words[torch.arange(7, device=words.device) % len(words)]]


def _runs(targets: Sequence[Tensor], words_RN: Tensor) -> Iterator[range]:
    """Yield consecutive rows that are read together: of one target, with a beginning that most neighbours share."""
    same_rN = (words_RN[1:] == words_RN[:-1]).int().cumprod(1)
    num_equal = same_rN.sum(1).tolist()
    usual = Counter(num_equal).most_common(1)[0][0] if num_equal else 0
    start = 0
    for row, shared in enumerate(num_equal, 1):
        is_other = targets[row] is not targets[row - 1] and not torch.equal(targets[row], targets[row - 1])
        if shared < usual or is_other:
            yield range(start, row)
            start = row
    yield range(start, len(words_RN))
