"""The base class of SMN, DAM and MRFN, and word vectors to start from: skip-gram, or a text file.

A matching model gives log-odds that a reply fits a context: one for SMN and DAM, one for each of its six views for MRFN. Its
score is the mean probability of its views, in (0, 1).

Departures of all three:
  * # Released: padding reaches scores, by biases and by the GRU over turns. Ours: it cannot, because similarities and
    feature maps are zero there and the GRU reads real turns alone; `padding="released"` is the released.
  * # Released: GRU cells of TensorFlow and Theano reset the state before the hidden product. Ours: after it, as torch's do,
    because they share the fast recurrence of `policies/core/gru.py`.

Skip-gram with negative sampling: Mikolov et al. 2013 (arXiv 1310.4546); Li et al. 2019 train 200 dimensions on the training
split. The caller passes sentences of that split alone: vectors fitted on test text would know its words.

    loss of a word w and a word c near it = -log sigmoid(v_w . u_c) - sum over negatives n of log sigmoid(-v_w . u_n)

  * # Released tool: one pair at a time, each with negatives of its own. Ours: some hundred pairs a step, which share their
    negatives, because products of matrices then do the work. These weigh as much as `negatives` of each pair's own would.

Shapes: as in `batches.py`; D width of an encoding, M different (turn, reply), V views; of word vectors V words, E width, B
pairs of a batch, S shared negatives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.core.config import Configuration, PositiveFloat, PositiveInt
from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.vocabulary import PAD_ID, SPECIALS, PairVocabulary
from parley.policies.ranking.matching.batches import Block, Reader, at, with_zero
from parley.policies.ranking.matching.settings import MatcherSizes

BARRED = -(2.0**32) + 1
"""Stands for minus infinity before a softmax; finite, so that a row in which all is barred is uniform."""
EMBEDDING_DEVIATION = 0.1
"""Deviation of the normal start of untrained word vectors."""
_UNKNOWN_SEED = 20190


class ParameterCount(NamedTuple):
    """Numbers of a model's parameters."""

    total: int
    without_words: int
    """Without its word vectors, which depend on the corpus."""


