"""`parley data` on corpora of candidates."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from parley.engine.core.cli.main import main
from parley.engine.core.verbs.api import check_part
from parley.engine.responders.corpora import check_corpus, describe_corpus, get_corpus, list_corpora
from parley.engine.responders.corpus_info import CandidateCheck, CandidateInfo
from parley.envs.core.errors import DataError
from parley.envs.ranking.compiled import load_candidates
from parley.envs.ranking.corpora import own_candidates
from parley.envs.ranking.groups import CandidateOptions
from tests.envs.corpora.pairs.made_up import write_lines
from tests.envs.ranking.made_up import ROWS


@pytest.fixture
def own(tmp_path: Path) -> str:
    write_lines(tmp_path / "own" / "train.txt", "1\thello\tyes", "1\thello\tof course", "1\tso\tno", "0\tso\twhat ?")
    write_lines(tmp_path / "own" / "test.txt", *ROWS)
    return str(tmp_path / "own")


def test_the_list_holds_candidates(tmp_path: Path) -> None:
    rows = {each.name: each for each in list_corpora(tmp_path) if each.kind == "candidates"}
    assert rows["ecommerce_sample"].missing == ("train", "valid", "test")
    assert not rows["ecommerce_sample"].present
    with pytest.raises(DataError, match="no such folder"):
        describe_corpus("ecommerce_sample", tmp_path)
    assert len(check_corpus("ecommerce_sample", tmp_path).problems) == 3


def test_info_counts_by_hand(own: str) -> None:
    info = describe_corpus(own)
    assert isinstance(info, CandidateInfo)
    train, val, test = info.splits
    assert (info.language, info.num_mended, info.num_words) == ("en", 0, 22)
    assert [(split.num_groups, split.num_seen, split.num_several) for split in info.splits] == [(2, 0, 1), (0, 0, 0), (2, 1, 0)]
    assert (train.num_one_sided, test.num_one_sided) == (1, 0)
    assert test.num_cut == 0
    assert test.num_kinds == {"positive": 2, "negative": 3}
    assert (test.size.mean, test.turns.mean, val.size.mean) == (2.5, 1.5, 0)
    assert test.turn_words.mean == (4 + 3 + 1) / 3
    assert (test.right_words.mean, test.wrong_words.max) == (2.5, 3)
    json.dumps(dataclasses.asdict(info))
    assert get_corpus(own).compiled == info.compiled == str(load_candidates(own).folder)


def test_contexts_of_more_turns_than_are_kept_are_counted(tmp_path: Path) -> None:
    rows = ("0\tall\tno", "1\tall\tyes")
    long = "\t".join(f"turn {number}" for number in range(11))
    write_lines(tmp_path / "own" / "test.txt", *rows, *(row.replace("all", long) for row in rows))
    info, check = describe_corpus(str(tmp_path / "own")), check_corpus(str(tmp_path / "own"))
    assert isinstance(info, CandidateInfo)
    assert isinstance(check, CandidateCheck)
    assert [split.num_cut for split in info.splits] == [0, 0, 1]
    assert (check.turns, check.num_cut) == (10, {"train": 0, "val": 0, "test": 1})
    # A pair's context is followed back as far as it goes.
    chain, others = (
        [f"{said} {number}\t{said} {number + step}" for number in range(14)] for said, step in (("a", 1), ("b", 99))
    )
    for split, lines in {"train": [*chain, *others], "val": others, "test": others}.items():
        write_lines(tmp_path / "pairs" / f"{split}.tsv", *lines)
    pairs = load_candidates(str(tmp_path / "pairs"), options=CandidateOptions(turns=3, size=2)).splits
    train = pairs["train"]
    assert np.flatnonzero(train.is_cut).tolist() == list(range(3, 14))
    assert {len(train[row].context) for row in range(2, 14)} == {3}


def test_check_counts_what_is_good_and_names_what_is_broken_or_mended(own: str) -> None:
    write_lines(Path(own) / "test.txt", "2\ta\tb", *ROWS, "1\tx\ty", "0\tx\ty", "0\tx\tz")
    check = check_corpus(own)
    assert isinstance(check, CandidateCheck)
    assert check.exit_status == 1
    assert check.num_groups == {"train": 2, "val": 0, "test": 3}
    assert [(Path(each.file).name, each.line, each.what) for each in check.problems] == [
        ("test.txt", 1, "a broken line: a label is 0 or 1")
    ]
    assert [(Path(each.file).name, each.line) for each in check.mended] == [("test.txt", 8)]
    json.dumps(dataclasses.asdict(check))


def test_check_names_what_is_unusually_long_and_finds_nothing_wrong(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    file, many = Path(own) / "test.txt", "\tso" * 60
    write_lines(file, *ROWS, f"1{many}\tyes", f"0{many}\tno")
    assert main(["data", "check", own]) == 0
    said = capsys.readouterr().err
    kept = "of which the newest are kept (candidates.turns)"
    assert f"{file}: contexts of more than 50 turns, {kept}: line {len(ROWS) + 1}\n" in said
    assert "nothing is wrong" in said


def test_check_says_that_there_is_no_group(own: str) -> None:
    for name in ("train", "test"):
        write_lines(Path(own) / f"{name}.txt", "1\ta\tb", "bad\ta\tb")
    assert len(check_corpus(own).problems) == 4


def test_a_corpus_of_ones_own_keeps_its_promises(own: str) -> None:
    (found,) = check_part(own_candidates(Path(own)))
    assert (found.kind.name, found.kept) == ("corpus of candidates", True)
    write_lines(Path(own) / "test.txt", "2\ta\tb")
    (found,) = check_part(own_candidates(Path(own)))
    assert not found.kept
