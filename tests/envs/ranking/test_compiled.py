"""Compiled corpora of candidates: what groups they hold, in which order, under which key."""

from __future__ import annotations

import gc
import logging
import pickle
import random
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.corpora import pair_corpora
from parley.envs.ranking import compiled, sources
from parley.envs.ranking.compiled import CandidateCorpus, load_candidates
from parley.envs.ranking.corpora import candidate_corpora, find_candidates, own_candidates
from parley.envs.ranking.groups import CandidateOptions, order_of
from parley.envs.ranking.sources import FileCandidates, PairCandidates
from tests.envs.corpora.pairs.made_up import write_lines
from tests.envs.ranking.made_up import ROWS, listed

AS_LISTED = CandidateOptions(file_order=True)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    write_lines(tmp_path / "own" / "train.txt", "1\tso\tyes", "0\tso\tno")
    write_lines(tmp_path / "own" / "valid.txt", "1\ta\tb", "0\ta\tc")
    write_lines(tmp_path / "own" / "test.txt", *ROWS)
    return tmp_path / "own"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def helpdesk(tmp_path_factory: pytest.TempPathFactory) -> CandidateCorpus:
    return load_candidates("helpdesk", cache=tmp_path_factory.mktemp("cache"))


def test_groups_hold_what_the_rows_say(own: Path, cache: Path) -> None:
    corpus = load_candidates(str(own), options=AS_LISTED, cache=cache)
    assert (corpus.name, corpus.language, corpus.num_mended) == ("own", "en", 0)
    assert {name: len(split) for name, split in corpus.splits.items()} == {"train": 1, "val": 1, "test": 2}
    first, second = corpus.splits["test"]
    assert listed(first) == (["my disk is full", "which disk ?"], {"the first one": True, "good morning": False, "no": False})
    assert list(listed(second)[1]) == ["hi there", "it is red"]
    assert corpus.splits["test"][-1] == second
    assert corpus.splits["test"][:1] == [first]
    with pytest.raises(IndexError):
        corpus.splits["test"][2]


def test_candidates_are_shuffled_by_key_unless_the_order_of_the_file_is_asked_for(own: Path, cache: Path) -> None:
    listed_groups = load_candidates(str(own), options=AS_LISTED, cache=cache).splits["test"]
    for seed in (0, 1):
        shuffled = load_candidates(str(own), options=CandidateOptions(seed=seed), cache=cache).splits["test"]
        for before, after in zip(listed_groups, shuffled, strict=True):
            order = order_of(before.key, len(before.candidates), seed)
            assert after == replace(
                before,
                candidates=tuple(before.candidates[i] for i in order),
                labels=tuple(before.labels[i] for i in order),
                kinds=tuple(before.kinds[i] for i in order),
                attackable=tuple(before.attackable[i] for i in order),
            )


def test_contexts_keep_the_turns_nearest_to_the_reply(own: Path, cache: Path) -> None:
    short = load_candidates(str(own), options=CandidateOptions(turns=1), cache=cache).splits["test"]
    assert [group.context for group in short] == [(("which", "disk", "?"),), (("hello",),)]
    assert short.is_cut.tolist() == [True, False]
    assert short.chosen(np.array([1])).is_cut.tolist() == [False]
    long = load_candidates(str(own), options=CandidateOptions(min_turns=2), cache=cache).splits
    assert [group.key for group in long["test"]] == ["test-0000000"]
    assert len(long["train"]) == 0
    assert not long["test"].is_cut.any()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=20)
@given(rows=st.lists(st.integers(0, 299), unique=True).map(sorted))
def test_chosen_groups_are_those_of_the_whole(helpdesk: CandidateCorpus, rows: list[int]) -> None:
    split = helpdesk.splits["val"]
    assert list(split.chosen(np.array(rows, dtype=np.int64))) == [split[row] for row in rows]


def test_the_first_groups(helpdesk: CandidateCorpus) -> None:
    split = helpdesk.splits["test"]
    assert list(split.first(3)) == split[:3]
    assert split.first(0) is split.first(10_000) is split
    assert [split.utterance_of(reply) for _, reply in split.first(3).positives()] == [
        group.candidates[group.labels.index(True)] for group in split[:3]
    ]


