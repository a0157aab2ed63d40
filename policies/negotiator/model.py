"""The target agent's networks: context encoder, GRU language model, selection module (Lewis et al. 2017, section 4).

Sizes, weight tying, dropout places and losses follow the authors' released code for the 2017 model; its word
perplexity and selection perplexity are the figures to match. 1,631,277 parameters at the published sizes.

Shapes: B dialogues, T tokens, N tokens of all dialogues without padding, V words, H language state, E word embedding, C context
state, S selection state. 6 stands for the numbers of a context and for the heads of a selection, and 18 for their tokens, as in
Deal or No Deal; other games have others.

Departures:
  * # Released: the attention of the selection module is not masked, and the backward GRU starts on padding.
    Ours: both see each dialogue alone, because a decision must not depend on what else is in the batch.
  * # Released: the last token is cut off before selecting, so that in training the longest dialogues of a batch are
    selected on without `<selection>`. Ours: always with it, as in play.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.negotiation.domain import DISAGREE, DISCONNECT, REFUSALS
from parley.envs.negotiation.vocabulary import Vocabulary
from parley.policies.core.dropout import Dropout
from parley.policies.core.gru import GRU, recur, recur_packed
from parley.policies.core.packing import TokenPlaces
from parley.policies.core.products import dense_of_new_sizes
from parley.policies.negotiator.settings import NegotiatorSizes

UNREWARDED = tuple(REFUSALS.index(token) - len(REFUSALS) for token in (DISAGREE, DISCONNECT))
"""Tokens, counted from the last, of outcomes that nobody can predict and no loss rewards."""


class Negotiator(nn.Module):
    """One negotiation agent's parameters.

    Args:
        vocabulary: the words it knows, of the game that it plays.
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
        """Draws the published initial weights: uniform, biases zero, the selection GRU at torch's own range."""
        selection_range = self.sizes.hidden_selection**-0.5
        for name, parameter in self.named_parameters():
            if name.startswith("selection."):
                parameter.data.uniform_(-selection_range, selection_range, generator=generator)
            elif "bias" in name:
                parameter.data.zero_()
            else:
                parameter.data.uniform_(-self.sizes.init_range, self.sizes.init_range, generator=generator)

    def encode_context(self, contexts_B6: Tensor) -> Tensor:
        """The scenario as one side sees it: (B, 6) int64 to (B, C)."""
        product = self.count_embedding(contexts_B6[:, 0::2]) * self.value_embedding(contexts_B6[:, 1::2])
        return self.context_encoder(torch.tanh(product.flatten(1)))

    def read(self, tokens_BT: Tensor, context_BC: Tensor) -> Tensor:
        """Language states (B, T, H) after each token of whole dialogues."""
        words_TBE = self.word_embedding(tokens_BT.t())
        context_TBC = context_BC.expand(words_TBE.shape[0], *context_BC.shape)
        inputs = self.dropout(torch.cat([words_TBE, context_TBC], dim=-1))
        gru = self.language
        gates = dense_of_new_sizes(inputs, gru.weight_ih_l0, gru.bias_ih_l0)
        start = context_BC.new_zeros(len(tokens_BT), self.sizes.hidden_language, dtype=gru.weight_hh_l0.dtype)
        return recur(gates, gru.weight_hh_l0, gru.bias_hh_l0, start).transpose(0, 1)

    def read_spoken(self, tokens_BT: Tensor, places: TokenPlaces, context_BC: Tensor) -> Tensor:
        """Language states (N, H) after the tokens at `places`, without dropout: products of words are looked up."""
        gru, width = self.language, self.sizes.embed_word
        of_word, of_context = gru.weight_ih_l0.split([width, self.sizes.hidden_context], 1)
        words_V3H = F.linear(self.word_embedding.weight, of_word, gru.bias_ih_l0)
        contexts_B3H = F.linear(context_BC, of_context)
        gates = F.embedding(tokens_BT[places.rows_N, places.steps_N], words_V3H).add_(F.embedding(places.rows_N, contexts_B3H))
        start = gates.new_zeros(len(tokens_BT), self.sizes.hidden_language)
        return recur_packed(gates, gru.weight_hh_l0, gru.bias_hh_l0, start, places.counts)

    def folded_decoder(self) -> tuple[Tensor, Tensor]:
        """The decoder and the tied output embedding as one map: weight (V, H) and bias (V,)."""
        return self.word_embedding.weight @ self.decoder.weight, self.word_embedding.weight @ self.decoder.bias

    def word_logits(self, states: Tensor) -> Tensor:
        """Logits (..., V) of the next word from language states (..., H)."""
        return dense_of_new_sizes(states, *self.folded_decoder())

    def selection_logits(self, tokens_BT: Tensor, states_BTH: Tensor, lengths_B: Tensor, context_BC: Tensor) -> Tensor:
        """Item logits (B, 6, 18) of the final choice, from whole dialogues that end in `<selection>`."""
        places, size = TokenPlaces.of(lengths_B.cpu().numpy(), lengths_B.device), len(tokens_BT)
        words_TBE = self.word_embedding(tokens_BT.t())
        inputs_TBI = self.dropout(torch.cat([states_BTH.transpose(0, 1), words_TBE], dim=-1))
        inputs_NI = F.embedding(places.steps_N * size + places.rows_N, inputs_TBI.flatten(0, 1))
        # The backward half reads each dialogue from its last token on.
        mirrored_NI = F.embedding(places.mirrored_N, inputs_NI)
        gru = self.selection
        start = context_BC.new_zeros(size, self.sizes.hidden_selection, dtype=gru.weight_hh_l0.dtype)
        gates = dense_of_new_sizes(inputs_NI, gru.weight_ih_l0, gru.bias_ih_l0)
        mirrored = dense_of_new_sizes(mirrored_NI, gru.weight_ih_l0_reverse, gru.bias_ih_l0_reverse)
        forward_NS = recur_packed(gates, gru.weight_hh_l0, gru.bias_hh_l0, start, places.counts)
        mirrored_NS = recur_packed(mirrored, gru.weight_hh_l0_reverse, gru.bias_hh_l0_reverse, start, places.counts)
        hidden_N2S = torch.cat([forward_NS, F.embedding(places.mirrored_N, mirrored_NS)], dim=-1)
        attention = dense_of_new_sizes(hidden_N2S, self.attention_hidden.weight, self.attention_hidden.bias)
        scores_N = self.attention_score(torch.tanh(attention)).squeeze(-1)
        own = places.rows_N, torch.arange(len(scores_N), device=scores_N.device)
        scores_BN = scores_N.new_full((size, len(scores_N)), -torch.inf).index_put(own, scores_N)
        return self.choice(torch.cat([scores_BN.softmax(1) @ hidden_N2S, context_BC], dim=-1))

    def choice(self, attended_BX: Tensor) -> Tensor:
        """Item logits (B, 6, 18) from what was attended to and the encoded scenario side by side (B, 2S + C)."""
        encoded = torch.tanh(self.selection_encoder(self.dropout(attended_BX)))
        return self.selection_heads(encoded).unflatten(-1, (self.domain.num_heads, len(self.domain.tokens)))

    def forward(self, contexts_B6: Tensor, tokens_BT: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Teacher-forced pass over whole dialogues.

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
    """Negative log-likelihood (B, T - 1) in nats of tokens 1..T-1."""
    return F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten(), reduction="none").view(tokens_BT.shape[0], -1)


