"""The interface of a lexicon, our table of opposites, and readers of paraphrase files.

Opposites: written for this project, from the words of help channels and everyday English. An opposite holds for the sense
that the word mostly has there ("add" by "remove", not "add" by "subtract"), and not within a fixed phrase ("hard disk", "good
morning").

`engine/perturb/strategies/antonym.py` decides which word of an utterance changes. A lexicon gives tags, inflections, opposites,
stop words and paraphrases.

Files of paraphrases: PPDB 2.0 (Pavlick et al. 2015, "PPDB 2.0: Better paraphrase ranking, fine-grained entailment relations,
word embeddings, and style classification"); counter-fitting's lists of synonyms (Mrkšić et al. 2016).

A line is one of

    left-hand side ||| phrase ||| paraphrase ||| features ||| alignment ||| entailment      PPDB 2.0; 1.0 ends at the alignment
    phrase<TAB>paraphrase
    word word                                                                               counter-fitting

and every line of a file is of the same kind. Paraphrases hold both ways, as in the released code of Niu & Bansal 2018. Rules of
PPDB with gaps ("[NP,1] of [NP,2]") hold no particular words; they are left out and counted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from parley.envs.core.errors import DataError, packaged_lists
from parley.envs.corpora.lines import FileLine, broken_rule, read_lines, require_utf8
from parley.envs.corpora.pairs.tokens import tokenise


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that are separated by blanks."""
    return frozenset(text.split())


def word_lists(name: str) -> Mapping[str, str]:
    """Return the lists of a file of the folder `data`, by their headings."""
    return packaged_lists("parley.engine.perturb.lexicon", f"data/{name}.txt")


def choices(text: str) -> dict[str, tuple[str, ...]]:
    """Return the right sides of lines "left > right | right", by their left sides."""
    sides = (line.split(" > ") for line in text.split("\n") if line)
    return {left: tuple(right.split(" | ")) for left, right in sides}


