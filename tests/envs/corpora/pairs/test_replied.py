"""Files of sources and replies: what is read, and how a broken line is named."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.own_files import own_file, own_file_names, without_options
from parley.envs.corpora.pairs.compiled import (
    RepliedPair,
    in_one_vocabulary,
    is_closed,
    parse_replied,
    read_replied,
    read_sample_replies,
    unknown_share,
)


def written(folder: Path, *lines: str | bytes) -> Path:
    path = folder / "replies.tsv"
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return path


def test_a_line_is_a_source_and_its_replies_behind_earlier_turns(tmp_path: Path) -> None:
    path = written(tmp_path, "Hello there!\tHi", "a <eot> b\tc d\tYes ||| No, never", "x\ty __eou__ z")
    assert read_replied(path) == [
        RepliedPair((("hello", "there", "!"),), ("hi",)),
        RepliedPair((("a",), ("b",), ("c", "d")), ("yes",)),
        RepliedPair((("a",), ("b",), ("c", "d")), ("no", ",", "never")),
        RepliedPair((("x",),), ("y", "<eou>", "z")),
    ]
    assert read_replied(path, normalise=False)[0] == RepliedPair((("Hello", "there!"),), ("Hi",))


def test_unknown_words_are_one_word_however_they_are_written() -> None:
    (pair,) = parse_replied("the UNK and\tUNknown and <unk> [UNK] <UNKNOWN>")
    assert pair == RepliedPair((("the", "<unk>", "and"),), ("<unk>", "and", "<unk>", "<unk>", "<unk>"))
    (pair,) = parse_replied("unknown\tto Unk")
    assert pair == RepliedPair((("unknown",),), ("to", "unk")), "which are words"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no tab here", "a tab belongs between source and reply"),
        ("source\t ", "the reply has no word"),
        ("source\tyes ||| ", "the reply has no word"),
        (" \treply", "the source has no word"),
        (b"caf\xe9\treply", "the file is UTF-8 text"),
    ],
)
@pytest.mark.parametrize("normalise", [True, False])
def test_a_broken_line_is_named_with_its_file_and_number(tmp_path: Path, line: str | bytes, said: str, normalise: bool) -> None:
    path = written(tmp_path, "good\tpair", line, "good\tpair", line)
    with pytest.raises(DataError, match=said) as caught:
        read_replied(path, normalise=normalise)
    assert f"{path}:2" in str(caught.value.where)
    assert "(2 broken in all)" in str(caught.value)


def table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    """Write rows as the kind of file that the name ends in."""
    objects = [dict(zip(columns, row, strict=True)) for row in rows]
    match path.suffix.lower():
        case ".json":
            path.write_text(json.dumps(objects), encoding="utf-8")
        case ".jsonl":
            path.write_text("".join(f"{json.dumps(entry)}\n" for entry in objects), encoding="utf-8")
        case ".parquet":
            parquet.write_table(pa.Table.from_pylist(objects), path)
        case suffix:
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, delimiter="," if suffix == ".csv" else "\t").writerows([columns, *rows])
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.CSV", "a.tsv", "a.txt", "a.json", "a.jsonl", "a.parquet"])
def test_records_are_pairs_as_lines_are(tmp_path: Path, name: str) -> None:
    rows = [("Hello, there!", "Hi"), ("a <eot> b", "x UNK")]
    path = table(tmp_path / name, ("question", "answer"), rows)
    assert read_replied(path) == [
        RepliedPair((("hello", ",", "there", "!"),), ("hi",)),
        RepliedPair((("a",), ("b",)), ("x", "<unk>")),
    ]
    assert read_replied(path, normalise=False) == [
        RepliedPair((("Hello,", "there!"),), ("Hi",)),
        RepliedPair((("a",), ("b",)), ("x", "UNK")),
    ]


def test_columns_of_any_name_are_named_and_lists_are_turns_and_replies(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ("first", "second", "third"), [("a", "b", "c")])
    named = own_file(f"{path}#context=first+second,reply=third")
    assert read_replied(named) == [RepliedPair((("a",), ("b",)), ("c",))]
    with pytest.raises(DataError, match=r"this looks like CSV with columns first, second, third"):
        read_replied(path)
    (tmp_path / "b.jsonl").write_text('{"context": ["a", "b"], "reply": ["c", "d"]}\n')
    assert [pair.reply for pair in read_replied(tmp_path / "b.jsonl")] == [("c",), ("d",)]


@pytest.mark.parametrize("normalise", [True, False])
def test_a_broken_record_is_named_with_its_file_and_line(tmp_path: Path, normalise: bool) -> None:
    path = table(tmp_path / "a.csv", ("question", "answer"), [("a", "b"), ("c", " "), ("d", "e"), ("f", "")])
    with pytest.raises(DataError, match=r"a answer is empty, or no text(.|\n)*2 broken in all") as caught:
        read_replied(path, normalise=normalise)
    assert str(caught.value.where) == f"{path}:3"
    path.write_text("question,answer\na,b,c\n")
    with pytest.raises(DataError, match="does not fit the header") as caught:
        read_replied(path, normalise=normalise)
    assert str(caught.value.where) == f"{path}:2"
    path.write_text("question,answer\n")
    with pytest.raises(DataError, match="holds no row"):
        read_replied(path, normalise=normalise)


def test_names_between_commas_keep_their_columns() -> None:
    names = "a.tsv, b.csv#context=q+r,reply=s ,c.jsonl#shares=70:15:15,d.tsv"
    assert own_file_names(names) == ["a.tsv", "b.csv#context=q+r,reply=s", "c.jsonl#shares=70:15:15", "d.tsv"]
    assert [without_options(name) for name in own_file_names(names)] == ["a.tsv", "b.csv", "c.jsonl", "d.tsv"]
    assert without_options("s3://bucket/a#1.tsv") == "s3://bucket/a#1.tsv"


def test_a_file_without_a_line_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no line"):
        read_replied(written(tmp_path))


def test_a_reply_of_two_thousand_words_is_read(tmp_path: Path) -> None:
    (pair,) = read_replied(written(tmp_path, f"why ?\t{'because ' * 2000}"))
    assert len(pair.reply) == 2000


def test_words_unknown_to_a_closed_vocabulary_are_unknown_to_both() -> None:
    human = [RepliedPair((("who", "knows", "zoe"),), ("zoe", "knows")), RepliedPair((("a",),), ("b",))]
    machine = [RepliedPair((("who", "knows", "<unk>"),), ("<unk>", "<unk>", "a"))]
    mapped = [RepliedPair((("who", "knows", "<unk>"),), ("<unk>", "knows")), RepliedPair((("a",),), ("<unk>",))]
    assert in_one_vocabulary(human, machine) == (mapped, machine)
    assert in_one_vocabulary(machine, human) == (machine, mapped)
    both = [*human, RepliedPair((("c",),), ("<unk>",) * 3)]
    assert in_one_vocabulary(both, machine) == (both, machine), "both are closed: nothing tells which words each knows"
    assert in_one_vocabulary(human, human[:1]) == (human, human[:1])


def test_a_file_is_closed_by_its_share_of_unknown_words_and_not_by_one() -> None:
    plain = [RepliedPair((("a", "b", "c"),), ("d", "e"))] * 100
    stray = [*plain[1:], RepliedPair((("a", "b", "c"),), ("d", "<unk>"))]
    closed = [*plain[3:], *[stray[-1]] * 3]
    assert (unknown_share(plain), unknown_share(stray), unknown_share(closed)) == (0, 0.002, 0.006)
    assert [is_closed(pairs) for pairs in (plain, stray, closed)] == [False, False, True]
    assert not is_closed([*closed, *plain * 10]), "three among thousands"


@pytest.mark.data
def test_the_published_sample_has_three_sides_of_one_list_of_sources() -> None:
    sides = {side: read_sample_replies(data_root(), side) for side in ("human", "machine", "random")}
    assert [len(pairs) for pairs in sides.values()] == [768] * 3
    assert len({tuple(pair.context for pair in pairs) for pairs in sides.values()}) == 1
    with pytest.raises(DataError, match="no such side"):
        read_sample_replies(data_root(), "people")
