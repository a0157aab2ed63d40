"""Decoding of sequence-to-sequence and language models: greedy, sampled, beam and re-ranked replies; a responder.

Source: He & Glass 2018, sections 2 and 5: greedy decoding; samples that keep only words with log p > T_out, with which the
`normal` targets of Switchboard and OpenSubtitles are drawn; sentences of full length, with which io searches start.
  * # Released: a step at which no word reaches T_out says so and draws from all words. Ours: it draws from all words.

One uniform number per item and position decides each word, so results do not depend on the batch.

`ReplyDecoder` applies the decoders of `policies/core/responder.py`:

    mmi         (1 - weight) log p(t|s) / (|t| + 1) + weight log p(s|t) / (|s| + 1)       of the replies t that a beam ends
    mmi-antilm  log p(t|s) - weight sum_k<=words log p(t_k | t_<k)                        while a beam decodes

Sources: mmi as in the released code of Li et al. 2017 (equal weights, both per word, ends counted); the anti-language-model of
Li et al. 2016a (arXiv 1510.03055, section 4.5.1), which the paper calls MMI-p(t).
  * # Paper (2016a): a reward of its own for each word. Ours: log-probabilities over length, as in every beam here.
  * Ours: `<pad>` and `<s>`, which neither model was trained to say, are never said: the less likely a language model finds
    a word, the more is paid for it.

`Seq2SeqResponder` (protocol: `policies/core/responder.py`) reads a context as in training: the model's number of newest turns,
words outside its vocabulary as `<unk>`, cut to its length. A reply is the model's words as they are, `<unk>` among them, split
into utterances at `<eou>`.

Shapes: B items, R rows, V words, H hidden units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.seeds import stream
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.turns import EOT, Turn, Turns, context_words, turn_words
from parley.envs.corpora.pairs.vocabulary import BOS_ID, PAD_ID, SPECIALS, PairVocabulary
from parley.policies.core.decoding import (
    Charge,
    Charges,
    Hypothesis,
    charges_on_words,
    drawn,
    in_blocks,
    likeliest,
    n_best,
    word_by_word,
)
from parley.policies.core.responder import EVERYWHERE, RULES, DecoderSettings, NetworkResponder
from parley.policies.seq2seq.model import LanguageModel, Memory, PairExamples, Seq2Seq, State, framed_source
from parley.policies.seq2seq.scoring import SEQ2SEQ, BackwardModel, load_backward, load_language_model, load_seq2seq

Ids = Sequence[int] | np.ndarray


def greedy(model: Seq2Seq, sources: Sequence[Ids], beyond: int = 0, charges: Charges = ()) -> list[list[int]]:
    """Return the reply to each source by the likeliest word at every step.

    Args:
        model: in evaluation mode.
        sources: word ids without specials; cut to the model's length.
        beyond: words after which a reply is cut, in addition to the model's; with one, a reply that is cut shows by its length.
        charges: changes of the scores of words.

    Returns:
        Word ids of the replies without `</s>`, which ends them; at most `max_reply` - 1 words, and those beyond.
    """
    return _decode(model, sources, lambda rows: likeliest, beyond, charges)


def sample(
    model: Seq2Seq,
    sources: Sequence[Ids],
    seeds: Sequence[int],
    temperature: float = 1.0,
    min_log_probability: float | None = None,
    beyond: int = 0,
    charges: Charges = (),
) -> list[list[int]]:
    """Return a reply to each source, drawn from the model; `<pad>`, which is no word of a reply, never is.

    Args:
        model: in evaluation mode.
        sources: as in `greedy`.
        seeds: one for each source; equal seeds draw alike.
        temperature: of the word distribution, above 0.
        min_log_probability: only words whose log-probability at temperature 1 is above this are drawn, in nats; all words
            where none is.
        beyond: as in `greedy`.
        charges: as in `greedy`.

    Returns:
        As `greedy`.
    """
    assert temperature > 0, "greedy takes the likeliest word"
    draws_RT = np.array([stream(seed, "reply").random(model.sizes.max_reply + beyond) for seed in seeds])

    def choose(rows: slice, position: int, logits_BV: Tensor) -> Tensor:
        if min_log_probability is not None:
            short_BV = logits_BV.log_softmax(1) <= min_log_probability
            short_BV[:, PAD_ID] = True
            logits_BV = logits_BV.masked_fill(short_BV & ~short_BV.all(1, keepdim=True), -torch.inf)
        logits_BV[:, PAD_ID] = -torch.inf
        return drawn(logits_BV / temperature, torch.from_numpy(draws_RT[rows, position]).to(logits_BV.device))

    return _decode(model, sources, lambda rows: partial(choose, rows), beyond, charges)


def beam(model: Seq2Seq, sources: Sequence[Ids], width: int, length_penalty: float = 1.0) -> list[list[int]]:
    """Return the best reply of a beam to each source (`policies/core/decoding.py`).

    Args:
        model: in evaluation mode.
        sources: as in `greedy`.
        width: hypotheses kept for each source, at least 1, which is greedy decoding.
        length_penalty: exponent of the number of words, `</s>` counted, by which log-probabilities are divided; 0 for none.

    Returns:
        As `greedy`.
    """
    replies = hypotheses(model, sources, width, length_penalty=length_penalty, most=1)
    return [best.words for (best,) in replies]


def hypotheses(model: Seq2Seq, sources: Sequence[Ids], width: int, **options: Any) -> list[list[Hypothesis]]:
    """Return the replies that a beam finds to each source, the best first, by the options of `n_best`."""

    def decode(rows: slice) -> list[list[Hypothesis]]:
        block = sources[rows]
        return n_best(model, read(model, block), len(block), width, model.sizes.max_reply, **options)

    return in_blocks(len(sources), decode, width)


def sample_sentences(model: LanguageModel, seeds: Sequence[int], length: int) -> np.ndarray:
    """Return sentences of full length from a language model, without special tokens, `<unk>` and `<eot>`.

    Args:
        model: in evaluation mode.
        seeds: one for each sentence.
        length: words in each.

    Returns:
        Word ids (B, length) int64.
    """
    draws_BT = np.stack([stream(seed, "sentence").random(length) for seed in seeds])
    device, index = model.output.weight.device, model.vocabulary.index
    barred = [*range(len(SPECIALS)), *([index[EOT]] if EOT in index else [])]

    def decode(rows: slice) -> list[list[int]]:
        memory = None
        words_BT = torch.full((rows.stop - rows.start, length + 1), BOS_ID, device=device)
        for position in range(length):
            states_B1H, memory = model.lstm(model.embedding(words_BT[:, position : position + 1]), memory)
            logits_BV = model.output(states_B1H[:, 0])
            logits_BV[:, barred] = -torch.inf
            words_BT[:, position + 1] = drawn(logits_BV, torch.from_numpy(draws_BT[rows, position]).to(device))
        return words_BT[:, 1:].tolist()

    return np.array(in_blocks(len(seeds), decode))


def read(model: Seq2Seq, sources: Sequence[Ids]) -> Memory:
    """Return the memory of sources (B), cut to length as in training.

    Args:
        model: in evaluation mode.
        sources: word ids without the specials around them.
    """
    framed = [framed_source(source, model.sizes) for source in sources]
    lengths_B = torch.tensor([len(source) for source in framed])
    source_BN = torch.full((len(framed), int(lengths_B.max())), PAD_ID)
    for row, source in enumerate(framed):
        source_BN[row, : len(source)] = torch.tensor(source)
    device = model.output.weight.device
    return model.listen(source_BN.to(device), lengths_B.to(device))


def _decode(
    model: Seq2Seq,
    sources: Sequence[Ids],
    choice: Callable[[slice], Callable[[int, Tensor], Tensor]],
    beyond: int,
    charges: Charges,
) -> list[list[int]]:
    """Return replies word by word; `choice` returns how the words of some rows are chosen."""

    def decode(rows: slice) -> list[list[int]]:
        return word_by_word(model, read(model, sources[rows]), model.sizes.max_reply + beyond, choice(rows), charges)

    return in_blocks(len(sources), decode)


class AntiLanguageModel(Charge[State]):
    """A charge that takes a share of a language model's log-probability off the first words.

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

    def step(self, position: int, scores_RV: Tensor, words_R: Tensor, state: State) -> tuple[Tensor, State]:
        barred = torch.tensor([PAD_ID, BOS_ID], device=scores_RV.device)
        scores_RV = scores_RV.index_fill(1, barred, -torch.inf)
        if position >= self._num_words:
            return scores_RV, state
        embedded_R1E = self._lm.embedding(self._ids_V[words_R]).unsqueeze(1)
        _, (hidden_1RH, cell_1RH) = self._lm.lstm(embedded_R1E, (state.hidden_BH[None], state.cell_BH[None]))
        usual_RV = self._lm.output(hidden_1RH[0]).log_softmax(1)[:, self._ids_V]
        return scores_RV - self._weight * usual_RV, State(hidden_1RH[0], cell_1RH[0])


