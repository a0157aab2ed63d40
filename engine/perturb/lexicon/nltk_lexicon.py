"""A lexicon of English: NLTK's data, inflections by lemminflect, and text restored for NLTK's tagger.

Source: the released code of Niu & Bansal 2018 uses NLTK's tagger, WordNet (Fellbaum 1998) and stop words, Pattern and
PPDB 2.0 (Pavlick et al. 2015).

Departures:
  * # Released: Pattern conjugates. Ours: lemminflect, because Pattern does not run on the Pythons of today; its first answer.
  * # Released: the small PPDB 2.0, what it marks as equivalent. Ours, unless a file is named (`opposites.py`): of the lexical
    pairs
    of PPDB 1.0 that NLTK distributes, those that share a sense in WordNet, without stop words; because that list is the largest
    one, without ranks, and replaces most words of a plain sentence by words of another meaning, language or kind.
  * # Released: names of several words stay, and no vocabulary holds them. Ours: they are left out.
  * # Released: the tagger reads lower-cased words. Ours: it reads them as newspapers write them (`newswire`).

Not here: how tags are computed (`tagger.py`), a lexicon for machines without these data (`built_in.py`).
NLTK's tagger was trained on edited text. It takes a lower-case "i" and "dont" for nouns, and reads the first word of a line
better behind a capital. Our tokens are lower-cased, so what the tagger reads is restored first:

    pronoun         i                        I
    contractions    dont                     do n't              also "gonna", "u" and other short forms
    beginnings      what should i use ?      What should I use ?
    names           she left canada          she left Canada

  * A word has its capital at the beginning of a sentence unless the tagger takes it for a name then ("Hi"). An auxiliary never
    has one, since newspapers ask few questions: "Did you" is two names to the tagger. A word alone is no sentence.
  * Names are those that WordNet knows as nothing else, and days, months, languages and peoples. Those of chat users stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from parley.engine.perturb.lexicon.opposites import Phrase, two_way, word_lists, word_set
from parley.engine.perturb.strategies.commands import EXTENSIONS
from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import split_lines
from parley.envs.corpora.pairs.tokens import tokenise

_LISTS = word_lists("help_channel")
_AUXILIARIES = word_set(_LISTS["auxiliaries"])
_SHORT_FORMS = _LISTS["short forms"]
SHORT_FORMS = {word: tuple(pieces) for word, *pieces in map(str.split, _SHORT_FORMS.strip().replace("\n", " | ").split("|"))}
"""One token of a chat, and the tokens of edited text that it stands for."""
_SHORT = frozenset(SHORT_FORMS)
CALENDAR_AND_PEOPLES = word_set(_LISTS["calendar and peoples"])
_ENDS = frozenset({".", "?", "!", "..."})


def expanded(words: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return an utterance without short forms.

    Args:
        words: of the utterance, lower case.

    Returns:
        The words of edited text, and where the first one of each given word stands.
    """
    pieces: list[str] = []
    firsts: list[int] = []
    for word in words:
        firsts.append(len(pieces))
        pieces += SHORT_FORMS.get(word, (word,))
    return pieces, firsts


class Restored(NamedTuple):
    """An utterance as newspapers write it.

    Args:
        words: its words.
        origins: where the first one of each given word stands; None where each stands for itself.
        plain: its words with no capital for the beginning of a sentence.
        beginnings: where the two differ.
    """

    words: Sequence[str]
    origins: Sequence[int] | None
    plain: Sequence[str]
    beginnings: Sequence[int]


class Newswire:
    """Restore utterances for a tagger.

    Args:
        is_name: whether a lower-case word is nothing but a name.
    """

    def __init__(self, is_name: Callable[[str], bool]) -> None:
        self._inside = _Inside(is_name)

    def restored(self, words: Sequence[str]) -> Restored:
        """Return an utterance as newspapers write it.

        Args:
            words: of the utterance, lower case.
        """
        origins = None
        if not _SHORT.isdisjoint(words):
            words, origins = expanded(words)
        plain = list(map(self._inside.__getitem__, words))
        if len(words) < 2:
            return Restored(plain, origins, plain, ())
        first = words[0]
        if first.isalnum() and _ENDS.isdisjoint(words[:-1]):
            # One sentence, as most utterances are.
            if first in _AUXILIARIES or not plain[0][0].islower():
                return Restored(plain, origins, plain, ())
            return Restored([_capitalised(plain[0]), *plain[1:]], origins, plain, (0,))
        beginnings = [index for index in _beginnings(words) if plain[index][0].islower()]
        cased = [*plain]
        for index in beginnings:
            cased[index] = _capitalised(plain[index])
        return Restored(cased, origins, plain, beginnings)


