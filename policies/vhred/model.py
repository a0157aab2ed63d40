"""VHRED with attention (Niu & Bansal 2018, section 4.1; Serban et al. 2017): a reply depends on its context and on a draw.

    turn      t_k = [last forward; last backward] state of a bidirectional LSTM over the words of turn k
    context   o_1..o_K = bidirectional LSTM over t_1..t_K; c = [last forward; last backward] state
    prior     p(z | context)        = N(mu(f), diag sigma(f)^2),   f = two tanh layers of o_K
    posterior q(z | context, reply) = the same with layers of its own, of [o_K; turn(reply)]
              sigma = 0.1 softplus(1 + W f + b)
    decoder   h_i = LSTM([E y_{i-1}; c; z; r_{i-1}], h_{i-1}) from zero
              score_n = v . tanh(U s_n + W h_i)                                    (Bahdanau et al. 2015)
              a_i = sum_n softmax(score)_n s_n;  r_i = L [h_i; a_i];  p(y_i | ...) = softmax(W_o r_i + b_o)
    loss      -log p(reply | context, z) + weight KL(q || p), z drawn from q; weight = min(1, step / anneal_steps)

Measuring and decoding take z at the mean of the prior, so that they depend on the context alone and on no draw.
What the model is fed is made in `batches.py`, the decoder's fast recurrence in `attention.py`.

Shapes: B rows, K turns, N words of a turn, R rows of turns, T reply words, M targets, P places attended to, V words,
E embedding, C context width (both directions), H decoder, Z latent.

Departures:
  * # Paper: attention over the source sequence. Released: over the encoded turns, two as a rule. Ours: the paper's;
    `attention="turns"` is the released.
  * # Released: KL(p || q), which counts in full in training whatever the step; the annealing stands in the other branch.
    Ours: KL(q || p) of the bound, annealed, as Serban et al. do.
  * # Released: mean divergence of a reply + mean loss of a word. Ours: their sums over a batch, which is the bound; the
    released sum weighs the divergence as much more as replies have words.
  * # Released: prior and posterior read the last column of the padded context outputs, which is zero for dialogues shorter
    than the longest of the batch. Ours: the state at the newest turn that is there.
  * # Released: turns are read newest first, and those before the last two enter without a gradient. Ours: oldest first, `turns`
    of them, all with their gradients; examples then do not depend on the order of a dialogue's windows.
  * # Released: LSTM cells with peepholes. Ours: without, because they share the fast recurrence of `policies/core/lstm.py`.
  * # Released: no output bias, and `<unk>` is no target. Ours: a bias, and `<unk>` is a word like others, as in the
    sequence-to-sequence model, so that perplexities compare.
  * # Released: replies are drawn with z from the prior. Ours: with its mean, because a reply to a changed context must differ
    through the change alone.
  * # Released: the max-margin loss draws z from the posterior of the recorded reply. Ours: `target_states`, which margins are
    made of, has it at the prior's mean, because a margin is about what the context alone says.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import EOS_ID, EOU_ID, UNK_ID, PairVocabulary
from parley.policies.core.fitting.loss import OutputLoss
from parley.policies.core.fitting.predictor import Loss, Predictor, real_positions
from parley.policies.core.lstm import LSTM
from parley.policies.core.packing import TokenPlaces
from parley.policies.vhred.attention import recur_fed_back
from parley.policies.vhred.batches import DialogueBatch, Dialogues
from parley.policies.vhred.settings import VhredSizes

EMBEDDING_RANGE = 0.01
"""Embeddings start uniform in plus or minus this."""
DEVIATION_SCALE = 0.1
"""Keeps early draws near their means."""


class Gaussians(NamedTuple):
    """Independent normal distributions."""

    mean_BZ: Tensor
    deviation_BZ: Tensor

    def draw(self) -> Tensor:
        """One draw (B, Z) of each, by torch's generator; gradients flow to means and deviations."""
        return self.mean_BZ + self.deviation_BZ * torch.randn_like(self.mean_BZ)


class VhredSummary(NamedTuple):
    """What is known of contexts before a reply."""

    fixed_BC: Tensor
    """c, which the decoder reads at every step."""
    newest_BC: Tensor
    """o_K."""
    states_BPM: Tensor
    """What is attended to."""
    mask_BP: Tensor
    """True where there is something."""


class VhredMemory(NamedTuple):
    """What the decoder reads at every step beside its words."""

    gates_B4H: Tensor
    """The part of the gates that context, z and biases make."""
    keys_BPA: Tensor
    states_BPM: Tensor
    barred_BP: Tensor
    """Minus infinity where there is nothing to attend to, else 0."""


class VhredState(NamedTuple):
    """The decoder between two steps."""

    hidden_BH: Tensor
    cell_BH: Tensor
    readout_BR: Tensor


