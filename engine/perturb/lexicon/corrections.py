"""What corpora of corrections tell of the errors that people make: which, and how often.

Source: Niu & Bansal 2018, section 3.1, who reverse the edits of the AESW corpus; their table is not released. Ours is read from
any corrected text, because that corpus is not free: the layout of JFLEG (Napoles, Sakaguchi & Tetreault 2017), one
sentence a line in `NAME.src` and its corrections in `NAME.ref0` to `NAME.ref9`, or a file of wrong<TAB>right sentences; and
from lists of misspellings in the layout of codespell's dictionary, `wrong->right` lines.

A replacement is a word that alone stands in the place of another in an alignment of both sentences; both are written in
letters. It counts by the number of sentences that it occurs in, and is an error of people in general from the second on: nine
of ten that JFLEG's corrections show occur once, most of them because a corrector wrote another sentence.

Not here: errors that need no corpus (`slips.py`), and which replacements are errors of what kind (`grammar.py`, `noise.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from parley.engine.perturb.lexicon.slips import MISSPELLINGS
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.engine.perturb.strategies.commands import NAMES
from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.root import data_root

FOLDER = "grammar"
"""Of the data root, with JFLEG's files and codespell's dictionary."""
DICTIONARY = "codespell_dictionary.txt"
SHORTEST = 4
"""Letters of a word at least that is misspelt as a list of misspellings says."""
MIN_SENTENCES = 2
"""In how many sentences a replacement occurs at least that counts."""

Counts = Mapping[str, Mapping[str, int]]


class Corrections(NamedTuple):
    """What was read."""

    replaced: Counts
    """From a right word to the wrong ones that stood for it, with the number of sentences, both in alphabetical order."""
    misspelt: Mapping[str, tuple[str, ...]]
    """From a word to its misspellings in a list of them."""


def misspellings_of(word: str, corrections: Corrections) -> Iterator[str]:
    """How people misspell a word: this project's list, then what was read; a slip of the first letter is rare, and left out."""
    yield from MISSPELLINGS.get(word, ())
    if len(word) >= SHORTEST and word not in NAMES:
        # Lists know words of which no one thinks that they were meant.
        listed = corrections.misspelt.get(word, ())
        yield from (wrong for wrong in listed if wrong[0] == word[0] and abs(len(wrong) - len(word)) <= 1)


def open_corrections(settings: PerturbSettings, resources: Resources) -> Corrections:
    """What the settings name; nothing with the built-in lexicon, unless they name something.

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
    """What stands in a folder in JFLEG's layout, with or without codespell's dictionary, or in a file of wrong<TAB>right lines.

    Files that end in `.src` and have no corrections beside them are other versions of one that has.

    Raises:
        DataError: nothing to read, files of unequal length, or a line that is not two sentences.
    """
    sentences: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for wrong, right in _folder_pairs(path) if path.is_dir() else _tabbed_pairs(path):
        for pair in replaced_words(right, wrong):
            sentences.setdefault(pair, set()).add(tuple(wrong))
    found: dict[str, dict[str, int]] = {}
    for (good, bad), seen in sorted(sentences.items()):
        if len(seen) >= MIN_SENTENCES:
            found.setdefault(good, {})[bad] = len(seen)
    dictionary = path / DICTIONARY
    return Corrections(found, read_misspellings(dictionary) if dictionary.is_file() else {})


def read_misspellings(path: Path) -> dict[str, tuple[str, ...]]:
    """From words to their misspellings, of a file of `wrong->right` lines; those with several right words are left out.

    Raises:
        DataError: it cannot be read, or a line is another.
    """
    found: dict[str, list[str]] = {}
    for number, line in enumerate(read_lines(path), 1):
        wrong, arrow, right = line.partition("->")
        if not arrow and line.strip():
            raise located(broken_rule("a line is wrong->right", line), str(path), number)
        # "wrong->right, other, why not to mend it"
        if right.strip().isalpha() and wrong.isalpha():
            found.setdefault(right.strip().lower(), []).append(wrong.lower())
    return {word: tuple(misspelt) for word, misspelt in found.items()}


def replaced_words(right: Sequence[str], wrong: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of words that stand in each other's place, alone.

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
