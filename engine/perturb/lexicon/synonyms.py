"""Single words that may stand for a word in a sentence: same part of speech, same form, same sense.

Source: Niu & Bansal 2018, section 3.1, name the small PPDB 2.0 and say that the validity of a paraphrase depends on its
context.

A table knows pairs of words in any sense. Of those, a word's synonyms in a sentence are the ones

- whose sense in use is the word's: the first sense of both in WordNet, for the word's part of speech there, where it is also
  the sense in most of the texts that WordNet's makers counted (`Lexicon.same_sense`);
- in the form that the word has there ("bought" by "purchased", never "purchase"), which is not a form of the same base;
- that keep "a" and "an" before them right;
- that are usual: both words occur in the corpus a few times where one is at hand;
- of which neither is a name of a command or a word that grammar hangs on (`phrasings.UNTOUCHED`).

Pairs that this project lists by part of speech (`phrasings.synonyms`) are of one sense; of them the first and the last is not
asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from parley.engine.perturb.lexicon.lexicon import Lexicon
from parley.engine.perturb.lexicon.phrasings import UNTOUCHED
from parley.engine.perturb.lexicon.ppdb import Phrase

BASE_TAGS = {"V": "VB", "N": "NN", "J": "JJ", "R": "RB"}
"""The tag of a word's base form, by the first letter of its own."""
PARTS_OF_SPEECH = {"V": "v", "N": "n", "J": "a", "R": "r"}
_SAME_STEM = 4
"""Words that share so many first letters are taken for forms of one ("reply", "replying")."""


class Synonyms:
    """What may stand for a word.

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
            phrase[0]: [other[0] for other in others if len(other) == 1] for phrase, others in table.items() if len(phrase) == 1
        }

    def of(self, word: str, tag: str) -> tuple[Phrase, ...]:
        """Forms of synonyms, one word each, in the order of the table.

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
        others = (*(other for other in listed if other not in self._barred), *self._of_one_sense(word, base, kind))
        forms = (self._lexicon.inflect(other, tag) for other in others)
        fitting = (form for form in forms if form is not None and form != word and self._usual(form))
        return tuple((form,) for form in dict.fromkeys(fitting))

    def _of_one_sense(self, word: str, base: str, kind: str) -> Iterator[str]:
        if _is_plain(word) and _is_plain(base):
            for other in self._table.get(base, ()):
                if _is_plain(other) and not _one_stem(base, other) and self._lexicon.same_sense(base, other, kind):
                    yield other


def fits_article(before: str, word: str, other: str) -> bool:
    """Whether an article before a word is as right before another.

    Args:
        before: the word before both.
        word: what stood there.
        other: what shall.
    """
    return before not in ("a", "an") or (word[0] in "aeiou") == (other[0] in "aeiou")


def _is_plain(word: str) -> bool:
    return len(word) > 1 and word.isalpha() and word not in UNTOUCHED


def _one_stem(word: str, other: str) -> bool:
    shorter = min(len(word), len(other), _SAME_STEM)
    return word[:shorter] == other[:shorter]
