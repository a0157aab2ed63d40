"""Networks as judges, and a linear SVM on their vectors of a pair (Li et al. 2017, section 5.1, judges 2 to 4).

The network is a discriminator (`policies/generation/discriminator`) with weights of its own, drawn and fitted anew in every
fold: it shares nothing with one that a generator was trained against. It learns from all pairs of a source at once. A tenth
of the sources of the fit decide when it ends. Words that occur once in the fit are unknown to it, so that it learns to read
unknown ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch

from parley.envs.core.seeds import derive_seed, stable_hash
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.core.fitting.loop import Fit
from parley.policies.core.settings import FitConfig
from parley.policies.generation.discriminator.batches import Discriminator, JudgedReplies, Judgements, ReplyExamples, judge
from parley.policies.generation.discriminator.settings import DiscriminatorSizes
from parley.policies.generation.judges.judge import Judge, JudgeSettings, LinearJudge, Numbers, Remembered, ranked, together
from parley.policies.ranking.rankers import RESPONSE_MODEL, load_ranker
from parley.policies.seq2seq.scoring import load_backward

_MOST_WORDS = 25_000
"""Words of a vocabulary, as in the released generator."""
_VALIDATION = 10
"""One in so many sources of a fit decides when it ends."""
_BATCH, _LARGE_BATCH, _MANY = 64, 128, 8_000
"""Pairs of an update, for few pairs and for many, and the number that counts as many."""
_EPOCHS, _MOST_EPOCHS = 6, 24
"""Largest number of epochs, for many pairs and for few."""
_STEPS, _PATIENCE = 300, 60
"""Updates for which few pairs have more epochs, in all and without a better one."""


class NetworkJudge(Judge):
    """A discriminator as a judge that is fitted on request.

    Args:
        kind: of the network.
        settings: its widths, and the device.
    """

    def __init__(self, kind: Literal["hierarchical", "concatenated"], settings: JudgeSettings) -> None:
        self._sizes = DiscriminatorSizes(kind=kind, embed=settings.embedding, hidden=settings.hidden)
        self._device = torch.device(settings.device)
        self._model: Discriminator | None = None

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        vocabulary = _vocabulary(pairs)
        self._model = Discriminator(vocabulary, self._sizes).to(self._device)
        held_out = _held_out(pairs, seed)
        train, validation = (
            ReplyExamples(self._sources(pairs, labels, held_out == validates), vocabulary, self._sizes)
            for validates in (False, True)
        )
        recipe = _recipe(len(train), int(train.num_targets.sum()))
        with TemporaryDirectory() as folder:
            fit = Fit(self._model, train, validation, recipe, derive_seed(seed, "network"), Path(folder) / "state")
            fit.run(lambda _: None)

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        return self._judged(pairs).log_odds

    def vectors(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        """Return the inputs of the softmax for each pair, (N, D)."""
        return self._judged(pairs).vectors

    def _judged(self, pairs: Sequence[RepliedPair]) -> Judgements:
        assert self._model is not None, "a judge is fitted before it is asked"
        encode = self._model.vocabulary.encode
        items = [JudgedReplies(encode(_context_words(pair)), [encode(pair.reply)], [True], 0) for pair in pairs]
        return judge(self._model, ReplyExamples(items, self._model.vocabulary, self._sizes))

    def _sources(self, pairs: Sequence[RepliedPair], labels: np.ndarray, wanted: np.ndarray) -> list[JudgedReplies]:
        """Return the wanted pairs by source, so that each source is read once."""
        assert self._model is not None
        encode = self._model.vocabulary.encode
        indices_of: dict[Any, list[int]] = {}
        for index in np.flatnonzero(wanted).tolist():
            indices_of.setdefault(pairs[index].context, []).append(index)
        return [
            JudgedReplies(
                encode(_context_words(pairs[indices[0]])),
                [encode(pairs[n].reply) for n in indices],
                labels[indices].tolist(),
                0,
            )
            for indices in indices_of.values()
        ]


class CombinedJudge(Judge):
    """A linear SVM on unigrams, the vector of a hierarchical network, and log-probabilities of given models.

    The network is fitted to the pairs that the SVM is fitted to, as in the paper. Numbers are standardised by those pairs, and
    all of them together weigh as much as the unigrams of a pair.

    Args:
        network: fitted first.
        likelihoods: each (N,) of N pairs.
    """

    def __init__(self, network: NetworkJudge, likelihoods: Sequence[Numbers]) -> None:
        self._network, self._likelihoods = network, likelihoods
        self._svm = LinearJudge(together, self._numbers)
        self._mean, self._scale = np.zeros(1), np.ones(1)

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        self._network.fit(pairs, labels, seed)
        raw = self._raw(pairs)
        self._mean, deviations = raw.mean(axis=0), raw.std(axis=0)
        self._scale = np.where(deviations > 0, deviations, 1) * np.sqrt(raw.shape[1])
        self._svm.fit(pairs, labels, seed)

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        return self._svm.score(pairs)

    def features(self, num: int) -> list[tuple[str, float]]:
        """Return the words and their weights, without other features."""
        return self._svm.features(num)

    def _numbers(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        return np.asarray((self._raw(pairs) - self._mean) / self._scale)

    def _raw(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        return np.concatenate(
            [self._network.vectors(pairs), *(likelihood(pairs)[:, None] for likelihood in self._likelihoods)], axis=1
        )


def hierarchical(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges with an LSTM over the vectors of utterances."""
    return partial(NetworkJudge, "hierarchical", settings)


