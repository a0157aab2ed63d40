"""Perturbations in the ordinary style, as augmentation libraries have them.

One utterance after the other, NLTK's tagger for each, WordNet and inflection for each word, a draw where one is needed.
Nothing is remembered and nothing is done at once. The rules are those of `engine/perturb` (rule "paper"), and draws are asked
for in the same order, so that the same draws give the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from parley.engine.perturb.lexicon.nltk_lexicon import MISREAD, NltkLexicon
from parley.engine.perturb.lexicon.opposites import OPPOSITES, Lexicon
from parley.engine.perturb.strategies.antonym import BE, NUM_USUAL, agreeing, fits, is_near
from parley.engine.perturb.strategies.clauses import negated
from parley.engine.perturb.strategies.commands import COMMANDS, SIGNS
from parley.engine.perturb.strategies.stopwords import CLAUSE_MARKS, HELD, PARTICLES, STRANDED, TAKE_PARTICLES
from parley.engine.perturb.strategies.swap import AUXILIARIES, SMILEYS

Words = list[str]
Draw = Callable[[], float]
Phrase = tuple[str, ...]
_MARKS = [*"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "..."]
_STOPS = [*_MARKS, *SMILEYS]
_LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789"]
_CLITICS = ["n't", "'s", "'m", "'d", "'re", "'ve", "'ll"]
_TAKE_NOT = [*AUXILIARIES, *_CLITICS]
_KINDS = {"V": "VERB", "N": "NOUN", "J": "ADJ", "R": "ADV"}


class Knowledge(Protocol):
    """The knowledge of English that the loops need."""

    def tag(self, words: Words) -> list[str]:
        """Tag the words of an utterance."""

    def opposites(self, word: str, part_of_speech: str) -> Sequence[str]:
        """Return the opposite of a word's first sense, as a list of one or none."""

    def inflect(self, word: str, tag: str) -> str | None:
        """Inflect the base of a word to a tag; None if there is no such form."""


class PlainNltk:
    """NLTK and lemminflect as their manuals show them."""

    def __init__(self) -> None:
        import lemminflect
        import nltk
        from nltk.corpus import wordnet

        self._nltk, self._wordnet, self._lemminflect = nltk, wordnet, lemminflect
        self._restored = NltkLexicon().newswire.restored

    def tag(self, words: Words) -> list[str]:
        """Tag the words of an utterance."""
        read = self._restored(words)
        tags = [tag for _, tag in self._nltk.pos_tag(read.words)]
        if any(tags[index] in MISREAD for index in read.beginnings):
            tags = [tag for _, tag in self._nltk.pos_tag(read.plain)]
        return tags if read.origins is None else [tags[index] for index in read.origins]

    def opposites(self, word: str, part_of_speech: str) -> Sequence[str]:
        """Return the opposite of a word's first sense, as a list of one or none."""
        for synset in self._wordnet.synsets(word, pos=part_of_speech)[:1]:
            for lemma in synset.lemmas():
                for other in lemma.antonyms()[:1]:
                    if lemma.name() == word and min(lemma.count(), other.count()) >= 2 and "_" not in other.name():
                        return [other.name().lower()]
        return []

    def inflect(self, word: str, tag: str) -> str | None:
        """Inflect the base of a word to a tag; None if there is no such form."""
        kind = _KINDS.get(tag[0])
        if kind is None or not word.replace("-", "").isalpha():
            return None
        bases = self._lemminflect.getLemma(word, kind)
        forms = self._lemminflect.getInflection(bases[0], tag, inflect_oov=tag in ("VB", "NN")) if bases else ()
        if not forms:
            return None
        form: str = forms[0].lower()
        return {"unmaked": "unmade", "overspended": "overspent"}.get(form, form)


