"""The target agent's networks (Lewis et al. 2017, section 4), their batches, losses and figures, and their form for play.

`Negotiator` has a context encoder, a GRU language model and a selection module. Sizes, weight tying, dropout positions and
losses follow the authors' released code for the 2017 model; its word perplexity and selection perplexity are the figures to
match. 1,631,277 parameters at the published sizes.

Departures:
  * # Released: the attention of the selection module is not masked, and the backward GRU starts on padding.
    Ours: both see each dialogue alone, because a decision must not depend on what else is in the batch.
  * # Released: the last token is cut off before selecting, so that in training the longest dialogues of a batch are
    selected on without `<selection>`. Ours: always with it, as in play.

Batches are sorted by length, cut, and padded only to their own longest dialogue. Figures:

Reference formula (released code, batches of 16 dialogues sorted by length and padded to the longest of each):
    exp( sum over batches (targets incl. padding * mean cross-entropy incl. padding) / sum of dialogue lengths )
    so padding counts above the line and not below, and the never-predicted first token counts below.
Per-token formula: exp(mean cross-entropy over predicted tokens, padding left out).
Reference selection perplexity: exp(mean over batches of the weighted mean cross-entropy of the six heads).

`Products`, `Cell` and `Selection` are the networks of play: many dialogues at once, products in float32 or bfloat16, no
gradients. `inference.py` reads whole dialogues, and dialogues that share a beginning, by them. Products of words with weights
are tables, one row a word. Figures equal those of `Negotiator` up to rounding (tested). Rows are handled longest first, so
that the running dialogues are always the first k: no step computes on padding, and no row depends on the batch. States, gates
and sums that outlive a step are float32 in any case: near 1, where an update gate keeps a state, bfloat16 has steps of 1/256,
and gates rounded so moved selections three times as far as all else that bfloat16 rounds.

Shapes: B dialogues, T tokens or steps, N tokens of all dialogues without padding, V words, H language state, E word embedding,
C context state, S selection state, r rows, k of them still running, I inputs beside a word, A attention. 6 is the number of a
context's numbers and of a selection's heads, and 18 of their tokens, as in Deal or No Deal; other games have others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.negotiation.domain import DISAGREE, DISCONNECT, EOS, EOS_ID, PAD_ID, REFUSALS, UNK_ID, Vocabulary
from parley.envs.negotiation.game import NegotiationGame
from parley.policies.core.fitting.batches import Tensors
from parley.policies.core.gru import GRU, SUMS_ROWS, advance, recur, recur_packed, runs
from parley.policies.core.layers import Adder, Dropout, TokenPlaces, dense_of_new_sizes, tanh_
from parley.policies.negotiator.settings import NegotiatorSizes

if TYPE_CHECKING:
    from parley.envs.negotiation.corpora.catalogue import Split


@dataclass(frozen=True)
class NegotiationBatch(Tensors):
    """B dialogues padded to T tokens, as int64 tensors."""

    contexts_B6: Tensor
    tokens_BT: Tensor
    lengths_B: Tensor
    outputs_B6: Tensor


def make_batch(dialogues: Split, indices: np.ndarray) -> NegotiationBatch:
    """Return the dialogues at `indices` (B,), padded to the longest of them."""
    lengths = dialogues.lengths[indices]
    tokens = np.full((len(indices), int(lengths.max())), PAD_ID, dtype=np.int64)
    for row, index in enumerate(indices):
        tokens[row, : lengths[row]] = dialogues.tokens(int(index))
    return NegotiationBatch(
        torch.from_numpy(dialogues.contexts[indices].astype(np.int64)),
        torch.from_numpy(tokens),
        torch.from_numpy(lengths.astype(np.int64)),
        torch.from_numpy(dialogues.outputs[indices].astype(np.int64)),
    )


def by_length(dialogues: Split, batch_size: int) -> list[np.ndarray]:
    """Return indices of batches of dialogues of like length, shortest first; the last may be smaller."""
    order = np.argsort(dialogues.lengths, kind="stable")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def shuffled(dialogues: Split, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return indices of the batches of one epoch: dialogues of like length, the batches in random order."""
    groups = by_length(dialogues, batch_size)
    return [groups[index] for index in generator.permutation(len(groups))]


