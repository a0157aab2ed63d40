from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.negotiation.corpora import catalogue as compiled
from parley.envs.negotiation.corpora.catalogue import Corpus, load_corpus, open_corpus
from parley.envs.negotiation.corpora.dealornodeal import parse_lines, parse_scenarios
from parley.envs.negotiation.domain import UNK
from tests.envs.corpora.made_up import SOURCE, contents, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "data" / SOURCE.name, contents())
    return tmp_path / "data"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_the_first_dialogues_are_those_of_the_corpus(root: Path, cache: Path) -> None:
    corpus = open_corpus(SOURCE, root, cache=cache)
    few, whole = corpus.first(1).splits["train"], corpus.splits["train"]
    assert (len(few), len(few.lengths)) == (1, 1)
    assert few.tokens(0).tolist() == whole.tokens(0).tolist()
    assert few.contexts.tolist() == whole.contexts[:1].tolist()
    assert len(corpus.first(0).splits["train"]) == len(corpus.first(10**6).splits["train"]) == len(whole)


def test_the_arrays_hold_what_the_lines_say(root: Path, cache: Path) -> None:
    corpus = open_corpus(SOURCE, root, cache=cache)
    assert list(corpus.splits) == ["train", "val", "test"]
    for name, split in corpus.splits.items():
        records, _ = parse_lines(contents()[f"{name}.txt"], name)
        assert len(split) == len(records)
        assert split.contexts.shape == (len(records), 6)
        assert split.partner_values.shape == (len(records), 3)
        assert split.outputs.shape == (len(records), 6)
        assert split.lengths.sum() == len(split.token_values)
        for i, record in enumerate(records):
            assert tuple(split.contexts[i]) == record.scenario.context(0)
            assert tuple(split.partner_values[i]) == record.scenario.values[1]
            assert tuple(split.outputs[i]) == record.output
            known = [word if word in corpus.vocabulary.index else UNK for word in record.tokens]
            assert corpus.vocabulary.decode(split.tokens(i).tolist()) == known
            assert split.lengths[i] == len(known)
    scenarios, _ = parse_scenarios(contents()["selfplay.txt"], "selfplay")
    assert corpus.selfplay == scenarios


def test_the_arrays_are_read_only_views_of_the_file_with_the_promised_types(root: Path, cache: Path) -> None:
    split = open_corpus(SOURCE, root, cache=cache).splits["train"]
    for array in (split.contexts, split.partner_values, split.outputs, split.token_values, split.offsets):
        assert not array.flags.owndata
        assert not array.flags.writeable
    assert split.contexts.dtype == split.partner_values.dtype == split.outputs.dtype == np.int64
    assert split.token_values.dtype == np.int16
    assert split.tokens(0).dtype == split.lengths.dtype == np.int64


def test_the_vocabulary_is_that_of_the_training_split_above_the_threshold(root: Path, cache: Path) -> None:
    records, _ = parse_lines(contents()["train.txt"], "train")
    words = [word for record in records for word in record.tokens]
    for threshold in (0, 3, 20):
        corpus = open_corpus(SOURCE, root, cache=cache, threshold=threshold)
        kept = {word for word in words if words.count(word) > threshold} | {"<eos>", "<unk>", "<selection>", "<pad>"}
        assert set(corpus.vocabulary.words) == kept


