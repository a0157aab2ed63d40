"""VHRED with attention (Niu & Bansal 2018, section 2.1; Serban et al. 2017): a reply depends on its context and on a draw.

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

A turn is its last `max_turn` - 1 words and `<eou>`, so that an empty one is a turn too; a reply is made as for a
sequence-to-sequence model (`policies/seq2seq/model.py`). Of longer contexts the newest turns are read.

`recur_fed_back` is the decoder as one autograd node; a test holds it equal to `VHRED.step`, gradients too. Everything that
does not depend on the step before is formed for all steps at once: by the caller on the way forward, here on the way back.
The scores' layer is the largest thing of a step and is formed again on the way back.

Shapes: B rows, K turns, N words of a turn or attended positions of a row, R rows of turns or readout, T reply words (`<s>`
not counted), M targets or width of an attended position, P attended positions, V words, E embedding, C context width (both
directions), H decoder, Z latent, A score units, J = R + H (inputs of a step beside its word), I = H + M (inputs of the
readout).

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
  * # Released: LSTM cells with peepholes. Ours: without, because they share the fast recurrence of `policies/core/layers.py`.
  * # Released: no output bias, and `<unk>` is no target. Ours: a bias, and `<unk>` is a word like others, as in the
    sequence-to-sequence model, so that perplexities compare.
  * # Released: replies are drawn with z from the prior. Ours: with its mean, because a reply to a changed context must differ
    through the change alone.
  * # Released: the max-margin loss draws z from the posterior of the recorded reply. Ours: `target_states`, which margins are
    made of, has it at the prior's mean, because a margin is about what the context alone says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from parley.envs.corpora.pairs.turns import Turn, Turns, turn_words
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID, UNK_ID, PairVocabulary
from parley.policies.core.fitting.batches import Loss, OutputLoss, Predictor, Tensors, real_positions
from parley.policies.core.layers import LSTM, TokenPlaces, advance, product_dtype, retreat
from parley.policies.seq2seq.model import Answered, Sentences
from parley.policies.vhred.settings import VhredSizes

Context = Sequence[Sequence[int]]
"""Word ids of turns, oldest first, as `context_ids` makes them."""


@dataclass(frozen=True)
class Dialogues(Tensors):
    """Contexts side by side."""

    words_BKN: Tensor
    """int64; turns oldest first, padded behind their words, and behind the newest turn."""
    lengths_BK: Tensor
    """Words of each turn, `<eou>` included, int64; 0 where there is no turn."""


@dataclass(frozen=True, kw_only=True)
class DialogueBatch(Answered):
    """A batch for VHRED."""

    context: Dialogues

    @property
    def contexts(self) -> list[bytes]:
        """Return the words of each context as the model reads them; equal for equal contexts."""
        contexts = []
        for turns_KN, lengths_K in zip(self.context.words_BKN.numpy(), self.context.lengths_BK.numpy(), strict=True):
            ends = lengths_K[lengths_K > 0]
            turns = (words[:end].tobytes() for words, end in zip(turns_KN, ends, strict=False))
            contexts.append(b"".join([ends.tobytes(), *turns]))
        return contexts


class DialogueExamples:
    """Replies to be predicted from contexts.

    Args:
        contexts: turns before each reply, oldest first.
        replies: as many.
        vocabulary: the model's words; others are `<unk>`.
        sizes: number of turns, and longest turns and replies.
        units: the dialogue of each reply; each is one when not given.
    """

    def __init__(
        self,
        contexts: Sequence[Turns],
        replies: Sequence[Turn],
        vocabulary: PairVocabulary,
        sizes: VhredSizes,
        units: np.ndarray | None = None,
    ) -> None:
        assert len(contexts) == len(replies)
        self.units = units
        self._contexts = [context_ids(context, vocabulary, sizes) for context in contexts]
        self._replies = [vocabulary.encode(turn_words(reply))[: sizes.max_reply - 1].tolist() for reply in replies]
        self.num_targets = np.array([len(reply) + 1 for reply in self._replies], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._replies)

    def exchanged(self) -> DialogueExamples:
        """Return the same replies in the same order, each behind the context of another, half of them away."""
        other, half = copy(self), len(self) // 2
        other._contexts = self._contexts[len(self) - half :] + self._contexts[: len(self) - half]
        return other

    def batch(self, indices: np.ndarray) -> DialogueBatch:
        """Return the examples at `indices` (B,), padded to the largest of them."""
        context = side_by_side([self._contexts[index] for index in indices])
        framed = [[BOS_ID, *self._replies[index], EOS_ID] for index in indices]
        return DialogueBatch(context=context, reply=Sentences(torch.from_numpy(_padded(framed))))


def context_ids(context: Turns, vocabulary: PairVocabulary, sizes: VhredSizes) -> list[list[int]]:
    """Return the newest turns of a context, each cut to its last words and ended by `<eou>`."""
    newest = [vocabulary.encode(turn_words(turn))[-(sizes.max_turn - 1) :] for turn in context[-sizes.turns :]]
    return [[*words.tolist(), EOU_ID] for words in newest]


def side_by_side(contexts: Sequence[Context]) -> Dialogues:
    """Return contexts of at least one turn each, padded to the largest."""
    num_turns = max(map(len, contexts))
    lengths = np.zeros((len(contexts), num_turns), dtype=np.int64)
    for row, context in enumerate(contexts):
        lengths[row, : len(context)] = [len(turn) for turn in context]
    words = np.full((len(contexts), num_turns, lengths.max()), PAD_ID, dtype=np.int64)
    for row, context in enumerate(contexts):
        for number, turn in enumerate(context):
            words[row, number, : len(turn)] = turn
    return Dialogues(torch.from_numpy(words), torch.from_numpy(lengths))


def _padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    ids = np.full((len(rows), max(map(len, rows))), PAD_ID, dtype=np.int64)
    for row, words in enumerate(rows):
        ids[row, : len(words)] = words
    return ids


class _FedBack(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        gates_TB4H: Tensor,
        keys_BNA: Tensor,
        states_BNM: Tensor,
        barred_BN: Tensor,
        kept_BH: Tensor | None,
        weight_4HJ: Tensor,
        query_AH: Tensor,
        score_A: Tensor,
        readout_RI: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        steps, rows, wide = gates_TB4H.shape
        hidden, readout = wide // 4, len(readout_RI)
        weight_J4H, query_HA, readout_IR = (w.to(dtype).t().contiguous() for w in (weight_4HJ, query_AH, readout_RI))
        gates = gates_TB4H.float() if gates_TB4H.dtype == torch.bfloat16 else gates_TB4H.clone()
        keys_BNA, states_BNM = keys_BNA.to(gates.dtype), states_BNM.to(gates.dtype)
        read = gates.new_zeros(steps + 1, rows, readout + hidden)
        cells = gates.new_zeros(steps + 1, rows, hidden)
        squashed = torch.empty_like(cells[1:])
        joined = gates.new_empty(steps, rows, hidden + states_BNM.shape[2])
        queries = gates.new_empty(steps, rows, keys_BNA.shape[2])
        shares = gates.new_empty(steps, rows, keys_BNA.shape[1])
        layer_BNA = torch.empty_like(keys_BNA)
        for t in range(steps):
            gates[t] += read[t].to(dtype) @ weight_J4H
            said_BH = read[t + 1, :, readout:]
            advance(gates[t], cells[t], cells[t + 1], squashed[t], said_BH)
            joined[t, :, :hidden] = said_BH if kept_BH is None else said_BH * kept_BH
            queries[t] = joined[t, :, :hidden].to(dtype) @ query_HA
            torch.add(keys_BNA, queries[t].unsqueeze(1), out=layer_BNA)
            torch.softmax(layer_BNA.tanh_() @ score_A + barred_BN, 1, out=shares[t])
            joined[t, :, hidden:] = torch.bmm(shares[t].unsqueeze(1), states_BNM).squeeze(1)
            read[t + 1, :, :readout] = joined[t].to(dtype) @ readout_IR
        ctx.save_for_backward(
            *(keys_BNA, states_BNM, kept_BH, weight_4HJ, query_AH, score_A, readout_RI),
            *(gates, read, cells, squashed, joined, queries, shares),
        )
        ctx.dtype, ctx.given = dtype, gates_TB4H.dtype
        return read[1:, :, :readout].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_TBR: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        keys_BNA, states_BNM, kept_BH, weight_4HJ, query_AH, score_A, readout_RI = ctx.saved_tensors[:7]
        gates, read, cells, squashed, joined, queries, shares = ctx.saved_tensors[7:]
        steps, _, wide = gates.shape
        hidden, readout, dtype = wide // 4, len(readout_RI), ctx.dtype
        weight, query, join = weight_4HJ.to(dtype), query_AH.to(dtype), readout_RI.to(dtype)
        gates_grad, readout_grads, query_grads = torch.empty_like(gates), torch.empty_like(grad_TBR), torch.empty_like(queries)
        context_grads = torch.empty_like(joined[:, :, hidden:])
        keys_grad, score_grad = torch.zeros_like(keys_BNA), torch.zeros_like(score_A)
        layer_BNA, slope_BNA = torch.empty_like(keys_BNA), torch.empty_like(keys_BNA)
        read_grad, cell_grad = torch.zeros_like(read[0]), torch.zeros_like(cells[0])
        for t in range(steps - 1, -1, -1):
            readout_grads[t] = grad_TBR[t] + read_grad[:, :readout]
            joined_grad = (readout_grads[t].to(dtype) @ join).to(gates.dtype)
            context_grads[t] = joined_grad[:, hidden:]
            share_grad = torch.bmm(states_BNM, context_grads[t].unsqueeze(2)).squeeze(2)
            logit_grad = shares[t] * (share_grad - (shares[t] * share_grad).sum(1, keepdim=True))
            torch.add(keys_BNA, queries[t].unsqueeze(1), out=layer_BNA).tanh_()
            score_grad += logit_grad.flatten() @ layer_BNA.flatten(0, 1)
            torch.mul(logit_grad.unsqueeze(2), score_A, out=slope_BNA)
            torch.ops.aten.tanh_backward.grad_input(slope_BNA, layer_BNA, grad_input=slope_BNA)
            keys_grad += slope_BNA
            torch.sum(slope_BNA, 1, out=query_grads[t])
            hidden_grad = joined_grad[:, :hidden] + query_grads[t].to(dtype) @ query
            if kept_BH is not None:
                hidden_grad *= kept_BH
            hidden_grad += read_grad[:, readout:]
            retreat(gates[t], cells[t], squashed[t], hidden_grad, cell_grad, gates_grad[t])
            read_grad = (gates_grad[t].to(dtype) @ weight).to(gates.dtype)
        states_grad = torch.bmm(shares.permute(1, 2, 0), context_grads.transpose(0, 1))
        products = (
            (gates_grad, read[:-1], weight_4HJ),
            (query_grads, joined[:, :, :hidden], query_AH),
            (readout_grads, joined, readout_RI),
        )
        weight_grad, query_grad, join_grad = (
            (grad.to(dtype).flatten(0, 1).t() @ entered.to(dtype).flatten(0, 1)).to(like.dtype)
            for grad, entered, like in products
        )
        return (
            gates_grad.to(ctx.given),
            keys_grad,
            states_grad,
            None,
            None,
            weight_grad,
            query_grad,
            score_grad,
            join_grad,
            None,
        )


def recur_fed_back(
    gates_TB4H: Tensor,
    keys_BNA: Tensor,
    states_BNM: Tensor,
    barred_BN: Tensor,
    kept_BH: Tensor | None,
    weight_4HJ: Tensor,
    query_AH: Tensor,
    score_A: Tensor,
    readout_RI: Tensor,
) -> Tensor:
    """Return the readouts of a decoder from zero over given products of its words.

    Args:
        gates_TB4H: products of the words and of the constant inputs, and the biases.
        keys_BNA: the scores' products with the attended states.
        states_BNM: attended states.
        barred_BN: minus infinity at places that do not exist, else 0.
        kept_BH: dropout factors of the hidden states for all readers but the next step; None for none.
        weight_4HJ: weights of the last readout and hidden state, side by side.
        query_AH: weights of the hidden state in the scores.
        score_A: weights from the scores' layer to a score.
        readout_RI: weights of hidden state and attention, side by side.

    Returns:
        The readout after every step (T, B, R), in float32 under autocast.
    """
    dtype = product_dtype(weight_4HJ)
    with torch.autocast(weight_4HJ.device.type, enabled=False):
        return _FedBack.apply(
            gates_TB4H, keys_BNA, states_BNM, barred_BN, kept_BH, weight_4HJ, query_AH, score_A, readout_RI, dtype
        )


EMBEDDING_RANGE = 0.01
"""Embeddings start uniform in plus or minus this."""
DEVIATION_SCALE = 0.1
"""Factor on deviations that keeps early draws near their means."""


class Gaussians(NamedTuple):
    """Independent normal distributions."""

    mean_BZ: Tensor
    deviation_BZ: Tensor

    def draw(self) -> Tensor:
        """Return one draw (B, Z) of each, by torch's generator, with gradients to means and deviations."""
        return self.mean_BZ + self.deviation_BZ * torch.randn_like(self.mean_BZ)


