"""In which units a model of pairs reads and says text: the most frequent words, or pieces learnt by byte pair encoding."""

from __future__ import annotations

from dataclasses import dataclass, field

from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.supervised import PairFitConfig, open_pairs
from parley.envs.core.ranges import PositiveInt
from parley.envs.corpora.pairs.compiled import PairCorpus, PairSplit
from parley.envs.corpora.pairs.contexts import with_eot
from parley.envs.corpora.pairs.subwords import pieces_of, spelt
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.fitting.settings import FitConfig


@dataclass(frozen=True, kw_only=True)
class UnitConfig(PairFitConfig):
    """What a model of pairs is fitted to, in which units."""

    subwords: PositiveInt | None = None
    """Merges of byte pair encoding, learnt on the training split: pieces then stand in the place of the most frequent words,
    and sizes count pieces (Niu & Bansal 2018: 5000). Words when not given."""
    subword_bytes: bool = False
    """Spell characters that the training split lacks in bytes; otherwise each is one <unk>."""


@dataclass(frozen=True, kw_only=True)
class PairTrainingConfig(UnitConfig):
    """What a model is fitted to, and how."""

    vocabulary: int | None = None
    """Entries of a vocabulary of words, special tokens included; the corpus' own number when not given."""
    fit: FitConfig = field(default_factory=FitConfig)
    """The recipe."""


@dataclass(frozen=True)
class Units:
    """A corpus and what a model reads of it.

    Args:
        corpus: in words; where units are pieces, in every word.
        words: what its ids stand for, and behind them `<eot>` where contexts have several turns.
        vocabulary: of the model.
    """

    corpus: PairCorpus
    words: PairVocabulary
    vocabulary: PairVocabulary

    def spelt(self, split: PairSplit) -> PairSplit:
        """A split of the corpus in the model's units."""
        return spelt(split, self.words, self.vocabulary)

    @property
    def provenance(self) -> dict[str, int]:
        """What a checkpoint says of them: entries of a corpus' vocabulary of words, or pieces and their merges."""
        merges = self.vocabulary.merges
        if merges is None:
            return {"vocabulary": len(self.corpus.vocabulary)}
        return {"vocabulary": len(self.vocabulary), "merges": len(merges)}


def open_units(config: PairTrainingConfig, turns: int, reporter: Reporter) -> Units:
    """The corpus of a fit, and the vocabulary of its model; errors as those of `open_pairs`.

    Args:
        config: of the fit.
        turns: of context that the model reads.
        reporter: is told how many pieces a word takes.
    """
    if config.subwords is None:
        corpus = open_pairs(config, vocabulary=config.vocabulary)
        words = corpus.vocabulary if turns == 1 else with_eot(corpus.vocabulary)
        return Units(corpus, words, words)
    corpus = open_pairs(config, every_word=True)
    pieces = pieces_of(corpus, config.subwords, in_bytes=config.subword_bytes)
    units = Units(corpus, with_eot(corpus.vocabulary), pieces)
    test = corpus.splits["test"]
    num_words, num_pieces = len(test.utterances.values), len(units.spelt(test).utterances.values)
    told = f"{len(pieces):,} pieces of {len(pieces.merges or ()):,} merges"
    reporter.say(f"{told}; a word of the test split takes {num_pieces / num_words:.2f} of them, which sizes count")
    return units
