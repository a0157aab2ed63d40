"""What `parley data` tells of any corpus: where it lies, how its numbers are spread, what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine
from parley.envs.corpora.sources import Source

GENERATED = "generated on this machine"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a corpus."""

    what: str
    file: str
    line: int | None
    """Counted from 1; none when the file as a whole is wrong."""
    got: str | None
    fix: str | None


@dataclass(frozen=True, kw_only=True)
class Check:
    """What `parley data check` found in a corpus of any kind."""

    name: str
    where: str
    problems: tuple[Problem, ...]
    """Everything that is wrong, file by file."""

    @property
    def exit_status(self) -> int:
        """0 when nothing is wrong, else 1."""
        return int(bool(self.problems))


@dataclass(frozen=True, kw_only=True)
class Info:
    """What `parley data info` tells of a corpus of any kind."""

    name: str
    summary: str
    licence: str
    where: str
    compiled: str
    num_words: int
    """Word ids, the specials included."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How a number is spread over dialogues or utterances."""

    mean: float
    median: float
    p95: float
    max: float


def where(folder: Path | None) -> str:
    """The folder of a corpus, or that it is generated."""
    return GENERATED if folder is None else str(folder)


def said_of(source: Source, root: Path) -> dict[str, str]:
    """What a corpus is and where it lies, as `Info` holds it."""
    own = {"name": source.name, "summary": source.summary, "licence": source.licence}
    return {**own, "where": where(source.folder(root))}


def problem(error: DataError) -> Problem:
    """The error of a reader as one thing that is wrong."""
    place = error.where if isinstance(error.where, FileLine) else FileLine(str(error.where), 0)
    got = None if error.got is None else str(error.got)
    return Problem(what=error.what, file=place.source, line=place.line or None, got=got, fix=error.fix)


def spread(values: np.ndarray) -> Spread:
    """The spread of numbers (n,); zeros when there are none."""
    if not len(values):
        return Spread(mean=0.0, median=0.0, p95=0.0, max=0.0)
    return Spread(
        mean=float(values.mean()),
        median=float(np.median(values)),
        p95=float(np.percentile(values, 95)),
        max=float(values.max()),
    )
