"""The part of `parley data` that knows corpora of pairs; `data.py` calls it, and the command line calls that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parley.engine.responders.corpora.facts import Check, Info, Spread, problem, said_of, spread, where
from parley.envs.corpora.pairs.compiled import PairSplit, nothing_to_learn, open_pairs
from parley.envs.corpora.pairs.sources import PairSource
from parley.envs.corpora.pairs.vocabulary import UNK_ID


@dataclass(frozen=True, kw_only=True)
class PairCheck(Check):
    """What `parley data check` found in a corpus of pairs."""

    num_utterances: dict[str, int]
    """Good utterances of each split."""
    num_pairs: dict[str, int]
    """Pairs of good utterances of each split."""


@dataclass(frozen=True, kw_only=True)
class PairSplitInfo:
    """One split of a corpus of pairs in numbers."""

    name: str
    num_pairs: int
    num_utterances: int
    num_tokens: int
    """Words and marks of all utterances."""
    unknown_rate: float
    """Share of them outside the vocabulary."""
    words: Spread
    """Words of an utterance."""
    source_words: Spread
    """Words of the source of a pair."""
    reply_words: Spread
    """Words of the reply of a pair."""


@dataclass(frozen=True, kw_only=True)
class PairInfo(Info):
    """What `parley data info` tells of a corpus of pairs."""

    splits: tuple[PairSplitInfo, ...]


def check_pairs(source: PairSource, root: Path) -> PairCheck:
    """Reads every line of a corpus.

    Returns:
        All that is wrong: missing files and every broken line, or that there is no pair to train on.
    """
    text = source.read(root)
    # Where lines are broken or files missing, that is what is wrong.
    wrong = text.broken or list(filter(None, [nothing_to_learn(source, text, root)]))
    return PairCheck(
        name=source.name,
        where=where(source.folder(root)),
        num_utterances={name: split.num_utterances for name, split in text.splits.items()},
        num_pairs={name: split.num_pairs for name, split in text.splits.items()},
        problems=tuple(sorted(map(problem, wrong), key=lambda each: each.file)),
    )


def describe_pairs(source: PairSource, root: Path) -> PairInfo:
    """A corpus in numbers, counted on its compiled form.

    Raises:
        DataError: files are missing or broken.
    """
    corpus = open_pairs(source, root)
    return PairInfo(
        **said_of(source, root),
        compiled=str(corpus.folder),
        num_words=len(corpus.vocabulary),
        splits=tuple(_split_info(name, split) for name, split in corpus.splits.items()),
    )


def _split_info(name: str, split: PairSplit) -> PairSplitInfo:
    values, lengths = split.utterances.values, split.utterances.lengths
    return PairSplitInfo(
        name=name,
        num_pairs=len(split),
        num_utterances=len(split.utterances),
        num_tokens=len(values),
        unknown_rate=float((values == UNK_ID).mean()) if len(values) else 0.0,
        words=spread(lengths),
        source_words=spread(lengths[split.pairs[:, 0]]),
        reply_words=spread(lengths[split.pairs[:, 1]]),
    )
