"""The part of `parley data` that knows corpora of candidates; `data.py` calls it, and the command line calls that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.engine.responders.corpora.facts import Check, Info, Problem, Spread, problem, said_of, spread, where
from parley.envs.ranking.compiled import no_group, open_candidates
from parley.envs.ranking.groups import Context
from parley.envs.ranking.options import CandidateOptions
from parley.envs.ranking.sources import CandidateSource
from parley.envs.ranking.split import KINDS, CandidateSplit


@dataclass(frozen=True, kw_only=True)
class CandidateCheck(Check):
    """What `parley data check` found in a corpus of candidates."""

    num_groups: dict[str, int]
    """Good groups of each split."""
    turns: int
    """The most turns of a context, where nothing else is asked for (`candidates.turns`)."""
    num_cut: dict[str, int]
    """Groups of each split whose contexts have more."""
    mended: tuple[Problem, ...]
    """What is read otherwise than it stands; the corpus can be used."""
    long: tuple[str, ...]
    """What is unusually long, in sentences that name files and lines; the corpus can be used."""


@dataclass(frozen=True, kw_only=True)
class CandidateSplitInfo:
    """One split of a corpus of candidates in numbers."""

    name: str
    num_groups: int
    num_seen: int
    """Groups whose context the training split has too; 0 for that split itself."""
    num_several: int
    """Groups of several right replies."""
    num_one_sided: int
    """Groups without a right reply, or without a wrong one."""
    num_cut: int
    """Groups whose contexts have lost their oldest turns (`candidates.turns`)."""
    num_kinds: dict[str, int]
    """Candidates by where they come from."""
    size: Spread
    """Candidates of a group."""
    turns: Spread
    """Turns of a context."""
    turn_words: Spread
    """Words of a turn."""
    right_words: Spread
    """Words of a right reply."""
    wrong_words: Spread
    """Words of a wrong reply."""


@dataclass(frozen=True, kw_only=True)
class CandidateInfo(Info):
    """What `parley data info` tells of a corpus of candidates."""

    language: str
    num_mended: int
    """Lines that are read otherwise than they stand."""
    lacking: dict[str, str]
    """What is said of splits that lack replies to draw wrong ones from, which are not among the others."""
    splits: tuple[CandidateSplitInfo, ...]


def check_candidates(source: CandidateSource, root: Path) -> CandidateCheck:
    """Reads every line of a corpus.

    Returns:
        All that is wrong: missing files and every broken line, or that there is no group. And what was mended.
    """
    turns = CandidateOptions().turns
    text = source.read_groups(root, turns + 1)
    wrong = text.broken or list(filter(None, [no_group(source, text, root)]))
    return CandidateCheck(
        name=source.name,
        where=where(source.folder(root)),
        num_groups={name: len(split) for name, split in text.splits.items()},
        turns=turns,
        num_cut={name: split.num_longer(turns) for name, split in text.splits.items()},
        problems=tuple(sorted(map(problem, wrong), key=lambda each: each.file)),
        mended=tuple(map(problem, text.mended)),
        long=text.long_told(),
    )


def describe_candidates(source: CandidateSource, root: Path) -> CandidateInfo:
    """A corpus in numbers, counted on its compiled form.

    Raises:
        DataError: files are missing or broken.
    """
    corpus = open_candidates(source, root)
    known = set(_contexts(corpus.splits["train"]))
    return CandidateInfo(
        **said_of(source, root),
        compiled=str(corpus.folder),
        num_words=len(corpus.splits["train"].vocabulary),
        language=corpus.language,
        num_mended=corpus.num_mended,
        lacking=corpus.lacking,
        splits=tuple(_split_info(split, known if name != "train" else set()) for name, split in corpus.splits.items()),
    )


def _contexts(split: CandidateSplit) -> Iterator[Context]:
    return (tuple(map(split.said, split.contexts[row])) for row in range(len(split)))


def _split_info(split: CandidateSplit, known: Collection[Context]) -> CandidateSplitInfo:
    words = split.utterances.lengths
    num_right = np.bincount(split.positives()[:, 0], minlength=len(split))
    said = words[split.candidates.values]
    kinds = Counter(split.kinds.tolist())
    return CandidateSplitInfo(
        name=split.name,
        num_groups=len(split),
        num_seen=sum(context in known for context in _contexts(split)),
        num_several=int((num_right > 1).sum()),
        num_one_sided=int(((num_right == 0) | (num_right == split.candidates.lengths)).sum()),
        num_cut=int(split.is_cut.sum()),
        num_kinds={str(kind): kinds[place] for place, kind in enumerate(KINDS) if kinds[place]},
        size=spread(split.candidates.lengths),
        turns=spread(split.contexts.lengths),
        turn_words=spread(words[split.contexts.values]),
        right_words=spread(said[split.labels]),
        wrong_words=spread(said[~split.labels]),
    )
