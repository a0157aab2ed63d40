"""Corpora of paraphrases: what is read, what is generated, broken lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.compiled import open_pairs
from parley.envs.corpora.pairs.corpora import (
    HELPDESK_PARAPHRASES,
    MSR_PARAPHRASES,
    helpdesk_paraphrases,
    parse_msr,
    read_msr,
)
from parley.envs.corpora.pairs.tokens import SplitText

DATA = os.environ.get("PARLEY_DATA")
HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
SAME = "1\t11\t12\tThe dog barked.\tA dog was barking."
OTHER = "0\t13\t14\tThe dog barked.\tThe cat slept."


def pairs(split: SplitText) -> list[tuple[str, str]]:
    words = [" ".join(each) for each in split.utterances()]
    return [(words[source], words[reply]) for source, reply in split.pairs]


def write(folder: Path, train: str) -> Path:
    folder.mkdir()
    for split, text in (("train", train), ("val", SAME), ("test", SAME)):
        (folder / f"msrp-{split}.tsv").write_bytes(f"{HEADER}\r\n{text}\r\n".encode())
    return folder


def test_pairs_that_mean_the_same_stand_in_both_directions(tmp_path: Path) -> None:
    text = read_msr(write(tmp_path / "paraphrase", f"{SAME}\r\n{OTHER}"))
    assert not text.broken
    there, back = ("the dog barked .", "a dog was barking ."), ("a dog was barking .", "the dog barked .")
    assert [pairs(split) for split in text.splits.values()] == [[there, back]] * 3


@pytest.mark.parametrize("line", ["", "2\t1\t2\ta b\tc d", "1\t1\t2\ta b", "1\t1\t2\ta b\t ", "1\t1\t2\ta b\tc\udcff"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError):
        parse_msr(line)
    folder = write(tmp_path / "paraphrase", SAME)
    with (folder / "msrp-train.tsv").open("ab") as file:
        file.write(line.encode(errors="surrogateescape") + b"\n")
    text = read_msr(folder)
    assert [str(error.where) for error in text.broken] == [f"{folder / 'msrp-train.tsv'}:3"]
    assert text.splits["train"].num_pairs == 2


def test_quotation_marks_are_left_out() -> None:
    assert parse_msr('1\t1\t2\t"It barked," he said.\t\N{LEFT DOUBLE QUOTATION MARK}It did bark.') == (
        ["it", "barked", ",", "he", "said", "."],
        ["it", "did", "bark", "."],
    )


def test_missing_files_are_named_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"paraphrase(.|\n)*msrp-train\.tsv"):
        open_pairs(MSR_PARAPHRASES, tmp_path, cache=tmp_path)


def test_generated_paraphrases_are_the_same_at_every_call_and_held_out_pairs_are_new() -> None:
    text = helpdesk_paraphrases()
    found = {name: pairs(split) for name, split in text.splits.items()}
    assert found == {name: pairs(split) for name, split in helpdesk_paraphrases().splits.items()}
    assert found != {name: pairs(split) for name, split in helpdesk_paraphrases(seed=1).splits.items()}
    assert len(found["train"]) > 2_000
    assert all(found[name] and not set(found[name]) & set(found["train"]) for name in ("val", "test"))
    for made in found.values():
        assert all(source != other for source, other in made)
        assert made[1::2] == [(other, source) for source, other in made[::2]]
        assert not any(mark in "".join(pair) for pair in made for mark in "[]{}|")


def test_the_generated_corpus_needs_no_files(tmp_path: Path) -> None:
    corpus = open_pairs(HELPDESK_PARAPHRASES, tmp_path, every_word=True, cache=tmp_path)
    assert all(len(split) for split in corpus.splits.values())


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="PARLEY_DATA names no folder with the published corpora")
def test_the_published_corpus_has_as_many_pairs_as_counted(tmp_path: Path) -> None:
    root = Path(str(DATA))
    if missing := MSR_PARAPHRASES.missing(root):
        pytest.skip(f"PARLEY_DATA lacks {MSR_PARAPHRASES.name}: {', '.join(missing)}")
    corpus = open_pairs(MSR_PARAPHRASES, root, cache=tmp_path)
    # The published 2,753 of 4,076 pairs for training, of which these files set 500 aside, and 1,147 of 1,725 for the test.
    assert len(corpus.splits["train"]) + len(corpus.splits["val"]) == 2 * 2_753
    assert len(corpus.splits["test"]) == 2 * 1_147
