from __future__ import annotations

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs import compiled
from parley.envs.corpora.pairs.compiled import PairCorpus, load_pairs
from parley.envs.corpora.pairs.turns import TabbedPairs
from parley.envs.corpora.pairs.vocabulary import SPECIALS, UNK, UNK_ID, PairVocabulary
from tests.envs.corpora.pairs.made_up import write_lines

TRAIN = ("a a a b\tc", "c\ta b", "rare\ta")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_lines(tmp_path / "own" / "train.tsv", *TRAIN)
    write_lines(tmp_path / "own" / "val.tsv", "a new\tb")
    write_lines(tmp_path / "own" / "test.tsv")
    return tmp_path / "own"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def spoken(corpus: PairCorpus, split: str) -> list[tuple[str, str]]:
    utterances = [" ".join(corpus.vocabulary.decode(row)) for row in corpus.splits[split].utterances]
    return [(utterances[source], utterances[reply]) for source, reply in corpus.splits[split].pairs]


def test_the_arrays_hold_what_the_lines_say(folder: Path, cache: Path) -> None:
    corpus = load_pairs(str(folder), cache=cache)
    assert list(corpus.splits) == ["train", "val", "test"]
    assert spoken(corpus, "train") == [("a a a b", "c"), ("c", "a b"), ("rare", "a")]
    assert spoken(corpus, "val") == [(f"a {UNK}", "b")]
    assert spoken(corpus, "test") == []
    train = corpus.splits["train"]
    assert (len(train), len(train.utterances)) == (3, 5)
    assert train.utterances.lengths.tolist() == [4, 1, 2, 1, 1]


def test_the_first_pairs_bring_the_utterances_that_they_name(folder: Path, cache: Path) -> None:
    corpus = load_pairs(str(folder), cache=cache)
    few = corpus.first(2)
    assert spoken(few, "train") == [("a a a b", "c"), ("c", "a b")]
    assert len(few.splits["train"].utterances) == 3
    assert spoken(few, "val") == spoken(corpus, "val")
    assert spoken(few, "test") == []
    assert few.vocabulary is corpus.vocabulary
    assert spoken(corpus.first(0), "train") == spoken(corpus.first(9), "train") == spoken(corpus, "train")


def test_the_arrays_are_read_only_views_of_the_file_with_the_promised_types(folder: Path, cache: Path) -> None:
    split = load_pairs(str(folder), cache=cache).splits["train"]
    for array in (split.utterances.values, split.utterances.offsets, split.pairs):
        assert not array.flags.owndata
        assert not array.flags.writeable
    assert split.utterances.values.dtype == np.int32
    assert split.utterances.offsets.dtype == split.pairs.dtype == np.int64
    assert split.utterances[0].dtype == split.utterances.lengths.dtype == np.int64
    with pytest.raises(IndexError):
        split.utterances[5]


def test_the_vocabulary_holds_the_most_frequent_words_of_the_training_split(folder: Path, cache: Path) -> None:
    corpus = load_pairs(str(folder), cache=cache, vocabulary=len(SPECIALS) + 2)
    assert corpus.vocabulary.words == (*SPECIALS, "a", "b")
    values = corpus.splits["train"].utterances.values
    assert values.tolist() == [5, 5, 5, 6, UNK_ID, 5, 6, UNK_ID, 5]
    with pytest.raises(ConfigError, match="no room for a word"):
        load_pairs(str(folder), cache=cache, vocabulary=len(SPECIALS))


def test_a_corpus_is_compiled_once(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_pairs(str(folder), cache=cache)
    monkeypatch.setattr(compiled, "_compile", lambda *_: pytest.fail("compiled twice"))
    again = load_pairs(str(folder), cache=cache)
    assert (again.folder, again.vocabulary) == (first.folder, first.vocabulary)


def test_a_change_of_content_size_or_reader_is_another_key(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {load_pairs(str(folder), cache=cache).folder, load_pairs(str(folder), cache=cache, vocabulary=7).folder}
    with monkeypatch.context() as patch:
        patch.setattr(TabbedPairs, "READER_VERSION", 99)
        folders.add(load_pairs(str(folder), cache=cache).folder)
    write_lines(folder / "test.tsv", "one more\tpair")
    longer = load_pairs(str(folder), cache=cache)
    assert len(longer.splits["test"]) == 1
    assert len({*folders, longer.folder}) == 4


@pytest.mark.parametrize("name", ["train.arrow", "train-pairs.arrow", "vocabulary.json", "manifest.json"])
@pytest.mark.parametrize("how", ["changed", "deleted"])
def test_a_damaged_file_is_noticed_and_compiled_again(
    folder: Path, cache: Path, name: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = load_pairs(str(folder), cache=cache).folder / name
    whole = path.read_bytes()
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with caplog.at_level(logging.WARNING):
        corpus = load_pairs(str(folder), cache=cache)
    assert "damaged" in caplog.text
    assert path.read_bytes() == whole
    assert len(corpus.splits["train"]) == 3
    caplog.clear()
    load_pairs(str(folder), cache=cache)
    assert "damaged" not in caplog.text


def test_a_broken_line_stops_the_compilation_and_is_named(folder: Path, cache: Path) -> None:
    write_lines(folder / "val.tsv", "a\tb", "nonsense", "more nonsense")
    with pytest.raises(DataError) as caught:
        load_pairs(str(folder), cache=cache)
    assert str(caught.value.where) == f"{folder / 'val.tsv'}:2"
    assert "2 broken in all" in caught.value.what
    assert not cache.exists()


def test_nothing_to_train_on_is_a_data_error(folder: Path, cache: Path) -> None:
    write_lines(folder / "train.tsv")
    with pytest.raises(DataError, match="no pair to train on"):
        load_pairs(str(folder), cache=cache)


def test_a_corpus_crosses_process_borders(folder: Path, cache: Path) -> None:
    corpus = load_pairs(str(folder), cache=cache)
    copy = pickle.loads(pickle.dumps(corpus))  # noqa: S301  # a round trip within the test
    np.testing.assert_array_equal(copy.splits["train"].pairs, corpus.splits["train"].pairs)
    assert isinstance(copy.vocabulary, PairVocabulary)