def concatenated(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges with the vectors of utterances side by side."""
    return partial(NetworkJudge, "concatenated", settings)


def svm_neural(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of the judge that the paper found most reliable.

    Raises:
        CheckpointError: a model is not there, damaged, or of another kind.
    """
    likelihoods: list[Numbers] = []
    if settings.forward:
        ranker = load_ranker(f"{RESPONSE_MODEL}{settings.forward}", chat=replace(settings.chat, device=settings.device))
        likelihoods.append(Remembered(partial(ranked, ranker)))
    if settings.backward:
        model = load_backward(fetched_model(settings.backward))
        model.model.to(settings.device)
        likelihoods.append(
            Remembered(lambda pairs: model.nats_per_word(list(map(_context_words, pairs)), [pair.reply for pair in pairs]))
        )
    return lambda: CombinedJudge(NetworkJudge("hierarchical", settings), likelihoods)


def _recipe(num_sources: int, num_pairs: int) -> FitConfig:
    size = max(1, (_LARGE_BATCH if num_pairs >= _MANY else _BATCH) * num_sources // num_pairs)
    steps = -(-num_sources // size)
    epochs = min(_MOST_EPOCHS, max(_EPOCHS, -(-_STEPS // steps)))
    patience = min(epochs // 3, -(-_PATIENCE // steps))
    return FitConfig(batch_size=size, max_epochs=epochs, patience=patience, decay_epochs=1, precision="float32")


def _context_words(pair: RepliedPair) -> list[str]:
    words = list(pair.context[0])
    for turn in pair.context[1:]:
        words += [EOT, *turn]
    return words


def _vocabulary(pairs: Sequence[RepliedPair]) -> PairVocabulary:
    counts: Counter[str] = Counter()
    for pair in pairs:
        counts.update(_context_words(pair))
        counts.update(pair.reply)
    num_known = sum(num > 1 for word, num in counts.items() if word not in SPECIALS)
    texts = (words for pair in pairs for words in (_context_words(pair), pair.reply))
    return PairVocabulary.build(texts, min(num_known + len(SPECIALS), _MOST_WORDS))


def _held_out(pairs: Sequence[RepliedPair], seed: int) -> np.ndarray:
    """Mark the pairs whose sources decide when the fit ends: every tenth source by hash, at least one."""
    order = sorted({pair.context for pair in pairs}, key=lambda context: stable_hash("held out", seed, str(context)))
    chosen = set(order[::_VALIDATION])
    return np.array([pair.context in chosen for pair in pairs])