class BidirectionalLSTM(nn.Module):
    """Two LSTMs, one of which reads backwards.

    Args:
        inputs: width of what is read.
        hidden: state of each.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forwards, self.backwards = (LSTM(inputs, hidden, batch_first=True) for _ in range(2))

    def read(self, inputs_NE: Tensor, places: TokenPlaces, width: int) -> tuple[Tensor, Tensor]:
        """Reads sequences of different lengths, none of them padded.

        Args:
            inputs_NE: what is read, in the order of the places.
            places: of R sequences, none of them empty.
            width: of what is returned, the longest sequence's length or more.

        Returns:
            Both directions' states side by side at every place (R, width, 2H), zero at padding, and the last of each (R, 2H).
        """
        ahead_NH = self.forwards.read_packed(inputs_NE, places.counts)
        back_NH = self.backwards.read_packed(inputs_NE[places.mirrored_N], places.counts)
        last = torch.cat([ahead_NH[places.last_B], back_NH[places.last_B]], dim=1)
        return places.padded(torch.cat([ahead_NH, back_NH[places.mirrored_N]], dim=1), width), last


class Distribution(nn.Module):
    """A distribution of the latent variable, as a function of what is known.

    Args:
        inputs: width of what is known.
        latent: width of the latent variable and of the layers.
    """

    def __init__(self, inputs: int, latent: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, latent), nn.Tanh(), nn.Linear(latent, latent), nn.Tanh())
        self.mean, self.deviation = nn.Linear(latent, latent), nn.Linear(latent, latent)

    def forward(self, known_BC: Tensor) -> Gaussians:
        """The distributions given what is known; in float32 under autocast, because their distance is a small difference."""
        with torch.autocast(known_BC.device.type, enabled=False):
            features_BZ = self.layers(known_BC.to(self.mean.weight.dtype))
            return Gaussians(self.mean(features_BZ), DEVIATION_SCALE * F.softplus(1 + self.deviation(features_BZ)))


class VHRED(Predictor[DialogueBatch]):
    """One VHRED's parameters.

    Args:
        vocabulary: the words of contexts and replies.
        sizes: widths of its layers.
    """

    steps: Tensor
    """Training steps made, int64; part of the state, so that a resumed training anneals on."""

    def __init__(self, vocabulary: PairVocabulary, sizes: VhredSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        turn, context = 2 * sizes.encoder, 2 * sizes.context
        attended = turn if sizes.attention == "words" else context
        self.embedding = nn.Embedding(len(vocabulary), sizes.embed)
        self.encoder = BidirectionalLSTM(sizes.embed, sizes.encoder)
        self.context = BidirectionalLSTM(turn, sizes.context)
        self.prior = Distribution(context, sizes.latent)
        self.posterior = Distribution(context + turn, sizes.latent)
        self.decoder = nn.LSTMCell(sizes.embed + context + sizes.latent + sizes.readout, sizes.decoder)
        self.keys = nn.Linear(attended, sizes.score, bias=False)
        self.query = nn.Linear(sizes.decoder, sizes.score, bias=False)
        self.score = nn.Linear(sizes.score, 1, bias=False)
        self.readout = nn.Linear(sizes.decoder + attended, sizes.readout, bias=False)
        self.output = nn.Linear(sizes.readout, len(vocabulary))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def initialise(self, generator: torch.Generator) -> None:
        """Draws initial weights: uniform by fan-in and fan-out (Glorot & Bengio 2010), biases 0, that of forget gates 1."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.data.zero_()
            else:
                bound = EMBEDDING_RANGE if parameter is self.embedding.weight else math.sqrt(6 / sum(parameter.shape))
                parameter.data.uniform_(-bound, bound, generator=generator)
            if name.rpartition(".")[2] in ("bias_ih", "bias_ih_l0"):
                hidden = len(parameter) // 4
                parameter.data[hidden : 2 * hidden] = 1

    def summarise(self, context: Dialogues) -> VhredSummary:
        """Reads contexts."""
        turns_RE, states_RNE = self._encode_turns(context)
        return self._summarise(context, turns_RE, states_RNE)

    def remember(self, summary: VhredSummary, latent_BZ: Tensor) -> VhredMemory:
        """What the decoder needs of contexts and draws."""
        cell, embed = self.decoder, self.sizes.embed
        fixed = torch.cat([summary.fixed_BC, latent_BZ.to(summary.fixed_BC.dtype)], dim=1)
        weight = cell.weight_ih[:, embed : embed + fixed.shape[1]]
        gates_B4H = F.linear(fixed, weight, cell.bias_ih + cell.bias_hh)
        barred_BP = torch.zeros_like(summary.mask_BP, dtype=torch.float32).masked_fill_(~summary.mask_BP, -torch.inf)
        return VhredMemory(gates_B4H, self.keys(summary.states_BPM), summary.states_BPM, barred_BP.to(self.score.weight.dtype))

    def listen(self, context: Dialogues) -> VhredMemory:
        """What the decoder needs of contexts when nobody knows the reply: z is the prior's mean."""
        summary = self.summarise(context)
        return self.remember(summary, self.prior(summary.newest_BC).mean_BZ)

    def hear(self, batch: DialogueBatch) -> VhredMemory:
        """Reads the contexts of a batch."""
        return self.listen(batch.context)

    def begin(self, memory: VhredMemory) -> VhredState:
        """The decoder before its first step: zero."""
        zero = memory.gates_B4H.new_zeros(len(memory.gates_B4H), self.sizes.decoder)
        return VhredState(zero, zero, zero.new_zeros(len(zero), self.sizes.readout))

    def step(self, memory: VhredMemory, words_B: Tensor, state: VhredState) -> tuple[Tensor, VhredState]:
        """Reads one word of each reply without dropout: the logits (B, V) of the next, and the state after it."""
        cell = self.decoder
        gates_B4H = memory.gates_B4H + F.linear(self.embedding(words_B), cell.weight_ih[:, : self.sizes.embed])
        gates_B4H = gates_B4H + F.linear(torch.cat([state.readout_BR, state.hidden_BH], dim=1), self._fed_back())
        enter, forget, candidate, leave = gates_B4H.chunk(4, dim=1)
        cell_BH = forget.sigmoid() * state.cell_BH + enter.sigmoid() * candidate.tanh()
        hidden_BH = leave.sigmoid() * cell_BH.tanh()
        layer_BPA = (memory.keys_BPA + self.query(hidden_BH).unsqueeze(1)).tanh()
        shares_BP = (self.score(layer_BPA).squeeze(2) + memory.barred_BP).softmax(1)
        attended_BM = torch.bmm(shares_BP.unsqueeze(1), memory.states_BPM).squeeze(1)
        readout_BR = self.readout(torch.cat([hidden_BH, attended_BM], dim=1))
        return self.output(readout_BR), VhredState(hidden_BH, cell_BH, readout_BR)

    def reply_states(self, memory: VhredMemory, reply_in_BT: Tensor) -> Tensor:
        """Readouts (B, T, R) after each given word of the replies, the first of which is `<s>`; dropout as in training."""
        cell = self.decoder
        words_TBE = self.embedding(self._dropped(reply_in_BT).t())
        gates_TB4H = F.linear(words_TBE, cell.weight_ih[:, : self.sizes.embed]) + memory.gates_B4H
        kept_BH = None
        if self.training and self.sizes.dropout:
            kept_BH = F.dropout(torch.ones_like(memory.gates_B4H[:, : self.sizes.decoder]).float(), self.sizes.dropout)
        weights = self._fed_back(), self.query.weight, self.score.weight[0], self.readout.weight
        return recur_fed_back(gates_TB4H, memory.keys_BPA, memory.states_BPM, memory.barred_BP, kept_BH, *weights).transpose(
            0, 1
        )

    def target_states(self, batch: DialogueBatch) -> Tensor:
        """What `output` reads to predict the words of the replies (M, R), with z at the prior's mean, in training too."""
        return self.reply_states(self.hear(batch), batch.reply.words_in_BT)[batch.real_BT]

    def loss(self, batch: DialogueBatch, output_loss: OutputLoss) -> Loss:
        """The bound on the replies' negative log-likelihoods; in training, one step more is counted.

        Args:
            batch: examples.
            output_loss: the loss of this model's output layer.

        Returns:
            The bound with its divergence annealed, and the part of it that a draw of the posterior leaves to the words.
        """
        summary, posterior, divergence_B = self._posteriors(batch)
        memory = self.remember(summary, posterior.draw())
        states_MR = self.reply_states(memory, batch.reply.words_in_BT)[batch.real_BT]
        nll = output_loss(states_MR, batch.targets_BT[batch.real_BT])
        if self.training:
            self.steps += 1
        weight = (self.steps / self.sizes.anneal_steps).clamp(max=1) if self.sizes.anneal_steps else 1
        return Loss(nll + weight * divergence_B.sum(), nll)

    def divergences(self, batch: DialogueBatch) -> Tensor:
        """KL(posterior || prior) of each reply (B,) in nats."""
        return self._posteriors(batch)[2]

    def _posteriors(self, batch: DialogueBatch) -> tuple[VhredSummary, Gaussians, Tensor]:
        """Contexts, posteriors, and their divergences from the priors (B,); all turns go through the encoder at once."""
        targets_BT = batch.targets_BT
        # The encoder knows the end of a turn as `<eou>`.
        reply_BT = targets_BT.masked_fill(targets_BT == EOS_ID, EOU_ID)
        turns_RE, states_RNE = self._encode_turns(batch.context, reply_BT, batch.real_BT.sum(1))
        of_contexts, of_replies = slice(None, -len(reply_BT)), slice(-len(reply_BT), None)
        summary = self._summarise(batch.context, turns_RE[of_contexts], states_RNE[of_contexts])
        posterior = self.posterior(torch.cat([summary.newest_BC, turns_RE[of_replies]], dim=1))
        return summary, posterior, divergence(posterior, self.prior(summary.newest_BC))

    def _encode_turns(
        self, context: Dialogues, reply_BT: Tensor | None = None, reply_lengths_B: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Vectors (R, 2E) and word states (R, N, 2E) of the turns that are there, row by row, and of replies behind them."""
        real_BK = context.lengths_BK > 0
        words_RN, lengths_R = context.words_BKN[real_BK], context.lengths_BK[real_BK]
        if reply_BT is not None and reply_lengths_B is not None:
            width = max(words_RN.shape[1], reply_BT.shape[1])
            sides = [F.pad(words, (0, width - words.shape[1])) for words in (words_RN, reply_BT)]
            words_RN, lengths_R = torch.cat(sides), torch.cat([lengths_R, reply_lengths_B])
        places = TokenPlaces.of(lengths_R.cpu().numpy(), words_RN.device)
        words_N = words_RN[places.rows_N, places.steps_N]
        states_RNE, turns_RE = self.encoder.read(self.embedding(words_N), places, words_RN.shape[1])
        return turns_RE, self._steady(states_RNE)

    def _summarise(self, context: Dialogues, turns_RE: Tensor, states_RNE: Tensor) -> VhredSummary:
        real_BK = context.lengths_BK > 0
        num_B = real_BK.sum(1)
        places = TokenPlaces.of(num_B.cpu().numpy(), num_B.device)
        # Turns are row by row: those of the rows before, then its own.
        firsts_B = num_B.cumsum(0) - num_B
        turns_NE = turns_RE[firsts_B[places.rows_N] + places.steps_N]
        outputs_BKC, fixed_BC = self.context.read(turns_NE, places, real_BK.shape[1])
        outputs_BKC = self._steady(outputs_BKC)
        newest_BC = outputs_BKC[torch.arange(len(num_B), device=num_B.device), num_B - 1]
        if self.sizes.attention == "turns":
            return VhredSummary(fixed_BC, newest_BC, outputs_BKC, real_BK)
        width = context.words_BKN.shape[2]
        states_BKNE = states_RNE.new_zeros(*real_BK.shape, width, states_RNE.shape[2])
        states_BKNE[real_BK] = states_RNE[:, :width]
        mask_BP = real_positions(context.lengths_BK.flatten(), width).view(len(real_BK), -1)
        # Only the longest context is worth a place for each of its words: real words move to the front, in their order.
        order_BP = torch.argsort(mask_BP.to(torch.int8), dim=1, descending=True, stable=True)[:, : int(mask_BP.sum(1).max())]
        rows = torch.arange(len(order_BP), device=order_BP.device).unsqueeze(1)
        return VhredSummary(fixed_BC, newest_BC, states_BKNE.flatten(1, 2)[rows, order_BP], mask_BP[rows, order_BP])

    def _fed_back(self) -> Tensor:
        """Weights (4H, R + H) of the last readout and hidden state."""
        return torch.cat([self.decoder.weight_ih[:, -self.sizes.readout :], self.decoder.weight_hh], dim=1)

    def _dropped(self, words_in_BT: Tensor) -> Tensor:
        """The words as the decoder reads them: in training, some after `<s>` are hidden from it."""
        if not (self.training and self.sizes.word_drop):
            return words_in_BT
        hidden_BT = torch.rand(words_in_BT.shape, device=words_in_BT.device) < self.sizes.word_drop
        hidden_BT[:, 0] = False
        return words_in_BT.masked_fill(hidden_BT, UNK_ID)

    def _steady(self, states_RNE: Tensor) -> Tensor:
        """Dropout of the same units at all places of a row (Gal & Ghahramani 2016)."""
        ones = torch.ones_like(states_RNE[:, :1])
        return states_RNE * F.dropout(ones, self.sizes.dropout) if self.training else states_RNE


def divergence(of: Gaussians, source: Gaussians) -> Tensor:
    """KL(of || source) of each row (B,) in nats."""
    ratio_BZ = of.deviation_BZ / source.deviation_BZ
    shift_BZ = (of.mean_BZ - source.mean_BZ) / source.deviation_BZ
    return (0.5 * (ratio_BZ.square() + shift_BZ.square() - 1) - ratio_BZ.log()).sum(1)
