"""Stopword Dropout: stop words are left out.

Source: Niu & Bansal 2018, section 3.1.

- Paper: stop words are dropped at random, at most eight of a turn; verbs are none of them. How many of eight is not said.
  Ours (rule "paper"): as many as there are, at most `max_dropped` of a turn; when there are more, those that are drawn. An
  utterance of nothing but chosen stop words stays whole, because the paper drops words from utterances and not utterances.
  Words with a meaning stay as well: words whose loss reverses the meaning ("no", "than", "only", "or"), that point or
  count ("this", "there", "all"), particles ("log in", "turn on"), what a contraction hangs on ("where 's"), and what belongs to
  a command or a flag (`commands.py`). Words that go are articles, most prepositions, "and", "but", "so", "very" and their like.
- Released: every stop word of NLTK's list is dropped, verbs too, but for 44 that are kept: pronouns, question words and
  "not". An utterance may end up empty. Ours (rule "released"): the same. Those 44 are kept under the paper's rule as well.
- Released: contractions are whole tokens. Ours: our tokeniser cuts them. The 44 hold those of pronouns ("you're"), so their
  second halves ("'re") stay under both rules. Those with "n't" go in the released code, so there both halves go; in the
  paper's examples they stay, being verbs, so there both stay.

Signs of broken English that need no parser: counted before and after an edit, they tell what the edit broke.

A sign is no proof. "He did n't do it" is fine, and no rule here counts it; "that that" is fine at times, and none counts it
either. Errors of the recorded text count on both sides, so only a rise comes from an edit. Words are as the project's
tokeniser cuts them ("do n't"), tags are Penn Treebank's.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import pairwise

import numpy as np

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.opposites import word_lists, word_set
from parley.engine.perturb.strategies.commands import in_commands
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.texts import Edits, FlatContexts, running
from parley.engine.perturb.strategy import ByEdits, Expectation, PerturbSettings
from parley.envs.corpora.pairs.turns import CLITICS

DOUBLED_AUXILIARIES, DOUBLE_NEGATIONS, ARTICLES = "doubled_auxiliaries", "double_negations", "articles"
DOUBLED_WORDS, UNKNOWN_WORDS = "doubled_words", "unknown_words"
SIGNALS = {
    DOUBLED_AUXILIARIES: 'a second auxiliary where there is no room for one ("did n\'t do you test", "can will")',
    DOUBLE_NEGATIONS: 'two negations in a clause ("wo n\'t not help")',
    ARTICLES: '"a" before a vowel or "an" before a consonant',
    DOUBLED_WORDS: "one word twice in a row",
    UNKNOWN_WORDS: "words outside of the corpus' vocabulary",
}
"""The counted signs, by name."""

_NOT = ("n't", "not")
_DO, _HAVE, _BE = ("do", "does", "did"), ("have", "has", "had"), ("am", "is", "are", "was", "were")
_MODALS = ("can", "could", "will", "would", "shall", "should", "may", "might", "must", "ca", "wo", "sha")
_SUBJECTS, _OBJECTS = ("i", "he", "she", "we", "they", "there"), ("you", "it", "this", "that")
"""Pronouns that are only subjects, and those that may be objects too."""
_NEVER_AFTER_MODALS = (*_BE, "does", "did", "has", "had")
_NEVER_AFTER_NEGATED = {
    **dict.fromkeys(_DO, (*_BE, *_MODALS, "does", "did", "has", "had", "been")),
    **dict.fromkeys(_HAVE, (*_DO, *_MODALS, "have", "has")),
    **dict.fromkeys(_BE, (*_DO, *_MODALS, *_BE, "have", "has")),
}
"""Words that cannot follow a negated auxiliary, by that auxiliary."""
_NEGATIONS = (*_NOT, "never", "cannot", "nothing", "nobody", "none", "nowhere")
_CLAUSES = (
    *("and", "but", "or", "because", "if", "so", "that", "which", "when", "while", "unless", "until", "since", "though"),
    *("although", "then", "as", "who", "what", "why", "how", "where"),
)
"""Words that begin a clause."""
_WORD = re.compile(r"n't|'?\w[\w'-]*")
_RIGHTLY_DOUBLED = ("had", "that")
_VOWEL = re.compile(r"[aei]|o(?!ne|nce|uija)|un(?!i|anim)|u[gpt]|hour|honest|heir")
_NO_VOWEL = re.compile(r"eu|ewe|[bcdfgjklmnpqrstvwz]|h(?!our|onest|onor|onour|eir|istor)|uni(?!n|m)|use|usu")
_SPELLED_OUT = re.compile(r"[^aeiouy]+|.|x.*")
"""Words that may be read letter by letter, so that their first sound is not that of the first letter: "an ssh key"."""


def signals(words: Sequence[str], tags: Sequence[str], vocabulary: Container[str]) -> dict[str, int]:
    """Count each sign of broken English in an utterance, by its name in `SIGNALS`."""
    return {
        DOUBLED_AUXILIARIES: sum(_is_doubled(words, tags, position) for position in range(len(words))),
        DOUBLE_NEGATIONS: _double_negations(words),
        ARTICLES: sum(_disagree(article, word) for article, word in pairwise(words)),
        DOUBLED_WORDS: sum(
            word == following and word.isalpha() and word not in _RIGHTLY_DOUBLED for word, following in pairwise(words)
        ),
        UNKNOWN_WORDS: sum(word not in vocabulary for word in words),
    }


def _is_doubled(words: Sequence[str], tags: Sequence[str], position: int) -> bool:
    """Return whether an auxiliary is followed by one that cannot stand there."""
    first, after = words[position], position + 1
    is_negated = after < len(words) and words[after] in _NOT
    after += is_negated
    if after >= len(words):
        return False
    second, third = words[after], next(iter(words[after + 1 : after + 2]), "")
    if tags[position] == "MD":
        return second in _NEVER_AFTER_MODALS or (second in _MODALS and tags[after] == "MD")
    if not is_negated:
        return False
    if first in _DO and second == "do":
        # "did n't do it" has one verb; "did n't do you test" has a subject and a verb behind.
        return third in _SUBJECTS or (third in _OBJECTS and any(tag.startswith("VB") for tag in tags[after + 2 : after + 3]))
    if first in _DO and second == "have":
        return third == "been"
    return second in _NEVER_AFTER_NEGATED.get(first, ())


def _double_negations(words: Sequence[str]) -> int:
    count = in_clause = length = 0
    for word in words:
        if word in _CLAUSES or not _WORD.fullmatch(word):
            in_clause = length = 0
            continue
        # At the beginning of a clause "no" is an answer.
        if word in _NEGATIONS or (word == "no" and length):
            in_clause += 1
            count += in_clause > 1
        length += 1
    return count


def _disagree(article: str, word: str) -> bool:
    if article not in ("a", "an") or not word.isalpha() or _SPELLED_OUT.fullmatch(word):
        return False
    return bool((_VOWEL if article == "a" else _NO_VOWEL).match(word))


_LISTS = word_lists("stopwords")
KEPT = word_set(_LISTS["kept"])
"""Kept under both rules: the released list, with the endings of pronouns in the place of contracted pronouns."""
VERBS = word_set(_LISTS["verbs"])
"""Stop words that are verbs, whole or cut, with the negation that hangs on them; kept under the paper's rule."""


