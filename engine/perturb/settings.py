"""Settings of the perturbation strategies. Torch-free and NLTK-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from parley.envs.core.ranges import Configuration, PositiveFloat, PositiveInt, PositiveShare

Rule = Literal["paper", "released"]


@dataclass(frozen=True, kw_only=True)
class PerturbSettings(Configuration):
    """How contexts are perturbed; the defaults are the paper's where it has them."""

    rule: Rule = "paper"
    """Where the paper and its released code disagree: whose rule."""
    lexicon: Literal["nltk", "built-in"] = "nltk"
    """Tagger, WordNet, stop words and paraphrase pairs: NLTK's data, or a small lexicon written for this project."""
    corpus: str = ""
    """Corpus whose training split says which words are usual and which edits are fluent; the evaluated one when empty."""
    antonym_ratio: PositiveFloat = 4.0
    """Antonym, rule "paper": as `perplexity_ratio`, for an opposite."""
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
