"""Candidates of a trigger search in our sequence-to-sequence model, with their shared parts computed once.

A candidate is an incumbent with one word swapped. The encoder's states before that word are the incumbent's; the decoder's
gates of the target's words are those of all candidates; attention to shared states is one product for all. Figures equal those
of `policies/seq2seq/model.py` up to rounding (tested).

LSTM steps run over many rows that share their beginning and most of their words (`WordLstm`). Gates stand in the order input,
forget, output, candidate, so that one sigmoid covers three of them in place. A word adds one row of a table to the gates of a
layer that reads words; a state adds one product.

Shapes: B incumbents, G candidates each, n = B G (or rows), N searched words, M = N + 1 words of a source with `<eou>`, K of
them read again, P shared before them, T words of a target, V words of the vocabulary, H hidden, E embedding, X width of
the input
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from parley.engine.triggers.scorers.lstm.half_spaces import OutputLayer, joined
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOU_ID
from parley.policies.core.layers import Weight, tanh_
from parley.policies.seq2seq.model import Seq2Seq


def by_kind(weight_4Hx: Tensor) -> Tensor:
    """Return rows of torch's gate order (input, forget, candidate, output) in ours."""
    enter, forget, candidate, leave = weight_4Hx.detach().chunk(4)
    return torch.cat([enter, forget, leave, candidate])


def advance(gates_n4H: Tensor, cell_nH: Tensor, hidden_nH: Tensor) -> None:
    """Make one LSTM step.

    Args:
        gates_n4H: what was read and the state add up to; destroyed.
        cell_nH: the cells, moved on in place.
        hidden_nH: where the new states go.
    """
    width = cell_nH.shape[1]
    gates_n4H[:, : 3 * width].sigmoid_()
    enter, forget, leave, candidate = gates_n4H.split(width, dim=1)
    cell_nH.mul_(forget).addcmul_(enter, tanh_(candidate))
    tanh_(hidden_nH.copy_(cell_nH)).mul_(leave)


@dataclass(frozen=True)
class Past:
    """The states of an LSTM over B inputs, from which candidates go their own ways.

    Args:
        words_BM: the inputs.
        states_BMH: states after each word.
        cells_BMH: cells before each word.
        recurrent_BM4H: what the state before each word adds to the gates.
    """

    words_BM: Tensor
    states_BMH: Tensor
    cells_BMH: Tensor
    recurrent_BM4H: Tensor

    def of(self, row: int) -> Past:
        """Return that of one input, B = 1; a copy, which does not keep the others alive."""
        return Past(*(getattr(self, field.name)[row : row + 1].clone() for field in fields(self)))