class _Inside(dict[str, str]):
    """Words as they are written within a sentence."""

    def __init__(self, is_name: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_name = is_name

    def __missing__(self, word: str) -> str:
        self[word] = _capitalised(word) if word == "i" or (word not in _AUXILIARIES and self._is_name(word)) else word
        return self[word]


def _capitalised(word: str) -> str:
    return word[:1].upper() + word[1:]


def _beginnings(words: Sequence[str]) -> list[int]:
    """Return where the first words of sentences stand; a full stop within a file's name ends none."""
    indices = []
    begins = True
    for index, word in enumerate(words):
        if begins and word[:1].isalnum():
            begins = False
            if word not in _AUXILIARIES and (not index or words[index - 1] != "." or word not in EXTENSIONS):
                indices.append(index)
        elif word in _ENDS:
            begins = True
    return indices


TAGGER = "taggers/averaged_perceptron_tagger_eng"
WORDNET = "corpora/wordnet"
STOPWORDS = "corpora/stopwords"
PARAPHRASES = "misc/mwa_ppdb"
FOLDERS = (TAGGER, WORDNET, STOPWORDS, PARAPHRASES)
"""The folders of NLTK's data; the last part of each is the package's name."""

_PARAPHRASE_FILE = "ppdb-1.0-xxxl-lexical.extended.synonyms.uniquepairs"
_FIX = "parley data get nltk, or --set perturb.lexicon=built-in for the small lexicon of this project"
_PARTS_OF_SPEECH = {"V": "VERB", "N": "NOUN", "J": "ADJ", "R": "ADV"}
_SLIPS = {"unmaked": "unmade", "overspended": "overspent"}
"""Made-up pasts in lemminflect's dictionary, of all that WordNet calls opposites of verbs."""
_USUAL = 2
"""How often WordNet's own texts hold a usual sense of a word."""
SELDOM = 5
"""Fewest times that these texts use a word as no name."""
_MAIN = 0.5
"""Share of a word's counted places that its main sense has at least."""
MISREAD = frozenset({"NNP", "NNPS", "PDT"})
"""Tags that a capital at the beginning of a sentence brings by mistake: "Hi" as a name, "Install the" as "All the"."""
_SHORTEST_NAME = 4
"""Letters of a name at least: shorter ones are words of chats as well ("tho")."""
_NUM_UTTERANCES = 1 << 16
_AT_ONCE = 512
_NUM_WORDS = 1 << 17


class NltkLexicon:
    """NLTK's tagger, WordNet, stop words and paraphrase pairs; each is loaded at its first use.

    Raises:
        DataError: the tagger, WordNet or the stop words are not among NLTK's data.
    """

    def __init__(self) -> None:
        for folder in (TAGGER, WORDNET, STOPWORDS):
            _find(folder)
        self._tags: dict[tuple[str, ...], list[str]] = {}
        self._antonyms = lru_cache(_NUM_WORDS)(self._antonyms_of)
        self._form = lru_cache(_NUM_WORDS)(_form)
        self._main_sense = lru_cache(_NUM_WORDS)(self._main_sense_of)

    def tag(self, words: Sequence[str]) -> list[str]:
        """Penn Treebank tags, those that `nltk.pos_tag` gives the words as newspapers write them (`newswire`)."""
        return [*self.tag_all([tuple(words)])[0]]

    def tag_all(self, utterances: Sequence[tuple[str, ...]]) -> list[list[str]]:
        """Return the tags of many utterances; equal utterances are tagged once and remembered."""
        memory = self._tags
        new = [words for words in dict.fromkeys(utterances) if words not in memory]
        if len(memory) + len(new) > _NUM_UTTERANCES:
            memory.clear()
            new = list(dict.fromkeys(utterances))
        # In parts, so that temporary objects are gone before Python's collector walks the whole lexicon.
        for start in range(0, len(new), _AT_ONCE):
            some = new[start : start + _AT_ONCE]
            memory.update(zip(some, self._tags_of(some), strict=True))
        return [memory[words] for words in utterances]

    def are_tags(self, utterances: Sequence[tuple[str, ...]], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether utterances have these tags; see `Lexicon`."""
        read = list(map(self.newswire.restored, utterances))
        expected = [
            word_tags if text.origins is None else _align_tags(text.origins, word_tags, len(text.words))
            for word_tags, text in zip(tags, read, strict=True)
        ]
        is_right = self._tagger.are_tags([text.words for text in read], expected)
        # A beginning may have been taken for a name, and then be read without its capital.
        again = [row for row, text in enumerate(read) if text.beginnings and not is_right[row]]
        plain = self._tagger.are_tags([read[row].plain for row in again], [expected[row] for row in again])
        possible = [row for row, is_plain_right in zip(again, plain, strict=True) if is_plain_right]
        for row, word_tags in zip(possible, self._tags_of([utterances[row] for row in possible]), strict=True):
            is_right[row] = word_tags == list(tags[row])
        return is_right

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        """Return the first opposite of every lemma of every sense, in WordNet's order."""
        return self._antonyms(word, part_of_speech)

    def opposites(self, word: str, part_of_speech: str) -> tuple[str, ...]:
        """Return the opposite of a base form's first sense, if WordNet counted both often enough in text."""
        for synset in self._first_sense(word, part_of_speech):
            for lemma in synset.lemmas():
                for other in lemma.antonyms()[:1]:
                    if lemma.name() == word and min(map(self._num_met, (lemma, other))) >= _USUAL and "_" not in other.name():
                        return (other.name().lower(),)
        return ()

    def same_sense(self, word: str, other: str, part_of_speech: str) -> bool:
        """Return whether WordNet's first sense of both is one, and is the sense of most places that its makers counted."""
        senses = self._main_sense(word, part_of_speech), self._main_sense(other, part_of_speech)
        return senses[0] is not None and senses[0] == senses[1]

    def synonyms(self, word: str, part_of_speech: str, *, every_sense: bool = False, names: bool = False) -> tuple[str, ...]:
        """Return the other words of a base form's synsets, in WordNet's order."""
        if part_of_speech == "n" and not names and self._is_name(word):
            return ()
        synsets = (self._wordnet.synsets if every_sense else self._first_sense)(word, part_of_speech)
        if names:
            lemmas = (name.lower() for synset in synsets for name in synset.lemma_names())
        else:
            plain = (synset for synset in synsets if not synset.instance_hypernyms())
            lemmas = (name for synset in plain for name in synset.lemma_names() if name.islower())
        return tuple(dict.fromkeys(name for name in lemmas if name != word and name.isalpha()))

    def inflect(self, word: str, tag: str) -> str | None:
        """Return the form of a word's base that has a tag; for unknown words only the base, by rule."""
        return self._form(word, tag)

    @cached_property
    def stopwords(self) -> frozenset[str]:
        """Return NLTK's stop words; contractions as the part behind the word and the listed parts ("n't", "'ve")."""
        from nltk.corpus import stopwords

        listed = frozenset(_guarded(STOPWORDS, lambda: stopwords.words("english")))
        return frozenset(_pieces(listed))

    @cached_property
    def paraphrases(self) -> Mapping[Phrase, tuple[Phrase, ...]]:
        """Return the pairs of words of PPDB 1.0 that share a sense, both ways.

        Raises:
            DataError: they are not among NLTK's data.
        """
        senses = _senses()
        for word in self.stopwords & senses.keys():
            del senses[word]
        sides = (line.split("\t") for line in _lines(PARAPHRASES, _PARAPHRASE_FILE))
        pairs = [(a, b) for a, b in sides if a in senses and b in senses and not senses[a].isdisjoint(senses[b])]
        return two_way((tuple(tokenise(left)), tuple(tokenise(right))) for left, right in pairs)

    @cached_property
    def _tagger(self) -> Any:
        return _tagger_at(str(_find(TAGGER)))

    def _tags_of(self, utterances: Sequence[Sequence[str]]) -> list[list[str]]:
        """Tag utterances as newspapers would write them."""
        read = list(map(self.newswire.restored, utterances))
        tags_of: list[list[str]] = self._tagger.tag([text.words for text in read])
        # A word that is a name only because of its capital is none.
        again = [
            row
            for row, (text, tags) in enumerate(zip(read, tags_of, strict=True))
            if not MISREAD.isdisjoint(map(tags.__getitem__, text.beginnings))
        ]
        for row, tags in zip(again, self._tagger.tag([read[row].plain for row in again]), strict=True):
            tags_of[row] = tags
        return [
            tags if text.origins is None else [tags[index] for index in text.origins]
            for text, tags in zip(read, tags_of, strict=True)
        ]

    @cached_property
    def newswire(self) -> Newswire:
        """Return an utterance as the tagger reads it."""
        return Newswire(self._only_names.__contains__)

    @cached_property
    def _only_names(self) -> frozenset[str]:
        """Return words that are names in each of their senses, with those of the calendar and of peoples."""
        senses = {word: count for word, count in self._named.items() if len(word) >= _SHORTEST_NAME and word.isalpha()}
        for kind in ("noun", "verb", "adj", "adv"):
            for line in _lines(WORDNET, f"index.{kind}"):
                word = line[: line.index(" ")]
                # A line has the number of the word's senses behind its part of speech.
                if word in senses and (kind != "noun" or int(line.split(" ", 3)[2]) > senses[word]):
                    del senses[word]
                # "Gates" may be several of them.
                senses.pop(f"{word}s", None)
        for line in _lines(WORDNET, "verb.exc"):
            senses.pop(line.partition(" ")[0], None)
        return frozenset(senses) | CALENDAR_AND_PEOPLES

    @cached_property
    def _wordnet(self) -> Any:
        from nltk.corpus.reader import CorpusReader, WordNetCorpusReader
        from nltk.corpus.util import LazyCorpusLoader

        class English(WordNetCorpusReader):
            def map_wn(self, version: str = "wordnet") -> None:
                """No map to other versions of WordNet: other languages need it, and it takes almost as long as all else."""

        wordnet = LazyCorpusLoader("wordnet", English, LazyCorpusLoader("omw-1.4", CorpusReader, ".*"))
        _guarded(WORDNET, wordnet.ensure_loaded)
        return wordnet

    def _first_sense(self, word: str, part_of_speech: str) -> list[Any]:
        """Return the first of WordNet's `synsets`, if there is one, without reading the rest."""
        base = self._wordnet.morphy(word, part_of_speech)
        return [] if base is None else [self._wordnet.synset(f"{base}.{part_of_speech}.01")]

    def _is_name(self, word: str) -> bool:
        """Return whether a noun is a name in WordNet, and seldom anything else in the texts that WordNet counted.

        Texts are in lower case, so that no tag tells a john from John.
        """
        if word not in self._named:
            return False
        synsets = (synset for synset in self._wordnet.synsets(word, pos="n") if not synset.instance_hypernyms())
        lemmas = (lemma for synset in synsets for lemma in synset.lemmas())
        return sum(self._num_met(lemma) for lemma in lemmas if lemma.name().lower() == word) < SELDOM

    @cached_property
    def _named(self) -> Counter[str]:
        """Count for each noun its senses that are instances, from the data file (wndb(5WN)).

        Asking for all senses of each word takes long.
        """
        synsets = (line.split(" ") for line in _lines(WORDNET, "data.noun") if " @i " in line)
        # The number of words is hexadecimal; another number stands behind each.
        return Counter(word.lower() for fields in synsets for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2])

    def _num_met(self, lemma: Any) -> int:
        return self._sense_counts.get(lemma.key(), 0)

    @cached_property
    def _sense_counts(self) -> Mapping[str, int]:
        fields = (line.split(" ") for line in _lines(WORDNET, "cntlist.rev"))
        return {key: int(count) for key, _, count in fields}

    def _main_sense_of(self, word: str, part_of_speech: str) -> str | None:
        """Return a word's first synset if it is its main sense; each sense's count is raised by a half."""
        counts: dict[str, float] = {}
        for synset in self._wordnet.synsets(word, pos=part_of_speech):
            same = (lemma for lemma in synset.lemmas() if lemma.name().lower() == word)
            counts.update((synset.name(), self._num_met(lemma) + 0.5) for lemma in same)
        first = next(iter(counts), None)
        return first if first is not None and counts[first] >= _MAIN * sum(counts.values()) else None

    def _antonyms_of(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        lemmas = (lemma for synset in self._wordnet.synsets(word, pos=part_of_speech) for lemma in synset.lemmas())
        opposites = (first.name().lower() for lemma in lemmas for first in lemma.antonyms()[:1])
        return tuple(dict.fromkeys(name for name in opposites if name != word and "_" not in name))


def missing_folders() -> list[str]:
    """Return those of `FOLDERS` that NLTK does not find."""
    return [folder for folder in FOLDERS if not _is_there(folder)]


def _is_there(folder: str) -> bool:
    try:
        _find(folder)
    except DataError:
        return False
    return True


@cache
def _tagger_at(folder: str) -> Any:
    """Return the tagger of NLTK's data in a folder, which a process reads once."""
    from nltk.tag import PerceptronTagger

    from parley.engine.perturb.lexicon.tagger import Tagger

    return Tagger(_guarded(TAGGER, PerceptronTagger))


def _find(folder: str, *names: str) -> Any:
    import nltk

    return _guarded(folder, lambda: nltk.data.find("/".join((folder, *names))))


def _guarded(folder: str, load: Callable[[], Any]) -> Any:
    import nltk

    try:
        return load()
    except (LookupError, OSError, ValueError) as error:
        missing = isinstance(error, LookupError)
        raise DataError(
            f"NLTK's data lack {folder}" if missing else f"NLTK cannot read its {folder}",
            where=", ".join(map(str, nltk.data.path)),
            got=None if missing else str(error).strip().partition("\n")[0],
            fix=_FIX,
        ) from None


def _align_tags(indices: Sequence[int], tags: Sequence[str], num: int) -> list[str | None]:
    """Tags at some places, none at the others."""
    spread: list[str | None] = [None] * num
    for index, tag in zip(indices, tags, strict=True):
        spread[index] = tag
    return spread


def _lines(folder: str, name: str) -> list[str]:
    with _find(folder, name).open() as file:
        return split_lines(file.read())


def _senses() -> dict[str, set[str]]:
    """WordNet's words and their synsets, from its index files (wndb(5WN)); quicker than to ask for each word."""
    senses: dict[str, set[str]] = {}
    for part_of_speech in ("noun", "verb", "adj", "adv"):
        for line in _lines(WORDNET, f"index.{part_of_speech}"):
            # The licence stands before the index, indented.
            if not line.startswith(" "):
                word, kind, num_synsets, *rest = line.split()
                senses.setdefault(word, set()).update(f"{kind}{offset}" for offset in rest[-int(num_synsets) :])
    return senses


def _form(word: str, tag: str) -> str | None:
    import lemminflect

    kind = _PARTS_OF_SPEECH.get(tag[0])
    if kind is None or not word.replace("-", "").isalpha():
        return None
    bases = lemminflect.getLemma(word, kind)
    forms = lemminflect.getInflection(bases[0], tag, inflect_oov=False) if bases else ()
    # The base of a word that is in no dictionary is the word without its ending; other forms would be made up ("unmaked").
    if bases and not forms and tag in ("VB", "NN"):
        forms = bases
    # The base of "s" is empty there.
    return _SLIPS.get(forms[0].lower(), forms[0].lower()) if forms and forms[0] else None


def _pieces(listed: frozenset[str]) -> Iterable[str]:
    for word in listed:
        first, *rest = tokenise(word)
        yield from rest
        # "wo" and "sha" are no words of their own, "could" is one that NLTK does not list.
        if not rest or first in listed or first in ("wo", "sha"):
            yield first
