"""The networks of He & Glass 2018 (arXiv 1809.04113, section 2): LSTM encoder, decoder and language model; their batches.

Encoder states h_i; decoder input [E y_{t-1}; c_t]; p(y_t | ...) = softmax(W_o d_t + b_o). The context c_t is the last
encoder state (last-h) or the mean of the encoder states weighted by softmax_i(score_i):
    general   score_i = h_i . (W d_{t-1})                                        (Luong et al. 2015)
    released  score_i = h_i . ReLU(W_a [E y_{t-1}; d_{t-1}; cell_{t-1}] + b_a)   (the authors' code)
The decoder starts from zero: the source enters through c_t alone.

`recur_attending` is the decoder with Luong's score as one autograd node; a test holds it equal to `Seq2Seq.step`. As in
`policies/core/layers.py`, everything that does not depend on the step before is formed for all steps at once: by the caller on
the way forward, here on the way back.

Batches: a source is its first N - 1 words and `<eou>`, for a model of several turns its last N - 1 words, because the newest
matter most. A reply is `<s>`, its first T - 1 words and `</s>`; a sentence of a language model is made like a reply. A backward
model reads replies, their first words, and predicts contexts, of several turns the last words. All are padded on the right. The
batches of an epoch depend on the generator alone.

Shapes: B rows, N source words, T reply words or words of a sentence (`<s>` not counted), M targets in the batch, V words, E
embedding, H hidden.

Departures:
  * # Released: sources are padded on the left, and what the encoder makes of the padding is read and attended to. Ours: on the
    right and masked, because a model must not see what else is in the batch. Sources that are searched have no padding.
  * # Paper: the language model learns the replies. Ours: all utterances of the corpus, also those that are no reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from parley.envs.corpora.pairs.contexts import dialogues
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID, PairVocabulary
from parley.policies.core.fitting.batches import Predictor, Tensors, real_positions
from parley.policies.core.layers import LSTM, Linear, LSTMCell, TokenPlaces, advance, product_dtype, recur, retreat
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.compiled import PairSplit, Ragged


class _AttendedRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        gates_TB4H: Tensor,
        keys_BNH: Tensor,
        states_BNH: Tensor,
        barred_BN: Tensor | None,
        weight_4HJ: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        steps, rows, wide = gates_TB4H.shape
        hidden = wide // 4
        weight_J4H = weight_4HJ.to(dtype).t().contiguous()
        gates = gates_TB4H.float() if gates_TB4H.dtype == torch.bfloat16 else gates_TB4H.clone()
        keys_BNH, states_BNH = keys_BNH.to(gates.dtype), states_BNH.to(gates.dtype)
        # Inputs of a step beside its word: context and hidden state, side by side.
        read = gates.new_zeros(steps + 1, rows, 2 * hidden)
        cells = gates.new_zeros(steps + 1, rows, hidden)
        squashed = torch.empty_like(cells[1:])
        shares = gates.new_empty(steps, rows, keys_BNH.shape[1])
        for t in range(steps):
            scores = torch.bmm(keys_BNH, read[t, :, hidden:].unsqueeze(2)).squeeze(2)
            if barred_BN is not None:
                scores += barred_BN
            torch.softmax(scores, 1, out=shares[t])
            read[t, :, :hidden] = torch.bmm(shares[t].unsqueeze(1), states_BNH).squeeze(1)
            gates[t] += read[t].to(dtype) @ weight_J4H
            advance(gates[t], cells[t], cells[t + 1], squashed[t], read[t + 1, :, hidden:])
        ctx.save_for_backward(keys_BNH, states_BNH, weight_4HJ, gates, read, cells, squashed, shares)
        ctx.dtype, ctx.given = dtype, gates_TB4H.dtype
        return read[1:, :, hidden:].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        keys_BNH, states_BNH, weight_4HJ, gates, read, cells, squashed, shares = ctx.saved_tensors
        steps, rows, wide = gates.shape
        hidden = wide // 4
        weight = weight_4HJ.to(ctx.dtype)
        gates_grad = torch.empty_like(gates)
        low_grad = gates_grad if ctx.dtype == gates.dtype else torch.empty_like(gates, dtype=ctx.dtype)
        context_grads, score_grads = torch.empty_like(cells[1:]), torch.empty_like(shares)
        hidden_grad, cell_grad = grad_TBH[-1].clone(), torch.zeros_like(cells[0])
        for t in range(steps - 1, -1, -1):
            retreat(gates[t], cells[t], squashed[t], hidden_grad, cell_grad, gates_grad[t])
            low_grad[t] = gates_grad[t]
            read_grad = low_grad[t] @ weight
            context_grads[t] = read_grad[:, :hidden]
            share_grad = torch.bmm(states_BNH, context_grads[t].unsqueeze(2)).squeeze(2)
            torch.mul(shares[t], share_grad - (shares[t] * share_grad).sum(1, keepdim=True), out=score_grads[t])
            if t:
                hidden_grad = torch.bmm(score_grads[t].unsqueeze(1), keys_BNH).squeeze(1)
                hidden_grad += read_grad[:, hidden:]
                hidden_grad += grad_TBH[t - 1]
        keys_grad = torch.bmm(score_grads.permute(1, 2, 0), read[:-1, :, hidden:].transpose(0, 1))
        states_grad = torch.bmm(shares.permute(1, 2, 0), context_grads.transpose(0, 1))
        weight_grad = None
        if ctx.needs_input_grad[4]:
            flat = read[:-1].to(ctx.dtype).view(steps * rows, -1)
            weight_grad = (low_grad.view(steps * rows, wide).t() @ flat).to(weight_4HJ.dtype)
        return gates_grad.to(ctx.given), keys_grad, states_grad, None, weight_grad, None


def recur_attending(
    gates_TB4H: Tensor, keys_BNH: Tensor, states_BNH: Tensor, barred_BN: Tensor | None, weight_4HJ: Tensor
) -> Tensor:
    """Return the states of a decoder from zero over given products of its words.

    Args:
        gates_TB4H: products of the words and both biases, per step.
        keys_BNH: keys whose products with a hidden state are the scores.
        states_BNH: states whose weighted mean is the context.
        barred_BN: added to the scores; None for nothing.
        weight_4HJ: weights (4H, 2H) of context and hidden state, side by side.

    Returns:
        The hidden state after every step (T, B, H), in float32 under autocast.
    """
    dtype = product_dtype(weight_4HJ)
    with torch.autocast(weight_4HJ.device.type, enabled=False):
        return _AttendedRecurrence.apply(gates_TB4H, keys_BNH, states_BNH, barred_BN, weight_4HJ, dtype)


@dataclass(frozen=True)
class Sentences(Tensors):
    """A batch for a language model: `<s>`, words, `</s>`, then padding."""

    words_BT1: Tensor
    """(B, T + 1) int64."""

    @property
    def words_in_BT(self) -> Tensor:
        """Ids that are read."""
        return self.words_BT1[:, :-1]

    @property
    def targets_BT(self) -> Tensor:
        """Ids to predict; padding included."""
        return self.words_BT1[:, 1:]

    @property
    def real_BT(self) -> Tensor:
        """True at real targets."""
        return self.targets_BT != PAD_ID


@dataclass(frozen=True, kw_only=True)
class Answered(Tensors):
    """A batch of replies, with the inputs that they are predicted from."""

    reply: Sentences

    @property
    def targets_BT(self) -> Tensor:
        """Ids to predict; padding included."""
        return self.reply.targets_BT

    @property
    def real_BT(self) -> Tensor:
        """True at real targets."""
        return self.reply.real_BT


@dataclass(frozen=True, kw_only=True)
class Exchanges(Answered):
    """A batch for a sequence-to-sequence model."""

    source_BN: Tensor
    """int64, padded on the right."""
    lengths_B: Tensor
    """Real words per source, the mark at its end included, int64."""

    @property
    def contexts(self) -> list[bytes]:
        """Return the words of each source as the model reads them; equal for equal sources."""
        return [row[:length].tobytes() for row, length in zip(self.source_BN.numpy(), self.lengths_B, strict=True)]


class SentenceExamples:
    """The texts of a split, for a language model.

    Args:
        utterances: of the split; for a model of several turns as `parley.envs.corpora.pairs.contexts.contexts` makes them.
        sizes: longest text.
        units: (N,) the dialogue of each; each is one when not given.
    """

    def __init__(self, utterances: Ragged, sizes: LanguageModelSizes, units: np.ndarray | None = None) -> None:
        self.units = units
        self._utterances, self._width, self._newest = utterances, sizes.max_length, sizes.turns > 1
        self.num_targets = np.minimum(np.diff(utterances.offsets), sizes.max_length - 1) + 1

    def __len__(self) -> int:
        return len(self.num_targets)

    def batch(self, indices: np.ndarray) -> Sentences:
        """Return the texts at `indices` (B,), padded to the longest of them."""
        words, _ = framed(self._utterances, indices, self._width, BOS_ID, EOS_ID, newest=self._newest)
        return Sentences(torch.from_numpy(words))


class PairExamples:
    """The pairs of a split, for a sequence-to-sequence model.

    Args:
        split: pairs of context and reply, and their utterances; for a model of several turns as
            `parley.envs.corpora.pairs.contexts.windows` makes them.
        sizes: longest sources and replies, and which of them is predicted.
        end: the mark at the end of a source.
    """

    def __init__(self, split: PairSplit, sizes: Seq2SeqSizes, end: int = EOU_ID) -> None:
        self._utterances, self._sizes, self._end, self._split = split.utterances, sizes, end, split
        self._pairs = split.pairs[:, ::-1] if sizes.backward else split.pairs
        self.num_targets = np.minimum(np.diff(split.utterances.offsets)[self._pairs[:, 1]], sizes.max_reply - 1) + 1

    def __len__(self) -> int:
        return len(self.num_targets)

    @cached_property
    def units(self) -> np.ndarray:
        """Return the dialogue of each pair (len,)."""
        return dialogues(self._split)

    def exchanged(self) -> PairExamples:
        """Return the same replies in the same order, each behind the source of another pair, half of them away."""
        other, (sources_P, replies_P) = copy(self), self._pairs.T
        other._pairs = np.stack([np.roll(sources_P, len(self) // 2), replies_P], axis=1)
        return other

    def batch(self, indices: np.ndarray) -> Exchanges:
        """Return the pairs at `indices` (B,), sources and replies padded to the longest of each."""
        pairs = self._pairs[indices]
        sizes, several = self._sizes, self._sizes.turns > 1
        newest = several and not sizes.backward
        source, lengths = framed(self._utterances, pairs[:, 0], sizes.max_source, None, self._end, newest=newest)
        newest = several and sizes.backward
        reply, _ = framed(self._utterances, pairs[:, 1], sizes.max_reply, BOS_ID, EOS_ID, newest=newest)
        return Exchanges(
            source_BN=torch.from_numpy(source), lengths_B=torch.from_numpy(lengths), reply=Sentences(torch.from_numpy(reply))
        )


def framed_source(words: Sequence[int] | np.ndarray, sizes: Seq2SeqSizes) -> list[int]:
    """Return one source as `PairExamples` reads it: cut to length, `<eou>` behind it."""
    kept = sizes.max_source - 1
    return [*map(int, words[-kept:] if sizes.turns > 1 and not sizes.backward else words[:kept]), EOU_ID]


def framed(
    utterances: Ragged, indices: np.ndarray, longest: int, first: int | None, last: int, *, newest: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return utterances cut to length, with specials around them.

    Args:
        utterances: to take from.
        indices: (B,) which ones.
        longest: words kept, the special behind them included, the one in front not.
        first: the special in front, if any.
        last: the special behind.
        newest: whether the last words of a longer utterance are kept instead of the first.

    Returns:
        Ids (B, longest of them) int64, padded on the right, and lengths (B,) int64; both with the specials.
    """
    starts = np.asarray(utterances.offsets[indices], dtype=np.int64)
    ends = np.asarray(utterances.offsets[indices + 1], dtype=np.int64)
    kept = np.minimum(ends - starts, longest - 1)
    if newest:
        starts = ends - kept
    lead = 0 if first is None else 1
    lengths = kept + lead + 1
    columns = np.arange(lengths.max()) - lead
    # Positions past an utterance's end read any word and are replaced below; there may be no word at all.
    values = utterances.values if len(utterances.values) else np.full(1, PAD_ID)
    places = np.clip(starts[:, None] + columns, 0, len(values) - 1)
    ids = np.where(columns < kept[:, None], values[places], PAD_ID).astype(np.int64)
    ids[np.arange(len(ids)), kept + lead] = last
    if first is not None:
        ids[:, 0] = first
    return ids, lengths


