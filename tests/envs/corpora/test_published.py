"""The published Deal or No Deal files, against the counts that its publishers and users report."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from parley.engine.responders.corpora import CorpusInfo, check_corpus, describe_corpus, get_corpus
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.lines import SPLITS, read_lines
from parley.envs.negotiation.corpora.catalogue import Corpus, corpora, load_corpus
from parley.envs.negotiation.corpora.dealornodeal import format_line, parse_lines
from parley.envs.negotiation.dealornodeal_rules import selection_table

DATA = os.environ.get("PARLEY_DATA")
pytestmark = pytest.mark.data


@pytest.fixture(scope="module", autouse=True)
def published() -> Iterator[None]:
    """The data root as the run was started with: other tests hide it for the length of a session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLEY_DATA", str(DATA))
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def corpus(cache: Path) -> Corpus:
    return load_corpus("dealornodeal", cache=cache)


@pytest.fixture(scope="module")
def info(cache: Path) -> CorpusInfo:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLEY_CACHE", str(cache))
        return describe_corpus("dealornodeal")


def test_nothing_is_wrong_with_it() -> None:
    check = check_corpus("dealornodeal")
    assert check.problems == ()
    assert check.exit_status == 0
    assert check.num_dialogues == {"train": 10_095, "val": 1_087, "test": 1_052}
    assert check.num_selfplay == 4_086


def test_every_line_is_written_as_it_was_read() -> None:
    folder = corpora.get("dealornodeal").folder(data_root())
    for split in SPLITS:
        lines = read_lines(folder / f"{split}.txt")
        records, broken = parse_lines(lines, split)
        assert not broken
        assert [format_line(record) for record in records] == lines


def test_sizes_are_those_of_the_published_loader(info: CorpusInfo, corpus: Corpus) -> None:
    assert (info.num_words, info.num_item_tokens, info.num_context_values) == (463, 18, 11)
    assert {split.name: split.num_loader_tokens for split in info.splits} == {"train": 687_919, "val": 74_653, "test": 70_262}
    unknown = {name: int((split.token_values == 1).sum()) for name, split in corpus.splits.items()}
    assert unknown == {"train": 8_718, "val": 914, "test": 847}
    train = info.splits[0]
    assert train.num_tokens == 566_779
    assert train.unknown_rate == pytest.approx(0.0154, abs=5e-5)
    # Ten words occur exactly 20 times, and the published rule leaves them out.
    assert len(load_corpus("dealornodeal", cache=corpus.folder.parents[2], threshold=19).vocabulary) == 473


def test_dialogues_are_as_long_as_reported(info: CorpusInfo) -> None:
    means = {split.name: (split.tokens.mean, split.turns.mean, split.words.mean) for split in info.splits}
    assert means["train"] == pytest.approx((56.1, 6.00, 8.84), rel=2e-3)
    assert means["val"] == pytest.approx((56.7, 5.96, 9.02), rel=2e-3)
    assert means["test"] == pytest.approx((54.8, 5.88, 8.82), rel=2e-3)
    assert [(split.tokens.max, split.turns.max, split.words.max) for split in info.splits] == [
        (370, 26, 70),
        (254, 19, 54),
        (189, 15, 53),
    ]


def test_outcomes_are_as_reported(info: CorpusInfo) -> None:
    train, val, test = (split.outcomes for split in info.splits)
    assert val == {"items": 844, "disagree": 129, "no_agreement": 108, "disconnect": 6}
    assert test == {"items": 804, "disagree": 142, "no_agreement": 96, "disconnect": 10}
    assert (train["items"], train["no_agreement"]) == (7_883, 978)
    # Copies of train.txt differ in two dialogues: see the digests in envs/negotiation/corpora/catalogue.py.
    assert (train["disagree"], train["disconnect"]) in {(1_178, 56), (1_176, 58)}


def test_scenarios_are_as_reported(info: CorpusInfo, corpus: Corpus) -> None:
    assert [split.num_scenarios for split in info.splits] == [3_693, 389, 390]
    assert info.num_selfplay == info.num_selfplay_distinct == 4_086
    assert info.selfplay_choices.mean == pytest.approx(22.0, abs=0.05)
    assert info.selfplay_choices.max == 34
    counts = np.concatenate([split.contexts[:, ::2] for split in corpus.splits.values()])
    sizes = {len(selection_table(tuple(row))) for row in np.unique(counts, axis=0).tolist()}
    assert sizes == {18, 20, 22, 26, 29, 32, 34, 38}


def test_no_scenario_of_val_or_test_occurs_in_train(corpus: Corpus) -> None:
    seen = {
        name: set(map(tuple, np.hstack([split.contexts, split.partner_values]).tolist()))
        for name, split in corpus.splits.items()
    }
    assert not seen["train"] & (seen["val"] | seen["test"])


def test_getting_what_is_there_keeps_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_CACHE", str(cache))
    assert set(get_corpus("dealornodeal").files.values()) == {"kept"}
