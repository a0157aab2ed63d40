"""What rules ask of a language: tags of words, their classes, which say something, synonyms.

English leans on a lexicon of `engine/perturb`; Chinese on jieba and the Chinese Open Wordnet (`chinese.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Literal, Protocol

import numpy as np

from parley.engine.perturb.lexicon.lexicon import Lexicon
from parley.engine.perturb.lexicon.synonyms import BASE_TAGS, PARTS_OF_SPEECH, fits_article
from parley.engine.perturb.replies.settings import SynonymChoice
from parley.engine.perturb.strategies.commands import NAMES, in_commands
from parley.engine.perturb.strategies.flat import FlatContexts
from parley.envs.corpora.pairs.tokens import PATH, UNKNOWN, URL
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.pairs.written import CLITICS

WordClass = Literal["noun", "pronoun", "verb", "modal", "adjective", "adverb", "name", "other"]
"""What tags are sorted into; a name is a noun too, but stays where synonyms enter."""
Tagged = tuple[str, str]
"""A word, lower case, and its tag."""
_NUM_WORDS = 1 << 17


class ReplyLanguage(Protocol):
    """Knowledge of one language; every answer is a pure function of the question."""

    @property
    def generic(self) -> tuple[Utterance, ...]:
        """Replies that suit most contexts; the first is the paper's."""

    def tag_all(self, utterances: Sequence[Utterance]) -> list[list[str]]:
        """The tags of many utterances; each distinct one is tagged once. Not to be changed by whoever gets them."""

    def are_tags(self, utterances: Sequence[Utterance], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Whether `tag_all` gives just these tags, of utterances that hardly any other question is asked about."""

    def class_of(self, tag: str) -> WordClass:
        """The class of a tag."""

    def is_content(self, word: str) -> bool:
        """Whether a word says something by itself: neither a mark nor a stop word."""

    def stays(self, flat: FlatContexts) -> np.ndarray:
        """Which words are known names or belong to commands, whatever their tag (N,) bool."""

    def synonyms(self, asked: Sequence[Tagged], choice: SynonymChoice) -> list[Utterance]:
        """Of each word those that mean the same, without itself, in a fixed order; sooner than one by one."""

    def fits(self, before: str, word: str, other: str) -> bool:
        """Whether what stands before a word is as right before another."""


def is_word(word: str) -> bool:
    """Whether a token holds a letter or a digit, and is no smiley (":p")."""
    return any(map(str.isalnum, word)) and word[0] not in ":;"


class English:
    """English as a lexicon knows it.

    Args:
        lexicon: NLTK's data, or the built-in one.
        usual: whether a word may enter as a synonym.
    """

    generic = (
        ("i", "am", "sorry", "can", "you", "repeat"),
        ("fantastic", "that", "sounds", "good"),
        ("i", "do", "n't", "know", "what", "to", "say"),
        ("ok", ",", "thanks", "for", "telling", "me"),
        ("that", "depends", "on", "what", "you", "want"),
        ("could", "you", "tell", "me", "more", "about", "that", "?"),
    )
    """The first two are the paper's; the others are written for this project."""

    def __init__(self, lexicon: Lexicon, usual: Callable[[str], bool] = bool) -> None:
        self.lexicon, self.usual = lexicon, usual
        self._forms = lru_cache(_NUM_WORDS)(self._forms_of)
        self.is_content = lru_cache(_NUM_WORDS)(self._is_content)

    def tag_all(self, utterances: Sequence[Utterance]) -> list[list[str]]:
        """Penn Treebank tags, see `ReplyLanguage`."""
        return self.lexicon.tag_all(utterances)

    def are_tags(self, utterances: Sequence[Utterance], tags: Sequence[Sequence[str]]) -> list[bool]:
        """See `ReplyLanguage`."""
        return self.lexicon.are_tags(utterances, tags)

    def class_of(self, tag: str) -> WordClass:
        """The class of a Penn Treebank tag, see `ReplyLanguage`."""
        return _CLASSES.get(tag, "other")

    def stays(self, flat: FlatContexts) -> np.ndarray:
        """What belongs to a command or names a program, see `ReplyLanguage`."""
        return in_commands(flat) | flat.are_in(NAMES)

    def synonyms(self, asked: Sequence[Tagged], choice: SynonymChoice) -> list[Utterance]:
        """Synonyms of words, see `ReplyLanguage`."""
        found = [self._forms(word, tag, choice) for word, tag in asked]
        if not choice.tagged_alone:
            return found
        forms = list(dict.fromkeys(chain.from_iterable(found)))
        alone = {each: self.class_of(tag) for each, (tag,) in zip(forms, self.tag_all(list(zip(forms))), strict=True)}
        return [
            tuple(other for other in others if alone[other] in _ALONE.get(tag[0], ()))
            for (_, tag), others in zip(asked, found, strict=True)
        ]

    def fits(self, before: str, word: str, other: str) -> bool:
        """Whether "a" or "an" before a word is as right before another, see `ReplyLanguage`."""
        return fits_article(before, word, other)

    def _is_content(self, word: str) -> bool:
        # A letter alone is a flag, or what is left of a contraction.
        says = len(word) > 1 and is_word(word) and word not in CLITICS
        return says and word not in self.lexicon.stopwords and word not in (URL, PATH, UNKNOWN)

    def _forms_of(self, word: str, tag: str, choice: SynonymChoice) -> Utterance:
        if not word.isalpha():
            return ()
        first = tag[:1] if tag[:1] in PARTS_OF_SPEECH else ""
        firsts = first if choice.same_class else PARTS_OF_SPEECH
        others = (other for letter in firsts for other in self._bases_of(word, letter, choice))
        forms = others if choice.form == "base" else (self.lexicon.inflect(other, tag) for other in others)
        fitting = (other for other in forms if other is not None and other != word)
        return tuple(other for other in dict.fromkeys(fitting) if not choice.usual or self.usual(other))

    def _bases_of(self, word: str, letter: str, choice: SynonymChoice) -> Iterable[str]:
        """The base forms of synonyms of a word, as a part of speech that tags with a letter begin with."""
        base, kind = self.lexicon.inflect(word, BASE_TAGS[letter]), PARTS_OF_SPEECH[letter]
        if base is None:
            return ()
        others = self.lexicon.synonyms(base, kind, every_sense=choice.sense == "any", names=not choice.known_names)
        return others if choice.sense != "shared" else [other for other in others if self.lexicon.same_sense(base, other, kind)]


_CLASSES: Mapping[str, WordClass] = {
    **dict.fromkeys(("NN", "NNS"), "noun"),
    **dict.fromkeys(("NNP", "NNPS"), "name"),
    **dict.fromkeys(("PRP", "PRP$", "WP", "WP$"), "pronoun"),
    **dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), "verb"),
    "MD": "modal",
    **dict.fromkeys(("JJ", "JJR", "JJS"), "adjective"),
    **dict.fromkeys(("RB", "RBR", "RBS"), "adverb"),
}
"""Of Penn Treebank tags."""
_ALONE = {"N": ("noun",), "V": ("verb", "noun"), "J": ("adjective",), "R": ("adverb",)}
"""By the first letter of a word's tag, the classes that the tagger may take a synonym for by itself: many verbs are nouns."""