class Scored(NamedTuple):
    """A reply and its score by a re-ranking."""

    words: list[int]
    score: float


class ReplyDecoder:
    """A decoder of replies to sources, by settings.

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
        """Return the replies to sources.

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
            return [ranked[0].words for ranked in self.reranked(sources)]
        return [best.words for (best,) in self._beams(sources, most=1)]

    def reranked(self, sources: Sequence[Ids]) -> list[list[Scored]]:
        """Return the replies of the beam with their scores by both models, the best first."""
        assert self._backward is not None, "there is nothing to re-rank by"
        beams = self._beams(sources)
        read = [framed_source(source, self.model.sizes)[:-1] for source in sources]
        contexts = [self._words(source) for source, beam in zip(read, beams, strict=True) for _ in beam]
        backward_nats = iter(
            self._backward.nats_per_word(contexts, [self._words(scored_reply.words) for beam in beams for scored_reply in beam])
        )
        weight = self.settings.weight
        scored = [
            [
                Scored(words, (1 - weight) * nats / (len(words) + 1) + weight * float(next(backward_nats)))
                for words, nats in beam
            ]
            for beam in beams
        ]
        return [sorted(beam, key=lambda scored_reply: -scored_reply.score) for beam in scored]

    def _beams(self, sources: Sequence[Ids], most: int | None = None) -> list[list[Hypothesis]]:
        settings = self.settings
        options = {"length_penalty": settings.length, "rate": settings.rate, "charges": self.charges, "most": most}
        return hypotheses(self.model, sources, settings.beam, **options)

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
    """Check that a backward model predicts contexts of as many turns as a model reads.

    Args:
        turns: that the model reads.
        backward: the backward model.
        name: its name in errors.

    Raises:
        ConfigError: it predicts others.
    """
    backward_turns = backward.model.sizes.turns
    if backward_turns != turns:
        raise ConfigError(
            "the backward model was fitted to contexts of other turns",
            where=name,
            got=f"{backward_turns} turns, the model reads {turns}",
            fix="fit it with the settings of the model and --backward",
        )


