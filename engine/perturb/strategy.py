"""The interface of a perturbation strategy, and the settings of all strategies.

Source: Niu & Bansal 2018 (arXiv 1809.02079), "Adversarial Over-Sensitivity and Over-Stability Strategies for Dialogue
Models", section 3. A Should-Not-Change strategy edits a context so that a good model answers as before; a Should-Change
strategy so that it must not. Only the context is edited, never the reply; utterance and turn boundaries keep their places.

A strategy takes many contexts at once, because some are models that decode in batches; what it makes of one depends on that
context and its seed alone. A strategy of your own that reads one utterance at a time inherits from `OnUtterances`; one that
returns edits from `ByEdits`.

This file is torch-free and NLTK-free, so that help starts fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np

from parley.engine.perturb.strategies.texts import Edits, FlatContexts, num_changed, spans
from parley.envs.core.config import Configuration, PositiveFloat, PositiveInt, PositiveShare
from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Turns, Utterance

Rule = Literal["paper", "released"]


@dataclass(frozen=True, kw_only=True)
class PerturbSettings(Configuration):
    """Settings of perturbations; the defaults are the paper's where it has them."""

    topic: ClassVar[str] = "perturb audit"

    rule: Rule = "paper"
    """Where the paper and its released code disagree: whose rule."""
    lexicon: Literal["nltk", "built-in"] = "nltk"
    """Tagger, WordNet, stop words and paraphrase pairs: NLTK's data, or a small lexicon written for this project."""
    corpus: str = ""
    """Corpus whose training split says which words are usual and which edits are fluent; the evaluated one when empty."""
    max_dropped: PositiveInt = 8
    """Stopword dropout: most words dropped in a turn (paper)."""
    swap_every: PositiveInt = 4
    """Random swap: one swap per so many words of an utterance (paper)."""
    paraphrase_rate: PositiveShare = 1.0
    """Data-level paraphrase: share of matching phrases that are replaced."""
    paraphrase_share: PositiveShare = 0.25
    """Data-level paraphrase, rule "paper": most of an utterance's words that are replaced, and always one."""
    perplexity_ratio: PositiveFloat = 1.5
    """Data-level paraphrase, rule "paper": a paraphrase may raise the perplexity of the words around it so many times, by the
    corpus' own trigrams; without a corpus nothing is judged."""
    grammar_rate: PositiveShare = 0.3
    """Grammar errors: share of words with a known error that get one (paper: silent); at 1 half of a text's words change."""
    noise_rate: PositiveShare = 0.2
    """Character noise, misspellings: share of the words of at least four letters in which a letter slips."""
    paraphrases: Path | None = None
    """Data-level paraphrase: a PPDB file, or pairs of phrases separated by a tab; the lexicon's own pairs when not given."""
    corrections: Path | None = None
    """Grammar errors, misspellings: a folder with JFLEG's files, or a file of wrong<TAB>right sentences; the data root's if not
    given."""
    paraphraser: str | None = None
    """Generative paraphrase: the run or checkpoint of `parley train paraphraser`."""
    entities: Path | None = None
    """Entity strategies: entity<TAB>category or entity<TAB>form<TAB>category lines, or MutualFriends' schema.json."""
    partner_entities: Path | None = None
    """Confusing entity: entities of the other side's knowledge base, one a line; all of `entities` when not given."""

    antonym_ratio: ClassVar[float] = 4.0
    """Antonym, rule "paper": as `perplexity_ratio`, for an opposite. Chosen once by reading examples."""


class Expectation(StrEnum):
    """The reaction of a good model to a perturbed context."""

    SHOULD_NOT_CHANGE = "should-not-change"
    """Answers as before; answering otherwise is over-sensitivity."""
    SHOULD_CHANGE = "should-change"
    """Answers otherwise; answering as before is over-stability."""


class Strategy(Protocol):
    """A perturbation; a user's own needs these three members."""

    @property
    def name(self) -> str:
        """The registered name, such as "random-swap"."""

    @property
    def expectation(self) -> Expectation:
        """Return the reaction of a good model."""

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """Return the perturbed contexts.

        Args:
            contexts: turns, oldest first.
            seeds: one for each context, at least 0; equal seeds draw alike.

        Returns:
            As many turns of as many utterances each; a context in which nothing can be done comes back as it was.
        """


class ByEdits(ABC):
    """The base of a strategy that returns edits; the rest of a text stays as it is (`catalogue.py`)."""

    name: str
    expectation: Expectation

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """Return the contexts with the edits of `edits`."""
        flat = FlatContexts(contexts)
        return flat.replaced(self.edits(flat, seeds))

    @abstractmethod
    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """Return the edits.

        Args:
            flat: the contexts.
            seeds: one for each context, at least 0; equal seeds draw alike.
        """


class OnUtterances(ABC):
    """The base of a user's strategy on single utterances: override `utterance`, and set `name` and `expectation`."""

    name: str
    expectation: Expectation

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """Perturb utterance by utterance; empty ones stay."""
        return [self._context(turns, stream(seed, self.name)) for turns, seed in zip(contexts, seeds, strict=True)]

    def _context(self, turns: Turns, rng: np.random.Generator) -> Turns:
        return tuple(tuple(self.utterance(words, rng) if words else words for words in turn) for turn in turns)

    @abstractmethod
    def utterance(self, words: Utterance, rng: np.random.Generator) -> Utterance:
        """Return the perturbed utterance; `words` holds at least one word."""


CONTROL = "none"
"""In the place of strategies: a model that was trained as long on contexts as they are."""
RANDOM_WORDS = ":random-words"
"""Ending of the name of a strategy's control."""


class RandomWordsControl:
    """The control of a strategy: random words replace as many words of each utterance as the strategy changes.

    Args:
        strategy: that is controlled; with its seeds the numbers of words are equal.
        common: words to draw from, two or more.

    Raises:
        DataError: there are fewer.
    """

    def __init__(self, strategy: Strategy, common: Sequence[str]) -> None:
        self.name, self.expectation = f"{strategy.name}{RANDOM_WORDS}", strategy.expectation
        if len(common) < 2:
            fix = "name a model or a corpus, whose words are drawn"
            raise DataError("a control has no words to draw from", where=self.name, got=f"{len(common)} words", fix=fix)
        self._strategy, self._common = strategy, common

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """Return contexts with random words; the seeds are those of the strategy."""
        after = self._strategy.perturb(contexts, seeds)
        return [
            tuple(
                tuple(self._drawn(words, changed, rng) for words, changed in zip(turn, changed_turn, strict=True))
                for turn, changed_turn in zip(turns, changed_turns, strict=True)
            )
            for turns, changed_turns, rng in zip(contexts, after, (stream(seed, self.name) for seed in seeds), strict=True)
        ]

    def _drawn(self, before: Utterance, after: Utterance, rng: np.random.Generator) -> Utterance:
        words = list(before)
        number = min(len(words), num_changed(spans(((before,),), ((after,),))))
        for position in sorted(rng.permutation(len(words))[:number].tolist()):
            drawn = int(rng.integers(len(self._common)))
            # A word is not replaced by itself.
            words[position] = self._common[drawn - (self._common[drawn] == words[position])]
        return tuple(words)
