"""Errors that people make in written English: our lists, and counts from corpora of corrections.

Source: Niu & Bansal 2018, section 3.1, who reverse the edits of the AESW corpus; their table is not released. Ours is read from
any corrected text, because that corpus is not free: the layout of JFLEG (Napoles, Sakaguchi & Tetreault 2017), one
sentence a line in `NAME.src` and its corrections in `NAME.ref0` to `NAME.ref9`, or a file of wrong<TAB>right sentences; and
from lists of misspellings in the layout of codespell's dictionary, `wrong->right` lines.

A replacement is a word that alone stands in the place of another in an alignment of both sentences; both are written in
letters. It counts by the number of sentences that it occurs in, and is an error of people in general from the second on: nine
of ten that JFLEG's corrections show occur once, most of them because a corrector wrote another sentence.

The lists of errors by kind, and the words that `engine/perturb/strategies/negation.py` knows, were written for this project.

Not here: the kind of a replacement, and where a kind may occur (`engine/perturb/strategies/grammar.py`,
`engine/perturb/strategies/noise.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.opposites import choices, word_lists, word_set
from parley.engine.perturb.strategies.commands import NAMES
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.pairs.tokens import tokenise

_LISTS = word_lists("errors")
AGREEMENT = choices(_LISTS["agreement"])
"""Forms of verbs that do not agree with the subjects of one another."""

PREPOSITIONS = choices(_LISTS["prepositions"])
"""Prepositions and those that learners write instead."""

CONFUSED = choices(_LISTS["confused"])
"""Words that are taken for one another, and endings where there are none."""

APOSTROPHES = {word: typo for word, (typo,) in choices(_LISTS["apostrophes"]).items()}
"""Contractions as they are written in a hurry."""

MISSPELLINGS = choices(_LISTS["misspellings"])
"""Words and how they are misspelt."""


FOLDER = "grammar"
"""Of the data root, with JFLEG's files and codespell's dictionary."""
DICTIONARY = "codespell_dictionary.txt"
SHORTEST = 4
"""Letters of a word at least that is misspelt as a list of misspellings says."""
MIN_SENTENCES = 2
"""In how many sentences a replacement occurs at least that counts."""

Counts = Mapping[str, Mapping[str, int]]


class Corrections(NamedTuple):
    """The corrections that were read."""

    replaced: Counts
    """From a right word to the wrong ones that stood for it, with the number of sentences, both in alphabetical order."""
    misspelt: Mapping[str, tuple[str, ...]]
    """From a word to its misspellings in a list of them."""


def misspellings_of(word: str, corrections: Corrections) -> Iterator[str]:
    """Yield this project's misspellings of a word, then those of the corrections that keep its first letter."""
    yield from MISSPELLINGS.get(word, ())
    if len(word) >= SHORTEST and word not in NAMES:
        # Lists know words of which no one thinks that they were meant.
        listed = corrections.misspelt.get(word, ())
        yield from (wrong for wrong in listed if wrong[0] == word[0] and abs(len(wrong) - len(word)) <= 1)


def open_corrections(settings: PerturbSettings, resources: Resources) -> Corrections:
    """Open the corrections that the settings name; nothing with the built-in lexicon, unless they name something.

    Raises:
        DataError: it is not there, or broken.
    """
    if settings.corrections is not None:
        return read_corrections(settings.corrections)
    if settings.lexicon == "built-in":
        return Corrections({}, {})
    folder = data_root(resources.data_root) / FOLDER
    if not folder.is_dir():
        raise DataError(
            "grammar errors need sentences before and after correction",
            where=folder,
            got="no such folder",
            fix="put the files of JFLEG (github.com/keisks/jfleg) there as jfleg.dev.src, jfleg.dev.ref0 and so on, and "
            f"codespell's dictionary.txt as {DICTIONARY}, or name others with --set perturb.corrections=PATH; "
            "--set perturb.lexicon=built-in needs none",
        )
    return read_corrections(folder)