class PlainBuiltIn:
    """The project's own lexicon, for where NLTK's data are not; then only the loops are compared."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.tag, self.opposites, self.inflect = lexicon.tag, lexicon.opposites, lexicon.inflect


@dataclass(frozen=True)
class PlainLoops:
    """The strategies.

    Args:
        knowledge: of English.
        vocabulary: words that may enter.
        common: words of random inputs.
        dropped: stop words that may go.
        paraphrases: of phrases.
        entities: and their categories.
    """

    knowledge: Knowledge
    vocabulary: Collection[str]
    common: Sequence[str]
    dropped: Collection[str]
    paraphrases: Mapping[Phrase, Sequence[Phrase]]
    entities: Mapping[Phrase, Sequence[str]]

    @cached_property
    def usual(self) -> Collection[str]:
        """Return the words whose opposites are looked up in WordNet."""
        return frozenset(self.common[:NUM_USUAL])

    def named(self, name: str) -> Callable[[Words, Draw], Words]:
        """Return the loop that stands for a registered strategy."""
        loops: dict[str, Callable[[Words, Draw], Words]] = {
            "random-swap": self.swap,
            "stopword-dropout": self.drop,
            "data-paraphrase": self.paraphrase,
            "add-negation": self.negate,
            "antonym": self.oppose,
            "random-inputs": self.randomise,
            "random-inputs-kept-entities": self.randomise_others,
            "confusing-entity": self.confuse,
        }
        return loops[name]

    def swap(self, words: Words, draw: Draw) -> Words:
        """Swap neighbouring words: Random Swap."""
        units, starts = _units(words)
        is_fixed = _held(words)
        stays = []
        for unit, i in zip(units, starts, strict=True):
            is_answer = unit[0] in ("no", "without") and (i == 0 or words[i - 1] in _STOPS)
            stays.append(is_answer or unit[0] in _STOPS or any(is_fixed[i : i + len(unit)]))
        pool = [(draw(), i) for i in range(len(units) - 1) if not stays[i] and not stays[i + 1]]
        left = len([unit for unit in units if unit[0] not in _STOPS]) // 4
        pool.sort()
        moved: list[int] = []
        for _, i in pool:
            if left == 0:
                break
            if i not in moved and i + 1 not in moved:
                units[i], units[i + 1] = units[i + 1], units[i]
                moved += [i, i + 1]
                left -= 1
        return [word for unit in units for word in unit]

    def drop(self, words: Words, draw: Draw) -> Words:
        """Drop stopwords of a turn of one utterance: Stopword Dropout."""
        is_fixed = _held(words)
        places = []
        for i, word in enumerate(words):
            if word not in self.dropped or is_fixed[i]:
                continue
            behind = words[i + 1] if i + 1 < len(words) else "."
            if behind in _CLITICS or behind in HELD.get(word, ()) or (word in STRANDED and behind in CLAUSE_MARKS):
                continue
            if word in PARTICLES and i > 0 and words[i - 1] in TAKE_PARTICLES:
                continue
            places.append(i)
        if len(places) == len(words):
            return words
        if len(places) > 8:
            keyed = [(draw(), i) for i in places]
            keyed.sort()
            places = [i for _, i in keyed[:8]]
        return [word for i, word in enumerate(words) if i not in places]

    def paraphrase(self, words: Words, draw: Draw) -> Words:
        """Replace phrases by paraphrases: Data-level Paraphrase."""
        draws = [(draw(), draw()) for _ in words]
        result, free = list(words), len(words)
        for i in range(len(words) - 1, -1, -1):
            for j in range(free, i, -1):
                phrases = self.paraphrases.get(tuple(words[i:j]))
                if phrases is None or any(word not in self.vocabulary for word in words[i:j]):
                    continue
                phrases = [other for other in phrases if all(word in self.vocabulary for word in other)]
                if phrases:
                    result[i:j] = phrases[int(draws[i][1] * len(phrases))]
                    free = i
                    break
        return result

    def negate(self, words: Words, draw: Draw) -> Words:
        """Add Negation."""
        negation = negated(words, self.knowledge.tag(words), lambda word: self.knowledge.inflect(word, "VB"))
        if negation is None:
            return words
        start, end, negated_words = negation
        if "n't" not in self.vocabulary:
            negated_words = tuple({"n't": "not", "ca": "can", "wo": "will"}.get(other, other) for other in negated_words)
        if any(other not in self.vocabulary and other not in words[start:end] for other in negated_words):
            return words
        return [*words[:start], *negated_words, *words[end:]]

    def oppose(self, words: Words, draw: Draw) -> Words:
        """Replace a word by its opposite: Antonym."""
        share = draw()
        tags = self.knowledge.tag(words)
        for i, (word, tag) in enumerate(zip(words, tags, strict=True)):
            kind = {"VB": "v", "JJ": "a", "RB": "r"}.get(tag[:2])
            if kind is None or word in BE or not word.isalpha():
                continue
            base = self.knowledge.inflect(word, "VB") if kind == "v" else word
            if base is None or (kind == "v" and self.knowledge.inflect(word, tag) != word):
                continue
            opposites_of: Sequence[str] = OPPOSITES.get((base, kind), ())
            if (base, kind) not in OPPOSITES:
                opposites_of = self.knowledge.opposites(base, kind)
                opposites_of = opposites_of if all(form_of in self.usual for form_of in (word, *opposites_of)) else ()
            opposites: list[str] = []
            for other in opposites_of:
                form = self.knowledge.inflect(other, tag) if tag in ("VBD", "VBG", "VBN", "VBZ") else other
                if form is not None and form != word and form in self.vocabulary and form not in opposites:
                    opposites.append(form)
            if not opposites or not fits(words, tags, i):
                continue
            other = opposites[int(share * len(opposites))]
            start, end, new_words = agreeing(words, tags, i, other, self.knowledge.inflect)
            if not is_near(words, i, other) and all(
                agreeing_word in self.vocabulary or agreeing_word in words for agreeing_word in new_words
            ):
                return [*words[:start], *new_words, *words[end:]]
        return words

    def randomise(self, words: Words, draw: Draw) -> Words:
        """Replace all words by random ones: random inputs."""
        return [self.common[int(draw() * len(self.common))] for _ in words]

    def randomise_others(self, words: Words, draw: Draw) -> Words:
        """Replace all words but those of entities: random inputs with kept entities."""
        result = self.randomise(words, draw)
        for i, j in self._mentions(words):
            result[i:j] = words[i:j]
        return result

    def confuse(self, words: Words, draw: Draw) -> Words:
        """Replace an entity by another of its category: confusing entity."""
        result: Words = []
        done = 0
        for i, j in self._mentions(words):
            mention = tuple(words[i:j])
            phrases: list[Phrase] = []
            for category in self.entities[mention]:
                for entity, categories in self.entities.items():
                    if category in categories and entity != mention and entity not in phrases:
                        phrases.append(entity)
            if phrases:
                result += words[done:i]
                result += phrases[int(draw() * len(phrases))]
                done = j
        return result + words[done:]

    def _mentions(self, words: Words) -> list[tuple[int, int]]:
        longest = max(map(len, self.entities))
        changed = []
        i = 0
        while i < len(words):
            for j in range(min(i + longest, len(words)), i, -1):
                if tuple(words[i:j]) in self.entities:
                    changed.append((i, j))
                    i = j
                    break
            else:
                i += 1
        return changed


def _units(words: Words) -> tuple[list[Words], list[int]]:
    """Return the units of an utterance, each a word with its clitics or negation, and their first positions."""
    units: list[Words] = []
    starts: list[int] = []
    for i, word in enumerate(words):
        before = words[i - 1] if i > 0 else "."
        opens = before in _STOPS
        joins = word in _CLITICS or (word == "not" and before in _TAKE_NOT)
        if before in ("no", "without"):
            joins = joins or not (i == 1 or words[i - 2] in _STOPS)
        elif before == "not" and not (i > 1 and words[i - 2] in _TAKE_NOT):
            joins = True
        if joins and not opens and word not in _STOPS:
            units[-1].append(word)
        else:
            units.append([word])
            starts.append(i)
    return units, starts


def _held(words: Words) -> list[bool]:
    """Return for each word whether it belongs to a command, a flag or a smiley."""
    is_fixed = [word in SIGNS or word in COMMANDS for word in words]
    for i, word in enumerate(words):
        if word in SIGNS:
            for j in (i - 1, i + 1):
                if 0 <= j < len(words):
                    is_fixed[j] = True
        elif word in COMMANDS:
            for j in range(i + 1, min(i + 3, len(words))):
                is_fixed[j] = True
        elif word in (":", ";") and i + 1 < len(words) and words[i + 1] in _LETTERS:
            is_fixed[i + 1] = True
    return is_fixed
