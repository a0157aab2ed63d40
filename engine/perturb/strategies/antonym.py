"""Antonym: one word of an utterance by its opposite.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 3.1: the first word that has an opposite in the vocabulary changes to
one of its opposites, drawn uniformly; forms of "be" never do.

WordNet has no opposite of "install", so that the paper's first example cannot come from it, and those of any sense at hand are
mostly nonsense in a chat ("know" by "ignore", "sorry" by "unregretful").

Departures:
  * # Paper: verbs, adjectives and adverbs. Released: nouns too, modals as verbs, and words of all other parts of speech,
    whatever that of the opposite is ("on" by "off"). Ours: as `rule` says.
  * # Paper: silent. Released: the opposites of all senses of a word in WordNet. Ours: those of a table of our own for the sense
    that a word mostly has (`engine/perturb/lexicon/opposites.py`), then WordNet's of the first sense, where WordNet's own texts
    hold both and both are usual words of the corpus; under rule "released", as released.
  * # Paper: silent. Released: any place. Ours: none within a fixed phrase ("hard disk"), and where a word has the sense only
    behind "be", before a noun, behind a person or before an object, there alone (`fits`); and none where the corpus' trigrams,
    if there is one, find the words around it too odd.
  * # Paper: silent. Released: WordNet's base form stands for whatever form the word had ("opens" by "close"). Ours: the form of
    the word ("closes"), no opposite whose form is unknown, and the article and preposition that fit it (`agreeing`), because a
    wrong ending would be a second change; under rule "released", as released.
  * # Released: joins the words to a string that its caller joins again, letter by letter. Ours: words.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import lru_cache

import numpy as np

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.opposites import (
    ATTRIBUTIVE,
    NOT_BEFORE,
    NOT_BEHIND,
    OF_OBJECTS,
    OF_PERSONS,
    OPPOSITES,
    PREDICATIVE,
    Lexicon,
    word_lists,
    word_set,
)
from parley.engine.perturb.lexicon.tagger import NGrams, window
from parley.engine.perturb.strategies.commands import COMMANDS
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.texts import Edits, FlatContexts
from parley.engine.perturb.strategy import ByEdits, Expectation, PerturbSettings, Rule
from parley.envs.corpora.pairs.turns import Utterance

BE = frozenset({"be", "am", "is", "are", "was", "were", "been"})
_PAPER = {"VB": "v", "JJ": "a", "RB": "r"}
"""Parts of speech that are changed, by the beginnings of their tags."""
_BASE_FORMS = ("VB", "VBP")
_RELEASED = {**_PAPER, "NN": "n", "MD": "v", "WR": "r"}
_IS = BE | {"'s", "'m", "'re", "being", "looks", "seems", "becomes", "became", "get", "gets", "stays"}
_PASSED_OVER = word_set(word_lists("opposites")["between"])
"""Words between a form of "be" and what it says of its subject."""
_PERSONS = frozenset({"i", "we", "you", "they", "he", "she", "people"})
_OBJECTS = frozenset({"DT", "PRP", "PRP$"})
_PREPOSITIONS = {
    ("connect", "to"): "from",
    ("disconnect", "from"): "to",
    ("add", "to"): "from",
    ("remove", "from"): "to",
    ("attach", "to"): "from",
    ("detach", "from"): "to",
    ("download", "from"): "to",
    ("upload", "to"): "from",
    ("insert", "into"): "from",
}
"""Prepositions that change with their verb: "add it to" by "remove it from"."""
_REACH = 6
_NEAR = 4
_PARTICLES = frozenset({"up", "down", "off", "out", "over", "away", "around"})
"""Behind a verb these make another verb of it."""
_ENDS = frozenset({".", "?", "!", ";", ":", "...", ",", "(", ")", "and", "but", "or", "so"})
_NO_NOUNS = frozenset({"i", "ok", "please", "thanks", "thx", "lol"})
"""Words that taggers take for nouns in a chat."""
_BEFORE_THE_SAME = frozenset({"almost", "at", "all", "exactly", "much", "just", "about", "by", "in", "and"})
_EXCLAIMED = frozenset({"better", "best", "nice", "good", "great", "odd", "strange", "weird", "bad", "cool"})
"""Adjectives that are exclamations at the beginning of an utterance."""
_JOINING = frozenset({"and", "or", ",", "/"})
_TAKEN_UP = frozenset(["open", "opens", "opened", "opening", "install", "installs", "installed", "installing"])
_NEGATIONS = frozenset({"n't", "not", "no", "cannot", "dont", "doesnt"})
_GOING = frozenset({"go", "goes", "going", "gone", "went", "back", "come", "came", "way"})
"""Words behind which "to work" is a place."""
_COMPARING = frozenset({"as", "like", "that"})
_OF_PLACES = frozenset({"terminal", "console", "shell", "from", "editor", "session"})
"""Words behind which "close" or "remove" would be no opposite of "open" or "install", or no step that leads on."""
_NUM_WORDS = 1 << 17
NUM_USUAL = 10_000
"""The most frequent words of a corpus are its usual ones."""
Edit = tuple[int, int, Utterance]


class Antonym(ByEdits):
    """The first word that has an opposite gets one.

    Args:
        lexicon: tags words, knows opposites and inflects them.
        may_enter: whether a model knows all of some words.
        rule: the paper's or the released one.
        usual: words of the corpus; WordNet's pairs are taken from these. None for all.
        fluency: trigrams of the corpus, and how many times as perplexing the words around an opposite may become.
    """

    name = "antonym"
    expectation = Expectation.SHOULD_CHANGE

    def __init__(
        self,
        lexicon: Lexicon,
        may_enter: Callable[[Sequence[str]], bool],
        rule: Rule = "paper",
        usual: Container[str] | None = None,
        fluency: tuple[NGrams, float] | None = None,
    ) -> None:
        self.lexicon, self.may_enter, self.rule, self.usual, self.fluency = lexicon, may_enter, rule, usual, fluency
        self._opposites = lru_cache(_NUM_WORDS)(self._released_of if rule == "released" else self._opposites_of)

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        draws = uniforms(seeds, self.name, np.diff(flat.turn_edges[flat.shape_edges])).tolist()
        edits_in = self._by_release if self.rule == "released" else self._by_paper
        possible = list(map(list, map(edits_in, flat.utterances, self.lexicon.tag_all(flat.utterances), draws)))
        if self.fluency is not None:
            possible = self._fluent(flat.utterances, possible)
        return flat.edits_of(next(iter(edits), None) for edits in possible)

    def _fluent(self, utterances: Sequence[Utterance], possible: Sequence[Sequence[Edit]]) -> list[list[Edit]]:
        """Return the edits after which an utterance is about as likely as before."""
        assert self.fluency is not None, "fluency needs a corpus"
        language, most = self.fluency
        rows = [(words, edit) for words, edits in zip(utterances, possible, strict=True) for edit in edits]
        after = [window(words, start, end, replacement) for words, (start, end, replacement) in rows]
        before = [window(words, start, end, words[start:end]) for words, (start, end, _) in rows]
        ratios = iter(language.ratios(after, before).tolist())
        return [[edit for edit in edits if next(ratios) <= most] for edits in possible]

    def _by_release(self, words: Utterance, tags: Sequence[str], draw: float) -> Iterator[Edit]:
        for position, opposites in enumerate(map(self._opposites, words, tags)):
            if opposites:
                yield position, position + 1, (opposites[int(draw * len(opposites))],)
                return

    def _by_paper(self, words: Utterance, tags: Sequence[str], draw: float) -> Iterator[Edit]:
        for position, opposites in enumerate(map(self._opposites, words, tags)):
            if not opposites or not fits(words, tags, position):
                continue
            other = opposites[int(draw * len(opposites))]
            edit = agreeing(words, tags, position, other, self.lexicon.inflect)
            if edit[1] > position + 1 and self.lexicon.inflect(other, "VB") == "install":
                # "Removed from the list" is added to it.
                continue
            if not is_near(words, position, other) and self.may_enter([new for new in edit[2] if new not in words]):
                yield edit
                if self.fluency is None:
                    return

    def _released_of(self, word: str, tag: str) -> tuple[str, ...]:
        antonyms = () if word in BE else self.lexicon.antonyms(word, _RELEASED.get(tag[:2]))
        return tuple(other for other in antonyms if self.may_enter((other,)))

    def _opposites_of(self, word: str, tag: str) -> tuple[str, ...]:
        """Return the opposites that may replace a word, in a fixed order."""
        kind = _PAPER.get(tag[:2])
        if kind is None or word in BE or not word.isalpha():
            return ()
        base = word if kind != "v" else self.lexicon.inflect(word, "VB")
        if base is None or (kind == "v" and self.lexicon.inflect(word, tag) != word):
            return ()
        listed = OPPOSITES.get((base, kind))
        if listed is None:
            opposites = self.lexicon.opposites(base, kind)
            listed = opposites if self.usual is None or all(map(self.usual.__contains__, (word, *opposites))) else ()
        forms = listed if kind != "v" or tag in _BASE_FORMS else [self.lexicon.inflect(other, tag) for other in listed]
        entering = (form for form in forms if form is not None and form != word and self.may_enter((form,)))
        return tuple(dict.fromkeys(entering))


def fits(words: Sequence[str], tags: Sequence[str], position: int) -> bool:
    """Return whether a word has the sense of its opposite here, outside a fixed phrase."""
    word = words[position]
    before = words[position - 1] if position else ""
    behind, tag = (words[position + 1], tags[position + 1]) if position + 1 < len(words) else ("", "")
    if before in NOT_BEHIND.get(word, ()) or behind in NOT_BEFORE.get(word, ()):
        return False
    if word == "like" and before in _PERSONS and position > 1 and words[position - 2] == "would":
        return False
    if behind == "-" or before == "-" or before in COMMANDS:
        return False
    if (not before and (word in _EXCLAIMED or (tags[position][:2] != "VB" and tag[:2] == "VB"))) or before == "n't":
        return False
    if _is_joined(words, tags, position):
        return False
    if tags[position][:2] == "VB" and not _OF_PLACES.isdisjoint(words[position + 1 : position + _NEAR]) and word in _TAKEN_UP:
        return False
    if tags[position][:2] == "VB" and behind in _PARTICLES:
        return False
    if word == "same" and not _COMPARING.isdisjoint(words[position : position + _NEAR]):
        return False
    if word == "same":
        return before == "the" and tag[:2] == "NN" and (position < 2 or words[position - 2] not in _BEFORE_THE_SAME)
    if word in PREDICATIVE and tags[position][:2] != "VB":
        back = position - 1
        while back >= 0 and words[back] in _PASSED_OVER:
            back -= 1
        return back >= 0 and words[back] in _IS and tag[:2] != "NN"
    if word in ATTRIBUTIVE:
        return tag[:2] == "NN" and behind.isalpha() and behind not in _NO_NOUNS
    if word in OF_PERSONS:
        return before in _PERSONS and behind.isalpha()
    if word == "work" and before == "to" and position > 1 and words[position - 2] in _GOING:
        return False
    if word in ("always", "never") and not _NEGATIONS.isdisjoint(words[max(position - _NEAR, 0) : position]):
        return False
    if word == "different":
        return "than" not in words[position : position + _NEAR]
    return word not in OF_OBJECTS or tag in _OBJECTS


def _is_joined(words: Sequence[str], tags: Sequence[str], position: int) -> bool:
    """Return whether an adjective is joined with another of the same thing, which its opposite would contradict."""
    both = ((position - 1, position - 2), (position + 1, position + 2))
    inside = (pair for pair in both if min(pair) >= 0 and max(pair) < len(words))
    return tags[position][:2] == "JJ" and any(words[mark] in _JOINING and tags[other][:2] == "JJ" for mark, other in inside)


def is_near(words: Sequence[str], position: int, other: str) -> bool:
    """Return whether the opposite stands near the word already, as in "enable or disable"."""
    return other in words[max(position - _NEAR, 0) : position + _NEAR]


def agreeing(
    words: Sequence[str], tags: Sequence[str], position: int, other: str, inflect: Callable[[str, str], str | None]
) -> Edit:
    """Return the edit of a word, with the article and the preposition that fit its replacement.

    Args:
        words: of an utterance.
        tags: theirs.
        position: of the word.
        other: the word that replaces it.
        inflect: see `Lexicon`.
    """
    start, end, replacement = position, position + 1, [other]
    before = words[position - 1] if position else ""
    if other == "different" and words[position] == "same":
        return position - 1, end, ("different",) if tags[position + 1].endswith("S") else ("a", "different")
    if other == "same":
        return (position - 1 if before in ("a", "the") else position), end, ("the", "same")
    if before in ("a", "an"):
        article = "an" if other[0] in "aeiou" and not other.startswith(("us", "uni")) else "a"
        if article != before:
            start, replacement = position - 1, [article, other]
    if tags[position][:2] == "VB":
        base = inflect(words[position], "VB") or words[position]
        for ahead in range(position + 1, min(position + 1 + _REACH, len(words))):
            if words[ahead] in _ENDS:
                break
            preposition = _PREPOSITIONS.get((base, words[ahead]))
            if preposition is not None:
                end, replacement = ahead + 1, [*replacement, *words[position + 1 : ahead], preposition]
                break
    return start, end, tuple(replacement)


def build(settings: PerturbSettings, resources: Resources) -> Antonym:
    """Build the strategy from the settings."""
    usual = frozenset(resources.common[:NUM_USUAL]) if resources.common else None
    fluency = None
    if resources.language is not None and settings.rule == "paper":
        fluency = resources.language, settings.antonym_ratio
    return Antonym(resources.lexicon, resources.may_enter, settings.rule, usual, fluency)