MEANT = word_set(_LISTS["meant"])
"""Stop words that the paper's rule keeps: without them a line says something else; letters are flags or contractions."""
PARTICLES = frozenset({"on", "in"})
TAKE_PARTICLES = frozenset(
    {"turn", "turned", "turning", "turns", "switch", "switched", "hold", "log", "logged", "logging", "logs", "sign", "signed"}
    | {"plug", "plugged", "built", "go", "goes", "going", "come", "comes", "move", "keep", "keeps", "is", "it", "that"}
)
"""Words behind which "on" and "in" are particles."""
STRANDED = PARTICLES | {"for", "to", "with", "so"}
"""Words that a mark or the end of an utterance belongs to ("what do you want it for", "if it 's so")."""
CLAUSE_MARKS = frozenset(".,?!;:()") | {"...", '"'}
HELD = {"a": word_set("few little"), "at": word_set("all least most"), "of": word_set("course")}
"""Words, and those behind them that they belong to."""


class StopwordDropout(ByEdits):
    """Stop words are left out.

    Args:
        dropped: the words that may go.
        most: of a turn; None for all, and then utterances may end up empty.
    """

    name = "stopword-dropout"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(self, dropped: frozenset[str], most: int | None) -> None:
        self.dropped, self.most = dropped, most

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        goes = flat.are_in(self.dropped)
        if self.most is not None:
            goes &= ~(in_commands(flat) | _are_particles(flat) | _hold_others(flat))
            lengths = np.diff(flat.edges)
            goes &= np.repeat(np.diff(running(goes)[flat.edges]) < lengths, lengths)
            edges = flat.edges[flat.turn_edges]
            self._choose(goes, edges, np.flatnonzero(np.diff(running(goes)[edges]) > self.most), flat, seeds)
        positions = np.flatnonzero(goes)
        return Edits.of_words(positions, [()] * len(positions))

    def _choose(self, goes: np.ndarray, edges: np.ndarray, turns: np.ndarray, flat: FlatContexts, seeds: Sequence[int]) -> None:
        """Keep the drawn words of some turns in `goes` and unmark the rest, in place."""
        contexts = np.searchsorted(flat.shape_edges, turns, side="right") - 1
        numbers = turns - flat.shape_edges[contexts]
        positions = np.flatnonzero(goes)
        turn_of = np.searchsorted(edges, positions, side="right") - 1
        for number in np.unique(numbers).tolist():
            of_number = numbers == number
            chosen = turns[of_number]
            begins, ends = np.searchsorted(turn_of, chosen), np.searchsorted(turn_of, chosen, side="right")
            counts = ends - begins
            of_context = [seeds[context] for context in contexts[of_number].tolist()]
            drawn = uniforms(of_context, f"{self.name} {number}", counts)
            turn = np.repeat(np.arange(len(chosen)), counts)
            within = np.arange(len(turn)) - (np.cumsum(counts) - counts)[turn]
            order = np.lexsort((drawn, turn))
            goes[positions[(begins[turn] + within)[order[within >= self.most]]]] = False