def test_a_corpus_is_compiled_once(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_corpus(SOURCE, root, cache=cache)
    monkeypatch.setattr(compiled, "_compile", lambda *_: pytest.fail("compiled twice"))
    again = open_corpus(SOURCE, root, cache=cache)
    assert again.folder == first.folder
    assert again.vocabulary == first.vocabulary


def test_a_change_of_content_threshold_or_reader_is_another_key(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {open_corpus(SOURCE, root, cache=cache).folder}
    folders.add(open_corpus(SOURCE, root, cache=cache, threshold=4).folder)
    with monkeypatch.context() as patch:
        patch.setattr("parley.envs.negotiation.corpora.catalogue.READER_VERSION", 99)
        folders.add(open_corpus(SOURCE, root, cache=cache).folder)
    val = root / SOURCE.name / "val.txt"
    val.write_text("".join(val.read_text().splitlines(keepends=True)[1:]))
    shorter = open_corpus(SOURCE, root, cache=cache)
    assert len(shorter.splits["val"]) == 4
    assert len({*folders, shorter.folder}) == 4


def test_an_empty_split_is_no_obstacle(root: Path, cache: Path) -> None:
    (root / SOURCE.name / "val.txt").write_text("")
    (root / SOURCE.name / "selfplay.txt").write_text("")
    corpus = open_corpus(SOURCE, root, cache=cache)
    assert len(corpus.splits["val"]) == 0
    assert corpus.splits["val"].contexts.shape == (0, 6)
    assert corpus.selfplay == []


@pytest.mark.parametrize("name", ["train.arrow", "selfplay.arrow", "vocabulary.json", "manifest.json"])
@pytest.mark.parametrize("how", ["truncated", "changed", "deleted"])
def test_a_damaged_file_is_noticed_and_compiled_again(
    root: Path, cache: Path, name: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_corpus(SOURCE, root, cache=cache).folder
    whole = (folder / name).read_bytes()
    if how == "deleted":
        (folder / name).unlink()
    elif how == "truncated":
        (folder / name).write_bytes(whole[: len(whole) // 2])
    else:
        middle = len(whole) // 2
        (folder / name).write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with caplog.at_level(logging.WARNING):
        corpus = open_corpus(SOURCE, root, cache=cache)
    assert "damaged" in caplog.text
    assert (folder / name).read_bytes() == whole
    assert len(corpus.splits["train"]) == 20
    caplog.clear()
    open_corpus(SOURCE, root, cache=cache)
    assert "damaged" not in caplog.text


def test_a_manifest_of_other_files_is_damage(root: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = open_corpus(SOURCE, root, cache=cache).folder
    (folder / "manifest.json").write_text("{}")
    open_corpus(SOURCE, root, cache=cache)
    assert "names other files" in caplog.text


def test_a_rebuilt_corpus_leaves_open_ones_intact(root: Path, cache: Path) -> None:
    before = open_corpus(SOURCE, root, cache=cache)
    expected = before.splits["train"].token_values.copy()
    (before.folder / "vocabulary.json").unlink()
    open_corpus(SOURCE, root, cache=cache)
    np.testing.assert_array_equal(before.splits["train"].token_values, expected)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_a_data_error_and_leaves_nothing(
    root: Path, cache: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(DataError, match=os.strerror(code)) as caught:
            open_corpus(SOURCE, root, cache=cache)
    assert "PARLEY_CACHE" in str(caught.value.fix)
    assert list((cache / "compiled" / SOURCE.name).iterdir()) == []
    assert len(open_corpus(SOURCE, root, cache=cache).splits["train"]) == 20


def test_a_cache_that_is_no_folder_is_a_data_error(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        open_corpus(SOURCE, root, cache=tmp_path / "file")


def _open_at_the_gate(root: Path, cache: Path, gate: object, answers: object) -> None:
    gate.wait()  # type: ignore[attr-defined]
    corpus = open_corpus(SOURCE, root, cache=cache)
    answers.put((str(corpus.folder), int(corpus.splits["train"].token_values.sum())))  # type: ignore[attr-defined]


@pytest.mark.parametrize("damaged", [False, True])
def test_processes_may_compile_at_the_same_time(root: Path, cache: Path, damaged: bool) -> None:
    if damaged:
        (open_corpus(SOURCE, root, cache=cache).folder / "train.arrow").write_bytes(b"")
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(4), context.Queue()
    workers = [context.Process(target=_open_at_the_gate, args=(root, cache, gate, answers)) for _ in range(4)]
    for worker in workers:
        worker.start()
    given = [answers.get(timeout=200) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    assert len(set(given)) == 1
    assert [path.name for path in (cache / "compiled" / SOURCE.name).iterdir()] == [Path(given[0][0]).name]


def test_losing_the_race_to_another_process_is_no_error(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = compiled.Vocabulary.build
    winners: list[Corpus] = []

    def build_after_the_other(*arguments: object) -> object:
        monkeypatch.setattr(compiled.Vocabulary, "build", build)
        winners.append(open_corpus(SOURCE, root, cache=cache))
        return build(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compiled.Vocabulary, "build", build_after_the_other)
    corpus = open_corpus(SOURCE, root, cache=cache)
    assert corpus.folder == winners[0].folder
    np.testing.assert_array_equal(corpus.splits["train"].contexts, winners[0].splits["train"].contexts)


def test_a_broken_line_stops_the_compilation_and_is_named(root: Path, cache: Path) -> None:
    with (root / SOURCE.name / "test.txt").open("a") as file:
        file.write("nonsense\nmore nonsense\n")
    with pytest.raises(DataError) as caught:
        open_corpus(SOURCE, root, cache=cache)
    assert str(caught.value.where) == f"{root / SOURCE.name / 'test.txt'}:6"
    assert "2 broken in all" in caught.value.what
    assert not (cache / "compiled").exists()


def test_missing_files_are_named(root: Path, cache: Path) -> None:
    (root / SOURCE.name / "val.txt").unlink()
    with pytest.raises(DataError, match=r"no val\.txt"):
        open_corpus(SOURCE, root, cache=cache)


def test_too_many_words_are_a_data_error(root: Path, cache: Path) -> None:
    line = contents()["train.txt"][0]
    start = line.index("<eos>")
    many = " ".join(f"w{i}" for i in range(33_000))
    (root / SOURCE.name / "train.txt").write_text(f"{line[:start]}{many} {line[start:]}\n{contents()['train.txt'][1]}\n")
    with pytest.raises(DataError, match="vocabulary is too large"):
        open_corpus(SOURCE, root, cache=cache, threshold=0)


def test_a_corpus_crosses_process_borders(root: Path, cache: Path) -> None:
    corpus = open_corpus(SOURCE, root, cache=cache)
    copy = pickle.loads(pickle.dumps(corpus))  # noqa: S301  # a round trip within the test
    np.testing.assert_array_equal(copy.splits["test"].tokens(1), corpus.splits["test"].tokens(1))
    assert copy.vocabulary == corpus.vocabulary


def test_a_corpus_of_ones_own_is_named_by_its_file(root: Path, cache: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from parley.envs.negotiation.corpora.catalogue import FileCorpus\n"
        f"CORPUS = FileCorpus(name={SOURCE.name!r}, summary='own', licence='own', obtain='home', threshold=1)\n"
    )
    assert len(load_corpus(f"{own}:CORPUS", root, cache=cache).splits["train"]) == 20


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'dealornodeal'"):
        load_corpus("dealornodeals")


def test_the_cache_variable_is_obeyed(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PARLEY_DATA", str(root))
    assert open_corpus(SOURCE).folder.is_relative_to(tmp_path / "elsewhere")
    assert open_corpus(replace(SOURCE, threshold=1)).folder.is_relative_to(tmp_path / "elsewhere")