class State(NamedTuple):
    """An LSTM between two steps."""

    hidden_BH: Tensor
    cell_BH: Tensor


class Memory(NamedTuple):
    """Encoded sources as the decoder reads them."""

    states_BNH: Tensor
    keys_BNH: Tensor
    """Keys whose products with a query are `attention` scores."""
    barred_BN: Tensor | None
    """Minus infinity at padded positions, else 0; None when there are none."""
    last_BH: Tensor
    """The encoder state after each source's last word."""
    hidden_BH: Tensor | None = None
    cell_BH: Tensor | None = None
    """Initial cell of a decoder that does not start from zero (`scoring.StackedSeq2Seq`)."""


class Seq2Seq(Predictor[Exchanges]):
    """The parameters of one sequence-to-sequence model.

    Args:
        vocabulary: the words of sources and replies.
        sizes: widths of its layers.
    """

    def __init__(self, vocabulary: PairVocabulary, sizes: Seq2SeqSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        embed, hidden = sizes.embed, sizes.hidden
        self.source_embedding = nn.Embedding(len(vocabulary), embed)
        self.encoder = LSTM(embed, hidden, batch_first=True)
        self.reply_embedding = nn.Embedding(len(vocabulary), embed)
        self.decoder = LSTMCell(embed + hidden, hidden)
        self.attention: nn.Linear | None = None
        if sizes.attention == "general":
            self.attention = nn.Linear(hidden, hidden, bias=False)
        elif sizes.attention == "released":
            self.attention = nn.Linear(embed + 2 * hidden, hidden)
        self.output = Linear(hidden, len(vocabulary))
        self.dropout = nn.Dropout(sizes.dropout)

    def encode(self, embedded_BNE: Tensor) -> Tensor:
        """Return encoder states (B, N, H) of embedded sources of one length, with gradients to the embeddings."""
        return self.encoder.read(embedded_BNE)

    def remember(self, states_BNH: Tensor, mask_BN: Tensor | None = None) -> Memory:
        """Return the decoder's memory of encoded sources.

        Args:
            states_BNH: of the encoder, zero at padded positions.
            mask_BN: true at real positions; None when all are real.
        """
        barred, last = None, states_BNH[:, -1]
        if mask_BN is not None:
            barred = torch.zeros_like(mask_BN, dtype=states_BNH.dtype).masked_fill_(~mask_BN, -torch.inf)
            last = states_BNH[torch.arange(len(states_BNH), device=states_BNH.device), mask_BN.sum(1) - 1]
        keys = states_BNH
        if self.sizes.attention == "general":
            assert self.attention is not None
            # h . (W d) = (W' h) . d, and the left side is formed once for all steps.
            keys = states_BNH @ self.attention.weight
        return Memory(states_BNH, keys, barred, last)

    def begin(self, memory: Memory) -> State:
        """Return the decoder's state before its first step: zero."""
        zero = torch.zeros_like(memory.last_BH)
        return State(zero, zero)

    def context(self, memory: Memory, embedded_BE: Tensor, state: State) -> Tensor:
        """Return the context c_t (B, H) of the step that reads the embedded word."""
        if self.attention is None:
            return memory.last_BH
        query = state.hidden_BH
        if self.sizes.attention == "released":
            query = F.relu(self.attention(torch.cat([embedded_BE, *state], dim=1)))
        return self.attended(memory, query)

    def attended(self, memory: Memory, query_BH: Tensor) -> Tensor:
        """Return the mean (B, H) of the encoder states by the softmax of their products with the query."""
        scores_BN = torch.bmm(memory.keys_BNH, query_BH.unsqueeze(2)).squeeze(2)
        if memory.barred_BN is not None:
            scores_BN = scores_BN + memory.barred_BN
        return torch.bmm(scores_BN.softmax(1).unsqueeze(1), memory.states_BNH).squeeze(1)

    def step(self, memory: Memory, words_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits (B, V) of the next word of each reply, and the state after reading its last word."""
        embedded = self.dropout(self.reply_embedding(words_B))
        after = self._advance(memory, embedded, state)
        return self.output(self.dropout(after.hidden_BH)), after

    def _advance(self, memory: Memory, embedded_BE: Tensor, state: State) -> State:
        context_BH = self.context(memory, embedded_BE, state)
        return State(*self.decoder(torch.cat([embedded_BE, context_BH], dim=1), tuple(state)))

    def listen(self, source_BN: Tensor, lengths_B: Tensor) -> Memory:
        """Return the memory of sources padded on the right; nothing is computed on the padding.

        Args:
            source_BN: word ids with the mark at the end, int64.
            lengths_B: real words per source, int64.
        """
        places = TokenPlaces.of(lengths_B.cpu().numpy(), source_BN.device)
        words_N = source_BN[places.rows_N, places.steps_N]
        states_NH = self.encoder.read_packed(self.source_embedding(words_N), places.counts)
        width = source_BN.shape[1]
        return self.remember(places.padded(states_NH, width), real_positions(lengths_B, width))

    def reply_states(self, memory: Memory, reply_in_BT: Tensor) -> Tensor:
        """Return the inputs of `output` (B, T, H) after each given word of the replies; the words as in `decode`."""
        embedded_TBE = self.dropout(self.reply_embedding(reply_in_BT.t()))
        if self.sizes.attention == "released":
            # The score reads the embedded word through a layer of its own, so every step is made as in decoding.
            state, states = self.begin(memory), []
            for embedded_BE in embedded_TBE:
                state = self._advance(memory, embedded_BE, state)
                states.append(state.hidden_BH)
            return torch.stack(states, dim=1)
        cell, embed = self.decoder, self.sizes.embed
        gates_TB4H = F.linear(embedded_TBE, cell.weight_ih[:, :embed], cell.bias_ih + cell.bias_hh)
        if self.attention is None:
            gates_TB4H = gates_TB4H + F.linear(memory.last_BH, cell.weight_ih[:, embed:])
            return recur(gates_TB4H, cell.weight_hh).transpose(0, 1)
        weight_4HJ = torch.cat([cell.weight_ih[:, embed:], cell.weight_hh], dim=1)
        states_TBH = recur_attending(gates_TB4H, memory.keys_BNH, memory.states_BNH, memory.barred_BN, weight_4HJ)
        return states_TBH.transpose(0, 1)

    def decode(self, states_BNH: Tensor, mask_BN: Tensor | None, reply_in_BT: Tensor) -> Tensor:
        """Return logits of teacher-forced replies.

        Args:
            states_BNH: encoder states.
            mask_BN: true at real source positions; None when all are real.
            reply_in_BT: `<s>` and the reply, without its last word, int64.

        Returns:
            Logits (B, T, V) of the reply's words.
        """
        return self._logits(self.remember(states_BNH, mask_BN), reply_in_BT)

    def hear(self, batch: Exchanges) -> Memory:
        """Return the memory of the sources of a batch."""
        return self.listen(batch.source_BN, batch.lengths_B)

    def target_states(self, batch: Exchanges) -> Tensor:
        states_MH: Tensor = self.dropout(self.reply_states(self.hear(batch), batch.reply.words_in_BT)[batch.real_BT])
        return states_MH

    def forward(self, source_BN: Tensor, lengths_B: Tensor, reply_in_BT: Tensor) -> Tensor:
        """Return logits (B, T, V) of teacher-forced replies to sources padded on the right."""
        return self._logits(self.listen(source_BN, lengths_B), reply_in_BT)

    def _logits(self, memory: Memory, reply_in_BT: Tensor) -> Tensor:
        logits_BTV: Tensor = self.output(self.dropout(self.reply_states(memory, reply_in_BT)))
        return logits_BTV


class LanguageModel(Predictor[Sentences]):
    """An LSTM language model over sentences `<s>` w_1..w_k `</s>`.

    Args:
        vocabulary: its words.
        sizes: widths of its layers.
    """

    def __init__(self, vocabulary: PairVocabulary, sizes: LanguageModelSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        self.embedding = nn.Embedding(len(vocabulary), sizes.embed)
        self.lstm = LSTM(sizes.embed, sizes.hidden, batch_first=True)
        self.output = nn.Linear(sizes.hidden, len(vocabulary))
        self.dropout = nn.Dropout(sizes.dropout)

    def states(self, embedded_BTE: Tensor) -> Tensor:
        """Return states (B, T, H) after each embedded word, with gradients to the embeddings."""
        return self.lstm.read(self.dropout(embedded_BTE))

    def from_embedded(self, embedded_BTE: Tensor) -> Tensor:
        """Return logits (B, T, V) of the word after each embedded word."""
        logits_BTV: Tensor = self.output(self.dropout(self.states(embedded_BTE)))
        return logits_BTV

    def target_states(self, batch: Sentences) -> Tensor:
        states_MH: Tensor = self.dropout(self.states(self.embedding(batch.words_in_BT))[batch.real_BT])
        return states_MH

    def forward(self, words_in_BT: Tensor) -> Tensor:
        """Return logits (B, T, V) of the word after each; `words_in_BT` starts with `<s>`."""
        return self.from_embedded(self.embedding(words_in_BT))
