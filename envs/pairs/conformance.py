"""What corpora of pairs promise (`sources.PairSource`)."""

from __future__ import annotations

from typing import Any

from envs.core.conformance import Kind, expect
from envs.data.conformance import keeps_its_fingerprint, reads_every_line
from envs.data.root import data_root


def _has_its_files(source: Any) -> None:
    """Finds its files."""
    source.require_files(data_root())


def _has_pairs_to_learn_from(source: Any) -> None:
    """Has pairs to train on and to validate on, within its vocabulary."""
    splits = {split: text.num_pairs for split, text in source.read(data_root()).splits.items()}
    expect(bool(splits.get("train") and splits.get("val")), "pairs in train and val", splits)
    expect(source.vocabulary > 0, "a size of the vocabulary above 0", source.vocabulary)


PAIR_CORPUS = Kind(
    "corpus of pairs",
    "envs.pairs.sources.PairSource",
    ("read", "fingerprint", "require_files", "vocabulary"),
    lambda named: named,
    (_has_its_files, reads_every_line, _has_pairs_to_learn_from, keeps_its_fingerprint),
)
