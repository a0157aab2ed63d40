"""`parley data` on corpora of pairs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.engine.responders.corpora import check_corpus, describe_corpus, find_corpus, get_corpus, list_corpora
from parley.engine.responders.corpus_info import GENERATED, PairCheck, PairInfo
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.corpora import find_pairs, pair_corpora
from parley.envs.corpora.pairs.tokens import PairSource
from parley.envs.mutual_friends.compiled import friend_corpora
from parley.envs.negotiation.corpora.catalogue import corpora
from parley.envs.ranking.corpora import candidate_corpora, find_candidates


@pytest.fixture
def own(tmp_path: Path) -> str:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "train.tsv").write_text("a b c\ta\na\tb b\n")
    (folder / "val.tsv").write_text("a new\tb\n")
    (folder / "test.tsv").write_text("")
    return str(folder)


def test_the_list_holds_all_kinds_under_different_names(tmp_path: Path) -> None:
    listings = list_corpora(tmp_path)
    assert sorted(each.name for each in listings) == sorted((*corpora, *pair_corpora, *candidate_corpora, *friend_corpora))
    assert len({each.name for each in listings}) == len(listings)
    rows = {each.name: each for each in listings}
    assert (rows["embedded"].kind, rows["helpdesk"].kind, rows["friends"].kind) == ("negotiation", "pairs", "chats")
    assert (rows["helpdesk"].present, rows["helpdesk"].where) == (True, GENERATED)
    assert not rows["switchboard"].present
    assert rows["switchboard"].missing == ("train/*.txt", "val/*.txt", "test/*.txt")
    assert rows["switchboard"].where == str(tmp_path / "switchboard")


@pytest.mark.parametrize("find", [find_corpus, find_pairs, find_candidates])
def test_a_folder_that_lies_here_is_told_from_a_name(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Callable[[str], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"is called 'own'[\s\S]*known: [\s\S]*or \./own for the folder that lies here"):
        find("own")
    assert find("./own")
    own_files = r"is called 'owm'[\s\S]*or a file of lines source<TAB>reply, a table with columns [^;]*, or \./FOLDER"
    with pytest.raises(ConfigError, match=own_files):
        find("owm")


def test_info_counts_by_hand(own: str) -> None:
    info = describe_corpus(own)
    assert isinstance(info, PairInfo)
    train, val, test = info.splits
    assert info.num_words == 5 + 3
    assert [(split.num_pairs, split.num_utterances, split.num_tokens) for split in info.splits] == [
        (2, 3, 6),
        (1, 2, 3),
        (0, 0, 0),
    ]
    assert (train.words.mean, train.words.max) == (2.0, 3)
    assert (train.source_words.mean, train.reply_words.mean) == (2.0, 1.5)
    assert val.unknown_rate == pytest.approx(1 / 3)
    assert test.words.mean == test.unknown_rate == 0
    json.dumps(dataclasses.asdict(info))


def test_check_counts_what_is_good_and_names_what_is_broken(own: str) -> None:
    (Path(own) / "val.tsv").write_text("a\tb\nnonsense\na\tb\n")
    (Path(own) / "test.tsv").write_text("a\t\n")
    check = check_corpus(own)
    assert isinstance(check, PairCheck)
    assert check.exit_status == 1
    assert check.num_pairs == {"train": 2, "val": 2, "test": 0}
    assert [(Path(each.file).name, each.line) for each in check.problems] == [("test.tsv", 1), ("val.tsv", 2)]
    assert all(each.fix for each in check.problems)
    json.dumps(dataclasses.asdict(check))


def test_check_names_missing_files(own: str) -> None:
    (Path(own) / "val.tsv").unlink()
    check = check_corpus(own)
    assert [(each.what, each.file) for each in check.problems] == [("a file is missing", str(Path(own) / "val.tsv"))]


def test_check_of_the_generated_corpus_finds_nothing() -> None:
    check = check_corpus("helpdesk")
    assert check.problems == ()
    assert check.exit_status == 0


def test_get_compiles_what_is_there_and_says_where_to_put_what_is_not(own: str, tmp_path: Path) -> None:
    assert Path(get_corpus(own).compiled).is_dir()
    with pytest.raises(DataError) as caught:
        get_corpus("ubuntu_irc", tmp_path)
    assert str(tmp_path / "ubuntu_irc") in str(caught.value.fix)
    assert "irc-disentanglement" in str(caught.value.fix)


def test_a_name_leads_to_its_kind(own: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from pathlib import Path\nfrom parley.envs.negotiation.corpora.catalogue import FileCorpus\n"
        "from parley.envs.corpora.pairs.turns import tabbed_pairs\n"
        "PAIRS = tabbed_pairs(Path('mine.tsv'))\nTALKS = FileCorpus(name='t', summary='s', licence='l', obtain='o')\n"
    )
    for name in ("helpdesk", own, "mine.tsv", f"{file}:PAIRS"):
        assert isinstance(find_corpus(name), PairSource)
    for name in ("embedded", f"{file}:TALKS"):
        assert not isinstance(find_corpus(name), PairSource)
    with pytest.raises(ConfigError, match="did you mean 'helpdesk'"):
        find_corpus("helpdeks")