def selection_loss(choice_B6K: Tensor, outputs_B6: Tensor) -> Tensor:
    """Mean cross-entropy over the six heads; `<disagree>` and `<disconnect>` weigh nothing (released loss)."""
    weights = choice_B6K.new_ones(choice_B6K.shape[-1])
    weights[list(UNREWARDED)] = 0
    targets = outputs_B6.flatten()
    total = F.cross_entropy(choice_B6K.flatten(0, 1), targets, weight=weights, reduction="sum")
    # A batch of disagreements alone has no weight at all; its loss is zero, not 0 / 0.
    return total / weights[targets].sum().clamp_min(1)


def num_weighing(outputs_B6: Tensor, num_tokens: int) -> int:
    """How many heads weigh in `selection_loss`, of a game with so many item tokens."""
    unrewarded = torch.tensor([num_tokens + token for token in UNREWARDED], device=outputs_B6.device)
    return int((~torch.isin(outputs_B6, unrewarded)).sum())


def supervised_loss(
    choice_B6K: Tensor, nll_BT: Tensor, outputs_B6: Tensor, selection_weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Released training loss: mean word cross-entropy (padding targets included) + weight * selection loss.

    Returns:
        (total, words, selection), scalars in nats.
    """
    words, selection = nll_BT.mean(), selection_loss(choice_B6K, outputs_B6)
    return words + selection_weight * selection, words, selection