def test_a_corpus_of_pairs_becomes_groups_of_the_same_contexts(helpdesk: CandidateCorpus, tmp_path: Path) -> None:
    pairs = load_pairs("helpdesk", every_word=True, cache=tmp_path)
    for name, split in helpdesk.splits.items():
        recorded = examples(pairs, name, turns=10)
        assert len(split) == len(recorded)
        for group, example in zip(split[:50], recorded[:50], strict=True):
            assert group.context == tuple(sum(turn, ()) for turn in example.context)
            assert len(group.candidates) == (2 if name == "train" else 10)
            assert group.candidates[group.labels.index(True)] == sum(example.reply, ())
            assert sum(group.labels) == 1


def test_arrays_are_read_only_views_of_the_files(helpdesk: CandidateCorpus) -> None:
    split = helpdesk.splits["train"]
    for array in (split.utterances.values, split.candidates.values, split.labels, split.kinds, split.numbers):
        assert not array.flags.owndata
        assert not array.flags.writeable
    assert (split.labels.dtype, split.attackable.dtype) == (bool, bool)
    assert len({split.utterance_of(row) for row in range(len(split.utterances))}) == len(split.utterances)


def test_a_corpus_is_compiled_once_and_each_option_is_part_of_the_key(
    own: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ("hard", 3, 5, 4, 2, 7, True)
    names = ("negatives", "size", "train_size", "turns", "min_turns", "seed", "file_order")
    made = [CandidateOptions(), *(CandidateOptions(**{name: other}) for name, other in zip(names, others, strict=True))]  # type: ignore[arg-type]
    digests = [load_candidates(str(own), options=options, cache=cache).digest for options in made]
    assert set(names) == {field.name for field in fields(CandidateOptions)}
    assert len(set(digests)) == len(made)
    with monkeypatch.context() as patch:
        patch.setattr(sources.FileCandidates, "READER_VERSION", 99)
        digests.append(load_candidates(str(own), cache=cache).digest)
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "COMPILER_VERSION", 99)
        digests.append(load_candidates(str(own), cache=cache).digest)
    assert len(set(digests)) == len(made) + 2
    monkeypatch.setattr(FileCandidates, "read_groups", lambda *_: pytest.fail("it is compiled already"))
    again = load_candidates(str(own), cache=cache)
    assert again.digest == digests[0] == again.folder.name