class Lexicon(Protocol):
    """Knowledge of English; every answer is a pure function of the question."""

    def tag(self, words: Sequence[str]) -> list[str]:
        """Penn Treebank tags of the words of an utterance."""

    def tag_all(self, utterances: Sequence[tuple[str, ...]]) -> list[list[str]]:
        """Return the tags of many utterances, faster than one by one; callers must not change them."""

    def are_tags(self, utterances: Sequence[tuple[str, ...]], tags: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether utterances have these tags; faster than tagging them, and not remembered."""

    def antonyms(self, word: str, part_of_speech: str | None) -> tuple[str, ...]:
        """Return the opposites of a word in any of its senses, in a fixed order, without repetition.

        Args:
            word: lower case.
            part_of_speech: "v", "n", "a" or "r"; None for any.
        """

    def opposites(self, word: str, part_of_speech: str) -> tuple[str, ...]:
        """Return the opposites of a base form in its main sense, beyond this project's own (`opposites.py`).

        Args:
            word: lower case.
            part_of_speech: "v", "a" or "r".
        """

    def same_sense(self, word: str, other: str, part_of_speech: str) -> bool:
        """Return whether two words have the same main sense.

        Args:
            word: base form, lower case.
            other: likewise.
            part_of_speech: of both: "v", "n", "a" or "r".
        """

    def synonyms(self, word: str, part_of_speech: str, *, every_sense: bool = False, names: bool = False) -> tuple[str, ...]:
        """Return base forms with the meaning of a base form, single words, the most usual first.

        Args:
            word: lower case.
            part_of_speech: "v", "n", "a" or "r".
            every_sense: of all senses of the word, not of the most usual one alone.
            names: names have synonyms and are some; else neither.
        """

    def inflect(self, word: str, tag: str) -> str | None:
        """Return the form of a word's base with this tag, such as ("installed", "VB") -> "install"; None if unknown."""

    @property
    def stopwords(self) -> frozenset[str]:
        """Stop words, lower case, contractions as the project's tokeniser cuts them ("n't", "'s")."""

    @property
    def paraphrases(self) -> Mapping[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """Phrases (words) and their paraphrases, lower case."""


Phrase = tuple[str, ...]

EQUIVALENCE = "Equivalence"
_BAR = "|||"
_GAP = re.compile(r"\[[^\s\[\],]+,\d+\]")

_logger = logging.getLogger(__name__)


def read_paraphrases(path: Path, *, equivalent: bool = False) -> dict[Phrase, tuple[Phrase, ...]]:
    """Read a file of paraphrases.

    Args:
        path: a file of lines as above; empty lines are passed over.
        equivalent: of PPDB, take only what its entailment calls equivalent.

    Returns:
        Phrases and their paraphrases, both ways, in the order of the file.

    Raises:
        DataError: the file cannot be read or has broken lines (the first of them, and their number), or nothing is left of it.
    """
    pairs: list[tuple[Phrase, Phrase]] = []
    broken: list[tuple[int, DataError]] = []
    num_gaps = 0
    lines = read_lines(path)
    first = next((line for line in lines if line.strip()), "")
    parse = _PARSERS[_BAR if _BAR in first else "\t" if "\t" in first else " "]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            require_utf8(line)
            left, right, entailment = parse(line)
            if _GAP.search(left) or _GAP.search(right):
                num_gaps += 1
            elif not equivalent or entailment in (None, EQUIVALENCE):
                pairs.append((_words(left, line), _words(right, line)))
        except DataError as error:
            broken.append((number, error))
    if broken:
        number, example = broken[0]
        raise DataError(
            f"a broken line: {example.what} ({len(broken)} broken in all)",
            where=FileLine(str(path), number),
            got=example.got,
            fix="mend the line or take it out",
        )
    if num_gaps:
        _logger.warning("%s: left out %d rules with gaps", path, num_gaps)
    table = two_way(pairs)
    if not table:
        what = f"no paraphrase is marked {EQUIVALENCE}" if equivalent and lines else "no paraphrase stands in the file"
        raise DataError(what, where=path, fix="name another file, or --set perturb.rule=paper")
    return table


def two_way(pairs: Iterable[tuple[Phrase, Phrase]]) -> dict[Phrase, tuple[Phrase, ...]]:
    """Phrases and all their paraphrases, none twice; a phrase is none of itself."""
    paraphrases_of: dict[Phrase, list[Phrase]] = {}
    for left, right in pairs:
        if left != right:
            paraphrases_of.setdefault(left, []).append(right)
            paraphrases_of.setdefault(right, []).append(left)
    return {phrase: tuple(dict.fromkeys(paraphrases)) for phrase, paraphrases in paraphrases_of.items()}


def _ppdb(line: str) -> tuple[str, str, str | None]:
    fields = [field.strip() for field in line.split(_BAR)]
    if len(fields) not in (5, 6):
        raise broken_rule("a line of PPDB has five or six fields between |||", line)
    # The features of PPDB 1.0 say nothing of entailment, so all its pairs are alike.
    return fields[1], fields[2], fields[5] if len(fields) == 6 else None


def _tabbed(line: str) -> tuple[str, str, None]:
    sides = line.split("\t")
    if len(sides) != 2:
        raise broken_rule("a line is a phrase, one tab and a paraphrase", line)
    return sides[0], sides[1], None


def _spaced(line: str) -> tuple[str, str, None]:
    words = line.split()
    if len(words) != 2:
        raise broken_rule("a line is two words; phrases of several are told apart by a tab", line)
    return words[0], words[1], None


_PARSERS = {_BAR: _ppdb, "\t": _tabbed, " ": _spaced}


def _words(text: str, line: str) -> Phrase:
    words = tuple(tokenise(text))
    if not words:
        raise broken_rule("both sides hold a word", line)
    return words


_LISTS = word_lists("opposites")
_PAIRS = {kind: _LISTS[f"pairs {kind}"] for kind in "var"}
_ONE_WAY = {kind: _LISTS[f"one way {kind}"] for kind in "var"}
"""Where the second word mostly means something else."""
_NOT_BACK = {
    "v": "start eject leave ask cry keep grant throw rise show repair break",
    "a": "light working present minor",
    "r": "well most least inside outside",
}
_LEFT_ALONE = {kind: _LISTS[f"left alone {kind}"] for kind in "var"}
"""Words that WordNet's opposites do not suit in a chat."""
_FIXED = _LISTS["fixed"]
PREDICATIVE = word_set(_LISTS["predicative"])
"""Words that change only behind a form of "be" ("it is full", not "the full path")."""
ATTRIBUTIVE = word_set(_LISTS["attributive"])
"""Words that change only before a noun."""
OF_PERSONS = word_set(_LISTS["of persons"])
"""Verbs that change only behind a person."""
OF_OBJECTS = word_set(_LISTS["of objects"])
"""Verbs that change only before a pronoun or an article."""


def _table(texts: Mapping[str, str], back: bool) -> dict[tuple[str, str], tuple[str, ...]]:
    opposites_of: dict[tuple[str, str], dict[str, None]] = {}
    for kind, text in texts.items():
        listed = iter(text.split())
        for left, right in zip(listed, listed, strict=True):
            opposites_of.setdefault((left, kind), {})[right] = None
            if back and right not in _NOT_BACK[kind].split():
                opposites_of.setdefault((right, kind), {})[left] = None
    return {key: tuple(opposites) for key, opposites in opposites_of.items()}


def _fixed(text: str) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    before: dict[str, frozenset[str]] = {}
    behind: dict[str, frozenset[str]] = {}
    for line in text.replace("\n    ", " ").strip().split("\n"):
        listed, _, rest = line.partition(":")
        left, _, right = rest.partition("|")
        for word in listed.split():
            before[word], behind[word] = frozenset(left.split()), frozenset(right.split())
    return before, behind


OPPOSITES = {
    **{(word, kind): () for kind, text in _LEFT_ALONE.items() for word in text.split()},
    **_table(_ONE_WAY, back=False),
    **_table(_PAIRS, back=True),
}
"""Opposites by base form and part of speech; none for words that are left alone."""
NOT_BEHIND, NOT_BEFORE = _fixed(_FIXED)
"""Words that a word does not change behind, and before."""
