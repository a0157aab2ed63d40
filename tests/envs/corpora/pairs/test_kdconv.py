"""Reader of KdConv on dialogues written for the test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from parley.envs.corpora.pairs.recorded import DOMAINS, read_kdconv
from tests.envs.corpora.pairs.made_up import pairs_of


def write_dialogues(path: Path, *dialogues: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [{"name": "n", "messages": [{"message": said, "attrs": []} for said in dialogue]} for dialogue in dialogues]
    path.write_text(json.dumps(records, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for domain in DOMAINS:
        write_dialogues(tmp_path / domain / "dev.json", *([f"你好{domain}{i}", "你也好", f"再见{i}"] for i in range(40)))
        write_dialogues(tmp_path / domain / "test.json", ["知道这首歌吗？", "知道呀"])
    return tmp_path


def test_neighbouring_messages_are_pairs_of_words(folder: Path) -> None:
    text = read_kdconv(folder).require_whole()
    assert pairs_of(text.splits["test"]) == [("知道 这 首歌 吗 ？", "知道 呀")] * 3


def test_whole_dialogues_of_dev_validate_where_there_is_no_train(folder: Path) -> None:
    splits = read_kdconv(folder).splits
    train, val = ({said for pair in pairs_of(splits[name]) for said in pair} for name in ("train", "val"))
    assert splits["train"].num_pairs + splits["val"].num_pairs == 3 * 40 * 2
    assert 3 * 2 <= splits["val"].num_pairs <= 3 * 12 * 2
    assert not {said for said in train & val if "film" in said or "music" in said or "travel" in said}


def test_a_published_train_is_taken_and_dev_validates(folder: Path) -> None:
    write_dialogues(folder / "film" / "train.json", ["一", "二"], ["三", "四"])
    splits = read_kdconv(folder).splits
    assert ("一", "二") in pairs_of(splits["train"])
    assert sum("film" in source for source, _ in pairs_of(splits["val"])) == 40


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ('[\n{"messages": [{"message": "a"}, {"message": " "}]}\n]', 2, 'a message has a "message" of a word or more'),
        ('[\n\n{"messages": 3}]', 3, 'a dialogue has "messages"'),
        ('{"messages": []}', 1, "the file is one JSON list"),
        ('[\n{"messages": []\n', 3, "the file is one JSON list"),
        ('[{"messages": []}\n{}]', 2, "the file is one JSON list"),
    ],
)
def test_broken_files_are_named_with_their_line(content: str, line: int, what: str, folder: Path) -> None:
    path = folder / "music" / "test.json"
    path.write_text(content)
    (error,) = read_kdconv(folder).broken
    assert (str(error.where), what in error.what) == (f"{path}:{line}", True)


def test_other_encodings_are_named(folder: Path) -> None:
    path = folder / "music" / "test.json"
    path.write_bytes('[{"messages": [{"message": "你好"}]}]'.encode("gbk"))
    (error,) = read_kdconv(folder).broken
    assert "the file is UTF-8 text" in error.what
