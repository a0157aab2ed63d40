"""How a dialogue is read: an LSTM over the words of each utterance, then what joins the utterances' vectors.

Source: Li et al. 2017, section 3.1 and footnote 2. An utterance's vector is the state of the LSTM after its last word, which
is `</s>` where the utterance is over. A second LSTM reads these vectors (hierarchical), or they stand side by side
(concatenated; a turn that is not there is zero).

Shapes: B contexts, K turns, R replies, T words of the longest one, N words of all, H hidden, D width of a dialogue's vector.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from parley.policies.core.dropout import Dropout
from parley.policies.core.lstm import LSTM
from parley.policies.core.packing import TokenPlaces
from parley.policies.generation.discriminator.batches import ContextBatch
from parley.policies.generation.discriminator.settings import DiscriminatorSizes


class ContextMemory(NamedTuple):
    """Contexts that have been read, a row each."""

    vector_BC: Tensor
    """State of the LSTM over turns (C = H), or the turns' vectors side by side (C = K H)."""
    cell_BC: Tensor
    """Its cell; no columns where there is no such LSTM."""

    def of(self, rows_R: Tensor) -> ContextMemory:
        """Those at some rows (R,), which may come again."""
        return ContextMemory(*(part[rows_R] for part in self))


class WordState(NamedTuple):
    """Utterances that have been read up to some word, a row each."""

    hidden_RH: Tensor
    cell_RH: Tensor


class DialogueReader(nn.Module):
    """Reads contexts once, and what is said in them word by word."""

    def __init__(self, num_words: int, sizes: DiscriminatorSizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, sizes.embed)
        self.words = LSTM(sizes.embed, sizes.hidden, batch_first=True)
        self.sentences: nn.LSTMCell | None = None
        self.width = (sizes.turns + 1) * sizes.hidden
        if sizes.kind == "hierarchical":
            self.sentences = nn.LSTMCell(sizes.hidden, sizes.hidden)
            self.width = sizes.hidden
        self.dropout = Dropout(sizes.dropout)

    def states(self, words_RT: Tensor, lengths_R: Tensor) -> tuple[TokenPlaces, Tensor]:
        """Where the words of utterances stand without padding, and the states (N, H) after them.

        Args:
            words_RT: int64, padded on the right.
            lengths_R: words of each that count, int64.
        """
        places = TokenPlaces.of(lengths_R.cpu().numpy(), words_RT.device)
        words_N = words_RT[places.rows_N, places.steps_N]
        return places, self.words.read_packed(self.dropout(self.embedding(words_N)), places.counts)

    def read(self, contexts: ContextBatch) -> ContextMemory:
        """Contexts, whole."""
        lengths_BK = contexts.lengths_BK
        places, states_NH = self.states(contexts.words_BKN.flatten(0, 1), lengths_BK.flatten())
        there_BK1 = (lengths_BK > 0).unsqueeze(2)
        vectors_BKH = states_NH[places.last_B].view(*lengths_BK.shape, -1) * there_BK1
        if self.sentences is None:
            return ContextMemory(vectors_BKH.flatten(1), vectors_BKH.new_zeros(len(vectors_BKH), 0))
        hidden_BH = cell_BH = torch.zeros_like(vectors_BKH[:, 0])
        for vector_BH, there_B1 in zip(vectors_BKH.unbind(1), there_BK1.unbind(1), strict=True):
            # Turns that are not there come first, and leave the state at zero.
            hidden_BH, cell_BH = (after * there_B1 for after in self.sentences(vector_BH, (hidden_BH, cell_BH)))
        return ContextMemory(hidden_BH, cell_BH)

    def begin(self, memory: ContextMemory) -> WordState:
        """Utterances of which no word has been read, one in each context."""
        zero_RH = memory.vector_BC.new_zeros(len(memory.vector_BC), self.words.hidden_size)
        return WordState(zero_RH, zero_RH)

    def advance(self, words_R: Tensor, state: WordState) -> WordState:
        """Reads one more word (R,) int64 of each utterance."""
        own = self.words
        weights = own.weight_ih_l0, own.weight_hh_l0, own.bias_ih_l0, own.bias_hh_l0
        return WordState(*torch.lstm_cell(self.dropout(self.embedding(words_R)), tuple(state), *weights))

    def joined(self, memory: ContextMemory, hidden_RH: Tensor) -> Tensor:
        """Vectors (R, D) of dialogues: contexts, a row for each utterance, and the utterances behind them."""
        if self.sentences is None:
            return torch.cat([memory.vector_BC, hidden_RH], dim=1)
        joined_RH: Tensor = self.sentences(hidden_RH, tuple(memory))[0]
        return joined_RH
