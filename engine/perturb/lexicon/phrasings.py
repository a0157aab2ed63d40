"""Paraphrases of everyday written English, words that no table may change, and synonyms by sense, tag and form.

`left > right | right`: the left side may be said as any of the right ones, not the other way round; `left = right`: both ways.
Sides stand as the tokeniser cuts words. A side holds as many words as make it safe by itself: "try again" may become "try once
more", but "again" alone not, because of "once again".

Source of the synonyms: Niu & Bansal 2018, section 3.1, name the small PPDB 2.0 and say that the validity of a paraphrase
depends on its context.

A table knows pairs of words in any sense. Of those, a word's synonyms in a sentence are the ones

- whose sense in use is the word's: the first sense of both in WordNet, for the word's part of speech there, where it is also
  the sense in most of the texts that WordNet's makers counted (`Lexicon.same_sense`);
- in the form that the word has there ("bought" by "purchased", never "purchase"), which is not a form of the same base;
- that keep "a" and "an" before them right;
- that are usual: both words occur in the corpus a few times where one is at hand;
- of which neither is a name of a command or a word that grammar hangs on (`UNTOUCHED`).

Pairs that this project lists by part of speech (`phrasings.synonyms`) are of one sense; of them the first and the last is not
asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from parley.engine.perturb.lexicon.opposites import Lexicon, Phrase, word_lists, word_set
from parley.engine.perturb.strategies.commands import NAMES
from parley.envs.corpora.pairs.tokens import tokenise

_LISTS = word_lists("phrasings")
_EVERYWHERE = _LISTS["everywhere"]
"""Phrases that say the same in any chat."""
_IN_HELP_CHANNELS = _LISTS["in help channels"]
"""Those that say the same where people ask for help with computers, and now and then something else elsewhere."""

_SYNONYMS_EVERYWHERE = {kind: _LISTS[f"synonyms everywhere {kind}"] for kind in "vnar"}
"""Words of one part of speech, base forms, that mean the same in any chat."""
_SYNONYMS_IN_HELP_CHANNELS = {kind: _LISTS[f"synonyms in help channels {kind}"] for kind in "vnar"}
"""Words of one part of speech, base forms, that mean the same in talk about everyday things and computers."""


UNTOUCHED = NAMES | word_set(_LISTS["grammar"])
"""Words that tables of single words neither replace nor bring in: those that grammar hangs on or that mean too much, names."""


def phrasings(*, help_channel: bool = False) -> Mapping[Phrase, tuple[Phrase, ...]]:
    """Return phrases and their paraphrases, in the order of the list.

    Args:
        help_channel: whether people ask for help with computers; else only what says the same in any chat.
    """
    paraphrases: dict[Phrase, dict[Phrase, None]] = {}
    for left, right in _sides(_EVERYWHERE + _IN_HELP_CHANNELS if help_channel else _EVERYWHERE):
        paraphrases.setdefault(left, {})[right] = None
    return {phrase: tuple(right_sides) for phrase, right_sides in paraphrases.items()}


def synonyms(*, help_channel: bool = False) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return base forms and their synonyms, by word and part of speech ("v", "n", "a", "r").

    Args:
        help_channel: see `phrasings`.
    """
    synonyms_of: dict[tuple[str, str], dict[str, None]] = {}
    for kind, text in (_SYNONYMS_IN_HELP_CHANNELS if help_channel else _SYNONYMS_EVERYWHERE).items():
        for group in text.split(","):
            words = group.split()
            for word in words:
                synonyms_of.setdefault((word, kind), {}).update(dict.fromkeys(other for other in words if other != word))
    return {key: tuple(words_of_sense) for key, words_of_sense in synonyms_of.items()}


def _sides(text: str) -> Iterator[tuple[Phrase, Phrase]]:
    for line in filter(None, text.splitlines()):
        both = " = " in line
        left, _, alternatives = line.partition(" = " if both else " > ")
        for right in alternatives.split("|"):
            yield _words(left), _words(right)
            if both:
                yield _words(right), _words(left)


def _words(text: str) -> Phrase:
    return tuple(tokenise(text))


BASE_TAGS = {"V": "VB", "N": "NN", "J": "JJ", "R": "RB"}
"""The tag of a word's base form, by the first letter of its own."""
PARTS_OF_SPEECH = {"V": "v", "N": "n", "J": "a", "R": "r"}
_SAME_STEM = 4
"""Words that share so many first letters are taken for forms of one ("reply", "replying")."""


class Synonyms:
    """The synonyms of words.

    Args:
        table: phrases and their paraphrases; of one word each they count here.
        lexicon: inflects words and knows their senses.
        usual: whether a word may be replaced, and may enter.
        listed: synonyms of one sense by base form and part of speech.
        is_judged: whether a corpus judges edits in their place; else words that mean too much alone ("get", "way") stay.
    """

    def __init__(
        self,
        table: Mapping[Phrase, tuple[Phrase, ...]],
        lexicon: Lexicon,
        usual: Callable[[str], bool],
        listed: Mapping[tuple[str, str], tuple[str, ...]],
        *,
        is_judged: bool = False,
    ) -> None:
        self._lexicon, self._usual, self._listed = lexicon, usual, listed
        self._barred = frozenset[str]() if is_judged else UNTOUCHED
        self._table = {
            phrase[0]: [other[0] for other in paraphrases if len(other) == 1]
            for phrase, paraphrases in table.items()
            if len(phrase) == 1
        }

    def of(self, word: str, tag: str) -> tuple[Phrase, ...]:
        """Return the synonyms of a word in its form, one word each, in the order of the table.

        Args:
            word: lower case.
            tag: its Penn Treebank tag in the sentence.
        """
        kind = PARTS_OF_SPEECH.get(tag[:1])
        if kind is None or tag in ("RP", "NNP", "NNPS") or not word.isalpha() or not self._usual(word):
            return ()
        base = self._lexicon.inflect(word, BASE_TAGS[tag[0]])
        if base is None:
            return ()
        listed = () if base in self._barred else self._listed.get((base, kind), ())
        bases = (*(other for other in listed if other not in self._barred), *self._of_one_sense(word, base, kind))
        forms = (self._lexicon.inflect(other, tag) for other in bases)
        fitting = (form for form in forms if form is not None and form != word and self._usual(form))
        return tuple((form,) for form in dict.fromkeys(fitting))

    def _of_one_sense(self, word: str, base: str, kind: str) -> Iterator[str]:
        if _is_plain(word) and _is_plain(base):
            for other in self._table.get(base, ()):
                if _is_plain(other) and not _share_stem(base, other) and self._lexicon.same_sense(base, other, kind):
                    yield other


def fits_article(before: str, word: str, other: str) -> bool:
    """Return whether an article before a word is as right before another.

    Args:
        before: the word before both.
        word: what stood there.
        other: what shall.
    """
    return before not in ("a", "an") or (word[0] in "aeiou") == (other[0] in "aeiou")


def _is_plain(word: str) -> bool:
    return len(word) > 1 and word.isalpha() and word not in UNTOUCHED


def _share_stem(word: str, other: str) -> bool:
    shorter = min(len(word), len(other), _SAME_STEM)
    return word[:shorter] == other[:shorter]