class Matcher(nn.Module, ABC):
    """The parameters of one matching model.

    Args:
        vocabulary: the words that it knows.
        sizes: its widths.
    """

    unknown: Tensor
    """Vectors of unknown words that are told apart; never trained."""
    words_at_once = 1 << 13
    """Most words of contexts and candidates that are scored together; bounds the memory of their encodings."""
    most_cells = 1 << 14
    """Most positions of a bucket of texts."""

    def __init__(self, vocabulary: PairVocabulary, sizes: MatcherSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        self.reader = Reader(vocabulary, sizes)
        self.embedding = nn.Embedding(len(vocabulary), sizes.embed, padding_idx=PAD_ID)
        self.embedding.weight.requires_grad_(sizes.tuned)
        generator = torch.Generator().manual_seed(_UNKNOWN_SEED)
        unknown_UE = torch.randn(sizes.unknowns, sizes.embed, generator=generator) * EMBEDDING_DEVIATION
        self.register_buffer("unknown", unknown_UE, persistent=False)

    @abstractmethod
    def forward(self, block: Block) -> Tensor:
        """Return log-odds (P, V) that each pair's reply fits its context, by each view."""

    @abstractmethod
    def encode(self, words_WE: Tensor, block: Block, letters_WD: Tensor | None) -> Sequence[Tensor]:
        """Return encodings of texts, each read alone.

        Args:
            words_WE: the vectors of all words of all texts, zero at padding.
            block: the texts.
            letters_WD: encodings of each word's letters, if the model reads them.

        Returns:
            Encodings (W, D), each of a width of its own.
        """

    def encode_letters(self, block: Block) -> Tensor | None:
        """Return encodings of the letters of each different word (S, D); None if it reads none."""
        return None

    def memory(self, block: Block) -> list[Tensor]:
        """Return the encodings of all words of all texts (W + 1, D), the last row zero."""
        words, num_known = block.tensor(block.words_W), len(self.vocabulary)
        vectors_WE = self.embedding(words.clamp(max=num_known - 1))
        if self.sizes.unknowns:
            of_unknown = self.unknown[(words - num_known).clamp(min=0)]
            vectors_WE = torch.where((words < num_known).unsqueeze(1), vectors_WE, of_unknown)
        vectors_WE = self.drop(vectors_WE) * (words != PAD_ID).unsqueeze(1)
        letters_SD = self.encode_letters(block)
        letters_WD = None if letters_SD is None else at(letters_SD, block.tensor(block.spelt_W))
        return [with_zero(encoding) for encoding in self.encode(vectors_WE, block, letters_WD)]

    def drop(self, values: Tensor) -> Tensor:
        """Apply dropout to the model's input, if it has any."""
        return values

    def scores(self, log_odds_PV: Tensor) -> Tensor:
        """Return scores (P,) float64: the mean probability of the views; near 1 float32 has too few numbers."""
        return log_odds_PV.double().sigmoid().mean(1)

    def loss(self, log_odds_PV: Tensor, labels_P: Tensor, cap: float = 0.0) -> Tensor:
        """Return the cross-entropies of pairs (P,) in nats, summed over the views.

        Args:
            log_odds_PV: as `forward` gives them.
            labels_P: 1 for replies that fit, else 0, float.
            cap: nats above which a view's loss of a pair is cut; 0: none is.
        """
        labels_PV = labels_P.unsqueeze(1).expand_as(log_odds_PV)
        nats_PV = F.binary_cross_entropy_with_logits(log_odds_PV, labels_PV, reduction="none")
        return (nats_PV.clamp(max=cap) if cap else nats_PV).sum(1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw initial weights: recurrences orthogonal, other matrices by Glorot, biases zero, norms one.

        Convolutions over similarities start uniform in plus or minus 0.01, as released.
        """
        for name, value in self.named_parameters():
            module_name, _, part = name.rpartition(".")
            if name == "embedding.weight":
                value.data.normal_(0, EMBEDDING_DEVIATION, generator=generator)
                value.data[PAD_ID] = 0
            elif isinstance(self.get_submodule(module_name), nn.LayerNorm):
                value.data.fill_(part == "weight")
            elif value.ndim < 2:
                value.data.zero_()
            elif "weight_hh" in part:
                for gate in value.data.chunk(3):
                    nn.init.orthogonal_(gate, generator=generator)
            elif isinstance(self.get_submodule(module_name), nn.Conv2d | nn.Conv3d):
                value.data.uniform_(-0.01, 0.01, generator=generator)
            else:
                nn.init.xavier_uniform_(value.data, generator=generator)

    def take_vectors(self, vectors_VE: np.ndarray) -> None:
        """Set the word vectors to trained ones, in the order of the vocabulary."""
        self.embedding.weight.data.copy_(torch.from_numpy(vectors_VE))
        self.embedding.weight.data[PAD_ID] = 0

    def count(self) -> ParameterCount:
        """Return the number of parameters, frozen word vectors included."""
        total = sum(value.numel() for value in self.parameters())
        return ParameterCount(total, total - self.embedding.weight.numel())


_SHARED, _SENTENCES, _MOST_PAIRS, _MOST_OF_A_WORD = 64, 4096, 512, 20
_SMOOTHING = 0.75
"""Exponent of the counts by which negatives are drawn."""


@dataclass(frozen=True, kw_only=True)
class SkipGramConfig(Configuration):
    """The recipe of word vectors."""

    window: PositiveInt = 5
    """Most words between a word and one near it; the distance of each word is drawn from 1 to this."""
    negatives: PositiveInt = 5
    """Drawn words that a pair's loss counts."""
    subsample: PositiveFloat = 1e-4
    """Share of the text above which a word is left out more often the more frequent it is."""
    epochs: PositiveInt = 5
    """Passes over the text."""
    learning_rate: PositiveFloat = 0.025
    """At the start; it falls to nothing on a line."""


def skip_gram(
    sentences: Iterable[Sequence[str]], vocabulary: PairVocabulary, width: int, seed: int, config: SkipGramConfig | None = None
) -> np.ndarray:
    """Return word vectors trained on sentences.

    Args:
        sentences: words of turns, each once, of the training split.
        vocabulary: words that get a vector; others are `<unk>`.
        width: of the vectors.
        seed: seed of all draws.
        config: the recipe.

    Returns:
        Vectors (V, E) float32 in the order of the vocabulary, of the deviation that word vectors start with; those of words
        that the sentences lack are random.
    """
    config = config or SkipGramConfig()
    ids = [vocabulary.encode(words) for words in sentences]
    generator = stream(seed, "skip-gram")
    vectors, near = np.zeros((2, len(vocabulary), width), dtype=np.float32)
    vectors[:] = generator.uniform(-0.5, 0.5, size=vectors.shape) / width
    counts = np.bincount(np.concatenate([np.empty(0, dtype=np.int64), *ids]), minlength=len(vocabulary)).astype(np.float64)
    if counts.sum():
        likely = np.cumsum(counts**_SMOOTHING)
        kept = np.minimum(1, np.sqrt(config.subsample * counts.sum() / np.maximum(counts, 1)))
        share = float((counts * kept).max() / (counts * kept).sum())
        # A step sums the gradients of all pairs of a word: too many would make it unstable.
        batch = int(np.clip(_MOST_OF_A_WORD / share / (1 + config.negatives), 8, _MOST_PAIRS))
        tables = torch.from_numpy(vectors), torch.from_numpy(near)
        for epoch in range(config.epochs):
            for read, centres, near_words in _pairs(ids, kept, config.window, batch, generator):
                rate = config.learning_rate * (1 - (epoch + read) / config.epochs)
                drawn = np.searchsorted(likely, generator.random(_SHARED) * likely[-1])
                pairs = tuple(map(torch.from_numpy, (centres, near_words, drawn)))
                _learn(tables, pairs, config.negatives / _SHARED, rate)
    seen = counts > 0
    unseen = generator.normal(0, EMBEDDING_DEVIATION, size=vectors.shape).astype(np.float32)
    if seen.any():
        vectors *= EMBEDDING_DEVIATION / max(float(vectors[seen].std()), 1e-12)
    table: np.ndarray = np.where(seen[:, None], vectors, unseen)
    table[PAD_ID] = 0
    return table


def _learn(tables: tuple[Tensor, Tensor], pairs: tuple[Tensor, ...], weight: float, rate: float) -> None:
    """Make one step on pairs, each with the same drawn words; both tables (V, E) change in place."""
    (words, near), (centres_B, others_B, drawn_S) = tables, pairs
    word_BE, other_BE, drawn_SE = words[centres_B], near[others_B], near[drawn_S]
    pull_B1 = (word_BE * other_BE).sum(1, keepdim=True).sigmoid() - 1
    push_BS = (word_BE @ drawn_SE.t()).sigmoid_() * weight
    # A word is no negative of itself.
    push_BS[others_B.unsqueeze(1) == drawn_S] = 0
    words.index_add_(0, centres_B, pull_B1 * other_BE + push_BS @ drawn_SE, alpha=-rate)
    near.index_add_(0, others_B, pull_B1 * word_BE, alpha=-rate)
    near.index_add_(0, drawn_S, push_BS.t() @ word_BE, alpha=-rate)


def _pairs(
    ids: Sequence[np.ndarray], kept: np.ndarray, window: int, batch: int, generator: np.random.Generator
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Yield pairs of one pass over sentences in random order: the share read before, words, and words near them."""
    order = generator.permutation(len(ids))
    for start in range(0, len(order), _SENTENCES):
        some = [ids[index] for index in order[start : start + _SENTENCES]]
        words, owner = np.concatenate(some), np.repeat(np.arange(len(some)), [len(sentence) for sentence in some])
        chosen = generator.random(len(words)) < kept[words]
        words, owner = words[chosen], owner[chosen]
        reach = generator.integers(1, window + 1, size=len(words))
        parts = []
        for distance in range(1, window + 1):
            left = np.flatnonzero(owner[distance:] == owner[:-distance])
            for here, there in ((left, left + distance), (left + distance, left)):
                near = reach[here] >= distance
                parts.append(np.stack([words[here[near]], words[there[near]]]))
        pairs = np.concatenate(parts, axis=1)
        pairs = pairs[:, generator.permutation(pairs.shape[1])]
        for first in range(0, pairs.shape[1], batch):
            yield start / len(order), pairs[0, first : first + batch], pairs[1, first : first + batch]


class ReadVectors(NamedTuple):
    """Vectors of a file."""

    vectors_VE: np.ndarray
    """(V, E) float32; of words that the file lacks random ones of the same deviation."""
    num_found: int
    """Words of the vocabulary that the file has, specials not counted."""


def read_vectors(path: Path, vocabulary: PairVocabulary, width: int, seed: int) -> ReadVectors:
    """Read vectors from a text file: a word and its numbers per line; a first line of counts is skipped.

    Args:
        path: of the file, UTF-8.
        vocabulary: words that get a vector.
        width: that the model has.
        seed: draws the vectors of words that the file lacks.

    Raises:
        DataError: the file is missing, is not UTF-8, or a line has another number of numbers or something that is none.
    """
    vectors_of_words: dict[int, np.ndarray] = {}
    index_of = vocabulary.index
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                word, *values = line.rstrip().split(" ")
                if number == 1 and len(values) == 1 and width != 1:
                    continue
                if len(values) != width:
                    got, fix = f"{len(values)} numbers", f"name vectors of {width} numbers, or set embed to theirs"
                    raise DataError("a vector has another width", where=f"{path}:{number}", got=got, fix=fix)
                if word in index_of:
                    vectors_of_words[index_of[word]] = _numbers(values, f"{path}:{number}")
    except OSError as error:
        fix = "name a text file of word vectors"
        raise DataError("the word vectors cannot be read", where=path, got=str(error), fix=fix) from None
    except UnicodeDecodeError as error:
        raise DataError("the word vectors are no UTF-8 text", where=path, got=str(error), fix="convert the file") from None
    deviation = float(np.std(list(vectors_of_words.values()))) if vectors_of_words else EMBEDDING_DEVIATION
    vectors = stream(seed, "vectors").normal(0, deviation, size=(len(vocabulary), width)).astype(np.float32)
    for index, values_E in vectors_of_words.items():
        vectors[index] = values_E
    vectors[PAD_ID] = 0
    return ReadVectors(vectors, sum(index >= len(SPECIALS) for index in vectors_of_words))


def _numbers(values: Sequence[str], where: str) -> np.ndarray:
    try:
        numbers = np.array(values, dtype=np.float32)
    except ValueError:
        numbers = np.full(1, np.nan, dtype=np.float32)
    if not np.isfinite(numbers).all():
        got = " ".join(values)[:80]
        raise DataError("a vector holds something that is no number", where=where, got=got, fix="mend the line")
    return numbers