UNREWARDED = tuple(REFUSALS.index(token) - len(REFUSALS) for token in (DISAGREE, DISCONNECT))
"""Tokens, counted from the last, of outcomes that cannot be predicted and that no loss rewards."""


class Negotiator(nn.Module):
    """The parameters of one negotiation agent.

    Args:
        vocabulary: its words, of the game that it plays.
        sizes: widths of its layers.
    """

    def __init__(self, vocabulary: Vocabulary, sizes: NegotiatorSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        s, self.domain = sizes, vocabulary.domain
        self.word_embedding = nn.Embedding(len(vocabulary), s.embed_word)
        self.count_embedding = nn.Embedding(self.domain.largest + 1, s.embed_context)
        self.value_embedding = nn.Embedding(self.domain.largest + 1, s.embed_context)
        self.context_encoder = nn.Linear(len(self.domain.items) * s.embed_context, s.hidden_context)
        # One set of weights reads and writes (the released reader and writer are tied).
        self.language = GRU(s.embed_word + s.hidden_context, s.hidden_language)
        self.decoder = nn.Linear(s.hidden_language, s.embed_word)
        self.selection = GRU(s.hidden_language + s.embed_word, s.hidden_selection, bidirectional=True)
        self.attention_hidden = nn.Linear(2 * s.hidden_selection, s.hidden_attention)
        self.attention_score = nn.Linear(s.hidden_attention, 1)
        self.selection_encoder = nn.Linear(2 * s.hidden_selection + s.hidden_context, s.hidden_selection)
        self.selection_heads = nn.Linear(s.hidden_selection, self.domain.num_heads * len(self.domain.tokens))
        self.dropout = Dropout(s.dropout)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the published initial weights: uniform, biases zero, the selection GRU at torch's own range."""
        selection_range = self.sizes.hidden_selection**-0.5
        for name, parameter in self.named_parameters():
            if name.startswith("selection."):
                parameter.data.uniform_(-selection_range, selection_range, generator=generator)
            elif "bias" in name:
                parameter.data.zero_()
            else:
                parameter.data.uniform_(-self.sizes.init_range, self.sizes.init_range, generator=generator)

    def encode_context(self, contexts_B6: Tensor) -> Tensor:
        """Return the encoded scenario of one side: (B, 6) int64 to (B, C)."""
        product = self.count_embedding(contexts_B6[:, 0::2]) * self.value_embedding(contexts_B6[:, 1::2])
        return self.context_encoder(torch.tanh(product.flatten(1)))

    def read(self, tokens_BT: Tensor, context_BC: Tensor) -> Tensor:
        """Return language states (B, T, H) after each token of whole dialogues."""
        words_TBE = self.word_embedding(tokens_BT.t())
        context_TBC = context_BC.expand(words_TBE.shape[0], *context_BC.shape)
        inputs = self.dropout(torch.cat([words_TBE, context_TBC], dim=-1))
        gru = self.language
        gates = dense_of_new_sizes(inputs, gru.weight_ih_l0, gru.bias_ih_l0)
        start = context_BC.new_zeros(len(tokens_BT), self.sizes.hidden_language, dtype=gru.weight_hh_l0.dtype)
        return recur(gates, gru.weight_hh_l0, gru.bias_hh_l0, start).transpose(0, 1)

    def read_spoken(self, tokens_BT: Tensor, positions: TokenPlaces, context_BC: Tensor) -> Tensor:
        """Return language states (N, H) after the tokens at `positions`, without dropout, from tables of products."""
        gru, width = self.language, self.sizes.embed_word
        of_word, of_context = gru.weight_ih_l0.split([width, self.sizes.hidden_context], 1)
        words_V3H = F.linear(self.word_embedding.weight, of_word, gru.bias_ih_l0)
        contexts_B3H = F.linear(context_BC, of_context)
        gates = F.embedding(tokens_BT[positions.rows_N, positions.steps_N], words_V3H).add_(
            F.embedding(positions.rows_N, contexts_B3H)
        )
        start = gates.new_zeros(len(tokens_BT), self.sizes.hidden_language)
        return recur_packed(gates, gru.weight_hh_l0, gru.bias_hh_l0, start, positions.counts)

    def folded_decoder(self) -> tuple[Tensor, Tensor]:
        """Return the decoder and the tied output embedding as one map: weight (V, H) and bias (V,)."""
        return self.word_embedding.weight @ self.decoder.weight, self.word_embedding.weight @ self.decoder.bias

    def word_logits(self, states: Tensor) -> Tensor:
        """Return logits (..., V) of the next word from language states (..., H)."""
        return dense_of_new_sizes(states, *self.folded_decoder())

    def selection_logits(self, tokens_BT: Tensor, states_BTH: Tensor, lengths_B: Tensor, context_BC: Tensor) -> Tensor:
        """Return item logits (B, 6, 18) of the final choice, from whole dialogues that end in `<selection>`."""
        positions, size = TokenPlaces.of(lengths_B.cpu().numpy(), lengths_B.device), len(tokens_BT)
        words_TBE = self.word_embedding(tokens_BT.t())
        inputs_TBI = self.dropout(torch.cat([states_BTH.transpose(0, 1), words_TBE], dim=-1))
        inputs_NI = F.embedding(positions.steps_N * size + positions.rows_N, inputs_TBI.flatten(0, 1))
        # The backward half reads each dialogue from its last token on.
        mirrored_NI = F.embedding(positions.mirrored_N, inputs_NI)
        gru = self.selection
        start = context_BC.new_zeros(size, self.sizes.hidden_selection, dtype=gru.weight_hh_l0.dtype)
        gates = dense_of_new_sizes(inputs_NI, gru.weight_ih_l0, gru.bias_ih_l0)
        mirrored = dense_of_new_sizes(mirrored_NI, gru.weight_ih_l0_reverse, gru.bias_ih_l0_reverse)
        forward_NS = recur_packed(gates, gru.weight_hh_l0, gru.bias_hh_l0, start, positions.counts)
        mirrored_NS = recur_packed(mirrored, gru.weight_hh_l0_reverse, gru.bias_hh_l0_reverse, start, positions.counts)
        hidden_N2S = torch.cat([forward_NS, F.embedding(positions.mirrored_N, mirrored_NS)], dim=-1)
        attention = dense_of_new_sizes(hidden_N2S, self.attention_hidden.weight, self.attention_hidden.bias)
        scores_N = self.attention_score(torch.tanh(attention)).squeeze(-1)
        indices = positions.rows_N, torch.arange(len(scores_N), device=scores_N.device)
        scores_BN = scores_N.new_full((size, len(scores_N)), -torch.inf).index_put(indices, scores_N)
        return self.choice(torch.cat([scores_BN.softmax(1) @ hidden_N2S, context_BC], dim=-1))

    def choice(self, attended_BX: Tensor) -> Tensor:
        """Return item logits (B, 6, 18) from attended states and the encoded scenario side by side (B, 2S + C)."""
        encoded = torch.tanh(self.selection_encoder(self.dropout(attended_BX)))
        return self.selection_heads(encoded).unflatten(-1, (self.domain.num_heads, len(self.domain.tokens)))

    def forward(self, contexts_B6: Tensor, tokens_BT: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return word and item logits of a teacher-forced pass over whole dialogues.

        Args:
            contexts_B6: count and own value of each item in turn, int64.
            tokens_BT: dialogues from this side's perspective, padded, int64.
            lengths_B: real tokens per dialogue, int64.

        Returns:
            Word logits (B, T - 1, V) for tokens 1..T-1, and item logits (B, 6, 18).
        """
        context_BC = self.encode_context(contexts_B6)
        states_BTH = self.read(tokens_BT, context_BC)
        choice = self.selection_logits(tokens_BT, states_BTH, lengths_B, context_BC)
        return self.word_logits(states_BTH[:, :-1]), choice


def word_nll(logits_BTV: Tensor, tokens_BT: Tensor) -> Tensor:
    """Return negative log-likelihoods (B, T - 1) in nats of tokens 1..T-1."""
    return F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten(), reduction="none").view(tokens_BT.shape[0], -1)


def selection_loss(choice_B6K: Tensor, outputs_B6: Tensor) -> Tensor:
    """Return the mean cross-entropy over the six heads; `<disagree>` and `<disconnect>` weigh nothing (released loss)."""
    weights = choice_B6K.new_ones(choice_B6K.shape[-1])
    weights[list(UNREWARDED)] = 0
    targets = outputs_B6.flatten()
    total = F.cross_entropy(choice_B6K.flatten(0, 1), targets, weight=weights, reduction="sum")
    # A batch of disagreements alone has no weight at all; its loss is zero, not 0 / 0.
    return total / weights[targets].sum().clamp_min(1)


def num_weighing(outputs_B6: Tensor, num_tokens: int) -> int:
    """Return the number of heads with weight in `selection_loss`, for a game with this number of item tokens."""
    unrewarded = torch.tensor([num_tokens + token for token in UNREWARDED], device=outputs_B6.device)
    return int((~torch.isin(outputs_B6, unrewarded)).sum())


def supervised_loss(
    choice_B6K: Tensor, nll_BT: Tensor, lengths_B: Tensor, outputs_B6: Tensor, selection_weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the training loss: mean cross-entropy of real words + weight * selection loss.

    Args:
        choice_B6K: item logits of the choices.
        nll_BT: losses (B, T - 1) of tokens 1..T-1, from `word_nll`.
        lengths_B: real tokens per dialogue.
        outputs_B6: what was chosen.
        selection_weight: weight of the selection loss.

    Returns:
        (total, words, selection), scalars in nats.
    """
    # Released: padding counts as words. Its batches are of like length, with 0.5 % padding; in 16 random dialogues it is 59 %.
    words = nll_BT[_is_word(nll_BT, lengths_B)].sum() / num_words(lengths_B).clamp_min(1)
    selection = selection_loss(choice_B6K, outputs_B6)
    return words + selection_weight * selection, words, selection


def num_words(lengths_B: Tensor) -> Tensor:
    """Return the number of predicted words of whole dialogues: all tokens but the first of each."""
    return (lengths_B - 1).sum()


def _is_word(nll_BT: Tensor, lengths_B: Tensor) -> Tensor:
    return torch.arange(1, nll_BT.shape[1] + 1, device=nll_BT.device) < lengths_B.unsqueeze(1)


REFERENCE_BATCH = 16
_GROUPS_PER_PASS = 16


@dataclass(frozen=True)
class NegotiatorFitness:
    """Figures of one model on one split."""

    perplexity_reference: float
    """Word perplexity by the released formula."""
    perplexity: float
    """Word perplexity per predicted token, padding left out."""
    selection_perplexity: float
    """Selection perplexity by the released formula."""
    selection_accuracy: float
    """Share of dialogues that end in an allocation or a refusal to agree whose six heads are all right."""

    @property
    def selection_loss(self) -> float:
        """The published criterion for the best model, in nats."""
        return math.log(self.selection_perplexity)


@torch.no_grad()
def evaluate(model: Negotiator, dialogues: Split) -> NegotiatorFitness:
    """Return a model's figures on a split, without dropout."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    groups = by_length(dialogues, REFERENCE_BATCH)
    with_padding = words = predicted = 0.0
    selection_losses: list[float] = []
    right = decided = 0
    for start in range(0, len(groups), _GROUPS_PER_PASS):
        members = groups[start : start + _GROUPS_PER_PASS]
        batch = make_batch(dialogues, np.concatenate(members)).to(device)
        logits_BTV, choice_B6K = model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
        nll_BT = word_nll(logits_BTV, batch.tokens_BT)
        positions = torch.arange(1, batch.tokens_BT.shape[1], device=device)
        sizes = [len(member) for member in members]
        longest = torch.repeat_interleave(
            torch.stack([part.max() for part in batch.lengths_B.split(sizes)]), torch.tensor(sizes, device=device)
        )
        with_padding += float((nll_BT * (positions < longest.unsqueeze(1))).sum())
        words += float(nll_BT[_is_word(nll_BT, batch.lengths_B)].sum())
        predicted += float(num_words(batch.lengths_B))
        for choice, output in zip(choice_B6K.split(sizes), batch.outputs_B6.split(sizes), strict=True):
            selection_losses.append(float(selection_loss(choice, output)))
        unrewarded = torch.tensor(UNREWARDED, device=device) + len(model.domain.tokens)
        choosable = ~torch.isin(batch.outputs_B6[:, 0], unrewarded)
        right += int(((choice_B6K.argmax(-1) == batch.outputs_B6).all(1) & choosable).sum())
        decided += int(choosable.sum())
    model.train(was_training)
    return NegotiatorFitness(
        perplexity_reference=_perplexity(with_padding / float(dialogues.lengths.sum())),
        perplexity=_perplexity(words / predicted),
        selection_perplexity=_perplexity(sum(selection_losses) / len(selection_losses)),
        selection_accuracy=right / max(decided, 1),
    )


def _perplexity(nats: float) -> float:
    """Return exp(nats), or infinity if no float holds it: a diverged model has more than 709 nats."""
    return math.exp(nats) if not nats > math.log(sys.float_info.max) else math.inf


ROWS_PER_PASS = 128


@torch.no_grad()
def token_nll(model: Negotiator, contexts_n6: np.ndarray, tokens_nT: np.ndarray, lengths_n: np.ndarray) -> np.ndarray:
    """Return the negative log-likelihood of every token of dialogues, at temperature 1 with all words allowed.

    Args:
        model: the judge, such as the supervised agent.
        contexts_n6: count and own value of each item in turn.
        tokens_nT: dialogues in the model's vocabulary from one side's perspective, padded.
        lengths_n: number of tokens that count.

    Returns:
        (n, T) float64 nats; 0 for the first token, which nothing predicts, and for padding.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    nats = np.zeros(tokens_nT.shape)
    order = np.argsort(lengths_n, kind="stable")
    for start in range(0, len(order), ROWS_PER_PASS):
        rows = order[start : start + ROWS_PER_PASS]
        width = int(lengths_n[rows].max())
        tokens_BT = torch.from_numpy(np.ascontiguousarray(tokens_nT[rows, :width])).to(device)
        context_BC = model.encode_context(torch.from_numpy(np.ascontiguousarray(contexts_n6[rows])).to(device))
        nll_BT = word_nll(model.word_logits(model.read(tokens_BT, context_BC)[:, :-1]), tokens_BT)
        nats[rows, 1:width] = nll_BT.cpu().numpy() * (np.arange(1, width) < lengths_n[rows, None])
    model.train(was_training)
    return nats


def utterance_nll(model: Negotiator, game: NegotiationGame, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the negative log-likelihood of the words one side wrote, as that side's speaker.

    Args:
        model: the judge, such as the supervised agent.
        game: finished dialogues; words that the model does not know count as `<unk>`.
        side: side whose words are scored, from its own perspective.

    Returns:
        (nats (B,), words (B,)): summed over the words of each dialogue, `<eos>` and `<selection>` included, markers
        and forced words not.
    """
    mine = game.authors == side
    nats = token_nll(model, game.contexts[side], game.tokens_in(model.vocabulary, side), game.num_tokens)
    return (nats * mine).sum(1), mine.sum(1)


def sentence_nll(
    model: Negotiator, game: NegotiationGame, rows: np.ndarray, starts: np.ndarray, sentences: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the negative log-likelihood of sentences of side 0.

    Args:
        model: the judge.
        game: dialogues.
        rows: the dialogue (n,) of each sentence.
        starts: tokens (n,) of the dialogue before its first word, the speaker's marker included.
        sentences: word ids of each, as side 0 says them; words that the model does not know count as `<unk>`.

    Returns:
        Nats of each word of each sentence.
    """
    lengths = starts + np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    tokens = np.full((len(rows), int(lengths.max())), PAD_ID, dtype=np.int64)
    dialogues = game.tokens_in(model.vocabulary, 0)
    for i, (row, start, end) in enumerate(zip(rows.tolist(), starts.tolist(), lengths.tolist(), strict=True)):
        tokens[i, :start] = dialogues[row, :start]
        tokens[i, start:end] = _in_vocabulary(sentences[i], game, model.vocabulary)
    nats = token_nll(model, game.contexts[0, rows], tokens, lengths)
    return [nats[i, start:end] for i, (start, end) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True))]


def _in_vocabulary(sentence: np.ndarray, game: NegotiationGame, vocabulary: Vocabulary) -> np.ndarray:
    """Return a sentence of side 0 in ids of a vocabulary, which may lack some of its words."""
    game_vocabulary = game.vocabularies[0]
    if vocabulary.digest == game_vocabulary.digest:
        return np.where(sentence < len(game_vocabulary), sentence, UNK_ID)
    return vocabulary.encode([EOS if word == EOS_ID else game.written(0, [word])[0] for word in sentence.tolist()])


SHAPE_ROWS = 32
"""Least divisor of the rows of products in bfloat16: a kernel for a new shape takes milliseconds to make. Larger products have
larger divisors, so that there are few shapes of all sizes."""
ROWS = {torch.float32: 512, torch.bfloat16: 2048}
"""Dialogues read together: enough for full-speed products, few enough to stay near the processor."""
CELL_ROWS = 128
"""Rows whose gates are computed together: few enough to stay in a near cache."""


class Products:
    """Products of rows with weights in one precision.

    Args:
        dtype: float32 or bfloat16.
        device: torch device.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._rounds = dtype != torch.float32
        self.block_rows = 0 if self._rounds else SUMS_ROWS
        """Rows of steps whose sums start as one block; 0 if the rows of each step are padded."""
        # Reused by all calls, because its allocation would cost more than the work in it.
        self._memory = torch.zeros(0, dtype=dtype, device=device)

    def weight(self, weight: Tensor) -> Tensor:
        """Return a right factor, or a sum to begin from, in the precision of the products."""
        return weight.to(self._memory.dtype).contiguous()

    def adder(self, weight_JI: Tensor) -> Adder:
        """Return an in-place sum of products with a right factor."""
        return Adder(weight_JI.to(self._memory.dtype), self._memory.dtype)

    def left(self, values_kI: Tensor) -> Tensor:
        """Return a left factor; in bfloat16 with finite rows past those given (k', I), until the next call."""
        if not self._rounds:
            return values_kI
        rows, width = padded(len(values_kI)), values_kI.shape[1]
        if len(self._memory) < rows * width:
            self._memory = self._memory.new_zeros(rows * width)
        left = self._memory[: rows * width].view(rows, width)
        left[: len(values_kI)] = values_kI
        return left

    def begin(self, table_NJ: Tensor, index_k: Tensor) -> Tensor:
        """Return rows of a table to which products are added (k', J), of the table's precision."""
        if not self._rounds:
            return table_NJ.index_select(0, index_k)
        sums = table_NJ.new_empty(padded(len(index_k)), table_NJ.shape[1])
        torch.index_select(table_NJ, 0, index_k, out=sums[: len(index_k)])
        return sums


class Cell:
    """The language GRU, or one direction of the selection GRU.

    The sums of a step are side by side: candidate, reset gate, update gate, hidden product (4S). Inputs give the first three,
    the cell's state the last three, so that either is one product.

    Args:
        gru: its weights.
        words_VE: word embeddings.
        word_at: the first input column of the word; the other columns are further inputs.
        suffix: suffix of the direction in torch's names of weights.
        products: the products to use.
    """

    def __init__(self, gru: GRU, words_VE: Tensor, word_at: int, suffix: str, products: Products) -> None:
        self._width, self._products = gru.hidden_size, products
        input_weight, hidden_weight, input_bias, hidden_bias = (
            getattr(gru, f"{part}_l0{suffix}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        # torch's order is reset, update, candidate.
        before, word, after = input_weight.roll(self._width, 0).tensor_split([word_at, word_at + words_VE.shape[1]], dim=1)
        gates, inner = hidden_bias.tensor_split([2 * self._width])
        words = F.linear(words_VE, word, input_bias.roll(self._width))
        words[:, self._width :] += gates
        self._words = products.weight(torch.cat([words, inner.expand(len(words), -1)], dim=1))
        other_inputs = torch.cat([before, after], dim=1)
        self.read_weight, self._add_read = products.weight(other_inputs.t()), products.adder(other_inputs)
        self._add_hidden = products.adder(hidden_weight)
        self._exact = words.new_empty(CELL_ROWS, 4 * self._width)

    def sums(self, tokens_k: Tensor, shares_k3S: Tensor) -> Tensor:
        """Return the sums of a step (k', 4S) from words, biases, and given shares."""
        sums = self._products.begin(self._words, tokens_k)
        sums[: tokens_k.shape[0], : 3 * self._width].add_(shares_k3S)
        return sums

    def inputs(self, tokens_k: Tensor, read_kI: Tensor) -> Tensor:
        """Return the sums of a step (k', 4S) from words, biases, and inputs beside them."""
        sums = self._products.begin(self._words, tokens_k)
        self._add_read(sums[:, : 3 * self._width], self._products.left(read_kI))
        return sums

    def step(self, sums_k4S: Tensor, state_kS: Tensor, out_kS: Tensor) -> None:
        """Move states on by one step.

        Args:
            sums_k4S: from `sums` or `inputs`; overwritten.
            state_kS: states before the step, float32.
            out_kS: receives the states after it; may be `state_kS`.
        """
        width, rows = self._width, state_kS.shape[0]
        self._add_hidden(sums_k4S[:, width:], self._products.left(state_kS))
        # Torch's own `split` takes as long as a call that computes with few rows.
        for begin in range(0, rows, CELL_ROWS):
            here = slice(begin, min(rows, begin + CELL_ROWS))
            sums, state, out = sums_k4S[here], state_kS[here], out_kS[here]
            if sums.dtype != torch.float32:
                sums = self._exact[: len(sums)].copy_(sums)
            sums[:, width : 3 * width].sigmoid_()
            new, reset, update, inner = sums.chunk(4, 1)
            torch.lerp(tanh_(new.addcmul_(reset, inner)), state, update, out=out)

    def read(self, begin: Callable[[slice], Tensor], counts: list[int], state_rS: Tensor, out_NS: Tensor) -> None:
        """Move states on over many steps.

        Args:
            begin: returns the sums of some steps, from `sums` or `inputs`.
            counts: rows of each step, in falling order.
            state_rS: states before the first step.
            out_NS: receives the states after each step.
        """
        stop = 0
        for steps in runs(counts, self._products.block_rows):
            here = slice(stop, stop := stop + sum(steps))
            sums, out = begin(here), out_NS[here]
            if self._products.block_rows:
                state_rS = advance(sums, self._add_hidden, state_rS, out, steps)
            else:
                self.step(sums, state_rS[: len(out)], out)
                state_rS = out


class Selection:
    """The selection network with products in one precision."""

    def __init__(self, model: Negotiator, dtype: torch.dtype) -> None:
        self._score, self.products = model.attention_score, Products(dtype, model.word_embedding.weight.device)
        words, at = model.word_embedding.weight, model.sizes.hidden_language
        self.forward = Cell(model.selection, words, at, "", self.products)
        self.backward = Cell(model.selection, words, at, "_reverse", self.products)
        halves = model.attention_hidden.weight.tensor_split(2, dim=1)
        self._add_forward, self._add_backward = (self.products.adder(half) for half in halves)
        self._bias = self.products.weight(model.attention_hidden.bias)

    def read(
        self, tokens_N: Tensor, language_NH: Tensor, positions: TokenPlaces, before_rS: Tensor
    ) -> tuple[Tensor, AttentionSums]:
        """Return the readings of both halves over some tokens of r dialogues, the longest first.

        Args:
            tokens_N: the tokens.
            language_NH: language states after each.
            positions: positions of the tokens.
            before_rS: states of the forward half before the first token.

        Returns:
            States of the backward half (r, S) after the first token, and the attention.
        """
        counts = positions.counts
        forward_NS, mirrored_NS = before_rS.new_empty(2, len(tokens_N), before_rS.shape[1])
        self.forward.read(partial(self._inputs, self.forward, tokens_N, language_NH), counts, before_rS, forward_NS)
        # The backward half reads each dialogue from its last token on.
        mirrored = tokens_N[positions.mirrored_N], language_NH[positions.mirrored_N]
        self.backward.read(partial(self._inputs, self.backward, *mirrored), counts, torch.zeros_like(before_rS), mirrored_NS)
        backward_NS = mirrored_NS[positions.mirrored_N]
        halves = zip(forward_NS.split(SUMS_ROWS), backward_NS.split(SUMS_ROWS), strict=True)
        scores_N = torch.cat([self.scores(self.hidden(forward), backward) for forward, backward in halves])
        scores_Tr = scores_N.new_full((len(counts), len(before_rS)), -torch.inf)
        scores_Tr[positions.steps_N, positions.rows_N] = scores_N
        weights_r = scores_Tr.logsumexp(0)
        shares_N1 = (scores_N - weights_r[positions.rows_N]).exp_().unsqueeze(1)
        means = [torch.zeros_like(before_rS) for _ in range(2)]
        for mean_rS, states_NS in zip(means, (forward_NS, backward_NS), strict=True):
            for states, share in zip(states_NS.split(counts), shares_N1.split(counts), strict=True):
                mean_rS[: len(states)].addcmul_(states, share)
        return mirrored_NS[positions.last_B], AttentionSums(weights_r, *means)

    @staticmethod
    def _inputs(cell: Cell, tokens_N: Tensor, language_NH: Tensor, here: slice) -> Tensor:
        return cell.inputs(tokens_N[here], language_NH[here])

    def hidden(self, forward_kS: Tensor) -> Tensor:
        """Return the forward half's share in the hidden layer of the attention (k', A)."""
        left = self.products.left(forward_kS)
        hidden = self._bias.repeat(len(left), 1)
        self._add_forward(hidden, left)
        return hidden

    def scores(self, hidden_kA: Tensor, backward_kS: Tensor) -> Tensor:
        """Return attention scores (k,) from the forward half's share, which is overwritten, and the backward half's states."""
        self._add_backward(hidden_kA, self.products.left(backward_kS))
        return self._score(tanh_(hidden_kA[: len(backward_kS)].float())).squeeze(1)


@dataclass(frozen=True)
class AttentionSums:
    """The attention over some tokens of r dialogues.

    Args:
        weights: logarithm of their total weight (r,).
        forward: weighted mean of the forward half's outputs (r, S).
        backward: weighted mean of the backward half's outputs (r, S).
    """

    weights: Tensor
    forward: Tensor
    backward: Tensor

    @classmethod
    def to_nothing(cls, states_rS: Tensor) -> AttentionSums:
        """Return the attention before the first token, for rows of such states."""
        return cls(states_rS.new_full((len(states_rS),), -torch.inf), *states_rS.new_zeros(2, *states_rS.shape))

    def outweigh(self, scores_k: Tensor) -> Tensor:
        """Add one token's weight in each of the first rows, and return its share (k, 1) of the weight so far."""
        weights = self.weights[: len(scores_k)]
        torch.logaddexp(weights, scores_k, out=weights)
        return (scores_k - weights).exp_().unsqueeze(1)

    def include(self, rows: Tensor, more: AttentionSums) -> None:
        """Add other tokens of some of the dialogues."""
        weights = torch.logaddexp(self.weights[rows], more.weights)
        share = (more.weights - weights).exp_().unsqueeze(1)
        for means, more_means in ((self.forward, more.forward), (self.backward, more.backward)):
            means[rows] = means[rows].lerp_(more_means, share)
        self.weights[rows] = weights


def padded(rows: int) -> int:
    """Return the padded number of rows of a product in bfloat16: at most a quarter more, above small sizes."""
    grain = max(SHAPE_ROWS, 1 << max(0, rows.bit_length() - 3))
    return -(-rows // grain) * grain