class WordLstm:
    """A layer that reads words.

    Args:
        layer: torch's; one direction, one level.
        embedding_VE: what it reads.
        dtypes: precisions in which candidates are read.
    """

    def __init__(self, layer: torch.nn.LSTM, embedding_VE: Tensor, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> None:
        weights = {name: by_kind(weight) for name, weight in layer.named_parameters()}
        self.input_4HE = weights["weight_ih_l0"]
        self.hidden_H4H = weights["weight_hh_l0"].t().contiguous()
        self._hidden = {dtype: Weight(weights["weight_hh_l0"], dtype) for dtype in dtypes}
        self.bias_4H = weights["bias_ih_l0"] + weights["bias_hh_l0"]
        self.table_V4H = torch.addmm(self.bias_4H, embedding_VE.detach(), self.input_4HE.t())

    def unroll(self, words_BM: Tensor, embedded_BME: Tensor) -> tuple[Tensor, Past]:
        """Read whole inputs.

        Returns:
            States (B, M, H), differentiable in the embeddings, and what candidates need.
        """
        gates_BM4H = torch.nn.functional.linear(embedded_BME, self.input_4HE, self.bias_4H)
        width = len(self.hidden_H4H)
        hidden_BH = cell_BH = gates_BM4H.new_zeros(len(gates_BM4H), width)
        states, recurrents, cells = [], [], []
        for gates_B4H in gates_BM4H.unbind(1):
            recurrents.append(hidden_BH @ self.hidden_H4H)
            cells.append(cell_BH)
            enter, forget, leave, candidate = (gates_B4H + recurrents[-1]).split(width, dim=1)
            cell_BH = forget.sigmoid() * cell_BH + enter.sigmoid() * candidate.tanh()
            hidden_BH = leave.sigmoid() * cell_BH.tanh()
            states.append(hidden_BH)
        states_BMH, cells_BMH, recurrent_BM4H = (torch.stack(part, 1) for part in (states, cells, recurrents))
        return states_BMH, Past(words_BM, states_BMH.detach(), cells_BMH.detach(), recurrent_BM4H.detach())

    def reread(self, past: Past, swapped: Swapped, dtype: torch.dtype = torch.float32) -> Tensor:
        """Read candidates on from their swaps.

        Args:
            past: what the layer made of the incumbents.
            swapped: the candidates.
            dtype: of the products; all else is float32.

        Returns:
            States (K, n, H) after word `swapped.first` and each later one; zero before a row's own swap.
        """
        rows, length = swapped.words_nM.shape
        width, first = len(self.hidden_H4H), swapped.first
        states_KnH = self.table_V4H.new_zeros(length - first, rows, width)
        cell_nH, gates_n4H = self.table_V4H.new_empty(rows, width), self.table_V4H.new_empty(rows, 4 * width)
        begun = 0
        for word, running in zip(range(first, length), swapped.running, strict=True):
            gates = gates_n4H[:running]
            torch.index_select(self.table_V4H, 0, swapped.words_nM[:running, word], out=gates)
            if begun:
                before_nH, owners = states_KnH[word - first - 1, :begun], swapped.owners_n[:begun]
                if dtype != torch.float32:
                    # Rounded is only by how much candidates differ from their inputs, for which the product is known.
                    before_nH = before_nH - past.states_BMH[owners, word - 1]
                    gates[:begun] += past.recurrent_BM4H[owners, word]
                gates[:begun] += self._hidden[dtype](before_nH)
            if running > begun:
                owners = swapped.owners_n[begun:running]
                # Rows that begin here come from the same state, whose product is known.
                gates[begun:] += past.recurrent_BM4H[owners, word]
                cell_nH[begun:running] = past.cells_BMH[owners, word]
            advance(gates, cell_nH[:running], states_KnH[word - first, :running])
            begun = running
        return states_KnH if swapped.back_n is None else states_KnH[:, swapped.back_n]


@dataclass(frozen=True)
class Swapped:
    """n inputs, each one of B with one word swapped; rows that begin earlier first.

    Args:
        words_nM: their words.
        owners_n: which of the B inputs each comes from.
        positions_n: where the swaps are, in the order in which they were given.
        first: the first position swapped.
        running: rows that have begun at each word from `first` on.
        back_n: where each given row is now; None when they came in order.
    """

    words_nM: Tensor
    owners_n: Tensor
    positions_n: Tensor
    first: int
    running: list[int]
    back_n: Tensor | None

    @classmethod
    def of(cls, words_BM: Tensor, positions_BG: Tensor, swaps_BG: Tensor) -> Swapped:
        """Return inputs (B, M), each with `swaps_BG` put at `positions_BG`, one at a time."""
        positions_n, group = positions_BG.flatten(), positions_BG.shape[1]
        owners_n = torch.arange(len(words_BM), device=words_BM.device).repeat_interleave(group)
        words_nM = words_BM[owners_n].scatter_(1, positions_n[:, None], swaps_BG.flatten()[:, None])
        sorted_n, order_n = positions_n.sort(stable=True)
        begun_M = torch.searchsorted(sorted_n, torch.arange(words_BM.shape[1], device=words_BM.device), right=True).tolist()
        first, back_n = int(sorted_n[0]), None
        if bool((positions_n[1:] < positions_n[:-1]).any()):
            words_nM, owners_n, back_n = words_nM[order_n], owners_n[order_n], order_n.argsort()
        return cls(words_nM, owners_n, positions_n, first, begun_M[first:], back_n)

    def barred(self) -> Tensor | None:
        """Return the mask of attention (n, M - 1 + K) over the incumbents' words and the K read again, in given order.

        Minus infinity from a row's swap on among the former and before it among the latter, else 0. None when all begin at
        once: then the `first` words before belong to all.
        """
        if self.running[0] == len(self.words_nM):
            return None
        places_M = torch.arange(self.words_nM.shape[1], device=self.words_nM.device)
        before_nM = places_M < self.positions_n[:, None]
        barred_nX = torch.cat([~before_nM[:, :-1], before_nM[:, self.first :]], dim=1)
        return torch.zeros(barred_nX.shape, device=barred_nX.device).masked_fill_(barred_nX, -torch.inf)


ROWS = 8
"""Incumbents read together, always as many, so that a figure does not depend on what else is read."""


@dataclass(frozen=True)
class WordCache:
    """The part of B incumbents that their candidates share.

    Args:
        past: the encoder over the incumbents.
        gates_BT4H: what the target's words add to the decoder's gates.
        queries_BTH: what they add to the attention's layer; empty but for released attention.
        read_BT2H: context and state that the incumbents' decoder reads at each step; empty where nothing is screened.
        product_BT4H: what these add to the gates.
    """

    past: Past
    gates_BT4H: Tensor
    queries_BTH: Tensor
    read_BT2H: Tensor
    product_BT4H: Tensor

    @property
    def is_anchored(self) -> bool:
        """Return True if candidates can be read in bfloat16."""
        return self.read_BT2H.numel() > 0


class Read(NamedTuple):
    """Incumbents that were read whole."""

    past: Past
    """The encoder."""
    decoded_BTH: Tensor
    """Decoder states, differentiable in `embedded_BME`."""
    embedded_BME: Tensor
    """Embeddings of the sources."""


class DecoderWeights(NamedTuple):
    """The weights of a step of the decoder, in one precision."""

    step: Weight
    """From the context and the state side by side, or from the state alone of a model without attention, to the gates."""
    context: Weight
    """From the context to the gates."""
    query: Weight | None
    """From what the decoder holds to what encoder states are scored against; always in float32."""

    @classmethod
    def of(cls, model: Seq2Seq, dtype: torch.dtype) -> DecoderWeights:
        """Return those of a model."""
        context_4HH = by_kind(model.decoder.weight_ih)[:, model.sizes.embed :]
        state_4HH = by_kind(model.decoder.weight_hh)
        if model.attention is None:
            return cls(Weight(state_4HH, dtype), Weight(context_4HH, dtype), None)
        # The words' share of released attention is known beforehand.
        query = model.attention.weight[:, model.sizes.embed if model.sizes.attention == "released" else 0 :]
        return cls(Weight(torch.cat([context_4HH, state_4HH], dim=1), dtype), Weight(context_4HH, dtype), Weight(query))

    def products(self, read_n2H: Tensor) -> Tensor:
        """Return what context and state add to the gates together."""
        if self.query is not None:
            return self.step(read_n2H)
        context_nH, state_nH = read_n2H.chunk(2, dim=1)
        return self.context(context_nH) + self.step(state_nH)


class Seq2SeqReader:
    """A model's weights, arranged for many candidates.

    Args:
        model: the network.
        dtypes: precisions in which candidates are read.
    """

    def __init__(self, model: Seq2Seq, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> None:
        self.model = model.eval()
        self.embedding_VE = model.source_embedding.weight.detach()
        self.encoder = WordLstm(model.encoder, self.embedding_VE, dtypes)
        self.output = OutputLayer(model.output)
        self._released = model.attention if model.sizes.attention == "released" else None
        embed = model.sizes.embed
        self._word_4HE = by_kind(model.decoder.weight_ih)[:, :embed].contiguous()
        self._bias_4H = by_kind(model.decoder.bias_ih) + by_kind(model.decoder.bias_hh)
        self.weights = {dtype: DecoderWeights.of(model, dtype) for dtype in dtypes}

    def read(self, targets_BT: Tensor, words_BN: Tensor) -> Read:
        """Read whole inputs and replies; `targets_BT` may be padded with anything."""
        words_BM, reply_BT = pad(words_BN, (0, 1), value=EOU_ID), pad(targets_BT[:, :-1], (1, 0), value=BOS_ID)
        with torch.enable_grad():
            embedded_BME = self.embedding_VE[words_BM].requires_grad_()
            states_BMH, past = self.encoder.unroll(words_BM, embedded_BME)
            return Read(past, self.model.reply_states(self.model.remember(states_BMH), reply_BT), embedded_BME)

    def decoded(self, targets_BT: Tensor, words_BN: Tensor) -> Tensor:
        """Return decoder states (B, T, H) alone."""
        words_BM, reply_BT = pad(words_BN, (0, 1), value=EOU_ID), pad(targets_BT[:, :-1], (1, 0), value=BOS_ID)
        states_BMH, _ = self.encoder.unroll(words_BM, self.embedding_VE[words_BM])
        return self.model.reply_states(self.model.remember(states_BMH), reply_BT)

    def cache(self, past: Past, target_T: Tensor) -> WordCache:
        """Return the part that candidates share with an incumbent of that past and target."""
        embedded_TE = self.model.reply_embedding.weight.detach()[pad(target_T[:-1], (1, 0), value=BOS_ID)]
        gates_T4H, queries_TH = linear(embedded_TE, self._word_4HE, self._bias_4H), embedded_TE.new_zeros(0)
        if self._released is not None:
            weight_HX, bias_H = self._released.weight.detach(), self._released.bias.detach()
            queries_TH = linear(embedded_TE, weight_HX[:, : embedded_TE.shape[1]], bias_H)
        nothing = embedded_TE.new_zeros(1, 0)
        return WordCache(past, gates_T4H[None], queries_TH[None], nothing, nothing)

    def anchored(self, caches: Sequence[WordCache], words_BN: Tensor) -> list[WordCache]:
        """Return the same with the incumbents' decoder inputs: bfloat16 multiplies only a candidate's difference from them.

        Args:
            caches: of incumbents whose targets are of one length.
            words_BN: the incumbents.
        """
        last_B1 = torch.full_like(words_BN[:, :1], words_BN.shape[1] - 1)
        cache = joined(caches)
        replies = self.candidates(cache, last_B1, words_BN[:, -1:])
        reads = [replies.read_and_step() for _ in range(cache.gates_BT4H.shape[1])]
        read_BT2H = torch.stack(reads, 1)
        product_BT4H = self.weights[torch.float32].products(read_BT2H.flatten(0, 1)).unflatten(0, read_BT2H.shape[:2])
        return [
            replace(item, read_BT2H=read_BT2H[row : row + 1], product_BT4H=product_BT4H[row : row + 1])
            for row, item in enumerate(caches)
        ]

    def candidates(
        self, cache: WordCache, positions_BG: Tensor, swaps_BG: Tensor, dtype: torch.dtype = torch.float32
    ) -> Replies:
        """Encode candidates, with products of some precision, up to the first word of their replies."""
        swapped = Swapped.of(cache.past.words_BM, positions_BG, swaps_BG)
        return Replies(self.model, self.weights[dtype], cache, swapped, self.encoder.reread(cache.past, swapped, dtype))


class Replies:
    """The decoder over candidates, a step at a time.

    Args:
        model: the network.
        weights: of its decoder.
        cache: what the candidates share with their incumbents.
        swapped: the candidates.
        memory_KnH: their encoder states from the first swap on.
    """

    def __init__(self, model: Seq2Seq, weights: DecoderWeights, cache: WordCache, swapped: Swapped, memory_KnH: Tensor) -> None:
        self._model, self._weights, self._cache = model, weights, cache
        self._rough = weights.step.dtype != torch.float32
        self._barred_nM = swapped.barred()
        shared = swapped.first if self._barred_nM is None else swapped.words_nM.shape[1] - 1
        self._shared_BPH, self._memory_KnH = cache.past.states_BMH[:, :shared], memory_KnH
        self._steps = 0
        rows, width = memory_KnH.shape[1:]
        self._cell_nH = memory_KnH.new_zeros(rows, width)
        # What a step reads, side by side: context, then state.
        self._read_n2H = memory_KnH.new_zeros(rows, 2 * width)
        self._constant_n4H: Tensor | None = None
        if self._model.attention is None:
            context_nH = memory_KnH[-1]
            if self._rough:
                context_nH = self._from_incumbents(context_nH, cache.past.states_BMH[:, -1])
            self._constant_n4H = weights.context(context_nH).float()

    @property
    def rows(self) -> int:
        """Return n, the candidates that are left."""
        return len(self._cell_nH)

    def keep(self, rows: Tensor) -> None:
        """Keep some candidates, all of the same incumbent."""
        assert len(self._shared_BPH) == 1
        self._memory_KnH = self._memory_KnH[:, rows]
        self._cell_nH, self._read_n2H = self._cell_nH[rows], self._read_n2H[rows]
        if self._constant_n4H is not None:
            self._constant_n4H = self._constant_n4H[rows]
        if self._barred_nM is not None:
            self._barred_nM = self._barred_nM[rows]

    def step(self) -> Tensor:
        """Return the states (n, H) that predict the next word of the target; overwritten by the next step."""
        width, batch = self._cell_nH.shape[1], len(self._shared_BPH)
        hidden_nH = self._read_n2H[:, width:]
        read_nX, weight = self._read_n2H, self._weights.step
        if self._constant_n4H is not None:
            read_nX = hidden_nH
        else:
            self._attend(hidden_nH, batch)
            if not self._steps:
                # Before the first word the state is zero.
                read_nX, weight = self._read_n2H[:, :width], self._weights.context
        gates_B4H = self._cache.gates_BT4H[:, self._steps]
        if self._rough:
            theirs_B2H = self._cache.read_BT2H[:, self._steps]
            theirs_BX = theirs_B2H[:, width:] if self._constant_n4H is not None else theirs_B2H[:, : read_nX.shape[1]]
            read_nX, gates_B4H = self._from_incumbents(read_nX, theirs_BX), gates_B4H + self._cache.product_BT4H[:, self._steps]
        gates_n4H = weight(read_nX).float()
        if self._constant_n4H is not None:
            gates_n4H += self._constant_n4H
        gates_n4H.unflatten(0, (batch, -1)).add_(gates_B4H[:, None])
        advance(gates_n4H, self._cell_nH, hidden_nH)
        self._steps += 1
        return hidden_nH

    def read_and_step(self) -> Tensor:
        """Make a step; return context and state (n, 2H) that it read."""
        state_nH = self._read_n2H[:, self._cell_nH.shape[1] :].clone()
        self.step()
        context_nH = self._read_n2H[:, : state_nH.shape[1]] if self._constant_n4H is None else self._memory_KnH[-1]
        return torch.cat([context_nH, state_nH], dim=1)

    def _from_incumbents(self, values_nX: Tensor, theirs_BX: Tensor) -> Tensor:
        """Return the difference of candidates' values (n, X) from their incumbents'."""
        return (values_nX.unflatten(0, (len(theirs_BX), -1)) - theirs_BX[:, None]).flatten(0, 1)

    def _attend(self, hidden_nH: Tensor, batch: int) -> None:
        """Put the context of each candidate beside its state."""
        query_nH, width = self._query(hidden_nH), hidden_nH.shape[1]
        grouped_BGH = query_nH.unflatten(0, (batch, -1))
        shared_nP = torch.bmm(grouped_BGH, self._shared_BPH.mT).flatten(0, 1)
        own_nK = torch.bmm(query_nH[:, None], self._memory_KnH.permute(1, 2, 0))[:, 0]
        scores_nM = torch.cat([shared_nP, own_nK], dim=1)
        if self._barred_nM is not None:
            scores_nM += self._barred_nM
        weights_nM = scores_nM.softmax(1)
        shared, reread = weights_nM.split([shared_nP.shape[1], own_nK.shape[1]], dim=1)
        context_nH = torch.bmm(reread[:, None], self._memory_KnH.transpose(0, 1))[:, 0]
        context_BGH = torch.baddbmm(context_nH.unflatten(0, (batch, -1)), shared.unflatten(0, (batch, -1)), self._shared_BPH)
        self._read_n2H[:, :width] = context_BGH.flatten(0, 1)

    def _query(self, hidden_nH: Tensor) -> Tensor:
        """Return the query that encoder states are scored against."""
        assert self._weights.query is not None
        if self._model.sizes.attention == "general":
            return self._weights.query(hidden_nH)
        state_n2H = torch.cat([hidden_nH, self._cell_nH], dim=1)
        query_nH = self._weights.query(state_n2H).unflatten(0, (len(self._shared_BPH), -1))
        return (query_nH + self._cache.queries_BTH[:, self._steps, None]).relu_().flatten(0, 1)
