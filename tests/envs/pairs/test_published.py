"""The published corpora of pairs, against the counts that were taken from their files by other means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envs.pairs.compiled import load_pairs
from envs.pairs.corpora import find_pairs
from envs.pairs.vocabulary import UNK_ID

DATA = os.environ.get("PARLEY_DATA")
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA, reason="PARLEY_DATA names no folder with the published corpora"),
]

PAIRS = {
    "ubuntu_irc": (36_073 + 54_244, 1_437 + 4_092, 2_554 + 3_441),
    "switchboard": (95_329, 1_466, 2_119),
    "opensubtitles_sample": (256, 256, 256),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_as_many_as_counted(name: str, tmp_path: Path) -> None:
    root = Path(str(DATA))
    missing = find_pairs(name).missing(root)
    if missing:
        pytest.skip(f"PARLEY_DATA lacks {name}: {', '.join(missing)}")
    corpus = load_pairs(name, root, cache=tmp_path)
    assert tuple(len(split) for split in corpus.splits.values()) == PAIRS[name]
    assert len(corpus.vocabulary) == {"ubuntu_irc": 30_000, "switchboard": 10_000, "opensubtitles_sample": 1_168}[name]
    for split in corpus.splits.values():
        assert split.utterances.lengths.min() >= 1
        assert split.utterances.values.min() >= UNK_ID
        assert split.pairs.max() < len(split.utterances)
        assert (split.pairs[:, 0] != split.pairs[:, 1]).all()