class Seq2SeqResponder(NetworkResponder[Seq2Seq]):
    """A sequence-to-sequence model as a responder."""

    stored_as = SEQ2SEQ
    decoders = (*RULES, *EVERYWHERE)

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__(model)
        self._decoders: dict[DecoderSettings, ReplyDecoder] = {}

    @property
    def embedding(self) -> nn.Embedding:
        return self.model.source_embedding

    def decode(self, contexts: Sequence[Turns], decoder: DecoderSettings, seeds: Sequence[int]) -> list[list[int]]:
        if decoder not in self._decoders:
            self._decoders[decoder] = ReplyDecoder(self.model, decoder)
        return self._decoders[decoder](self._sources(contexts), seeds)

    def examples(self, contexts: Sequence[Turns], replies: Sequence[Turn]) -> PairExamples:
        """Return examples for `Fit` and `evaluate`: replies to be predicted from contexts, in the given order."""
        rows = [*self._sources(contexts), *(self.model.vocabulary.encode(turn_words(reply)) for reply in replies)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        utterances = Ragged(np.concatenate(rows).astype(np.int32), offsets)
        pairs = np.arange(len(rows)).reshape(2, -1).T
        return PairExamples(PairSplit(utterances, pairs), self.model.sizes)

    def _sources(self, contexts: Sequence[Turns]) -> list[np.ndarray]:
        return [self.model.vocabulary.encode(context_words(turns[-self.turns :])) for turns in contexts]


def load_responder(folder: Path) -> Seq2SeqResponder:
    """Return the responder of a run or checkpoint folder.

    Raises:
        CheckpointError: as `load_seq2seq`, or it predicts contexts.
    """
    model = load_seq2seq(folder)
    if model.sizes.backward:
        fix = "name it as the backward model of a decoder: --decoder mmi:backward=RUN"
        raise CheckpointError("a backward model predicts contexts and does not answer them", where=folder, fix=fix)
    return Seq2SeqResponder(model)
