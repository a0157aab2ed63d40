"""Grammar Errors: words are written as people write them wrongly.

Source: Niu & Bansal 2018, section 3.1: known errors from a corrected corpus, verbs in the infinitive, plurals in the singular.

Kinds, and where each occurs, so that it is an error there and the sentence says what it said:

    inflection   a verb as its infinitive behind "be", "have" and third persons; a plural as its singular behind a word for many
    agreement    "it have", "you is"
    article      left out; "a" for "an" and the other way round
    preposition  another one before a noun, but behind a verb or an adjective, whose meaning may hang on it, none
    confusion    "your" for "you 're", "alot"; contractions without their apostrophe
    spelling     misspellings: this project's and codespell's, and those that the corrected corpus shows

- Released: nothing for this strategy but an older function: every word with an entry of a table is replaced by one of its
  wrong forms, drawn uniformly; table and mixing are not released. Ours: forms are drawn by weight, which for what a corrected
  corpus shows is the number of its sentences (`engine/perturb/lexicon/corrections.py`), because a uniform choice is, four
  times in five, an error that people do not make.
- Paper: silent on how many words change. Released: that older function changes all. Ours: three in ten of those that have a
  wrong form (`grammar_rate`), of a kind as often as `WEIGHTS` says, which are about the shares of kinds in JFLEG.
- Released: Pattern inflects words by themselves. Ours: the tags in the sentence say what is a verb, because "updates" is
  both.
- Only words that the model knows enter, as in the released code's other strategies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

import numpy as np

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon import corrections as slips
from parley.engine.perturb.lexicon.corrections import Corrections, misspellings_of, open_corrections
from parley.engine.perturb.lexicon.opposites import word_set
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.texts import Edits, FlatContexts
from parley.engine.perturb.strategy import ByEdits, Expectation, PerturbSettings
from parley.envs.corpora.pairs.turns import Utterance


class ErrorKind(StrEnum):
    """Kinds of errors."""

    INFLECTION = "inflection"
    AGREEMENT = "agreement"
    ARTICLE = "article"
    PREPOSITION = "preposition"
    CONFUSION = "confusion"
    SPELLING = "spelling"


WEIGHTS = {
    ErrorKind.INFLECTION: 1.0,
    ErrorKind.AGREEMENT: 0.5,
    ErrorKind.ARTICLE: 0.75,
    ErrorKind.PREPOSITION: 0.3,
    ErrorKind.CONFUSION: 0.5,
    ErrorKind.SPELLING: 0.35,
}
"""How readily a word that may have an error of a kind gets it, against the rate."""
_PLAIN_FORMS = {"VBG": "VB", "VBN": "VB", "VBZ": "VB", "VBD": "VB", "NNS": "NN"}

_ARTICLES = frozenset({"a", "an", "the"})
_WITH_A = word_set("lot bit few little couple while same first last only one most more")
"""Words without whose article another thing is said."""
_BE_HAVE = word_set("be am is are was were been being 'm 're 's have has had 've")
_THIRD = word_set("he she it that this which who someone anyone everyone nobody everything nothing")
_MANY = word_set("these those many some several all few two three four five other more most both")
_MOST_MISSPELLINGS = 8


class Slip(NamedTuple):
    """A wrong form of a word, or of it and the words behind it."""

    kind: ErrorKind
    following: Utterance
    """Words that must follow and are replaced too; mostly none."""
    wrong: Utterance
    """The wrong form; empty: the words are left out."""
    weight: float


class GrammarErrors(ByEdits):
    """Words are written as people write them wrongly.

    Args:
        corrections: what a corpus tells of errors.
        resources: the lexicon, and the words that may enter.
        rate: share of the words with a wrong form that get one, where nothing else weighs.
    """

    name = "grammar-errors"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(self, corrections: Corrections, resources: Resources, rate: float = 1.0) -> None:
        self._corrections, self._resources, self._rate = corrections, resources, rate
        self._listed = _listed(corrections)
        self._slip_cache: dict[tuple[str, str], tuple[Slip, ...]] = {}

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        slips_of = self._slip_cache
        tags = list(chain.from_iterable(self._resources.lexicon.tag_all(flat.utterances)))
        keys = list(zip(flat.words, tags, strict=True))
        for key in keys:
            if key not in slips_of:
                slips_of[key] = tuple(self._slips(*key))
        choices = list(map(slips_of.__getitem__, keys))
        positions = np.flatnonzero(np.fromiter(map(bool, choices), dtype=bool, count=len(choices)))
        drawn = uniforms(seeds, self.name, flat.num_in_contexts(positions)) / self._rate
        firsts, ends = flat.edges[np.searchsorted(flat.edges, positions, side="right") - 1], flat.ends_of(positions)
        chosen: list[tuple[int, int, Utterance]] = []
        for row in np.flatnonzero(drawn < 1).tolist():
            position, first, end = int(positions[row]), int(firsts[row]), int(ends[row])
            if chosen and position < chosen[-1][1]:
                continue
            sides = flat.words[first:position], flat.words[position + 1 : end]
            fitting = [slip for slip in choices[position] if _fits(slip, *sides, tags[first:end], position - first)]
            slip = _drawn(fitting, float(drawn[row]))
            if slip is not None:
                chosen.append((position, position + 1 + len(slip.following), slip.wrong))
        starts, stops, replacements = zip(*chosen, strict=True) if chosen else ((), (), ())
        return Edits(np.array(starts, dtype=np.int64), np.array(stops, dtype=np.int64), replacements)

    def _slips(self, word: str, tag: str) -> Iterator[Slip]:
        """Yield the errors that a word with a tag may get; the words around decide later."""
        may_enter, plain = self._resources.may_enter, None
        for slip in self._listed.get(word, ()):
            if may_enter(slip.wrong):
                yield slip
        if tag in _PLAIN_FORMS and word.isalpha() and word not in _BE_HAVE:
            plain = self._resources.lexicon.inflect(word, _PLAIN_FORMS[tag])
        if plain is not None and plain != word and may_enter((plain,)):
            yield Slip(ErrorKind.INFLECTION, (), (plain,), WEIGHTS[ErrorKind.INFLECTION])
        if word in _ARTICLES:
            yield Slip(ErrorKind.ARTICLE, (), (), WEIGHTS[ErrorKind.ARTICLE])
        misspelt = [wrong for wrong in misspellings_of(word, self._corrections) if may_enter((wrong,))][:_MOST_MISSPELLINGS]
        for wrong in misspelt:
            yield Slip(ErrorKind.SPELLING, (), (wrong,), WEIGHTS[ErrorKind.SPELLING] / len(misspelt))


def _listed(corrections: Corrections) -> Mapping[str, tuple[Slip, ...]]:
    """Return the listed errors by their first word, for any tag."""
    slips_of: dict[str, list[Slip]] = {}

    def add(kind: ErrorKind, right: str, wrong: Mapping[str, float]) -> None:
        word, *following = right.split()
        for form, share in wrong.items():
            weight = WEIGHTS[kind] * share / sum(wrong.values())
            slips_of.setdefault(word, []).append(Slip(kind, tuple(following), tuple(form.split()), weight))

    lists: tuple[tuple[ErrorKind, Mapping[str, Iterable[str]]], ...] = (
        (ErrorKind.AGREEMENT, slips.AGREEMENT),
        (ErrorKind.PREPOSITION, slips.PREPOSITIONS),
        (ErrorKind.CONFUSION, slips.CONFUSED),
    )
    for kind, listed in lists:
        for right, wrong in listed.items():
            # Those of the list once each, and as often as the corpus shows them.
            shown = corrections.replaced.get(right, {})
            add(kind, right, {form: 1.0 + shown.get(form, 0) for form in wrong})
    for right, form in slips.APOSTROPHES.items():
        add(ErrorKind.CONFUSION, right, {form: 1.0})
    for right, replaced in corrections.replaced.items():
        misspelt = {form: float(number) for form, number in replaced.items() if _is_misspelling(right, form, corrections)}
        if misspelt:
            add(ErrorKind.SPELLING, right, misspelt)
    return {word: tuple(of_word) for word, of_word in slips_of.items()}


def _is_misspelling(right: str, wrong: str, corrections: Corrections) -> bool:
    return wrong in corrections.misspelt.get(right, ()) or wrong in slips.MISSPELLINGS.get(right, ())


def _drawn(fitting: Sequence[Slip], share: float) -> Slip | None:
    """Draw one slip by weight and a share from [0, 1); None is likely where all together weigh less than 1."""
    left = share * max(1.0, sum(slip.weight for slip in fitting))
    for slip in fitting:
        left -= slip.weight
        if left < 0:
            return slip
    return None


def _fits(slip: Slip, before: Utterance, behind: Utterance, tags: Sequence[str], position: int) -> bool:
    """Return whether a slip is an error of its kind in this utterance that keeps its meaning."""
    if behind[: len(slip.following)] != slip.following:
        return False
    last, last_tag = (before[-1], tags[position - 1]) if before else ("", "")
    following, next_tag = (behind[0], tags[position + 1]) if behind else ("", "")
    if slip.kind is ErrorKind.INFLECTION:
        return _is_wrong_plain(tags[position], before, tags[:position], next_tag)
    if slip.kind is ErrorKind.AGREEMENT:
        # In a question or behind "not" the subject stands elsewhere.
        return last_tag in ("PRP", "NN", "NNS", "NNP", "EX", "DT", "WDT") and _disagrees(last, last_tag, slip.wrong[0])
    if slip.kind is ErrorKind.ARTICLE:
        return following.isalpha() and next_tag[:2] in ("NN", "JJ") and following not in _WITH_A
    if slip.kind is ErrorKind.PREPOSITION:
        around = last_tag[:2] in ("NN", "PR") or not before
        return tags[position] == "IN" and around and next_tag in ("DT", "PRP$", "NN", "NNS", "JJ") and following not in _WITH_A
    return True


def _disagrees(subject: str, tag: str, verb: str) -> bool:
    plural = tag == "NNS" or subject in ("we", "you", "they", "i", "these", "those")
    return verb in (("is", "was", "has") if plural else ("are", "were", "have", "do"))


def _is_wrong_plain(tag: str, before: Utterance, tags: Sequence[str], next_tag: str) -> bool:
    """Return whether the base form of a verb, or the singular of a noun, is wrong here."""
    # Adverbs and "not" stand between what belongs together, adjectives between a noun and what counts it.
    between = ("JJ", "NN") if tag == "NNS" else ("RB",)
    backwards = range(len(before) - 1, -1, -1)
    first = next((position for position in backwards if tags[position] not in between or before[position] in _MANY), None)
    if first is None:
        return False
    word, kind = before[first], tags[first]
    if tag == "NNS":
        return word in _MANY or (kind == "CD" and word not in ("1", "one"))
    if tag in ("VBG", "VBN"):
        return word in _BE_HAVE
    third = word in _THIRD or (kind in ("NN", "NNP") and next_tag not in ("NN", "NNS", "."))
    return third and (tag == "VBZ" or word in ("he", "she", "it"))


def build(settings: PerturbSettings, resources: Resources) -> GrammarErrors:
    """Build the strategy from the settings.

    Raises:
        DataError: sentences with corrections or the lexicon's data are not there, or are broken.
    """
    return GrammarErrors(open_corrections(settings, resources), resources, settings.grammar_rate)
