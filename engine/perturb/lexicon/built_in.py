"""A small lexicon of everyday and help-desk English, so that demo and tests run without NLTK's data.

Written for this project; callers that open it for a user print `ANNOUNCEMENT`. Its tags come from word lists, endings and
the words around, which is enough to find the verb of a plain sentence and no match for a trained tagger.

A word may stand in several lists; then the words around it decide its tag. The file also holds the lexicons by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain

from parley.engine.perturb.lexicon.nltk_lexicon import SHORT_FORMS, NltkLexicon, expanded
from parley.engine.perturb.lexicon.opposites import OPPOSITES, Lexicon, Phrase, two_way, word_lists
from parley.engine.perturb.lexicon.phrasings import phrasings, synonyms
from parley.envs.corpora.pairs.tokens import STOP_WORDS

_LISTS = word_lists("built_in")
IRREGULAR = _LISTS["irregular"]
"""Verbs: base, past, participle. Forms of "be" are listed with the words of one tag."""
REGULAR = _LISTS["regular"]
"""Verbs with endings by rule."""
DOUBLING = _LISTS["doubling"]
"""Verbs that double their last letter before -ed and -ing."""
NOUNS = _LISTS["nouns"]
PLURALS = dict(line.split(" ") for line in _LISTS["plurals"].split("\n") if line)
ADJECTIVES = _LISTS["adjectives"]
ADVERBS = _LISTS["adverbs"]
COMPARISONS = _LISTS["comparisons"]
"""Adjectives and adverbs: plain form, comparative, superlative."""
FIXED = {tag: words for tag, *words in map(str.split, filter(None, _LISTS["fixed"].split("\n")))}
"""Words of one tag."""
OPPOSITE_NOUNS = _LISTS["opposite nouns"]
"""Pairs of nouns, in both directions; the other opposites stand in `opposites.py`."""

ANNOUNCEMENT = "words come from the small built-in lexicon; for WordNet and a trained tagger: parley data get nltk"

_VERBS = ("VB", "VBP", "VBD", "VBN", "VBG", "VBZ")
_NOUNS = ("NN", "NNS")
_SUBJECTS = frozenset({"i", "you", "we", "they", "who", "these", "those", "which"})
_HELPERS = frozenset({"do", "does", "did", "let", "please", "help", "to"})
"""Words after which a verb in its base form is still to come."""
_HAVE = frozenset({"have", "has", "had", "'ve", "having"})
_BE = frozenset({"be", "am", "is", "are", "was", "were", "been", "being", "'m", "'re", "'s", "get", "gets", "got"})
_NOUN_FOLLOWS = frozenset({"DT", "PRP$", "JJ", "JJR", "JJS", "CD", "IN", "NN", "NNP", "WP$", "POS", "VBZ", "VBD", "VBP", "VBG"})
_BEFORE_IS = frozenset({"PRP", "WP", "DT", "RB", "WRB"})
"""Tags of words after which "'s" is a verb; it marks the owner after others."""
_NUMBER = re.compile(r"\d[\d.,:]*")
_ENDINGS = (
    ("ing", "VBG"),
    ("ed", "VBN"),
    ("ly", "RB"),
    ("ness", "NN"),
    ("tion", "NN"),
    ("ment", "NN"),
    ("ous", "JJ"),
    ("ful", "JJ"),
    ("less", "JJ"),
    ("able", "JJ"),
    ("ible", "JJ"),
    ("ss", "NN"),
    ("us", "NN"),
    ("is", "NN"),
    ("s", "NNS"),
)
"""Tags of words that no list holds, by their ends; the first that fits."""
_PLAIN = {"v": "VB", "n": "NN", "a": "JJ", "r": "RB"}
_NUM_UTTERANCES = 1 << 14


class BuiltInLexicon:
    """The lexicon of the words of this file."""

    def __init__(self) -> None:
        self._tags = lru_cache(_NUM_UTTERANCES)(self._tags_of)

    def tag(self, words: Sequence[str]) -> list[str]:
        """Penn Treebank tags by lists, endings and the words around."""
        return [*self._tags(tuple(words))]

    def tag_all(self, utterances: Sequence[tuple[str, ...]]) -> list[list[str]]:
        """Return the tags of many utterances."""
        return [self.tag(words) for words in utterances]

    def are_tags(self, utterances: Sequence[tuple[str, ...]], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether utterances have these tags; see `Lexicon`."""
        return [self._tags(words) == tuple(expected) for words, expected in zip(utterances, tags, strict=True)]

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        """Return the listed opposites of a word's base form."""
        antonyms: dict[str, None] = {}
        for kind in _PLAIN if part_of_speech is None else (part_of_speech,):
            for base in dict.fromkeys((word, *self._bases(word, _PLAIN[kind]))):
                antonyms.update(dict.fromkeys(self._antonyms.get((base, kind), ())))
        return tuple(other for other in antonyms if other != word)

    def opposites(self, word: str, part_of_speech: str) -> tuple[str, ...]:
        """None beside the project's own, see `Lexicon`."""
        return ()

    def same_sense(self, word: str, other: str, part_of_speech: str) -> bool:
        """Return whether both words are listed as that part of speech; lists have one sense a word."""
        tag = _PLAIN[part_of_speech]
        return (word, tag) in self._forms and (other, tag) in self._forms

    def synonyms(self, word: str, part_of_speech: str, *, every_sense: bool = False, names: bool = False) -> tuple[str, ...]:
        """Return the listed synonyms, which have one sense."""
        return self._synonyms.get((word, part_of_speech), ())

    def inflect(self, word: str, tag: str) -> str | None:
        """Return the form of a listed word that has a tag; None for other words."""
        return next((self._forms[base, tag] for base in self._bases(word, tag[:2]) if (base, tag) in self._forms), None)

    @cached_property
    def stopwords(self) -> frozenset[str]:
        """Stop words."""
        return STOP_WORDS

    @cached_property
    def paraphrases(self) -> Mapping[Phrase, tuple[Phrase, ...]]:
        """Return phrases and words of equal meaning, both ways."""
        phrases = ((phrase, other) for phrase, right in phrasings(help_channel=True).items() for other in right)
        words = (((word,), (other,)) for (word, _), same in synonyms(help_channel=True).items() for other in same)
        return two_way(chain(phrases, words))

    def _tags_of(self, words: tuple[str, ...]) -> tuple[str, ...]:
        if not SHORT_FORMS.keys().isdisjoint(words):
            pieces, firsts = expanded(words)
            tags = self._tags(tuple(pieces))
            return tuple(tags[first] for first in firsts)
        return self._tags_in_order(words)

    def _tags_in_order(self, words: tuple[str, ...]) -> tuple[str, ...]:
        tags: list[str] = []
        awaits_verb = False
        for index, word in enumerate(words):
            following = words[index + 1] if index + 1 < len(words) else ""
            tag = self._tag(word, words[:index], tags, following, awaits_verb)
            if tag == "VB":
                awaits_verb = False
            if tag in ("TO", "MD") or word in _HELPERS:
                awaits_verb = True
            elif tag in (".", ":"):
                awaits_verb = False
            tags.append(tag)
        return tuple(tags)

    def _tag(self, word: str, before: Sequence[str], tags: Sequence[str], following: str, awaits_verb: bool) -> str:
        """Return the tag of a word, given the tags of the words before it."""
        if word == "'s" and tags and tags[-1] in _BEFORE_IS:
            return "VBZ"
        if word in ("do", "have") and following in _SUBJECTS:
            return "VBP"
        possible = self._possible.get(word) or _unlisted(word)
        if len(possible) == 1:
            return possible[0]
        # What an adverb or "not" stands between belongs together.
        last = next((index for index in range(len(tags) - 1, -1, -1) if tags[index] != "RB"), None)
        tag_1, word_1 = ("", "") if last is None else (tags[last], before[last])
        if tag_1 == "DT" and word_1 in _SUBJECTS and following in ("", ".", "?", "!"):
            tag_1 = "PRP"
        return next((tag for tag in _wishes(tag_1, word_1, following, awaits_verb) if tag in possible), possible[0])

    @cached_property
    def _synonyms(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        return synonyms(help_channel=True)

    @cached_property
    def _possible(self) -> dict[str, tuple[str, ...]]:
        """Words and all tags they may have; those of one tag first of all."""
        tags_of: dict[str, dict[str, None]] = {}
        for tag, words in FIXED.items():
            for word in words:
                tags_of.setdefault(word, {})[tag] = None
        fixed = frozenset(tags_of)
        for (_, tag), form in self._forms.items():
            if form not in fixed:
                tags_of.setdefault(form, {})[tag] = None
        for word in ("have", "do", "had"):
            tags_of[word] = dict.fromkeys(("VBD", "VBN") if word == "had" else ("VBP", "VB"))
        return {word: tuple(tags) for word, tags in tags_of.items()}

    @cached_property
    def _forms(self) -> dict[tuple[str, str], str]:
        """Forms by base and tag, the verbs last."""
        forms: dict[tuple[str, str], str] = {}
        for noun in NOUNS.split():
            forms[noun, "NN"] = noun
            forms[noun, "NNS"] = PLURALS.get(noun) or _with_s(noun)
        forms.update({(word, "JJ"): word for word in ADJECTIVES.split()})
        forms.update({(word, "RB"): word for word in ADVERBS.split()})
        for base, *graded in _in_threes(COMPARISONS):
            for kind in ("JJ", "RB"):
                if (base, kind) in forms:
                    forms.update({(base, f"{kind}R"): graded[0], (base, f"{kind}S"): graded[1]})
        doubling = frozenset(DOUBLING.split())
        regular = {base: _with_ed(base, base in doubling) for base in REGULAR.split()}
        verbs = [*_in_threes(IRREGULAR), *((base, past, past) for base, past in regular.items())]
        for base, past, participle in verbs:
            gerund, third = _with_ing(base, base in doubling), {"have": "has", "be": "is"}.get(base) or _with_s(base)
            verb_forms = (base, "are" if base == "be" else base, past, participle, gerund, third)
            forms.update({(base, tag): form for tag, form in zip(_VERBS, verb_forms, strict=True)})
        return forms

    @cached_property
    def _base_of(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Bases by form and the first two letters of its tag."""
        bases: dict[tuple[str, str], dict[str, None]] = {}
        for (base, tag), form in self._forms.items():
            bases.setdefault((form, tag[:2]), {})[base] = None
        return {key: tuple(listed) for key, listed in bases.items()}

    def _bases(self, word: str, kind: str) -> tuple[str, ...]:
        return self._base_of.get((word, kind), ())

    @cached_property
    def _antonyms(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        nouns = iter(OPPOSITE_NOUNS.split())
        pairs = [(left, right) for left, right in zip(nouns, nouns, strict=True)]
        return {**OPPOSITES, **{(a, "n"): (b,) for left, right in pairs for a, b in ((right, left), (left, right))}}


def _wishes(tag_1: str, word_1: str, following: str, awaits_verb: bool) -> Iterable[str]:
    """Tags in the order in which they suit a place, by what stands before it."""
    if tag_1 in ("TO", "MD") or word_1 == "please":
        yield "VB"
    if word_1 in _HAVE:
        yield "VBN"
    if word_1 in _BE:
        yield from ("VBG", "JJ", "VBN", "RB")
    if tag_1 in ("DT", "PRP$", "JJ", "CD", "WP$"):
        yield from ("JJ", *_NOUNS) if following.isalpha() and tag_1 != "JJ" else (*_NOUNS, "JJ")
    if awaits_verb:
        yield "VB"
    if word_1 in _SUBJECTS or tag_1 == "NNS":
        yield from ("VBP", "VBD")
    if tag_1 in ("NN", "NNP", "PRP", "WP", "WDT"):
        yield from ("VBZ", "VBD", *_NOUNS)
    if tag_1 in ("", "UH", "CC", ",", ".", ":", "RB"):
        yield "VB"
    if tag_1 in _NOUN_FOLLOWS:
        yield from _NOUNS
    yield from ("VBZ", "VBD", "RB", "JJ")


def _unlisted(word: str) -> tuple[str, ...]:
    if _NUMBER.fullmatch(word):
        return ("CD",)
    if not any(map(str.isalpha, word)):
        return (":",)
    return (next((tag for ending, tag in _ENDINGS if word.endswith(ending) and len(word) > len(ending) + 1), "NN"),)


def _in_threes(text: str) -> Iterable[tuple[str, str, str]]:
    listed = iter(text.split())
    return zip(listed, listed, listed, strict=True)


def _with_s(word: str) -> str:
    if re.search(r"(?:s|x|z|ch|sh|[^aeiou]o)$", word) and word not in ("photo", "piano"):
        return f"{word}es"
    return re.sub(r"(?<=[^aeiou])y$", "ie", word) + "s"


def _with_ed(word: str, doubles: bool) -> str:
    if word.endswith("e"):
        return f"{word}d"
    return re.sub(r"(?<=[^aeiou])y$", "i", f"{word}{word[-1]}" if doubles else word) + "ed"


def _with_ing(word: str, doubles: bool) -> str:
    if word.endswith("ie"):
        return f"{word[:-2]}ying"
    silent = word.endswith("e") and not word.endswith(("ee", "be"))
    return (f"{word}{word[-1]}" if doubles else word[:-1] if silent else word) + "ing"


def open_lexicon(name: str) -> Lexicon:
    """Open a lexicon by its name in `PerturbSettings.lexicon`.

    Raises:
        DataError: its data are not there; says how to get them.
    """
    return BuiltInLexicon() if name == "built-in" else NltkLexicon()
