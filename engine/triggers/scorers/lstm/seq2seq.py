"""Candidates of a trigger search in our sequence-to-sequence model, with what they share computed once.

A candidate is an incumbent with one word swapped. The encoder's states before that word are the incumbent's; the decoder's
gates of the target's words are those of all candidates; attention to shared states is one product for all. Figures equal those
of `policies/seq2seq/model.py` up to rounding (tested).

Shapes: B incumbents, G candidates each, n = B G, N searched words, M = N + 1 words of a source with `<eou>`, K of them read
again, P shared before them, T words of a target, H hidden, E embedding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from parley.engine.triggers.scorers.lstm.cells import Past, Swapped, WordLstm, advance, by_kind
from parley.engine.triggers.scorers.lstm.half_spaces import OutputLayer
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOU_ID
from parley.policies.core.products import Weight
from parley.policies.seq2seq.model import Seq2Seq

ROWS = 8
"""Incumbents read together, always as many, so that a figure does not depend on what else is read."""


@dataclass(frozen=True)
class WordCache:
    """What candidates share with their B incumbents.

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
        """Whether candidates can be read in bfloat16."""
        return self.read_BT2H.numel() > 0

    @classmethod
    def joined(cls, parts: Sequence[WordCache]) -> WordCache:
        """That of several incumbents, whose targets are of one length."""
        if len(parts) == 1:
            return parts[0]
        names = [field.name for field in fields(cls) if field.name != "past"]
        joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return cls(Past.joined([part.past for part in parts]), **joined)


class Read(NamedTuple):
    """Incumbents read whole."""

    past: Past
    """The encoder."""
    decoded_BTH: Tensor
    """Decoder states, differentiable in `embedded_BME`."""
    embedded_BME: Tensor
    """Embeddings of the sources."""


