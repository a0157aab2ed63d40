"""The networks of He & Glass 2018 (arXiv 1809.04113, section 3): LSTM encoder, LSTM decoder, LSTM language model.

Encoder states h_i; decoder input [E y_{t-1}; c_t]; p(y_t | ...) = softmax(W_o d_t + b_o). The context c_t is the last
encoder state (last-h) or the mean of the encoder states weighted by softmax_i(score_i):
    general   score_i = h_i . (W d_{t-1})                                        (Luong et al. 2015)
    released  score_i = h_i . ReLU(W_a [E y_{t-1}; d_{t-1}; cell_{t-1}] + b_a)   (the authors' code)
The decoder starts from zero: the source enters through c_t alone. What the models are fed is made in `batches.py`.

Shapes: B rows, N source words, T reply words, V words, E embedding, H hidden.

Departures:
  * # Released: sources are padded on the left, and what the encoder makes of the padding is read and attended to.
    Ours: padding stands on the right and is masked, because a model must not see what else is in the batch. Full-length
    sources, which are the ones that trigger search works on, have no padding either way.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.fitting.predictor import Predictor, real_positions
from parley.policies.core.lstm import LSTM, LSTMCell, recur
from parley.policies.core.packing import TokenPlaces
from parley.policies.core.products import Linear
from parley.policies.seq2seq.attention import recur_attending
from parley.policies.seq2seq.batches import Exchanges, Sentences
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes


class State(NamedTuple):
    """An LSTM between two steps."""

    hidden_BH: Tensor
    cell_BH: Tensor


class Memory(NamedTuple):
    """Encoded sources as the decoder reads them."""

    states_BNH: Tensor
    keys_BNH: Tensor
    """What `attention` scores are products with."""
    barred_BN: Tensor | None
    """Minus infinity at padded positions, else 0; None when there are none."""
    last_BH: Tensor
    """The encoder state after each source's last word."""
    hidden_BH: Tensor | None = None
    cell_BH: Tensor | None = None
    """What a decoder starts from that does not start from zero (`stacked.py`)."""


class Seq2Seq(Predictor[Exchanges]):
    """One sequence-to-sequence model's parameters.

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
        """Encoder states (B, N, H) of embedded sources of one length; gradients flow back to the embeddings."""
        return self.encoder.read(embedded_BNE)

    def remember(self, states_BNH: Tensor, mask_BN: Tensor | None = None) -> Memory:
        """What the decoder needs of encoded sources.

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
        """The decoder before its first step: zero."""
        zero = torch.zeros_like(memory.last_BH)
        return State(zero, zero)

    def context(self, memory: Memory, embedded_BE: Tensor, state: State) -> Tensor:
        """The context c_t (B, H) of the step that reads the embedded word."""
        if self.attention is None:
            return memory.last_BH
        query = state.hidden_BH
        if self.sizes.attention == "released":
            query = F.relu(self.attention(torch.cat([embedded_BE, *state], dim=1)))
        return self.attended(memory, query)

    def attended(self, memory: Memory, query_BH: Tensor) -> Tensor:
        """The mean (B, H) of the encoder states by the softmax of their scores, the products of keys and query."""
        scores_BN = torch.bmm(memory.keys_BNH, query_BH.unsqueeze(2)).squeeze(2)
        if memory.barred_BN is not None:
            scores_BN = scores_BN + memory.barred_BN
        return torch.bmm(scores_BN.softmax(1).unsqueeze(1), memory.states_BNH).squeeze(1)

    def step(self, memory: Memory, words_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Reads one word of each reply: the logits (B, V) of the next, and the state after it."""
        embedded = self.dropout(self.reply_embedding(words_B))
        after = self._advance(memory, embedded, state)
        return self.output(self.dropout(after.hidden_BH)), after

    def _advance(self, memory: Memory, embedded_BE: Tensor, state: State) -> State:
        context_BH = self.context(memory, embedded_BE, state)
        return State(*self.decoder(torch.cat([embedded_BE, context_BH], dim=1), tuple(state)))

    def listen(self, source_BN: Tensor, lengths_B: Tensor) -> Memory:
        """Reads sources that are padded on the right; nothing is computed on the padding.

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
        """What `output` reads (B, T, H) after each given word of the replies; the words as in `decode`."""
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
        """Teacher-forced replies.

        Args:
            states_BNH: encoder states.
            mask_BN: true at real source positions; None when all are real.
            reply_in_BT: `<s>` and the reply, without its last word, int64.

        Returns:
            Logits (B, T, V) of the reply's words.
        """
        return self._logits(self.remember(states_BNH, mask_BN), reply_in_BT)

    def hear(self, batch: Exchanges) -> Memory:
        """Reads the sources of a batch."""
        return self.listen(batch.source_BN, batch.lengths_B)

    def target_states(self, batch: Exchanges) -> Tensor:
        states_MH: Tensor = self.dropout(self.reply_states(self.hear(batch), batch.reply.words_in_BT)[batch.real_BT])
        return states_MH

    def forward(self, source_BN: Tensor, lengths_B: Tensor, reply_in_BT: Tensor) -> Tensor:
        """Logits (B, T, V) of teacher-forced replies to sources padded on the right."""
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
        """States (B, T, H) after each embedded word; gradients flow back to the embeddings."""
        return self.lstm.read(self.dropout(embedded_BTE))

    def from_embedded(self, embedded_BTE: Tensor) -> Tensor:
        """Logits (B, T, V) of the word after each embedded word."""
        logits_BTV: Tensor = self.output(self.dropout(self.states(embedded_BTE)))
        return logits_BTV

    def target_states(self, batch: Sentences) -> Tensor:
        states_MH: Tensor = self.dropout(self.states(self.embedding(batch.words_in_BT))[batch.real_BT])
        return states_MH

    def forward(self, words_in_BT: Tensor) -> Tensor:
        """Logits (B, T, V) of the word after each; `words_in_BT` starts with `<s>`."""
        return self.from_embedded(self.embedding(words_in_BT))
