"""What corpora of pairs promise (`sources.PairSource`)."""

from __future__ import annotations

from typing import Any

from parley.envs.core.conformance import Kind, expect
from parley.envs.corpora.conformance import has_its_files, keeps_its_fingerprint
from parley.envs.corpora.root import data_root


def _has_pairs_to_learn_from(source: Any) -> None:
    """Reads its files without a broken line, and finds pairs to train on and to validate on."""
    splits = {split: text.num_pairs for split, text in source.read(data_root()).require_whole().splits.items()}
    expect(bool(splits.get("train") and splits.get("val")), "pairs in train and val", splits)
    expect(source.vocabulary > 0, "a size of the vocabulary above 0", source.vocabulary)


PAIR_CORPUS = Kind(
    "corpus of pairs",
    "parley.envs.corpora.pairs.sources.PairSource",
    ("read", "fingerprint", "require_files", "vocabulary"),
    lambda named: named,
    (has_its_files, _has_pairs_to_learn_from, keeps_its_fingerprint),
)
