"""Likelihoods by sequence-to-sequence and language models, the stacked generator of Li et al. 2017, and checkpoints.

`WordScores` gives the likelihood of each word of utterances by a language model. `BackwardModel` gives p(s|t), the likelihood
of a source behind a reply, of a model that `parley train seq2seq --backward` fitted (Li et al. 2016a, arXiv 1510.03055,
section 4.2).

`StackedSeq2Seq` is the generator of Li et al. 2017 (arXiv 1701.06547), as in the authors' released code, d_t being the state of
the upmost decoder layer and h_i that of the encoder:
    a(d)  = sum_i softmax_i(h_i . d) h_i                            dot attention
    f_t   = tanh(W_1 a(d_{t-1}) + W_2 d_{t-1})                      read by the lowest layer beside the word
    p(y)  = softmax(W_o tanh(W_3 a(d_t) + W_4 d_t) + b_o)
The decoder starts from the encoder's states after the source's last word, layer by layer. A state holds the layers side by
side: (B, L H). `recur_fed` is its decoder as one autograd node; a test holds both equal, gradients too. As in
`policies/seq2seq/model.py`, everything that does not depend on the step before is formed for all steps at once: by the caller
on the way forward, here on the way back, gradients of weights above all.

  * # Released: dropout also between the states of one layer. Ours: on what layers read alone, so that the encoder is torch's.
  * # Released: no biases. Ours: torch's LSTMs have them, and so has the output layer.
  * # Released: sources are padded on the left. Ours: on the right, and masked.

A checkpoint is a folder (`policies/core/checkpoint.py`), or a run folder that holds one in `checkpoint`. Its provenance has
`test_nll`, the nats per word on the test split: T_out = -test_nll of a sequence-to-sequence model, T_in = -test_nll of a
language model (He & Glass 2018, section 4).

Shapes: B rows, N source words or utterances, T reply words or steps, L layers, H hidden units, V words, J = 2 H (two vectors of
that width, side by side).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID, PairVocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.core.fitting.batches import EMBEDDING_RANGE, example_nll, real_positions
from parley.policies.core.layers import LSTM, Linear, LSTMCell, TokenPlaces, advance, product_dtype, retreat
from parley.policies.seq2seq.model import LanguageModel, Memory, PairExamples, Seq2Seq, State
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes


class WordScores:
    """Scores of utterances by a language model, whole, however long they are.

    Args:
        model: in evaluation mode.
        batch_size: utterances that are scored side by side.
    """

    def __init__(self, model: LanguageModel, batch_size: int = 64) -> None:
        self._model, self._batch_size = model, batch_size

    @torch.inference_mode()
    def log_probabilities(self, utterances: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Return the natural log-probabilities of each utterance's words and its end (words + 1,) float64."""
        log_probabilities: list[np.ndarray] = [np.empty(0)] * len(utterances)
        for rows, starts, words_BT1 in self._batches(utterances):
            logits_BTV = self._model(words_BT1[:, :-1])
            chosen_BT = logits_BTV.log_softmax(-1).gather(-1, words_BT1[:, 1:, None])[..., 0]
            for row, begins, scores_T in zip(rows, starts, chosen_BT.cpu(), strict=True):
                # The end follows the units of the words.
                log_probabilities[row] = np.add.reduceat(scores_T[: begins[-1] + 1].numpy().astype(np.float64), begins)
        return log_probabilities

    @torch.inference_mode()
    def vectors(self, utterances: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the state behind the last word of each utterance (N, H) float32, N at least 1."""
        vectors = np.empty((len(utterances), self._model.sizes.hidden), dtype=np.float32)
        for rows, starts, words_BT1 in self._batches(utterances):
            states_BTH = self._model.states(self._model.embedding(words_BT1[:, :-1]))
            last = torch.tensor([int(begins[-1]) for begins in starts])
            vectors[rows] = states_BTH[torch.arange(len(rows)), last].cpu().numpy()
        return vectors

    def _batches(self, utterances: Sequence[Sequence[str]]) -> Iterator[tuple[list[int], list[np.ndarray], torch.Tensor]]:
        """Yield rows of utterances of like length, the bounds of their words' units, and their padded ids."""
        order = sorted(range(len(utterances)), key=lambda row: len(utterances[row]))
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            spelt = [self._model.vocabulary.spell(utterances[row]) for row in rows]
            units = [self._framed(ids) for ids, _ in spelt]
            yield rows, [starts for _, starts in spelt], pad_sequence(units, batch_first=True, padding_value=PAD_ID)

    def _framed(self, ids: np.ndarray) -> torch.Tensor:
        return torch.tensor([BOS_ID, *ids.tolist(), EOS_ID], device=self._model.embedding.weight.device)


class _FedRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        gates_TB4H: Tensor,
        states_BNH: Tensor,
        barred_BN: Tensor | None,
        hidden_LBH: Tensor,
        cell_LBH: Tensor,
        kept_LTBH: Tensor | None,
        fed_HJ: Tensor,
        weight_L4HJ: Tensor,
        bias_L4H: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        steps, rows, wide = gates_TB4H.shape
        layers, width = len(weight_L4HJ), wide // 4
        feed_JH, weights_LJ4H = fed_HJ.to(dtype).t().contiguous(), weight_L4HJ.to(dtype).transpose(1, 2).contiguous()
        given = gates_TB4H.dtype
        kind = torch.float32 if given == torch.bfloat16 else given
        states_BNH, cell_LBH, hidden_LBH = states_BNH.to(kind), cell_LBH.to(kind), hidden_LBH.to(kind)
        gates = states_BNH.new_empty(layers, steps, rows, wide)
        gates[:] = bias_L4H.to(kind)[:, None, None]
        gates[0] += gates_TB4H
        # Inputs of each layer beside the word: the layer below, or the fed-back attention, and its own last state.
        read = gates.new_empty(layers, steps, rows, 2 * width)
        cells, squashed = gates.new_empty(layers, steps + 1, rows, width), gates.new_empty(layers, steps, rows, width)
        cells[:, 0], read[:, 0, :, width:] = cell_LBH, hidden_LBH
        # Attention and the upmost state, before the first step and after each one.
        attended = gates.new_empty(steps + 1, rows, 2 * width)
        attended[0, :, width:] = hidden_LBH[-1]
        shares = gates.new_empty(steps + 1, rows, states_BNH.shape[1])
        _attend(states_BNH, barred_BN, shares[0], attended[0])
        fed, state = gates.new_empty(steps, rows, width), gates.new_empty(rows, width)
        for t in range(steps):
            torch.tanh(attended[t].to(dtype) @ feed_JH, out=fed[t])
            below = fed[t]
            for layer in range(layers):
                torch.mul(below, 1 if kept_LTBH is None else kept_LTBH[layer, t], out=read[layer, t, :, :width])
                layer_gates = gates[layer, t]
                layer_gates += read[layer, t].to(dtype) @ weights_LJ4H[layer]
                advance(layer_gates, cells[layer, t], cells[layer, t + 1], squashed[layer, t], state)
                if t + 1 < steps:
                    read[layer, t + 1, :, width:] = state
                below = state
            attended[t + 1, :, width:] = state
            _attend(states_BNH, barred_BN, shares[t + 1], attended[t + 1])
        ctx.save_for_backward(
            states_BNH, kept_LTBH, fed_HJ, weight_L4HJ, bias_L4H, gates, read, cells, squashed, attended, shares, fed
        )
        ctx.dtype, ctx.given = dtype, given
        return attended[1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_TBJ: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        states_BNH, kept_LTBH, fed_HJ, weight_L4HJ, bias_L4H = ctx.saved_tensors[:5]
        gates, read, cells, squashed, attended, shares, fed = ctx.saved_tensors[5:]
        (layers, steps, _, wide), dtype = gates.shape, ctx.dtype
        width = wide // 4
        weights, feed = weight_L4HJ.to(dtype), fed_HJ.to(dtype)
        gates_grad, fed_grads = torch.empty_like(gates), torch.empty_like(fed)
        context_grads, score_grads = torch.empty_like(attended[:, :, :width]), torch.empty_like(shares)
        hidden_grads, cell_grads = torch.zeros_like(cells[:, 0]), torch.zeros_like(cells[:, 0])
        attended_grad = torch.zeros_like(attended[0])
        for t in range(steps, -1, -1):
            if t:
                attended_grad += grad_TBJ[t - 1]
            context_grads[t] = attended_grad[:, :width]
            share_grad = torch.bmm(states_BNH, context_grads[t].unsqueeze(2)).squeeze(2)
            torch.mul(shares[t], share_grad - (shares[t] * share_grad).sum(1, keepdim=True), out=score_grads[t])
            above = attended_grad[:, width:] + torch.bmm(score_grads[t].unsqueeze(1), states_BNH).squeeze(1)
            if not t:
                hidden_grads[-1] += above
                break
            for layer in range(layers - 1, -1, -1):
                above = above + hidden_grads[layer]
                at, layer_grad = (layer, t - 1), gates_grad[layer, t - 1]
                retreat(gates[at], cells[at], squashed[at], above, cell_grads[layer], layer_grad)
                read_grad = (layer_grad.to(dtype) @ weights[layer]).to(gates.dtype)
                hidden_grads[layer] = read_grad[:, width:]
                above = read_grad[:, :width] if kept_LTBH is None else read_grad[:, :width] * kept_LTBH[at]
            torch.ops.aten.tanh_backward.grad_input(above, fed[t - 1], grad_input=fed_grads[t - 1])
            attended_grad = (fed_grads[t - 1].to(dtype) @ feed).to(gates.dtype)
        products = torch.bmm(shares.permute(1, 2, 0), context_grads.transpose(0, 1))
        states_grad = torch.baddbmm(products, score_grads.permute(1, 2, 0), attended[:, :, width:].transpose(0, 1))
        fed_grad = fed_grads.to(dtype).flatten(0, 1).t() @ attended[:-1].to(dtype).flatten(0, 1)
        weight_grad = torch.bmm(gates_grad.to(dtype).flatten(1, 2).transpose(1, 2), read.to(dtype).flatten(1, 2))
        return (
            gates_grad[0].to(ctx.given),
            states_grad,
            None,
            hidden_grads,
            cell_grads,
            None,
            fed_grad.to(fed_HJ.dtype),
            weight_grad.to(weight_L4HJ.dtype),
            gates_grad.sum((1, 2)).to(bias_L4H.dtype),
            None,
        )


def _attend(states_BNH: Tensor, barred_BN: Tensor | None, shares_BN: Tensor, attended_BJ: Tensor) -> None:
    """Set each state's share by the right half of `attended_BJ`, and the left half to the mean of the states."""
    width = states_BNH.shape[2]
    scores = torch.bmm(states_BNH, attended_BJ[:, width:].unsqueeze(2)).squeeze(2)
    if barred_BN is not None:
        scores += barred_BN
    torch.softmax(scores, 1, out=shares_BN)
    attended_BJ[:, :width] = torch.bmm(shares_BN.unsqueeze(1), states_BNH).squeeze(1)


def recur_fed(
    gates_TB4H: Tensor,
    states_BNH: Tensor,
    barred_BN: Tensor | None,
    start: tuple[Tensor, Tensor],
    kept_LTBH: Tensor | None,
    fed_HJ: Tensor,
    weight_L4HJ: Tensor,
    bias_L4H: Tensor,
) -> Tensor:
    """Return attention and upmost state of a decoder over given products of its words.

    Args:
        gates_TB4H: products of the words with the lowest layer's weights, without biases.
        states_BNH: attended states, scored by their products with the upmost state.
        barred_BN: added to those; None for nothing.
        start: hidden states and cells (L, B, H) before the first step.
        kept_LTBH: dropout factors of each layer's input from below, or of the fed-back attention; None for none.
        fed_HJ: weights of attention and upmost state in the fed-back vector.
        weight_L4HJ: weights of a layer's input from below and of its own state, side by side.
        bias_L4H: both biases, added up.

    Returns:
        Attention and upmost state (T, B, 2 H) after every step, side by side, in float32 under autocast.
    """
    dtype = product_dtype(weight_L4HJ)
    with torch.autocast(weight_L4HJ.device.type, enabled=False):
        attended: Tensor = _FedRecurrence.apply(
            gates_TB4H, states_BNH, barred_BN, *start, kept_LTBH, fed_HJ, weight_L4HJ, bias_L4H, dtype
        )
        return attended


class StackedSeq2Seq(Seq2Seq):
    """A model of one or several layers with input feeding.

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
        """Draw initial weights: uniform in plus or minus 0.1, as released."""
        for parameter in self.parameters():
            parameter.data.uniform_(-EMBEDDING_RANGE, EMBEDDING_RANGE, generator=generator)

    def listen(self, source_BN: Tensor, lengths_B: Tensor) -> Memory:
        """Return the memory of sources padded on the right; the arguments are those of `Seq2Seq.listen`."""
        places = TokenPlaces.of(lengths_B.cpu().numpy(), source_BN.device)
        words_SE = self.dropout(self.source_embedding(source_BN[places.rows_N, places.steps_N]))
        states_SH, *last = self.encoder.read_whole(words_SE, places, self.dropout)
        width = source_BN.shape[1]
        memory = self.remember(places.padded(states_SH, width), real_positions(lengths_B, width))
        hidden_BH, cell_BH = (part_LBH.transpose(0, 1).flatten(1) for part_LBH in last)
        return memory._replace(hidden_BH=hidden_BH, cell_BH=cell_BH)

    def begin(self, memory: Memory) -> State:
        """Return the decoder's state before its first step: the encoder's after its last."""
        hidden_BH, cell_BH = memory.hidden_BH, memory.cell_BH
        assert hidden_BH is not None, "the memory is of another model"
        assert cell_BH is not None, "the memory is of another model"
        return State(hidden_BH, cell_BH)

    def step(self, memory: Memory, words_B: Tensor, state: State) -> tuple[Tensor, State]:
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
        """Return the input of the output layer (B, H), and the state after the embedded word."""
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
    """Return a model of these sizes, with torch's own weights."""
    return StackedSeq2Seq(vocabulary, sizes) if sizes.input_feeding else Seq2Seq(vocabulary, sizes)


SEQ2SEQ = ModelFormat("seq2seq", PairVocabulary, Seq2SeqSizes, build_seq2seq)
LANGUAGE_MODEL = ModelFormat("language-model", PairVocabulary, LanguageModelSizes, LanguageModel)
load_seq2seq, load_language_model = SEQ2SEQ.load, LANGUAGE_MODEL.load


def save_model(model: Seq2Seq | LanguageModel, folder: Path, provenance: Mapping[str, Any]) -> None:
    """Write a model as a checkpoint.

    Args:
        model: with its weights.
        folder: the checkpoint's.
        provenance: facts on its training; `threshold` reads `test_nll`.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    if isinstance(model, Seq2Seq):
        SEQ2SEQ.save(model, folder, provenance)
    else:
        LANGUAGE_MODEL.save(model, folder, provenance)


def threshold(folder: Path, kind: ModelFormat[Any, Any, Any]) -> float:
    """Return the mean log-likelihood of a test word in nats, below 0: T_out or T_in.

    Args:
        folder: a run or checkpoint folder.
        kind: `SEQ2SEQ` or `LANGUAGE_MODEL`.

    Raises:
        CheckpointError: as `load_seq2seq`, or the checkpoint does not say how well the model does on a test split.
    """
    test_nll = kind.provenance(folder).get("test_nll")
    if not isinstance(test_nll, float):
        raise CheckpointError(
            "the checkpoint names no test loss, which sets the threshold of a hit",
            where=folder,
            got=f"test_nll {test_nll!r}",
            fix="train the model with parley train, or give the threshold",
        )
    return -test_nll


_ROWS = 256


class BackwardModel:
    """A model that predicts contexts from replies.

    Args:
        model: in evaluation mode, its sizes `backward`.
    """

    def __init__(self, model: Seq2Seq) -> None:
        assert model.sizes.backward, "it predicts replies"
        self.model = model

    @torch.no_grad()
    def nats_per_word(self, contexts: Sequence[Sequence[str]], replies: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the mean log-probability (n,) float64 of a word of each context behind its reply, `</s>` counted.

        Args:
            contexts: words, `<eot>` between turns; cut as in training.
            replies: words.
        """
        rows = [self.model.vocabulary.encode(words) for words in (*contexts, *replies)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        values = np.concatenate(rows).astype(np.int32) if rows else np.zeros(0, dtype=np.int32)
        examples = PairExamples(PairSplit(Ragged(values, offsets), np.arange(len(rows)).reshape(2, -1).T), self.model.sizes)
        means, device = np.zeros(len(contexts)), self.model.output.weight.device
        for start in range(0, len(contexts), _ROWS):
            block = np.arange(start, min(start + _ROWS, len(contexts)))
            nll_B, num_words_B = example_nll(self.model, examples.batch(block).to(device))
            means[block] = (-nll_B / num_words_B).cpu().numpy()
        return means


def load_backward(folder: Path) -> BackwardModel:
    """Return the backward model of a run or checkpoint folder, on the CPU.

    Raises:
        CheckpointError: as `load_seq2seq`, or the model predicts replies.
    """
    model = load_seq2seq(folder)
    if not model.sizes.backward:
        fix = "name a run of parley train seq2seq --backward"
        raise CheckpointError("this is no backward model", where=folder, got="a model of replies to contexts", fix=fix)
    return BackwardModel(model)