def _are_particles(flat: FlatContexts) -> np.ndarray:
    """Mark each "on" or "in" behind a verb, or alone before a mark or an end (N,) bool."""
    follows = np.zeros(len(flat.words) + 1, dtype=bool)
    follows[1:] = flat.are_in(TAKE_PARTICLES)
    follows[flat.edges] = False
    is_stranded = flat.are_in(STRANDED) & _stand_before(flat, CLAUSE_MARKS, or_end=True)
    return is_stranded | (flat.are_in(PARTICLES) & follows[:-1])


def _hold_others(flat: FlatContexts) -> np.ndarray:
    """Mark the words that the next word depends on: before a clitic, or "at" in "at all" (N,) bool."""
    mask = _stand_before(flat, CLITICS)
    for word, listed in HELD.items():
        mask |= flat.are_in({word}) & _stand_before(flat, listed)
    return mask


def _stand_before(flat: FlatContexts, listed: frozenset[str], *, or_end: bool = False) -> np.ndarray:
    """Mark the words before a listed word of their utterance, or before its end if `or_end` (N,) bool."""
    mask = np.ones(len(flat.words) + 1, dtype=bool)
    mask[:-1] = flat.are_in(listed)
    mask[flat.edges] = or_end
    return mask[1:]


def build(settings: PerturbSettings, resources: Resources) -> StopwordDropout:
    """Build the strategy from the settings.

    Raises:
        DataError: the lexicon's data are not there.
    """
    if settings.rule == "released":
        return StopwordDropout(resources.lexicon.stopwords - KEPT, None)
    return StopwordDropout(resources.lexicon.stopwords - KEPT - VERBS - MEANT, settings.max_dropped)
