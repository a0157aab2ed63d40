"""The pointer-generator network of See, Liu & Manning 2017 (arXiv 1704.04368, sections 2.1 to 2.3).

A bidirectional LSTM reads a sentence to states h_i; an LSTM writes another, its state s_t = (hidden, cell), input x_t:
    x_t       = W_x [E y_{t-1}; h*_{t-1}]
    e_ti      = v . tanh(W_h h_i + W_s s_t + w_c c_ti + b)                            (1), with coverage (11)
    a_t       = softmax(e_t),  h*_t = sum_i a_ti h_i                                  (2, 3)
    P_vocab   = softmax(V' (V [hidden_t; h*_t] + b) + b')                             (4)
    p_gen     = sigmoid(w [h*_t; s_t; x_t] + b)                                       (8)
    P(w)      = p_gen P_vocab(w) + (1 - p_gen) sum over the places i of w of a_ti     (9)
    c_t       = sum over t' < t of a_t'                                               (10)
    loss      = -log P(target) + coverage * sum_i min(a_ti, c_ti)                     (12, 13)
The writer starts from ReLU layers of the reader's two last states (released code). Until the last phase of training there is
no coverage, neither in the attention nor in the loss; `covers` says which phase it is.

Departures:
  * # Released: embeddings start normal (deviation 1e-4), LSTMs uniform in +-0.02. Ours: as all of Parley's models
    (`Predictor.initialise`); w_c starts from zero, so that the last phase begins with the attention that there was.
  * # Paper: P(w) is formed over a batch's extended vocabulary. Ours, in training: only the target's, from which words of
    the source it is equal to; it is the same number.
  * # Released: a target that is neither known nor in its source is <unk>, and so is ours; it is never said.

Shapes: B rows, N source words, T target words, M targets, V words, E embedding, H hidden, A = 2H attention and reader.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.fitting.loss import OutputLoss
from parley.policies.core.fitting.predictor import Loss, Predictor, real_positions
from parley.policies.paraphraser.batches import known
from parley.policies.paraphraser.settings import PointerSizes
from parley.policies.seq2seq.batches import Exchanges


class PointerSource(NamedTuple):
    """Sentences as the writer reads them."""

    states_BNA: Tensor
    keys_BNA: Tensor
    """W_h h_i + b."""
    real_BN: Tensor
    """True at words, `</s>` included."""

    def rows(self, rows_R: Tensor) -> PointerSource:
        """The sentences of those rows."""
        return PointerSource(*(each[rows_R] for each in self))


class Writer(NamedTuple):
    """The writer between two words."""

    hidden_BH: Tensor
    cell_BH: Tensor
    context_BA: Tensor
    """h* of the step before."""
    covered_BN: Tensor
    """Attention that each place has had so far."""

    def rows(self, rows_R: Tensor) -> Writer:
        """The writers of those rows."""
        return Writer(*(each[rows_R] for each in self))


class PointerStep(NamedTuple):
    """What the writer decides at one word."""

    features_BH: Tensor
    """What `output` reads."""
    gate_B: Tensor
    """The logit of p_gen."""
    attention_BN: Tensor


class PointerGenerator(Predictor[Exchanges]):
    """A network that paraphrases.

    Args:
        vocabulary: the words that it can write without copying.
        sizes: widths of its layers.
    """

    covers: Tensor
    """A boolean: whether attention counts what it has covered."""

    def __init__(self, vocabulary: PairVocabulary, sizes: PointerSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        embed, hidden, wide = sizes.embed, sizes.hidden, 2 * sizes.hidden
        self.embedding = nn.Embedding(len(vocabulary), embed)
        self.encoder = nn.LSTM(embed, hidden, batch_first=True, bidirectional=True)
        self.reduce_hidden, self.reduce_cell = nn.Linear(wide, hidden), nn.Linear(wide, hidden)
        self.join = nn.Linear(embed + wide, embed)
        self.decoder = nn.LSTMCell(embed, hidden)
        self.key = nn.Linear(wide, wide)
        self.query = nn.Linear(wide, wide, bias=False)
        self.coverage = nn.Linear(1, wide, bias=False)
        self.score = nn.Linear(wide, 1, bias=False)
        self.gate = nn.Linear(wide + 2 * hidden + embed, 1)
        self.mix = nn.Linear(hidden + wide, hidden)
        self.output = nn.Linear(hidden, len(vocabulary))
        self.dropout = nn.Dropout(sizes.dropout)
        self.register_buffer("covers", torch.tensor(False))

    def initialise(self, generator: torch.Generator) -> None:
        """Draws initial weights; those of coverage are zero."""
        super().initialise(generator)
        nn.init.zeros_(self.coverage.weight)

    def cover(self, covers: bool) -> None:
        """Enters the last phase, or leaves it."""
        self.covers.fill_(covers)

    def read(self, source_BN: Tensor, lengths_B: Tensor) -> tuple[PointerSource, Writer]:
        """Reads sentences.

        Args:
            source_BN: ids of any size, padded on the right.
            lengths_B: real words of each, `</s>` included.

        Returns:
            The sentences, and the writer before its first word.
        """
        embedded = self.dropout(self.embedding(known(source_BN, len(self.vocabulary))))
        packed = pack_padded_sequence(embedded, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        states, (hidden_2BH, cell_2BH) = self.encoder(packed)
        states_BNA, _ = pad_packed_sequence(states, batch_first=True, total_length=source_BN.shape[1])
        hidden_BH = F.relu(self.reduce_hidden(torch.cat([*hidden_2BH], dim=1)))
        cell_BH = F.relu(self.reduce_cell(torch.cat([*cell_2BH], dim=1)))
        source = PointerSource(states_BNA, self.key(states_BNA), real_positions(lengths_B, source_BN.shape[1]))
        covered_BN = torch.zeros_like(states_BNA[:, :, 0])
        return source, Writer(hidden_BH, cell_BH, torch.zeros_like(states_BNA[:, 0]), covered_BN)

    def write(self, source: PointerSource, words_B: Tensor, writer: Writer, covers: bool) -> tuple[PointerStep, Writer]:
        """Reads one word of each target; `covers` is the buffer of that name, which the caller reads once."""
        return self._advance(source, self.dropout(self.embedding(known(words_B, len(self.vocabulary)))), writer, covers)

    def _advance(self, source: PointerSource, embedded_BE: Tensor, writer: Writer, covers: bool) -> tuple[PointerStep, Writer]:
        input_BE = self.join(torch.cat([embedded_BE, writer.context_BA], dim=1))
        hidden_BH, cell_BH = self.decoder(input_BE, (writer.hidden_BH, writer.cell_BH))
        state_BA = torch.cat([hidden_BH, cell_BH], dim=1)
        mixed_BNA = source.keys_BNA + self.query(state_BA).unsqueeze(1)
        if covers:
            mixed_BNA = mixed_BNA + self.coverage(writer.covered_BN.unsqueeze(2))
        scores_BN = self.score(mixed_BNA.tanh()).squeeze(2).masked_fill(~source.real_BN, -torch.inf)
        attention_BN = scores_BN.softmax(1)
        context_BA = torch.bmm(attention_BN.unsqueeze(1), source.states_BNA).squeeze(1)
        gate_B = self.gate(torch.cat([context_BA, state_BA, input_BE], dim=1)).squeeze(1)
        features_BH = self.mix(torch.cat([hidden_BH, context_BA], dim=1))
        after = Writer(hidden_BH, cell_BH, context_BA, writer.covered_BN + attention_BN)
        return PointerStep(features_BH, gate_B, attention_BN), after

    def nll(self, batch: Exchanges) -> Tensor:
        """Negative log-likelihoods of the targets (M,): generated, copied, or both; see `Predictor.nll`."""
        return self._losses(batch)[0]

    def loss(self, batch: Exchanges, output_loss: OutputLoss) -> Loss:
        """The likelihoods and, in the last phase, coverage; `output_loss` knows no copying and is not asked."""
        nll_M, coverage = self._losses(batch)
        nll = nll_M.sum()
        return Loss(nll + self.sizes.coverage * coverage, nll)

    def _losses(self, batch: Exchanges) -> tuple[Tensor, Tensor]:
        """Negative log-likelihoods of the targets (M,), and the sum of the coverage losses."""
        covers, real_BT = bool(self.covers), batch.real_BT
        source, writer = self.read(batch.source_BN, batch.lengths_B)
        embedded_BTE = self.dropout(self.embedding(known(batch.reply.words_in_BT, len(self.vocabulary))))
        steps, repeated = [], []
        for embedded_BE in embedded_BTE.unbind(1):
            covered_BN = writer.covered_BN
            step, writer = self._advance(source, embedded_BE, writer, covers)
            steps.append(step)
            if covers:
                repeated.append(torch.minimum(step.attention_BN, covered_BN).sum(1))
        features_MH, gate_M, attention_MN = (torch.stack(each, dim=1)[real_BT] for each in zip(*steps, strict=True))
        coverage = torch.stack(repeated, dim=1)[real_BT].sum() if covers else gate_M.new_zeros(())
        targets_M = batch.targets_BT[real_BT]
        equal_MN = (batch.source_BN.unsqueeze(1) == batch.targets_BT.unsqueeze(2))[real_BT]
        size = len(self.vocabulary)
        generated_M = -F.cross_entropy(self.output(self.dropout(features_MH)), known(targets_M, size), reduction="none")
        # A word that the network cannot write is copied or, where it is nowhere to be copied from, counts as <unk>.
        generated_M = generated_M.masked_fill((targets_M >= size) & equal_MN.any(1), -torch.inf)
        copied_M = (attention_MN * equal_MN).sum(1)
        tiny = torch.finfo(copied_M.dtype).tiny
        log_p_M = torch.logaddexp(F.logsigmoid(gate_M) + generated_M, F.logsigmoid(-gate_M) + copied_M.clamp_min(tiny).log())
        return -log_p_M, coverage
