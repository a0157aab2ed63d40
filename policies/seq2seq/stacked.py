"""The generator of Li et al. 2017 (arXiv 1701.06547): LSTM layers, attention that is fed back, states handed over.

As the authors' released code has it, d_t being the state of the upmost decoder layer and h_i that of the encoder:
    a(d)  = sum_i softmax_i(h_i . d) h_i                            dot attention
    f_t   = tanh(W_1 a(d_{t-1}) + W_2 d_{t-1})                      read by the lowest layer beside the word
    p(y)  = softmax(W_o tanh(W_3 a(d_t) + W_4 d_t) + b_o)
The decoder starts from the encoder's states after the source's last word, layer by layer.

Departures:
  * # Released: dropout also between the states of one layer. Ours: on what layers read alone, so that the encoder is torch's.
  * # Released: no biases. Ours: torch's LSTMs have them, and so has the output layer.
  * # Released: sources are padded on the left. Ours: on the right, and masked.

A state holds the layers side by side: (B, L H). Shapes: B rows, N source words, T reply words, L layers, H hidden units.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.fitting.predictor import EMBEDDING_RANGE, real_positions
from parley.policies.core.lstm import LSTM, LSTMCell
from parley.policies.core.packing import TokenPlaces
from parley.policies.core.products import Linear
from parley.policies.seq2seq.fed import recur_fed
from parley.policies.seq2seq.model import Memory, Seq2Seq, State
from parley.policies.seq2seq.settings import Seq2SeqSizes


class StackedSeq2Seq(Seq2Seq):
    """A model of several layers, or of one, with input feeding.

    Args:
        vocabulary: the words of sources and replies.
        sizes: with `input_feeding`.
    """

    def __init__(self, vocabulary: PairVocabulary, sizes: Seq2SeqSizes) -> None:
        super().__init__(vocabulary, sizes)
        hidden, layers = sizes.hidden, sizes.layers
        self.encoder = LSTM(
            sizes.embed, hidden, num_layers=layers, dropout=sizes.dropout if layers > 1 else 0.0, batch_first=True
        )
        self.upper = nn.ModuleList(LSTMCell(hidden, hidden) for _ in range(layers - 1))
        """The decoder's layers above `decoder`, which is the lowest."""
        self.fed = Linear(2 * hidden, hidden, bias=False)
        self.said = Linear(2 * hidden, hidden, bias=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Draws initial weights: uniform in plus or minus 0.1, as released."""
        for parameter in self.parameters():
            parameter.data.uniform_(-EMBEDDING_RANGE, EMBEDDING_RANGE, generator=generator)

    def listen(self, source_BN: Tensor, lengths_B: Tensor) -> Memory:
        """Reads sources that are padded on the right; the arguments are those of `Seq2Seq.listen`."""
        places = TokenPlaces.of(lengths_B.cpu().numpy(), source_BN.device)
        words_SE = self.dropout(self.source_embedding(source_BN[places.rows_N, places.steps_N]))
        states_SH, *last = self.encoder.read_whole(words_SE, places, self.dropout)
        width = source_BN.shape[1]
        memory = self.remember(places.padded(states_SH, width), real_positions(lengths_B, width))
        hidden_BH, cell_BH = (part_LBH.transpose(0, 1).flatten(1) for part_LBH in last)
        return memory._replace(hidden_BH=hidden_BH, cell_BH=cell_BH)

    def begin(self, memory: Memory) -> State:
        """The decoder before its first step: the encoder after its last."""
        hidden_BH, cell_BH = memory.hidden_BH, memory.cell_BH
        assert hidden_BH is not None, "the memory is of another model"
        assert cell_BH is not None, "the memory is of another model"
        return State(hidden_BH, cell_BH)

    def step(self, memory: Memory, words_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Reads one word of each reply: the logits (B, V) of the next, and the state after it."""
        said_BH, after = self._said(memory, self.dropout(self.reply_embedding(words_B)), state)
        return self.output(self.dropout(said_BH)), after

    def reply_states(self, memory: Memory, reply_in_BT: Tensor) -> Tensor:
        embedded_TBE = self.dropout(self.reply_embedding(reply_in_BT.t()))
        (steps, rows), embed, layers = embedded_TBE.shape[:2], self.sizes.embed, (self.decoder, *self.upper)
        of_words, of_fed = self.decoder.weight_ih.split([embed, self.sizes.hidden], dim=1)
        below = [of_fed, *(layer.weight_ih for layer in self.upper)]
        weights = [torch.cat([read, layer.weight_hh], dim=1) for read, layer in zip(below, layers, strict=True)]
        biases = [layer.bias_ih + layer.bias_hh for layer in layers]
        kept_LTBH = None
        if self.training and self.sizes.dropout:
            kept_LTBH = self.dropout(memory.last_BH.new_ones(len(layers), steps, rows, self.sizes.hidden).float())
        start = tuple(part.unflatten(1, (len(layers), -1)).transpose(0, 1) for part in self.begin(memory))
        asked_TBJ = recur_fed(
            *(F.linear(embedded_TBE, of_words), memory.states_BNH, memory.barred_BN, start, kept_LTBH),
            *(self.fed.weight, torch.stack(weights), torch.stack(biases)),
        )
        said_TBH: Tensor = torch.tanh(self.said(asked_TBJ))
        return said_TBH.transpose(0, 1)

    def _said(self, memory: Memory, embedded_BE: Tensor, state: State) -> tuple[Tensor, State]:
        """What the next word is said from (B, H), and the state after the embedded one."""
        before = list(zip(*(part.split(self.sizes.hidden, dim=1) for part in state), strict=True))
        read = torch.cat([embedded_BE, self.dropout(self._attended(self.fed, memory, before[-1][0]))], dim=1)
        hidden, cells = [], []
        for layer, (hidden_BH, cell_BH) in zip((self.decoder, *self.upper), before, strict=True):
            hidden_BH, cell_BH = layer(read, (hidden_BH, cell_BH))
            read = self.dropout(hidden_BH)
            hidden.append(hidden_BH)
            cells.append(cell_BH)
        return self._attended(self.said, memory, hidden[-1]), State(torch.cat(hidden, dim=1), torch.cat(cells, dim=1))

    def _attended(self, mix: nn.Linear, memory: Memory, query_BH: Tensor) -> Tensor:
        return torch.tanh(mix(torch.cat([self.attended(memory, query_BH), query_BH], dim=1)))


def build_seq2seq(vocabulary: PairVocabulary, sizes: Seq2SeqSizes) -> Seq2Seq:
    """The model of these sizes, with the weights of torch's own."""
    return StackedSeq2Seq(vocabulary, sizes) if sizes.input_feeding else Seq2Seq(vocabulary, sizes)
