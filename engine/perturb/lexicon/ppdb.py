"""Files of paraphrases: PPDB, pairs of synonyms, pairs of phrases.

Source: PPDB 2.0 (Pavlick et al. 2015, "PPDB 2.0: Better paraphrase ranking, fine-grained entailment relations, word
embeddings, and style classification"); counter-fitting's lists of synonyms (Mrkšić et al. 2016).

A line is one of

    left-hand side ||| phrase ||| paraphrase ||| features ||| alignment ||| entailment      PPDB 2.0; 1.0 ends at the alignment
    phrase<TAB>paraphrase
    word word                                                                               counter-fitting

and every line of a file is of the same kind. Paraphrases hold both ways, as in the released code of Niu & Bansal 2018. Rules of
PPDB with gaps ("[NP,1] of [NP,2]") say nothing of particular words; they are left out and counted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine, broken_rule, read_lines, require_utf8
from parley.envs.corpora.pairs.tokens import tokenise

Phrase = tuple[str, ...]

EQUIVALENCE = "Equivalence"
_BAR = "|||"
_GAP = re.compile(r"\[[^\s\[\],]+,\d+\]")

_logger = logging.getLogger(__name__)


def read_paraphrases(path: Path, *, equivalent: bool = False) -> dict[Phrase, tuple[Phrase, ...]]:
    """Reads a file.

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
    parse = _PARSERS[_kind(next((line for line in lines if line.strip()), ""))]
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
        number, first = broken[0]
        raise DataError(
            f"a broken line: {first.what} ({len(broken)} broken in all)",
            where=FileLine(str(path), number),
            got=first.got,
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
    found: dict[Phrase, list[Phrase]] = {}
    for left, right in pairs:
        if left != right:
            found.setdefault(left, []).append(right)
            found.setdefault(right, []).append(left)
    return {phrase: tuple(dict.fromkeys(paraphrases)) for phrase, paraphrases in found.items()}


def _kind(line: str) -> str:
    return _BAR if _BAR in line else "\t" if "\t" in line else " "


def _ppdb(line: str) -> tuple[str, str, str | None]:
    fields = [field.strip() for field in line.split(_BAR)]
    if len(fields) not in (5, 6):
        raise broken_rule("a line of PPDB has five or six fields between |||", line)
    # The features of PPDB 1.0 say nothing of entailment, so that none of its pairs can be told apart.
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
