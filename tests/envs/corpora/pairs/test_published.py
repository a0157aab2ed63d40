"""The published corpora of pairs, against the counts that were taken from their files by other means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.corpora import find_pairs
from parley.envs.corpora.pairs.vocabulary import EOU_ID, UNK_ID

DATA = os.environ.get("PARLEY_DATA")
pytestmark = pytest.mark.data

PAIRS = {
    "ubuntu_irc": (36_073 + 54_244, 1_437 + 4_092, 2_554 + 3_441),
    "ubuntu_dialogues": (32_898, 1_311, 2_490),
    "switchboard": (95_329, 1_466, 2_119),
    "opensubtitles_sample": (256, 256, 256),
    "cornell": (27_016, 1_431, 1_510),
    "dailydialog": (5 * 7_641, 5 * 1_028, 5 * 1_142),
}
WORDS = {
    "ubuntu_irc": 30_000,
    "ubuntu_dialogues": 20_000,
    "switchboard": 10_000,
    "opensubtitles_sample": 1_168,
    "cornell": 10_000,
    "dailydialog": 10_000,
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_as_many_as_counted(name: str, tmp_path: Path) -> None:
    root = Path(str(DATA))
    missing = find_pairs(name).missing(root)
    if missing:
        pytest.skip(f"PARLEY_DATA lacks {name}: {', '.join(missing)}")
    corpus = load_pairs(name, root, cache=tmp_path)
    assert tuple(len(split) for split in corpus.splits.values()) == PAIRS[name]
    assert len(corpus.vocabulary) == WORDS[name]
    for split in corpus.splits.values():
        assert split.utterances.lengths.min() >= 1
        assert split.utterances.values.min() >= (EOU_ID if name == "ubuntu_dialogues" else UNK_ID)
        assert split.pairs.max() < len(split.utterances)
        assert (split.pairs[:, 0] != split.pairs[:, 1]).all()


def test_no_source_of_cornell_is_in_two_splits(tmp_path: Path) -> None:
    if missing := find_pairs("cornell").missing(Path(str(DATA))):
        pytest.skip(f"PARLEY_DATA lacks cornell: {', '.join(missing)}")
    corpus = load_pairs("cornell", Path(str(DATA)), every_word=True, cache=tmp_path)
    sources = [{tuple(split.utterances[row]) for row in split.pairs[:, 0].tolist()} for split in corpus.splits.values()]
    assert sum(map(len, sources)) == len(set.union(*sources))


def test_contexts_of_two_turns_are_as_many_as_counted(tmp_path: Path) -> None:
    root = Path(str(DATA))
    if missing := find_pairs("ubuntu_dialogues").missing(root):
        pytest.skip(f"PARLEY_DATA lacks ubuntu_irc: {', '.join(missing)}")
    corpus = load_pairs("ubuntu_dialogues", root, every_word=True, cache=tmp_path)
    found = [len(examples(corpus, split, turns=2, min_turns=2)) for split in corpus.splits]
    assert found == [29_270, 1_160, 2_239]
