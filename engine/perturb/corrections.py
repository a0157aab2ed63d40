"""A table of the errors that writers make, built from their sentences before and after correction.

Source: Niu & Bansal 2018, section 3.1, who reverse the edits of the AESW corpus; their table is not released. Ours is read from
any corrected text, because that corpus is not free: the layout of JFLEG (Napoles, Sakaguchi & Tetreault 2017), one
sentence a line in `NAME.src` and its corrections in `NAME.ref0` to `NAME.ref9`, or a file of wrong<TAB>right sentences.

An error is a word that alone stands in the place of another in an alignment of both sentences; both are written in letters.
Not here: errors of inflection, which need no table (`grammar.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from envs.core.errors import DataError
from envs.data.lines import broken_rule, located, read_lines, require_utf8
from envs.data.root import data_root
from envs.pairs.tokens import tokenise

FOLDER = "grammar"
"""Of the data root, with JFLEG's files."""
FEW: Mapping[str, tuple[str, ...]] = {
    "a": ("an", "the"),
    "advice": ("advices",),
    "an": ("a", "the"),
    "are": ("is",),
    "at": ("in", "on"),
    "been": ("being",),
    "does": ("do",),
    "for": ("to",),
    "has": ("have",),
    "have": ("has",),
    "in": ("at", "on"),
    "information": ("informations",),
    "is": ("are",),
    "its": ("it",),
    "less": ("fewer",),
    "many": ("much",),
    "much": ("many",),
    "of": ("from",),
    "on": ("at", "in"),
    "software": ("softwares",),
    "than": ("then",),
    "the": ("a",),
    "their": ("there",),
    "them": ("they",),
    "then": ("than",),
    "there": ("their",),
    "these": ("this",),
    "this": ("these",),
    "to": ("for", "too"),
    "too": ("to",),
    "was": ("were",),
    "well": ("good",),
    "were": ("was",),
    "which": ("what",),
    "who": ("which",),
    "your": ("you",),
}
"""Written for this project, for where no corpus is: goes with the built-in lexicon."""


def open_corrections(settings: PerturbSettings, resources: Resources) -> Mapping[str, tuple[str, ...]]:
    """The table that the settings name.

    Returns:
        From a right word to its wrong forms, lower case, in alphabetical order.

    Raises:
        DataError: it is not there, or broken.
    """
    if settings.corrections is not None:
        return read_corrections(settings.corrections)
    if settings.lexicon == "built-in":
        return FEW
    folder = data_root(resources.data_root) / FOLDER
    if not folder.is_dir():
        raise DataError(
            "grammar errors need sentences before and after correction",
            where=folder,
            got="no such folder",
            fix="put the files of JFLEG (github.com/keisks/jfleg) there as jfleg.dev.src, jfleg.dev.ref0 and so on, or name "
            "others with --set perturb.corrections=PATH; --set perturb.lexicon=built-in needs none",
        )
    return read_corrections(folder)


def read_corrections(path: Path) -> dict[str, tuple[str, ...]]:
    """The table of a folder in JFLEG's layout, or of a file of wrong<TAB>right lines.

    Files that end in `.src` and have no corrections beside them are other versions of one that has.

    Raises:
        DataError: nothing to read, files of unequal length, or a line that is not two sentences.
    """
    found: dict[str, set[str]] = {}
    for wrong, right in _folder_pairs(path) if path.is_dir() else _tabbed_pairs(path):
        for good, bad in replaced_words(right, wrong):
            found.setdefault(good, set()).add(bad)
    return {good: tuple(sorted(bad)) for good, bad in sorted(found.items())}


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
