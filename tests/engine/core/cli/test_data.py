"""The data verbs: tables for people, one object for machines, exit status 1 for a broken corpus."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from shutil import copytree

import pytest

from tests.engine.core.cli.conftest import Parley
from tests.engine.core.verbs.made_up import CORPUS


def test_list_says_what_is_missing_and_how_to_get_it(parley: Parley, tmp_path: Path) -> None:
    outcome = parley(f"data list --data-root {tmp_path}")
    assert (outcome.status, outcome.out) == (0, "")
    assert "parley data get dealornodeal" in outcome.err
    printed = json.loads(parley(f"data list --data-root {tmp_path} --json").out)["corpora"]
    found = {corpus["name"]: (corpus["kind"], corpus["present"]) for corpus in printed}
    assert found["dealornodeal"] == ("negotiation", False)
    assert found["embedded"] == ("negotiation", True)
    assert found["ubuntu_irc"] == ("pairs", False)
    assert found["helpdesk"] == ("pairs", True)


def test_info_counts_a_corpus(parley: Parley, root: Path) -> None:
    outcome = parley(f"data info {CORPUS} --data-root {root}")
    assert (outcome.status, outcome.out) == (0, "")
    assert "ends: no agreement" in outcome.err
    printed = json.loads(parley(f"data info {CORPUS} --data-root {root} --json").out)
    assert [split["num_dialogues"] for split in printed["splits"]] == [40, 5, 5]


def test_info_counts_pairs_of_ones_own(parley: Parley, tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("".join(f"question {i}\tanswer {i}\n" for i in range(60)))
    outcome = parley(f"data info {tmp_path / 'own.tsv'}")
    assert (outcome.status, outcome.out) == (0, "")
    assert "words of a reply, p95" in outcome.err
    assert f"parley train seq2seq --corpus {tmp_path / 'own.tsv'}" in outcome.err.replace("\n", "")
    printed = json.loads(parley(f"data info {tmp_path / 'own.tsv'} --json").out)
    assert sum(split["num_pairs"] for split in printed["splits"]) == 60


def test_check_counts_pairs_and_lists_every_problem(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("hello\thi\n")
    outcome = parley(f"data check {path}")
    assert outcome.status == 0
    assert "good utterances" in outcome.err
    assert "too small to train on: empty: val, test" in outcome.err
    path.write_text("hello\thi\nnonsense\n")
    outcome = parley(f"data check {path}")
    assert outcome.status == 1
    assert "own.tsv:2: a broken line" in outcome.err
    assert "1 problem:" in outcome.err
    assert f"`parley data check {path}` lists them all" in parley(f"data info {path}").err.replace("\n", "")
    assert json.loads(parley(f"data check {path} --json").out)["num_pairs"] == {"train": 1, "val": 0, "test": 0}


def test_check_shows_some_problems_of_a_kind_and_counts_the_others(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("hello\thi\n" + "nonsense\n" * 281 + "a\t\n", encoding="utf-8")
    outcome = parley(f"data check {path}")
    assert "282 problems:" in outcome.err
    assert outcome.err.count("; got nonsense; ") == 10
    assert "271 more like this, which --json lists: a broken line: a tab belongs between" in outcome.err
    assert "the reply has no word" in outcome.err
    assert len(json.loads(parley(f"data check {path} --json").out)["problems"]) == 282


def test_check_says_how_a_file_is_read_and_shared_out(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text("q,a\n" + "".join(f"question {n},answer {n}\n" for n in range(200)), encoding="utf-8")
    outcome = parley(f"data check {path}")
    assert outcome.status == 2
    assert f"name them: {path}#context=q,reply=a" in outcome.err.replace("\n", "")
    outcome = parley(f"data check {path}#context=q,reply=a")
    assert outcome.status == 0
    assert (
        f"shared out 90:5:5 to train, val and test by hash of the source; {path}#shares=70:15:15 does otherwise" in outcome.err
    )
    outcome = parley(f"data info {path}#context=q,reply=a,shares=1:0:1 --json")
    assert json.loads(outcome.out)["summary"] == "pairs of your own, CSV: context=q, reply=a, 1:0:1 to train, val and test"


def test_check_counts_repeated_rows_and_names_equal_replies(parley: Parley, tmp_path: Path) -> None:
    rows = [f"how do i open file {number},use the menu\n" for number in range(20)]
    (tmp_path / "pairs.csv").write_text("question,answer\n" + "".join(rows * 3))
    labelled = [f"1\topen file {number} for me\tuse the menu\n0\topen file {number} for me\tgood bye\n" for number in range(4)]
    (tmp_path / "groups.tsv").write_text("".join([*labelled, labelled[0]]))
    told = parley(f"data check {tmp_path / 'pairs.csv'}#shares=100:0:0")
    assert "train: 40 of 60 rows repeat another; equal contexts are one unit of intervals" in told.err
    assert "train: all 60 right replies are equal, so nothing can be told from them" in told.err
    told = parley(f"data check {tmp_path / 'groups.tsv'}#shares=100:0:0")
    assert "train: 1 of 5 rows repeat another" in told.err
    assert "train: all 5 right replies are equal" in told.err


def test_check_names_every_row_that_does_not_fit_the_header_and_goes_on(parley: Parley, tmp_path: Path) -> None:
    lines = ["question,answer", "what is it,a bug", "one cell", "is it mended,no", "so,many,cells", "empty,", "and now,yes"]
    (tmp_path / "pairs.csv").write_text("\n".join(lines))
    told = parley(f"data check {tmp_path / 'pairs.csv'}")
    assert told.status == 1
    assert "2 problems:" in told.err
    assert "2 rows do not fit the header; got lines 3, 5, the first with 1 cells under 2 columns (question, answer)" in told.err
    assert "pairs.csv:6: " in told.err
    missing = parley(f"data check {tmp_path / 'nothing.csv'}")
    assert ("good utterances" in told.err, "good utterances" in missing.err) == (True, False), "no table of zeros"


def test_check_says_that_there_is_nothing_to_train_on(parley: Parley, tmp_path: Path) -> None:
    (tmp_path / "own.tsv").touch()
    outcome = parley(f"data check {tmp_path / 'own.tsv'}")
    assert outcome.status == 1
    assert "the corpus 'own' has no pair to train on" in outcome.err
    assert parley(f"data info {tmp_path / 'own.tsv'}").status == 2


def test_pairs_of_ones_own_that_are_not_there_are_not_to_be_got_anywhere(parley: Parley, tmp_path: Path) -> None:
    for verb in ("info", "check"):
        told = parley(f"data {verb} {tmp_path / 'onw.tsv'}").err
        assert "name a file or folder of pairs that is there" in told
        assert "get the files" not in told


@pytest.mark.parametrize("asked", ["train negotiator --corpus helpdesk", "train seq2seq --corpus embedded"])
def test_a_corpus_of_the_other_kind_is_told_from_one_that_is_unknown(parley: Parley, asked: str) -> None:
    outcome = parley(asked)
    assert outcome.status == 2
    assert re.search(r"no (negotiation|pair) corpus is called '(helpdesk|embedded)'", outcome.err)


def test_what_a_terminal_would_obey_in_a_broken_line_is_escaped(parley: Parley, tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_bytes(b"\x1b[2Jgone\r\0\n")
    outcome = parley(f"data check {tmp_path / 'own.tsv'}")
    assert outcome.status == 1
    assert r"\x1b[2Jgone" in outcome.err
    assert "\x1b" not in outcome.err
    assert "\0" not in outcome.err


def test_check_finds_nothing_wrong_with_a_good_corpus(parley: Parley, root: Path) -> None:
    outcome = parley(f"data check {CORPUS} --data-root {root}")
    assert outcome.status == 0
    assert outcome.err.endswith("nothing is wrong\n")


def test_check_lists_every_problem_with_file_and_line(parley: Parley, root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "made_up"
    folder.mkdir(parents=True)
    for file in (root / "made_up").iterdir():
        (folder / file.name).write_text(file.read_text())
    lines = (folder / "val.txt").read_text().splitlines()
    (folder / "val.txt").write_text("\n".join([lines[0], "nonsense", *lines[2:]]) + "\n")
    (folder / "test.txt").unlink()
    outcome = parley(f"data check {CORPUS} --data-root {tmp_path / 'data'}")
    assert outcome.status == 1
    assert f"{folder / 'val.txt'}:2: " in outcome.err
    assert f"{folder / 'test.txt'}: a file is missing" in outcome.err
    as_json = parley(f"data check {CORPUS} --data-root {tmp_path / 'data'} --json")
    assert as_json.status == 1
    printed = json.loads(as_json.out)
    assert printed["ok"] is False
    assert len(printed["problems"]) == 2
    assert "parley data check" not in outcome.err, "it is what was typed"


@pytest.mark.parametrize("verb", ["data info", "data get", "selfplay --scenarios", "train negotiator --corpus"])
def test_a_broken_corpus_names_the_whole_command_that_lists_what_is_wrong(
    parley: Parley, root: Path, tmp_path: Path, verb: str
) -> None:
    folder = tmp_path / "with blank" / "made_up"
    copytree(root / "made_up", folder)
    (folder / "val.txt").write_text("nonsense\nmore of it\n")
    outcome = parley(*verb.split(), CORPUS, "--data-root", str(folder.parent))
    assert outcome.status == 2
    assert "(2 broken in all)" in outcome.err
    command = outcome.err.partition("`parley ")[2].partition("`")[0]
    listed = parley(*shlex.split(command))
    assert listed.status == 1
    assert listed.err.count("a broken line") == 2


def test_get_tells_where_everything_is(parley: Parley, root: Path) -> None:
    outcome = parley(f"data get {CORPUS} --data-root {root}")
    assert outcome.status == 0
    assert outcome.err.count("kept") == 4
    assert Path(json.loads(parley(f"data get {CORPUS} --data-root {root} --json").out)["compiled"]).is_dir()


def test_get_without_an_address_names_the_files(parley: Parley, tmp_path: Path) -> None:
    outcome = parley(f"data get {CORPUS} --data-root {tmp_path}")
    assert outcome.status == 2
    assert "put these files from nowhere.example" in outcome.err


def test_get_of_pairs_that_are_not_there_names_the_files_and_the_folder(parley: Parley, tmp_path: Path) -> None:
    outcome = parley(f"data get switchboard --data-root {tmp_path}")
    assert outcome.status == 2
    assert "train/*.txt" in outcome.err
    assert str(tmp_path / "switchboard") in outcome.err


@pytest.mark.parametrize("verb", ["get", "info", "check"])
def test_an_unknown_corpus_is_named(parley: Parley, verb: str) -> None:
    outcome = parley(f"data {verb} embeded")
    assert outcome.status == 2
    assert "did you mean 'embedded'" in outcome.err


def test_everything_that_has_a_name_is_listed(parley: Parley) -> None:
    printed = json.loads(parley("list --json").out)
    assert {"human", "scripted"} <= set(printed["agents"])
    assert "embedded" in printed["corpora"]
    assert printed["presets"]["train negotiator"] == ["fast", "lewis2017", "demo"]
    names = (
        "Negotiation",
        "NegotiationText",
        "NegotiationActs",
        "ResponseRanking",
        "MutualFriends",
        "Secret",
        "Reply",
        "Conversation",
    )
    assert printed["environments"] == [f"parley/{name}-v1" for name in names]
    assert printed["metrics"]["advantage"]["direction"] == "higher: adversary"