class DecoderWeights(NamedTuple):
    """What a step of the decoder multiplies, in one precision."""

    step: Weight
    """From the context and the state side by side, or from the state alone of a model without attention, to the gates."""
    context: Weight
    """From the context to the gates."""
    query: Weight | None
    """From what the decoder holds to what encoder states are scored against; always in float32."""

    @classmethod
    def of(cls, model: Seq2Seq, dtype: torch.dtype) -> DecoderWeights:
        """Those of a model."""
        context_4HH = by_kind(model.decoder.weight_ih)[:, model.sizes.embed :]
        state_4HH = by_kind(model.decoder.weight_hh)
        if model.attention is None:
            return cls(Weight(state_4HH, dtype), Weight(context_4HH, dtype), None)
        # The words' share of released attention is known beforehand.
        query = model.attention.weight[:, model.sizes.embed if model.sizes.attention == "released" else 0 :]
        return cls(Weight(torch.cat([context_4HH, state_4HH], dim=1), dtype), Weight(context_4HH, dtype), Weight(query))

    def products(self, read_n2H: Tensor) -> Tensor:
        """What context and state add to the gates together."""
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
        """Reads whole inputs and replies; `targets_BT` may be padded with anything."""
        words_BM, reply_BT = pad(words_BN, (0, 1), value=EOU_ID), pad(targets_BT[:, :-1], (1, 0), value=BOS_ID)
        with torch.enable_grad():
            embedded_BME = self.embedding_VE[words_BM].requires_grad_()
            states_BMH, past = self.encoder.unroll(words_BM, embedded_BME)
            return Read(past, self.model.reply_states(self.model.remember(states_BMH), reply_BT), embedded_BME)

    def decoded(self, targets_BT: Tensor, words_BN: Tensor) -> Tensor:
        """Decoder states (B, T, H) alone."""
        words_BM, reply_BT = pad(words_BN, (0, 1), value=EOU_ID), pad(targets_BT[:, :-1], (1, 0), value=BOS_ID)
        states_BMH, _ = self.encoder.unroll(words_BM, self.embedding_VE[words_BM])
        return self.model.reply_states(self.model.remember(states_BMH), reply_BT)

    def cache(self, past: Past, target_T: Tensor) -> WordCache:
        """What candidates share with an incumbent of that past and target."""
        embedded_TE = self.model.reply_embedding.weight.detach()[pad(target_T[:-1], (1, 0), value=BOS_ID)]
        gates_T4H, queries_TH = linear(embedded_TE, self._word_4HE, self._bias_4H), embedded_TE.new_zeros(0)
        if self._released is not None:
            weight_HX, bias_H = self._released.weight.detach(), self._released.bias.detach()
            queries_TH = linear(embedded_TE, weight_HX[:, : embedded_TE.shape[1]], bias_H)
        nothing = embedded_TE.new_zeros(1, 0)
        return WordCache(past, gates_T4H[None], queries_TH[None], nothing, nothing)

    def anchored(self, caches: Sequence[WordCache], words_BN: Tensor) -> list[WordCache]:
        """The same with what the incumbents' own decoder reads: of candidates bfloat16 multiplies only the difference from it.

        Args:
            caches: of incumbents whose targets are of one length.
            words_BN: the incumbents.
        """
        last_B1 = torch.full_like(words_BN[:, :1], words_BN.shape[1] - 1)
        cache = WordCache.joined(caches)
        replies = self.candidates(cache, last_B1, words_BN[:, -1:])
        reads = [replies.read_and_step() for _ in range(cache.gates_BT4H.shape[1])]
        read_BT2H = torch.stack(reads, 1)
        product_BT4H = self.weights[torch.float32].products(read_BT2H.flatten(0, 1)).unflatten(0, read_BT2H.shape[:2])
        return [
            replace(each, read_BT2H=read_BT2H[row : row + 1], product_BT4H=product_BT4H[row : row + 1])
            for row, each in enumerate(caches)
        ]

    def candidates(
        self, cache: WordCache, positions_BG: Tensor, swaps_BG: Tensor, dtype: torch.dtype = torch.float32
    ) -> Replies:
        """Encodes candidates, with products of some precision, and stands before the first word of their replies."""
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
        """n, the candidates that are left."""
        return len(self._cell_nH)

    def keep(self, rows: Tensor) -> None:
        """Goes on with some candidates, of the same incumbent all."""
        assert len(self._shared_BPH) == 1
        self._memory_KnH = self._memory_KnH[:, rows]
        self._cell_nH, self._read_n2H = self._cell_nH[rows], self._read_n2H[rows]
        if self._constant_n4H is not None:
            self._constant_n4H = self._constant_n4H[rows]
        if self._barred_nM is not None:
            self._barred_nM = self._barred_nM[rows]

    def step(self) -> Tensor:
        """The states (n, H) that predict the next word of the target; overwritten by the next step."""
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
        """Goes a step on; returns context and state (n, 2H) that it read."""
        state_nH = self._read_n2H[:, self._cell_nH.shape[1] :].clone()
        self.step()
        context_nH = self._read_n2H[:, : state_nH.shape[1]] if self._constant_n4H is None else self._memory_KnH[-1]
        return torch.cat([context_nH, state_nH], dim=1)

    def _from_incumbents(self, values_nX: Tensor, theirs_BX: Tensor) -> Tensor:
        """By how much candidates' values (n, X) differ from their incumbents'."""
        return (values_nX.unflatten(0, (len(theirs_BX), -1)) - theirs_BX[:, None]).flatten(0, 1)

    def _attend(self, hidden_nH: Tensor, batch: int) -> None:
        """Puts the context of each candidate beside its state."""
        query_nH, width = self._query(hidden_nH), hidden_nH.shape[1]
        grouped_BGH = query_nH.unflatten(0, (batch, -1))
        shared_nP = torch.bmm(grouped_BGH, self._shared_BPH.mT).flatten(0, 1)
        own_nK = torch.bmm(query_nH[:, None], self._memory_KnH.permute(1, 2, 0))[:, 0]
        scores_nM = torch.cat([shared_nP, own_nK], dim=1)
        if self._barred_nM is not None:
            scores_nM += self._barred_nM
        weights_nM = scores_nM.softmax(1)
        shared, own = weights_nM.split([shared_nP.shape[1], own_nK.shape[1]], dim=1)
        context_nH = torch.bmm(own[:, None], self._memory_KnH.transpose(0, 1))[:, 0]
        context_BGH = torch.baddbmm(context_nH.unflatten(0, (batch, -1)), shared.unflatten(0, (batch, -1)), self._shared_BPH)
        self._read_n2H[:, :width] = context_BGH.flatten(0, 1)

    def _query(self, hidden_nH: Tensor) -> Tensor:
        """What encoder states are scored against."""
        assert self._weights.query is not None
        if self._model.sizes.attention == "general":
            return self._weights.query(hidden_nH)
        state_n2H = torch.cat([hidden_nH, self._cell_nH], dim=1)
        query_nH = self._weights.query(state_n2H).unflatten(0, (len(self._shared_BPH), -1))
        return (query_nH + self._cache.queries_BTH[:, self._steps, None]).relu_().flatten(0, 1)
