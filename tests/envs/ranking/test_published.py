"""The published corpora of candidates, against the counts that were taken from their files by other means."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from parley.envs.ranking.compiled import CandidateCorpus, load_candidates
from parley.envs.ranking.corpora import find_candidates
from parley.envs.ranking.groups import CandidateKind, CandidateOptions

DATA = os.environ.get("PARLEY_DATA")
pytestmark = pytest.mark.data


def load(name: str, cache: Path, **options: int | bool) -> CandidateCorpus:
    root = Path(str(DATA))
    if missing := find_candidates(name).missing(root):
        pytest.skip(f"PARLEY_DATA lacks {name}: {', '.join(missing)}")
    return load_candidates(name, root, options=CandidateOptions(**options), cache=cache)  # type: ignore[arg-type]


def num_groups(corpus: CandidateCorpus) -> tuple[int, ...]:
    return tuple(len(split) for split in corpus.splits.values())


def test_ubuntu_dialogues_have_the_published_number_of_groups(tmp_path: Path) -> None:
    corpus = load("ubuntu_dialogues", tmp_path)
    assert (num_groups(corpus), corpus.language) == ((32_898, 1_311, 2_490), "en")
    for name, split in corpus.splits.items():
        assert set(split.candidates.lengths.tolist()) == {2 if name == "train" else 10}
        assert len(split.positives()) == len(split)
        assert split.contexts.lengths.max() == 10
        for group in split[:300]:
            right = group.candidates[group.labels.index(True)]
            assert group.candidates.count(right) == 1
            assert len(set(group.candidates)) == len(group.candidates)


def test_dailydialog_lists_five_of_each_kind(tmp_path: Path) -> None:
    corpus = load("dailydialog_pp", tmp_path)
    assert num_groups(corpus) == (7_641 * 5, 1_028, 1_142)
    for name, num_mended in {"val": 6, "test": 5}.items():
        kinds = Counter(kind for group in corpus.splits[name] for kind in group.kinds)
        five = 5 * len(corpus.splits[name])
        assert kinds == {CandidateKind.POSITIVE: five, CandidateKind.ADVERSARIAL: five, CandidateKind.RANDOM: five - num_mended}
    assert corpus.num_mended == 11


def test_samples_of_shop_and_forum_come_in_words(tmp_path: Path) -> None:
    shop = load("ecommerce_sample", tmp_path, file_order=True)
    assert (num_groups(shop), shop.language, shop.num_mended) == ((77, 77, 100), "zh", 0)
    assert all(group.labels == (True, *[False] * 9) for group in shop.splits["test"])
    shuffled = load("ecommerce_sample", tmp_path).splits["test"]
    assert Counter(group.labels.index(True) for group in shuffled).most_common(1)[0][1] < 25
    forum = load("douban_sample", tmp_path)
    sizes = Counter(len(group.candidates) for split in forum.splits.values() for group in split)
    assert (sizes, forum.language) == ({2: 55, 4: 1}, "zh")


def test_kdconv_has_the_published_number_of_replies(tmp_path: Path) -> None:
    corpus = load("kdconv", tmp_path, min_turns=2)
    train, val, test = num_groups(corpus)
    assert (train + val, test, corpus.language) == (8_421, 8_837, "zh")
    assert 500 < val < 1_200
