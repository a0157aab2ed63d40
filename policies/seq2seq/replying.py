"""The decoders of `policies/core/decoders.py` for a sequence-to-sequence model: one object that answers as its settings say.

    mmi         (1 - weight) log p(t|s) / (|t| + 1) + weight log p(s|t) / (|s| + 1)       of the replies t that a beam ends
    mmi-antilm  log p(t|s) - weight sum_k<=words log p(t_k | t_<k)                        while a beam decodes

Sources: mmi as in the released code of Li et al. 2017 (equal weights, both per word, ends counted); the anti-language-model of
Li et al. 2016a (arXiv 1510.03055, section 4.5.1), which the paper calls MMI-p(t).
  * # Paper (2016a): a reward of its own for each word. Ours: log-probabilities over length, as in every beam here.
  * Ours: `<pad>` and `<s>`, which neither model was trained to say, are never said: the less likely a language model finds
    a word, the more is paid for it.

Replies depend on sources, seeds and settings alone, not on the batch.

Shapes: R rows, V words, H hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.vocabulary import BOS_ID, PAD_ID, PairVocabulary
from parley.policies.core.charges import charges_on_words
from parley.policies.core.decoders import DecoderSettings
from parley.policies.core.decoding import Charge, Hypothesis
from parley.policies.seq2seq.backward import BackwardModel, load_backward
from parley.policies.seq2seq.batches import framed_source
from parley.policies.seq2seq.checkpoints import load_language_model
from parley.policies.seq2seq.decoding import Ids, greedy, hypotheses, sample
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq, State


class AntiLanguageModel(Charge[State]):
    """Takes a share of a language model's log-probability off the first words.

    Args:
        lm: in evaluation mode.
        vocabulary: of the model that decodes; words that the language model does not know are `<unk>` to it. Pieces have to
            be the language model's own.
        weight: of the log-probability.
        num_words: first words that it is taken off.
    """

    def __init__(self, lm: LanguageModel, vocabulary: PairVocabulary, weight: float, num_words: int) -> None:
        self._lm, self._weight, self._num_words = lm, weight, num_words
        ids_V = np.arange(len(vocabulary)) if lm.vocabulary == vocabulary else lm.vocabulary.encode(vocabulary.words)
        self._ids_V = torch.from_numpy(ids_V).to(lm.output.weight.device)

    def begin(self, num_rows: int, device: torch.device) -> State:
        zero = torch.zeros((num_rows, self._lm.sizes.hidden), device=device)
        return State(zero, zero)

    def step(self, place: int, scores_RV: Tensor, words_R: Tensor, state: State) -> tuple[Tensor, State]:
        barred = torch.tensor([PAD_ID, BOS_ID], device=scores_RV.device)
        scores_RV = scores_RV.index_fill(1, barred, -torch.inf)
        if place >= self._num_words:
            return scores_RV, state
        embedded_R1E = self._lm.embedding(self._ids_V[words_R]).unsqueeze(1)
        _, (hidden_1RH, cell_1RH) = self._lm.lstm(embedded_R1E, (state.hidden_BH[None], state.cell_BH[None]))
        usual_RV = self._lm.output(hidden_1RH[0]).log_softmax(1)[:, self._ids_V]
        return scores_RV - self._weight * usual_RV, State(hidden_1RH[0], cell_1RH[0])


class Scored(NamedTuple):
    """A reply and what a re-ranking makes of it."""

    words: list[int]
    score: float


class ReplyDecoder:
    """Answers sources as settings say.

    Args:
        model: in evaluation mode.
        settings: of the decoder; the models that they name are loaded.

    Raises:
        ConfigError: the end of replies is forbidden, the language model has other pieces, or the backward model predicts
            contexts of other turns.
        CheckpointError: a model is not there, damaged or of another kind.
    """

    def __init__(self, model: Seq2Seq, settings: DecoderSettings) -> None:
        self.model, self.settings = model, settings
        device = model.output.weight.device
        self.charges: list[Charge[Any]] = charges_on_words(model.vocabulary, settings.forbid, settings.repeat)
        """What changes how likely words are."""
        if settings.lm:
            lm = load_language_model(fetched_model(settings.lm)).to(device)
            _require_units(model, lm, settings.lm)
            self.charges.append(AntiLanguageModel(lm, model.vocabulary, settings.weight, settings.words))
        self._backward: BackwardModel | None = None
        if settings.backward:
            self._backward = load_backward(fetched_model(settings.backward))
            self._backward.model.to(device)
            require_turns(model.sizes.turns, self._backward, settings.backward)

    def __call__(self, sources: Sequence[Ids], seeds: Sequence[int] = ()) -> list[list[int]]:
        """The replies.

        Args:
            sources: word ids without specials; cut to the model's length.
            seeds: one for each source if the decoder draws.

        Returns:
            Word ids without `</s>`, which ends them; at most `max_reply` - 1 words.
        """
        if self.settings.is_blind:
            return greedy(self.model, [()][: len(sources)], charges=self.charges) * len(sources)
        if self.settings.rule == "greedy":
            return greedy(self.model, sources, charges=self.charges)
        if self.settings.draws:
            assert len(seeds) == len(sources), "a decoder that draws needs a seed for each source"
            return sample(self.model, sources, seeds, self.settings.temperature, charges=self.charges)
        if self._backward is not None:
            return [found[0].words for found in self.reranked(sources)]
        return [best.words for (best,) in self._found(sources, most=1)]

    def reranked(self, sources: Sequence[Ids]) -> list[list[Scored]]:
        """The replies that the beam ends with their scores by both models, the best first, of equal ones the model's own."""
        assert self._backward is not None, "there is nothing to re-rank by"
        found = self._found(sources)
        read = [framed_source(source, self.model.sizes)[:-1] for source in sources]
        contexts = [self._words(source) for source, beam in zip(read, found, strict=True) for _ in beam]
        told = iter(self._backward.nats_per_word(contexts, [self._words(each.words) for beam in found for each in beam]))
        weight = self.settings.weight
        scored = [
            [Scored(words, (1 - weight) * nats / (len(words) + 1) + weight * float(next(told))) for words, nats in beam]
            for beam in found
        ]
        return [sorted(beam, key=lambda each: -each.score) for beam in scored]

    def _found(self, sources: Sequence[Ids], most: int | None = None) -> list[list[Hypothesis]]:
        own = self.settings
        options = {"length_penalty": own.length, "rate": own.rate, "charges": self.charges, "most": most}
        return hypotheses(self.model, sources, own.beam, **options)

    def _words(self, ids: Sequence[int]) -> list[str]:
        return self.model.vocabulary.decode(ids)


def _require_units(model: Seq2Seq, lm: LanguageModel, name: str) -> None:
    of_words = model.vocabulary.merges is None and lm.vocabulary.merges is None
    if not of_words and model.vocabulary != lm.vocabulary:
        raise ConfigError(
            "the language model reads other pieces than the model says",
            where=name,
            got=f"{lm.vocabulary.title}, the model says {model.vocabulary.title}",
            fix="fit it to the corpus of the model with as many subwords",
        )


def require_turns(turns: int, backward: BackwardModel, name: str) -> None:
    """Makes sure that a backward model predicts contexts of as many turns as a model reads.

    Args:
        turns: that the model reads.
        backward: the backward model.
        name: what it is called.

    Raises:
        ConfigError: it predicts others.
    """
    found = backward.model.sizes.turns
    if found != turns:
        raise ConfigError(
            "the backward model was fitted to contexts of other turns",
            where=name,
            got=f"{found} turns, the model reads {turns}",
            fix="fit it with the settings of the model and --backward",
        )