def read_corrections(path: Path) -> Corrections:
    """Read a folder in JFLEG's layout, with or without codespell's dictionary, or a file of wrong<TAB>right lines.

    Files that end in `.src` and have no corrections beside them are other versions of one that has.

    Raises:
        DataError: nothing to read, files of unequal length, or a line that is not two sentences.
    """
    sentences: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for wrong, right in _folder_pairs(path) if path.is_dir() else _tabbed_pairs(path):
        for pair in replaced_words(right, wrong):
            sentences.setdefault(pair, set()).add(tuple(wrong))
    replaced: dict[str, dict[str, int]] = {}
    for (good, bad), seen in sorted(sentences.items()):
        if len(seen) >= MIN_SENTENCES:
            replaced.setdefault(good, {})[bad] = len(seen)
    dictionary = path / DICTIONARY
    return Corrections(replaced, read_misspellings(dictionary) if dictionary.is_file() else {})


def read_misspellings(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the misspellings of each word from `wrong->right` lines; lines with several right words are skipped.

    Raises:
        DataError: it cannot be read, or a line is another.
    """
    misspellings: dict[str, list[str]] = {}
    for number, line in enumerate(read_lines(path), 1):
        wrong, arrow, right = line.partition("->")
        if not arrow and line.strip():
            raise located(broken_rule("a line is wrong->right", line), str(path), number)
        # "wrong->right, other, why not to mend it"
        if right.strip().isalpha() and wrong.isalpha():
            misspellings.setdefault(right.strip().lower(), []).append(wrong.lower())
    return {word: tuple(misspelt) for word, misspelt in misspellings.items()}


def replaced_words(right: Sequence[str], wrong: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of single words that replace one another.

    Args:
        right: the corrected sentence.
        wrong: what was written.

    Yields:
        The right word and the wrong one, both of letters only.
    """
    for tag, i, i_end, j, j_end in SequenceMatcher(None, right, wrong, autojunk=False).get_opcodes():
        if tag == "replace" and i_end - i == j_end - j == 1 and right[i].isalpha() and wrong[j].isalpha():
            yield right[i], wrong[j]


def _folder_pairs(folder: Path) -> Iterator[tuple[list[str], list[str]]]:
    sides = [(source, sorted(folder.glob(f"{source.stem}.ref[0-9]"))) for source in sorted(folder.glob("*.src"))]
    if not any(references for _, references in sides):
        raise DataError("no sentences before and after correction", where=folder, fix="put NAME.src and NAME.ref0 there")
    for source, references in sides:
        for reference in references:
            wrong, right = read_lines(source), read_lines(reference)
            if len(wrong) != len(right):
                raise DataError(
                    "sentences and corrections are not as many",
                    where=f"{source} and {reference}",
                    got=f"{len(wrong):,} and {len(right):,} lines",
                    fix="get both files of the same version",
                )
            yield from zip(map(tokenise, wrong), map(tokenise, right), strict=True)


def _tabbed_pairs(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    for number, line in enumerate(read_lines(path), 1):
        sides = line.split("\t")
        try:
            require_utf8(line)
            if len(sides) != 2:
                raise broken_rule("a line is a wrong sentence, one tab and the right one", line)
        except DataError as error:
            raise located(error, str(path), number) from None
        yield tokenise(sides[0]), tokenise(sides[1])


BREAKS = word_set(_LISTS["breaks"])
"""Marks and coordinators that end a clause."""
ADDING = word_set("and or")
"""Coordinators behind which a subordinate clause goes on."""
NEGATIONS = word_set(_LISTS["negations"])
SUBORDINATORS = word_set(_LISTS["subordinators"])
CLOSED = word_set("since than as until till before unless like once how whatever whichever wherever all")
"""Those behind which nothing is negated: "until it does n't boot" is hardly said."""
QUESTION_WORDS = word_set("how what where when which who why")
OPENINGS = word_set(_LISTS["openings"])
"""Words before the beginning of a sentence."""
NOMINATIVE = word_set("i you he she we they u")
PLURAL = word_set("i you we they u these those people")
SUBJECTS = word_set(_LISTS["subjects"])
ANYBODY = word_set("anyone anybody any anything")
MODALS = word_set("can could will would should must might may shall")
HAVE = word_set("have has had")
DO = word_set("do does did")
AUXILIARIES = word_set("am is are was were") | MODALS | HAVE | DO
CONTRACTED = word_set("'m 're 's 've 'd 'll")
CONTRACTIONS = {
    **{word: (word, "n't") for word in ("is", "are", "was", "were", "could", "would", "should")},
    "can": ("ca", "n't"),
    "will": ("wo", "n't"),
}
"""Auxiliaries that take "n't" in everyday speech."""
FINITE = {"have": "do", "has": "does", "had": "did", "do": "do", "does": "does", "did": "did"}
BASES = {"have": "have", "has": "have", "had": "have", "do": "do", "does": "do", "did": "do"}
BEFORE_IS = word_set("it that he she there this what who where everything something everyone someone")
MAY_OWN = word_set("everyone someone who")
BEHIND_IS = word_set("VBG VBN DT RB IN JJ PRP$")
DETERMINERS = word_set("a an the it this that to my your some any all these those them him her everything")
DEMONSTRATIVES = word_set("it this that these those something everything")
BEGIN_NOUNS = frozenset({"DT", "PR", "NN", "EX", "WD"})
"""The beginnings of tags that a subject begins with."""
ORDINALS = word_set("first second last next best worst most least only other")
RELATIVE_HEADS = word_set("all everything anything something nothing someone anyone everyone one ones")
"""Words behind which "i know" may be a relative clause."""
INNER = frozenset({"DT", "PR", "JJ"})
"""The beginnings of tags within a noun's phrase."""
ADVERBS = word_set(_LISTS["adverbs"])
BEFORE_NOT = word_set(_LISTS["before not"])
"""Adverbs that stand before "not"."""
NEGATED_ADVERBS = word_set("always often only even ever simply fully completely all totally")
"""Adverbs that stand behind "n't"."""
NOT_NEGATED = word_set("rather better already")
"""Words behind an auxiliary that is left alone."""
BEHIND_WOULD = word_set("like love be have say")
PARTICIPLES = word_set(_LISTS["participles"])
TAKE_CLAUSES = word_set(_LISTS["take clauses"])
"""Words behind which a subject may begin a clause."""
_OF_MINE = word_set("mean guess wonder hope wish bet suppose assume gather swear thank promise take forget fail hate")
_SAID = ("it comes", "you know", "you mean", "there you", "see you", "see ya", "go ahead", "have fun", "take care")
SAYINGS = frozenset({*(("i", verb) for verb in _OF_MINE), *(tuple(phrase.split()) for phrase in _SAID)})
"""Phrases that are not negated."""
NO_FULL_VERBS = word_set("be been being thank thanks welcome sorry ta i a s m d ve re ll doubt lack")
STATES = word_set(_LISTS["states"])
"""Verbs that often stand without "it"."""
GERUNDS = word_set(_LISTS["gerunds"])
IMPERATIVES = word_set(_LISTS["imperatives"])
NOUNS = word_set(_LISTS["nouns"])
"""Imperatives that are often nouns or the names of programs: only before a word that stands behind verbs."""
BEFORE_IMPERATIVES = word_set(". ? ! ; , ... ) :) ;) :d :p then so")
BEHIND_IMPERATIVES = word_set(_LISTS["behind imperatives"])
VERBS = word_set(_LISTS["verbs"])
"""Verbs that are common in chats."""
UNCHANGING = word_set("put read set cut hit quit shut let cost")
"""Verbs whose past is their base form."""
