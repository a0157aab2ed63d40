"""Languages of the reply rules: tags of words, their classes, content words, synonyms, and word counts for IIW.

English uses a lexicon of `engine/perturb`; Chinese uses jieba and the Chinese Open Wordnet.

Sources for Chinese: Li et al. 2019, section 3.1: jieba for the Douban data; Wang & Bond 2013, "Building the Chinese Open
Wordnet (COW)".

jieba takes the tag of a word that its dictionary holds from there, whatever stands around it, so each distinct word is tagged
once. Words are those of the corpus: one that no dictionary holds has the tag of its last part as jieba cuts it, for the head
of a Chinese compound stands last.

  * # Paper: WordNet from NLTK, which has no Chinese. Ours: the Chinese Open Wordnet. It does not order senses, so
    that under rule "careful" only words of one sense have synonyms.

Not here: how text is cut into words (`envs/corpora/pairs/tokens.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from parley.engine.perturb.lexicon.opposites import Lexicon, word_lists, word_set
from parley.engine.perturb.lexicon.phrasings import BASE_TAGS, PARTS_OF_SPEECH, fits_article
from parley.engine.perturb.replies.settings import SynonymChoice
from parley.engine.perturb.strategies.commands import NAMES, in_commands
from parley.engine.perturb.strategies.texts import FlatContexts
from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.pairs.tokens import PATH, UNKNOWN, URL, cutter
from parley.envs.corpora.pairs.turns import CLITICS, Utterance
from parley.envs.ranking.groups import Context


@dataclass(frozen=True)
class TermCounts:
    """Counts of words in contexts.

    Args:
        term: how often each word occurs (TF).
        documents: how many contexts hold it (DF).
        num_contexts: how many there are (M).
    """

    term: Counter[str]
    documents: Counter[str]
    num_contexts: int

    @classmethod
    def of(cls, contexts: Iterable[Context]) -> TermCounts:
        """Count the words of contexts."""
        term, documents, num = Counter[str](), Counter[str](), 0
        for context in contexts:
            words = list(chain.from_iterable(context))
            term.update(words)
            documents.update(set(words))
            num += 1
        return cls(term, documents, num)

    def idf(self, word: str) -> float:
        """Return the inverse document frequency, equation (4); a word that no context holds counts as held by one."""
        return math.log(max(self.num_contexts, 1) / max(self.documents[word], 1))


WordClass = Literal["noun", "pronoun", "verb", "modal", "adjective", "adverb", "name", "other"]
"""Classes of tags; a name is a noun too, but no synonym replaces it."""
Tagged = tuple[str, str]
"""A word, lower case, and its tag."""
_NUM_WORDS = 1 << 17


class ReplyLanguage(Protocol):
    """Knowledge of one language; every answer is a pure function of the question."""

    @property
    def generic(self) -> tuple[Utterance, ...]:
        """Replies that suit most contexts; the first is the paper's."""

    def tag_all(self, utterances: Sequence[Utterance]) -> list[list[str]]:
        """Return the tags of many utterances, computed once for equal ones; callers must not change them."""

    def are_tags(self, utterances: Sequence[Utterance], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether `tag_all` would give these tags; meant for utterances that are rarely asked again."""

    def class_of(self, tag: str) -> WordClass:
        """Return the class of a tag."""

    def is_content(self, word: str) -> bool:
        """Return whether a word has meaning by itself: neither a mark nor a stop word."""

    def stays(self, flat: FlatContexts) -> np.ndarray:
        """Mark the words that are known names or belong to commands, whatever their tag (N,) bool."""

    def synonyms(self, words: Sequence[Tagged], choice: SynonymChoice) -> list[Utterance]:
        """Return the synonyms of each word and tag, without the word, in a fixed order; lists are faster."""

    def fits(self, before: str, word: str, other: str) -> bool:
        """Return whether the word before is as right before `other` as before `word`."""


def is_word(word: str) -> bool:
    """Return whether a token holds a letter or a digit, and is no smiley (":p")."""
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
        """Return Penn Treebank tags."""
        return self.lexicon.tag_all(utterances)

    def are_tags(self, utterances: Sequence[Utterance], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether the tagger gives these tags."""
        return self.lexicon.are_tags(utterances, tags)

    def class_of(self, tag: str) -> WordClass:
        """Return the class of a Penn Treebank tag."""
        return _CLASSES.get(tag, "other")

    def stays(self, flat: FlatContexts) -> np.ndarray:
        """Mark words that belong to a command or name a program."""
        return in_commands(flat) | flat.are_in(NAMES)

    def synonyms(self, words: Sequence[Tagged], choice: SynonymChoice) -> list[Utterance]:
        """Return the synonyms of each word and tag."""
        synonyms = [self._forms(word, tag, choice) for word, tag in words]
        if not choice.tagged_alone:
            return synonyms
        forms = list(dict.fromkeys(chain.from_iterable(synonyms)))
        alone = {form: self.class_of(tag) for form, (tag,) in zip(forms, self.tag_all(list(zip(forms))), strict=True)}
        return [
            tuple(other for other in forms_of if alone[other] in _ALONE.get(tag[0], ()))
            for (_, tag), forms_of in zip(words, synonyms, strict=True)
        ]

    def fits(self, before: str, word: str, other: str) -> bool:
        """Return whether "a" or "an" before a word is as right before the other."""
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
        bases = (other for letter in firsts for other in self._bases_of(word, letter, choice))
        forms = bases if choice.form == "base" else (self.lexicon.inflect(other, tag) for other in bases)
        fitting = (other for other in forms if other is not None and other != word)
        return tuple(other for other in dict.fromkeys(fitting) if not choice.usual or self.usual(other))

    def _bases_of(self, word: str, letter: str, choice: SynonymChoice) -> Iterable[str]:
        """Return the base forms of a word's synonyms, as the part of speech that tags with this letter name."""
        base, kind = self.lexicon.inflect(word, BASE_TAGS[letter]), PARTS_OF_SPEECH[letter]
        if base is None or (choice.same_class and not FUNCTION_LIKE.isdisjoint((word, base))):
            return ()
        bases = self.lexicon.synonyms(base, kind, every_sense=choice.sense == "any", names=not choice.known_names)
        if choice.same_class:
            bases = tuple(other for other in bases if other not in FUNCTION_LIKE)
        return bases if choice.sense != "shared" else [other for other in bases if self.lexicon.same_sense(base, other, kind)]


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
_LISTS = word_lists("replies")
_HELPING_VERBS = _LISTS["helping verbs"]
"""Verbs that stand before other verbs and particles, or whose meaning their object has."""
_COURTESY = _LISTS["courtesy"]
"""Words that answer, or open a turn, or are polite."""
_PRO_FORMS = _LISTS["pro forms"]
"""Words that stand for a person, a thing, a place, a manner or a number."""
FUNCTION_LIKE = frozenset(f"{_HELPING_VERBS} {_COURTESY} {_PRO_FORMS}".split())
"""Words that are mostly function words, base forms; dictionaries list them as verbs, nouns, adjectives or adverbs."""
_ALONE = {"N": ("noun",), "V": ("verb", "noun"), "J": ("adjective",), "R": ("adverb",)}
"""By the first letter of a word's tag, the classes that the tagger may take a synonym for by itself: many verbs are nouns."""


FOLDER, FILE = "chinese_wordnet", "wn-data-cmn.tab"
_CLASSES_CHINESE: Mapping[str, WordClass] = {
    "n": "noun",
    "r": "pronoun",
    "v": "verb",
    "a": "adjective",
    "b": "adjective",
    "z": "adjective",
    "d": "adverb",
}
"""Of the first letter of jieba's tags."""
_NAMES = ("nr", "ns", "nt", "nz", "eng")
"""Beginnings of the tags of names; Latin letters in Chinese text mostly name something."""
_PARTS_OF_SPEECH: Mapping[WordClass, str] = {"noun": "n", "verb": "v", "adjective": "a", "adverb": "r"}


class Chinese:
    """Chinese as jieba and the Chinese Open Wordnet know it; both are opened at first use.

    Args:
        root: where corpora lie; the usual places when not given.
        tagger: tags cut words, an iterable of pairs `word`, `flag`; jieba's when not given.
    """

    generic = (
        ("不好意思", "你", "能", "再", "说", "一遍", "吗"),
        ("太棒了", "听起来", "不错"),
        ("我", "不", "知道", "该", "说", "什么"),
        ("好", "的", "谢谢", "你", "告诉", "我"),
        ("这", "要", "看", "你", "想", "怎么样"),
    )
    """The first two say what the paper's English ones say."""

    def __init__(self, root: Path | None = None, tagger: Any = None) -> None:
        self._root, self._given = root, tagger
        self._tag = lru_cache(_NUM_WORDS)(self._tag_of)
        self._stopwords = word_set(_LISTS["stopwords"])

    def tag_all(self, utterances: Sequence[Utterance]) -> list[list[str]]:
        """Return jieba's tags.

        Raises:
            ConfigError: jieba is not installed.
        """
        return [list(map(self._tag, words)) for words in utterances]

    def are_tags(self, utterances: Sequence[Utterance], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether jieba gives these tags."""
        return [own_tags == list(expected) for own_tags, expected in zip(self.tag_all(utterances), tags, strict=True)]

    def class_of(self, tag: str) -> WordClass:
        """Return the class of one of jieba's tags."""
        return "name" if tag.startswith(_NAMES) else _CLASSES_CHINESE.get(tag[:1], "other")

    def is_content(self, word: str) -> bool:
        """Return whether a word is neither a mark nor a stop word."""
        return is_word(word) and word not in self._stopwords

    def stays(self, flat: FlatContexts) -> np.ndarray:
        """Mark no word: in Chinese, names have tags of their own."""
        return np.zeros(len(flat.words), dtype=bool)

    def synonyms(self, words: Sequence[Tagged], choice: SynonymChoice) -> list[Utterance]:
        """Return the other words of each word's synsets; Chinese words have one form.

        Raises:
            DataError: the Chinese Open Wordnet is not there, or a line of it is broken.
        """
        return [self._synonyms_of(word, tag, choice) for word, tag in words]

    def fits(self, before: str, word: str, other: str) -> bool:
        """Return True: Chinese has no articles."""
        return True

    def _synonyms_of(self, word: str, tag: str, choice: SynonymChoice) -> Utterance:
        part_of_speech = _PARTS_OF_SPEECH.get(self.class_of(tag))
        parts = ([] if part_of_speech is None else [part_of_speech]) if choice.same_class else _PARTS_OF_SPEECH.values()
        senses = [sense for part in parts for sense in self._senses.get((word, part), ())]
        if choice.sense != "any" and len(senses) > 1:
            return ()
        return tuple(dict.fromkeys(other for sense in senses for other in self._words[sense] if other != word))

    def _tag_of(self, word: str) -> str:
        flag = self._tagger.word_tag_tab.get(word)
        if flag is not None:
            return str(flag)
        parts = [str(pair.flag) for pair in self._tagger.cut(word)]
        return parts[-1] if parts else "x"

    @cached_property
    def _tagger(self) -> Any:
        if self._given is not None:
            return self._given
        words = cutter()
        # jieba is there, or the line before has said that it is not.
        from jieba.posseg import POSTokenizer

        return POSTokenizer(words)

    @cached_property
    def _words(self) -> Mapping[str, Sequence[str]]:
        """Read the words of each synset."""
        path = data_root(self._root) / FOLDER / FILE
        if not path.is_file():
            raise DataError(
                "synonyms of Chinese words need the Chinese Open Wordnet",
                where=path,
                fix="put wns/cow/wn-data-cmn.tab of github.com/omwn/omw-data there",
            )
        synsets: dict[str, dict[str, None]] = {}
        for number, line in enumerate(read_lines(path), 1):
            if line.startswith("#") or not line:
                continue
            try:
                require_utf8(line)
                synset, kind, word, *rest = (*line.split("\t"), "", "")
                if not (synset[-2:-1] == "-" and synset[:-2].isdigit() and kind.endswith("lemma") and word) or any(rest):
                    raise broken_rule("a line is OFFSET-POS<TAB>cmn:lemma<TAB>WORD", line)
            except DataError as error:
                raise located(error, str(path), number) from None
            # The mark of a border of morphemes; blanks stand between the words of a phrase.
            if " " not in word and "_" not in word:
                synsets.setdefault(synset, {})[word.replace("+", "")] = None
        return {synset: tuple(words) for synset, words in synsets.items()}

    @cached_property
    def _senses(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """Index the synsets by word and part of speech."""
        senses: dict[tuple[str, str], list[str]] = {}
        for synset, words in self._words.items():
            for word in words:
                senses.setdefault((word, synset[-1].replace("s", "a")), []).append(synset)
        return senses
