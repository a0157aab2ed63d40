from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path

import pytest

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import CorpusFile, corpus_named
from parley.envs.negotiation.corpora.catalogue import GeneratedCorpus, corpora
from tests.envs.corpora.made_up import SOURCE, contents, write


@pytest.mark.parametrize("name", sorted(corpora))
def test_every_registered_corpus_states_what_it_is(name: str) -> None:
    source = corpora.get(name)
    assert source.name == name
    assert source.summary
    assert source.licence
    assert corpora.summary(name)
    assert source.threshold >= 0
    assert all(file.sha256 and file.num_lines and file.num_bytes for file in source.files)


def test_a_digest_in_any_order_ignores_the_order_and_nothing_else(tmp_path: Path) -> None:
    lines = contents()["train.txt"]
    digest = hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()
    file = CorpusFile(name="train.txt", sha256=("0" * 64, digest), any_order=True)
    shuffled = random.Random(0).sample(lines, len(lines))
    assert shuffled != lines
    path = tmp_path / "train.txt"
    for content in ("\n".join(shuffled), "\n".join([*lines, ""])):
        path.write_text(content)
        assert file.mismatch(path) == ""
    path.write_text("\n".join([*lines[:-1], lines[0], ""]))
    assert "20 lines" in file.mismatch(path)
    assert "sorted lines" in file.mismatch(path)


def test_a_digest_in_order_sees_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "val.txt"
    path.write_text("a\nb\n")
    file = CorpusFile(name="val.txt", sha256=(hashlib.sha256(b"a\nb\n").hexdigest(),))
    assert file.mismatch(path) == ""
    path.write_text("b\na\n")
    assert "2 lines, 4 bytes" in file.mismatch(path)
    assert CorpusFile(name="val.txt").mismatch(path) == ""


def test_reading_goes_on_where_files_are_missing(tmp_path: Path) -> None:
    write(tmp_path / SOURCE.name, contents())
    (tmp_path / SOURCE.name / "val.txt").unlink()
    text = SOURCE.read(tmp_path)
    assert [error.where for error in text.broken] == [tmp_path / SOURCE.name / "val.txt"]
    assert len(text.splits["train"]) == 20
    assert text.splits["val"] == []
    with pytest.raises(DataError, match="a file is missing"):
        text.require_whole()


def test_a_corpus_with_an_address_says_how_to_get_it(tmp_path: Path) -> None:
    source, root = replace(SOURCE, address="https://nowhere.example"), tmp_path / "my data"
    with pytest.raises(DataError) as caught, corpus_named("made_up", root):
        source.fingerprint(root)
    assert f"parley data get made_up --data-root '{root}'; or get the files from nowhere.example" in str(caught.value.fix)
    with pytest.raises(DataError) as caught:
        SOURCE.fingerprint(tmp_path)
    assert "parley data get" not in str(caught.value.fix)


def test_the_generated_corpus_is_whole_and_depends_on_size_and_seed_only(tmp_path: Path) -> None:
    small = GeneratedCorpus(name="small", summary="s", licence="l", num_dialogues=40)
    text = small.read(tmp_path).require_whole()
    assert sum(map(len, text.splits.values())) == 80
    assert all(text.splits.values())
    assert text.selfplay
    assert small.fingerprint(tmp_path) == small.fingerprint(Path("elsewhere"))
    assert len({small.fingerprint(tmp_path), replace(small, seed=1).fingerprint(tmp_path)}) == 2
    assert len({small.fingerprint(tmp_path), replace(small, num_dialogues=50).fingerprint(tmp_path)}) == 2
    assert replace(small, seed=1).read(tmp_path).splits != text.splits