class VhredSummary(NamedTuple):
    """The reading of contexts before a reply."""

    fixed_BC: Tensor
    """c, which the decoder reads at every step."""
    newest_BC: Tensor
    """o_K."""
    states_BPM: Tensor
    """States that attention reads."""
    mask_BP: Tensor
    """True at positions that exist."""


class VhredMemory(NamedTuple):
    """Inputs of the decoder at every step beside its words."""

    gates_B4H: Tensor
    """The share of context, z and biases in the gates."""
    keys_BPA: Tensor
    states_BPM: Tensor
    barred_BP: Tensor
    """Minus infinity at positions that do not exist, else 0."""


class VhredState(NamedTuple):
    """The decoder between two steps."""

    hidden_BH: Tensor
    cell_BH: Tensor
    readout_BR: Tensor


class BidirectionalLSTM(nn.Module):
    """Two LSTMs, one of which reads backwards.

    Args:
        inputs: width of the inputs.
        hidden: state of each.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forwards, self.backwards = (LSTM(inputs, hidden, batch_first=True) for _ in range(2))

    def read(self, inputs_NE: Tensor, places: TokenPlaces, width: int) -> tuple[Tensor, Tensor]:
        """Return the states of both directions over sequences of different lengths, none of them padded.

        Args:
            inputs_NE: inputs, in the order of the positions.
            places: of R sequences, none of them empty.
            width: of the result, the longest sequence's length or more.

        Returns:
            Both directions' states side by side at every place (R, width, 2H), zero at padding, and the last of each (R, 2H).
        """
        ahead_NH = self.forwards.read_packed(inputs_NE, places.counts)
        back_NH = self.backwards.read_packed(inputs_NE[places.mirrored_N], places.counts)
        last = torch.cat([ahead_NH[places.last_B], back_NH[places.last_B]], dim=1)
        return places.padded(torch.cat([ahead_NH, back_NH[places.mirrored_N]], dim=1), width), last


class Distribution(nn.Module):
    """A distribution of the latent variable, as a function of known states.

    Args:
        inputs: width of the known states.
        latent: width of the latent variable and of the layers.
    """

    def __init__(self, inputs: int, latent: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, latent), nn.Tanh(), nn.Linear(latent, latent), nn.Tanh())
        self.mean, self.deviation = nn.Linear(latent, latent), nn.Linear(latent, latent)

    def forward(self, known_BC: Tensor) -> Gaussians:
        """Return the distributions, in float32 under autocast, because their distance is a small difference."""
        with torch.autocast(known_BC.device.type, enabled=False):
            features_BZ = self.layers(known_BC.to(self.mean.weight.dtype))
            return Gaussians(self.mean(features_BZ), DEVIATION_SCALE * F.softplus(1 + self.deviation(features_BZ)))


class VHRED(Predictor[DialogueBatch]):
    """The parameters of one VHRED.

    Args:
        vocabulary: the words of contexts and replies.
        sizes: widths of its layers.
    """

    steps: Tensor
    """Training steps made, int64; part of the state, so that a resumed training continues the annealing."""

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
        """Draw initial weights: uniform by fan-in and fan-out (Glorot & Bengio 2010), biases 0, that of forget gates 1."""
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
        """Return the reading of contexts."""
        turns_RE, states_RNE = self._encode_turns(context)
        return self._summarise(context, turns_RE, states_RNE)

    def remember(self, summary: VhredSummary, latent_BZ: Tensor) -> VhredMemory:
        """Return the decoder's memory of contexts and draws."""
        cell, embed = self.decoder, self.sizes.embed
        fixed = torch.cat([summary.fixed_BC, latent_BZ.to(summary.fixed_BC.dtype)], dim=1)
        weight = cell.weight_ih[:, embed : embed + fixed.shape[1]]
        gates_B4H = F.linear(fixed, weight, cell.bias_ih + cell.bias_hh)
        barred_BP = torch.zeros_like(summary.mask_BP, dtype=torch.float32).masked_fill_(~summary.mask_BP, -torch.inf)
        return VhredMemory(gates_B4H, self.keys(summary.states_BPM), summary.states_BPM, barred_BP.to(self.score.weight.dtype))

    def listen(self, context: Dialogues) -> VhredMemory:
        """Return the decoder's memory of contexts without their replies: z is the prior's mean."""
        summary = self.summarise(context)
        return self.remember(summary, self.prior(summary.newest_BC).mean_BZ)

    def hear(self, batch: DialogueBatch) -> VhredMemory:
        """Return the memory of the contexts of a batch."""
        return self.listen(batch.context)

    def begin(self, memory: VhredMemory) -> VhredState:
        """Return the decoder's state before its first step: zero."""
        zero = memory.gates_B4H.new_zeros(len(memory.gates_B4H), self.sizes.decoder)
        return VhredState(zero, zero, zero.new_zeros(len(zero), self.sizes.readout))

    def step(self, memory: VhredMemory, words_B: Tensor, state: VhredState) -> tuple[Tensor, VhredState]:
        """Return the logits (B, V) of each reply's next word and the state after its last, without dropout."""
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
        """Return readouts (B, T, R) after each given word of the replies, `<s>` first; dropout as in training."""
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
        """Return the inputs of `output` for the words of the replies (M, R), z at the prior's mean."""
        return self.reply_states(self.hear(batch), batch.reply.words_in_BT)[batch.real_BT]

    def loss(self, batch: DialogueBatch, output_loss: OutputLoss) -> Loss:
        """Return the bound on the replies' negative log-likelihoods; training counts one more step.

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
        """Return KL(posterior || prior) of each reply (B,) in nats."""
        return self._posteriors(batch)[2]

    def _posteriors(self, batch: DialogueBatch) -> tuple[VhredSummary, Gaussians, Tensor]:
        """Return contexts, posteriors, and their divergences from the priors (B,); one pass encodes all turns."""
        targets_BT = batch.targets_BT
        # In the encoder `<eou>` ends a turn.
        reply_BT = targets_BT.masked_fill(targets_BT == EOS_ID, EOU_ID)
        turns_RE, states_RNE = self._encode_turns(batch.context, reply_BT, batch.real_BT.sum(1))
        of_contexts, of_replies = slice(None, -len(reply_BT)), slice(-len(reply_BT), None)
        summary = self._summarise(batch.context, turns_RE[of_contexts], states_RNE[of_contexts])
        posterior = self.posterior(torch.cat([summary.newest_BC, turns_RE[of_replies]], dim=1))
        return summary, posterior, divergence(posterior, self.prior(summary.newest_BC))

    def _encode_turns(
        self, context: Dialogues, reply_BT: Tensor | None = None, reply_lengths_B: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return vectors (R, 2E) and word states (R, N, 2E) of existing turns, row by row, then of replies."""
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
        # Real words move to the front, in their order, so that the longest context sets the width.
        order_BP = torch.argsort(mask_BP.to(torch.int8), dim=1, descending=True, stable=True)[:, : int(mask_BP.sum(1).max())]
        rows = torch.arange(len(order_BP), device=order_BP.device).unsqueeze(1)
        return VhredSummary(fixed_BC, newest_BC, states_BKNE.flatten(1, 2)[rows, order_BP], mask_BP[rows, order_BP])

    def _fed_back(self) -> Tensor:
        return torch.cat([self.decoder.weight_ih[:, -self.sizes.readout :], self.decoder.weight_hh], dim=1)

    def _dropped(self, words_in_BT: Tensor) -> Tensor:
        """Return the words as the decoder reads them: in training, some after `<s>` become `<unk>`."""
        if not (self.training and self.sizes.word_drop):
            return words_in_BT
        hidden_BT = torch.rand(words_in_BT.shape, device=words_in_BT.device) < self.sizes.word_drop
        hidden_BT[:, 0] = False
        return words_in_BT.masked_fill(hidden_BT, UNK_ID)

    def _steady(self, states_RNE: Tensor) -> Tensor:
        """Apply dropout of the same units at all positions of a row (Gal & Ghahramani 2016)."""
        ones = torch.ones_like(states_RNE[:, :1])
        return states_RNE * F.dropout(ones, self.sizes.dropout) if self.training else states_RNE


def divergence(of: Gaussians, source: Gaussians) -> Tensor:
    """Return KL(of || source) of each row (B,) in nats."""
    ratio_BZ = of.deviation_BZ / source.deviation_BZ
    shift_BZ = (of.mean_BZ - source.mean_BZ) / source.deviation_BZ
    return (0.5 * (ratio_BZ.square() + shift_BZ.square() - 1) - ratio_BZ.log()).sum(1)