def test_what_is_mended_is_logged_once_with_its_number(own: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = ("1\ta\tb", "0\ta\tb", "0\ta\tc", "1\td\te", "0\td\te", "0\td\tc")
    many = "\ta" * 51
    write_lines(own / "test.txt", *rows, f"1{many}\tb", f"0{many}\tc")
    with caplog.at_level(logging.WARNING, logger=compiled.__name__):
        assert load_candidates(str(own), cache=cache).num_mended == 2
        assert load_candidates(str(own), cache=cache).num_mended == 2
    place = own / "test.txt"
    assert [record.getMessage() for record in caplog.records] == [
        f"own: a wrong reply with the words of a right one is left out: 2 times, first at {place}:2",
        f"{place}: contexts of more than 50 turns, of which the newest are kept (candidates.turns): line 7",
    ]


def test_broken_and_empty_corpora_are_errors(own: Path, cache: Path) -> None:
    write_lines(own / "test.txt", "3\ta\tb", "0\ta\tc")
    with pytest.raises(DataError, match=r"a label is 0 or 1 \(2 broken in all\)") as caught:
        load_candidates(str(own), cache=cache)
    assert f"parley data check {own}" in str(caught.value)
    empty = write_lines(own.parent / "empty" / "test.txt")
    with pytest.raises(DataError, match="has no context to rank replies to"):
        compiled.open_candidates(own_candidates(empty), cache=cache)
    write_lines(own / "test.tsv", *ROWS)
    with pytest.raises(ConfigError, match="two files of one folder are for test"):
        load_candidates(str(own), cache=cache)


def test_names_and_paths_are_told_apart(own: Path, tmp_path: Path) -> None:
    assert isinstance(find_candidates(str(own)), FileCandidates)
    assert isinstance(find_candidates(str(own / "test.txt")), FileCandidates)
    pairs = write_lines(tmp_path / "pairs.tsv", "a\tb", "b\tc", "one\tbroken\tline")
    assert isinstance(find_candidates(str(pairs)), PairCandidates)
    turns = write_lines(tmp_path / "turns.tsv", "hi\thello\tbye ||| so long", "1 more\ta\tb")
    assert isinstance(find_candidates(str(turns)), PairCandidates), "turns before a source are no labels"
    assert all(isinstance(find_candidates(name), PairCandidates) for name in pair_corpora)
    assert all(isinstance(find_candidates(name), FileCandidates) for name in candidate_corpora)
    with pytest.raises(ConfigError, match="did you mean 'ecommerce_sample'"):
        find_candidates("ecommerce")
    code = tmp_path / "mine.py"
    code.write_text(
        "from pathlib import Path\nfrom parley.envs.ranking.corpora import own_candidates\n"
        "from parley.envs.corpora.pairs.turns import tabbed_pairs\n"
        f"PAIRS = tabbed_pairs(Path({str(pairs)!r}))\nROWS = own_candidates(Path({str(own)!r}))\n"
    )
    assert isinstance(find_candidates(f"{code}:PAIRS"), PairCandidates)
    assert isinstance(find_candidates(f"{code}:ROWS"), FileCandidates)


@pytest.mark.parametrize("broken", ["0 so well", "0\tso well", "no\tso\twell", "", "so\twell"])
def test_a_broken_line_of_two_is_named_and_the_file_holds_rows(broken: str, tmp_path: Path, cache: Path) -> None:
    file = write_lines(tmp_path / "mine.tsv", "1\tso\tyes", broken)
    assert isinstance(find_candidates(str(file)), FileCandidates)
    with pytest.raises(DataError, match=r"mine\.tsv:2"):
        load_candidates(str(file), cache=cache)


@pytest.mark.parametrize("odd", ["1\tone\ttwo", "0\tzero"])
def test_a_source_that_looks_like_a_label_makes_no_rows_of_pairs(odd: str, tmp_path: Path) -> None:
    pairs = write_lines(tmp_path / "pairs.tsv", "a\tb", "b\tc", odd)
    assert isinstance(find_candidates(str(pairs)), PairCandidates)


def test_a_file_named_after_a_split_is_that_split(own: Path, cache: Path) -> None:
    splits = load_candidates(str(own / "test.txt"), cache=cache).splits
    assert [len(splits[name]) for name in ("train", "val", "test")] == [0, 0, 2]


def test_options_out_of_range_are_named() -> None:
    with pytest.raises(ConfigError, match="size is out of range"):
        CandidateOptions(size=1)
    with pytest.raises(ConfigError, match="min_turns is out of range"):
        CandidateOptions(turns=2, min_turns=3)
    with pytest.raises(ConfigError, match="negatives is out of range"):
        CandidateOptions(negatives="easy")  # type: ignore[arg-type]


def test_a_further_context_takes_few_bytes_while_a_corpus_is_compiled(tmp_path: Path) -> None:
    """Bytes of Python and numpy at the most; with lists of numbers, and a set for each context, these were some 1,700."""
    options, rng, peaks = CandidateOptions(train_size=10), random.Random(1), []
    # The first one imports what it needs.
    few, many = 500, 2_000
    for num in (100, few, many):
        sides = [" ".join(str(rng.randrange(9_999)) for _ in range(10)) for _ in range(2 * num)]
        lines = [f"{source}\t{reply}" for source, reply in zip(sides[::2], sides[1::2], strict=True)]
        file = write_lines(tmp_path / f"{num}.tsv", *lines)
        gc.collect()
        tracemalloc.start()
        load_candidates(str(file), options=options, cache=tmp_path / "cache")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    a_context = (peaks[2] - peaks[1]) / (many - few)
    assert a_context < 950, f"{a_context:.0f} bytes a context"


def test_an_opened_corpus_crosses_to_another_process(helpdesk: CandidateCorpus) -> None:
    split = pickle.loads(pickle.dumps(helpdesk)).splits["val"]  # noqa: S301  # a round trip within the test
    assert split[:3] == helpdesk.splits["val"][:3]
