"""Conversations of annotated logs: what is connected, what is a turn, and links that lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.turns import components, read_conversations
from tests.envs.corpora.pairs.made_up import pairs_of, write_lines

LOG = (
    "[03:14] <Ann> my disk is full",
    "=== bob has joined #ubuntu",
    "[03:14] <bob> Ann: which disk?",
    "[03:15] <carl> who likes tea?",
    "[03:15] <bob> and how full",
    "[03:15] <ubotu> ann: here is a fact",
    "[03:16] <Ann> bob, the small one",
    "[03:16] <dora> carl: I do",
    "[03:17]  * ann  sighs",
    "[03:17] <bob> Ann:",
    "[03:18] <Ann> help",
    "[03:19] <bob> buy another",
    "[03:20] <emil> talking",
    "[03:20] <emil> and talking",
    "[03:21] <fred> nobody annotated me",
)
LINKS = (
    *("0 0 -", "0 2 -", "2 4 -", "0 5 -", "4 6 -", "6 8 -", "8 9 -", "8 10 -", "10 11 -"),
    *("3 3 -", "3 7 -", "12 12 -", "12 13 -", "1 1 -"),
)


def write_logs(folder: Path, links: tuple[str, ...] = LINKS) -> Path:
    for name in ("train", "dev", "test"):
        write_lines(folder / "ubuntu_irc" / name / "2004-12-25.ascii.txt", *LOG)
        write_lines(folder / "ubuntu_irc" / name / "2004-12-25.annotation.txt", *links)
    return folder / "ubuntu_irc"


def test_neighbouring_messages_of_one_nick_are_a_turn_and_neighbouring_turns_a_pair(tmp_path: Path) -> None:
    text = read_conversations(write_logs(tmp_path))
    assert text.broken == []
    for split in text.splits.values():
        assert pairs_of(split) == [
            ("my disk is full", "which disk ? <eou> and how full"),
            ("which disk ? <eou> and how full", "the small one <eou> sighs <eou> help"),
            ("the small one <eou> sighs <eou> help", "buy another"),
        ]
        assert split.num_utterances == 4, "a conversation of two turns, or of one speaker, was kept"


def test_what_is_left_out_still_connects(tmp_path: Path) -> None:
    text = read_conversations(write_logs(tmp_path, ("2 5 -", "5 6 -", "6 11 -")))
    assert pairs_of(text.splits["train"]) == [("which disk ?", "the small one"), ("the small one", "buy another")]


@pytest.mark.parametrize("broken", ["9 99 -", "8 6 -", "x 3 -", "1 2", "3 4 5"])
def test_a_broken_link_is_named_with_file_and_line_and_counted(tmp_path: Path, broken: str) -> None:
    write_logs(tmp_path)
    path = write_lines(tmp_path / "ubuntu_irc" / "dev" / "2004-12-25.annotation.txt", *LINKS[:3], broken, "7 6 -")
    with pytest.raises(DataError, match="2 broken in all") as caught:
        load_pairs("ubuntu_dialogues", tmp_path, cache=tmp_path / "cache")
    assert str(caught.value.where) == f"{path}:4"


def test_a_log_without_its_annotation_is_an_error(tmp_path: Path) -> None:
    folder = write_logs(tmp_path)
    (folder / "test" / "2004-12-25.annotation.txt").unlink()
    write_lines(folder / "test" / "2005-01-01.annotation.txt", *LINKS)
    assert [error.where for error in read_conversations(folder).broken] == [folder / "test" / "2004-12-25.annotation.txt"]


def test_boundaries_within_a_turn_keep_their_own_id(tmp_path: Path) -> None:
    write_logs(tmp_path)
    corpus = load_pairs("ubuntu_dialogues", tmp_path, cache=tmp_path / "cache", vocabulary=8)
    reply = corpus.splits["test"].utterances[int(corpus.splits["test"].pairs[0, 1])]
    assert corpus.vocabulary.decode(reply).count("<eou>") == 1
    assert len(corpus.vocabulary) == 8


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12))
def test_components_are_what_links_connect(links: list[tuple[int, int]]) -> None:
    found = components(links)
    reached = {line: {line} for link in links for line in link}
    for _ in reached:
        for first, second in links:
            reached[first] |= reached[second]
            reached[second] |= reached[first]
    assert [*map(tuple, found)] == sorted({tuple(sorted(each)) for each in reached.values()})


def test_missing_logs_belong_into_the_folder_of_the_replies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'ubuntu_dialogues' is not complete") as caught:
        load_pairs("ubuntu_dialogues", tmp_path, cache=tmp_path / "cache")
    assert f"into {tmp_path / 'ubuntu_irc'}" in str(caught.value.fix)
