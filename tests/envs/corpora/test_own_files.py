"""Files of a user's own as corpora: names, columns, shares, kinds of files, and one sentence where something is not known."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.arrow import UnwholeCorpusError
from parley.envs.corpora.own_files import EVEN_SHARES, own_file
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.corpora import find_pairs
from parley.envs.corpora.pairs.tokens import PairText, split_of
from parley.envs.ranking.compiled import load_candidates
from parley.envs.ranking.corpora import find_candidates
from parley.envs.ranking.groups import CandidateOptions
from parley.envs.ranking.sources import FileCandidates, PairCandidates

ROWS = [("how do i log in ?", "type your name"), ("can i leave ?", "yes , you can"), ("who are you ?", "a bot")]


def csv_of(path: Path, header: str = "question,answer") -> Path:
    lines = [header, *(f'"{question.upper()}", "{answer}"' for question, answer in ROWS)]
    path.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8", newline="")
    return path


def pairs_of(text: PairText) -> list[tuple[str, str]]:
    found = []
    for split in text.splits.values():
        said = [" ".join(words) for words in split.utterances()]
        found += [(said[source], said[reply]) for source, reply in split.pairs.tolist()]
    return sorted(found)


def read(name: str | Path) -> PairText:
    return find_pairs(str(name)).read(Path()).require_whole()


def test_a_file_is_read_by_columns_that_have_usual_names(tmp_path: Path) -> None:
    wanted = sorted(ROWS)
    for name, header in (("faq.csv", "question,answer"), ("FAQ.CSV", "Source,Reply"), ("faq.txt", "prompt,response")):
        assert pairs_of(read(csv_of(tmp_path / name, header))) == wanted
    objects = [{"input": question, "output": answer, "id": 3} for question, answer in ROWS]
    (tmp_path / "faq.jsonl").write_text("".join(json.dumps(each) + "\n" for each in objects), encoding="utf-8")
    (tmp_path / "faq.json").write_text(json.dumps(objects), encoding="utf-8")
    (tmp_path / "faq.tsv").write_text("answer\tquestion\n" + "".join(f"{a}\t{q}\n" for q, a in ROWS), encoding="utf-8")
    parquet.write_table(pa.table({"query": [q for q, _ in ROWS], "answer": [a for _, a in ROWS]}), tmp_path / "faq.parquet")
    for kind in ("jsonl", "json", "tsv", "parquet"):
        assert pairs_of(read(tmp_path / f"faq.{kind}")) == wanted
    assert find_pairs(f"{tmp_path}/faq.jsonl").summary == "pairs of your own, JSON Lines: context=input, reply=output"


def test_columns_of_other_names_are_named_and_several_are_turns(tmp_path: Path) -> None:
    path = tmp_path / "rated.csv"
    path.write_text('first,second,third,id\nhello,"hi, you",how are you ?,1\nbye,see you,ok,2\n', encoding="utf-8")
    assert pairs_of(read(f"{path}#context=First + second,reply=third")) == [("hi , you", "how are you ?"), ("see you", "ok")]
    text = read(f"{path}#context=first+second,reply=third")
    assert sum(len(split.links) for split in text.splits.values()) == 2
    assert find_pairs(f"{path}#context=first,reply=third").fingerprint(tmp_path) != find_pairs(
        f"{path}#context=second,reply=third"
    ).fingerprint(tmp_path)


def test_lists_are_turns_and_replies_and_messages_say_their_content(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    chat = {"context": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}], "reply": ["bye", "ok"]}
    path.write_text(json.dumps(chat) + "\n", encoding="utf-8")
    text = read(path)
    assert pairs_of(text) == [("hi", "bye"), ("hi", "ok")]
    assert sum(len(split.links) for split in text.splits.values()) == 1


def test_lines_with_a_tab_stay_lines_whatever_the_file_is_called(tmp_path: Path) -> None:
    for name in ("pairs.csv", "pairs.tsv", "pairs.txt"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbfwhat is it ?\ta printer, i think\nyes\tno\n")
        assert pairs_of(read(tmp_path / name)) == [("what is it ?", "a printer , i think"), ("yes", "no")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q_text,a_text\na,b\n", r"looks like CSV with columns q_text, a_text(.|\n)*faq\.csv#context=q_text,reply=a_text"),
        ("question,prompt,answer\na,b,c\n", "which of them hold context and reply is not known"),
        ("question;answer\na;b\n", r"other marks(.|\n)*faq\.csv:1"),
    ],
)
def test_columns_that_are_not_known_take_one_sentence_of_help(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "faq.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        find_candidates(str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q_text,a_text\na,b\nc,d\n", r"looks like CSV with columns q_text, a_text(.|\n)*#context=q_text,reply=a_text"),
        ("a|b\nc|d\n", r"looks like CSV with '\|' between columns"),
        ("text:hello\tlabels:hi\ntext:bye\tlabels:ok\tepisode_done:True\n", "looks like ParlAI's"),
    ],
)
def test_lines_of_another_format_are_one_problem(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "faq.txt"
    path.write_text(content, encoding="utf-8")
    text = find_pairs(str(path)).read(tmp_path)
    assert len(text.broken) == 1
    with pytest.raises(UnwholeCorpusError, match=message):
        text.require_whole()


def test_records_that_are_no_exchange_are_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "faq.jsonl"
    lines = [
        '{"context": "a", "reply": "b"}',
        '{"context": "", "reply": "b"}',
        '{"context": "c"}',
        '{"context": "?", "reply": 7}',
    ]
    path.write_text(
        "\n".join([*lines, '{"context": "d", "reply": "\u200b"}', '{"context": 1.5, "reply": true}']), encoding="utf-8"
    )
    text = find_pairs(str(path)).read(tmp_path)
    assert pairs_of(text) == [("?", "7"), ("a", "b")]
    assert [(str(error.where), error.what) for error in text.broken] == [
        (f"{path}:2", "a context is empty, or no text"),
        (f"{path}:3", "a reply is empty, or no text"),
        (f"{path}:5", "a broken line: the reply has no word"),
        (f"{path}:6", "a reply is empty, or no text"),
    ]
    path.write_text("context,reply\na,b\nc,d,e\nf,g\n", encoding="utf-8")
    (error,) = find_pairs(str(path)).read(tmp_path).broken
    assert (error.what, str(error.where)) == ("a row does not fit the header", f"{path}:3")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("faq.csv#context=question", "for context and reply, or for neither"),
        ("faq.csv#context=question,replies=answer", "says 'replies=answer'"),
        ("faq.csv#context=question,reply=", "says 'reply='"),
        ("faq.csv#shares=90:10", "three whole numbers"),
        ("faq.csv#shares=0:0:0", "three whole numbers"),
        ("faq.csv#shares=-1:1:1", "three whole numbers"),
    ],
)
def test_what_a_name_says_is_understood_or_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        own_file(name)


def test_a_column_that_is_not_there_is_named_with_its_nearest(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "faq.csv")
    with pytest.raises(DataError, match=r"no column 'anser', did you mean 'answer'\?(.|\n)*columns question, answer"):
        find_pairs(f"{path}#context=question,reply=anser")


def test_a_name_with_a_mark_of_its_own_is_a_file(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "c#shares=1.csv")
    assert own_file(str(path)).path == path
    assert own_file("data/a#b.csv").shares == EVEN_SHARES


def test_shares_move_records_and_nothing_else() -> None:
    keys = [str(number) for number in range(2000)]
    assert Counter(map(split_of, keys)) == Counter(split_of(key, (18, 1, 1)) for key in keys)
    assert [split_of(key) for key in keys[:60]] == [split_of(key, (90, 5, 5)) for key in keys[:60]]
    halves = Counter(split_of(key, (50, 0, 50)) for key in keys)
    assert halves["val"] == 0
    assert 950 < halves["test"] < 1050
    assert {split_of(key, (0, 0, 1)) for key in keys} == {"test"}


def test_shares_of_a_file_are_part_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("context,reply\n" + "".join(f"question {n},answer {n}\n" for n in range(200)), encoding="utf-8")
    names, options = (str(path), f"{path}#shares=0:0:1"), CandidateOptions(size=2)
    even, all_test = (load_candidates(name, options=options, cache=tmp_path) for name in names)
    assert [len(split) for split in even.splits.values()] == [184, 8, 8]
    assert [len(split) for split in all_test.splits.values()] == [0, 0, 200]
    assert all_test.digest != even.digest
    assert own_file(f"{path}#shares=0:0:1").told_shares.startswith("shared out 0:0:1 to train, val and test")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_labels_make_candidates_of_records(tmp_path: Path, kind: str) -> None:
    rows: list[dict[str, Any]] = [
        {"u1": "hello", "u2": "who is it ?", "r": reply, "ok": ok}
        for reply, ok in (("me", 1), ("not , me", 0), ("a printer", 0))
    ]
    path = tmp_path / f"rated.{kind}"
    if kind == "csv":
        lines = ["u1,u2,r,ok", *(",".join(f'"{value}"' for value in row.values()) for row in rows)]
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        path.write_text("\n".join(json.dumps(row | {"ok": bool(row["ok"])}) for row in rows), encoding="utf-8")
    name = f"{path}#context=u1+u2,reply=r,label=ok,shares=0:0:1"
    assert isinstance(find_candidates(name), FileCandidates)
    (group,) = load_candidates(name, options=CandidateOptions(file_order=True), cache=tmp_path).splits["test"]
    assert group.context == (("hello",), ("who", "is", "it", "?"))
    assert [" ".join(reply) for reply in group.candidates] == ["me", "not , me", "a printer"]
    assert group.labels == (True, False, False)
    assert isinstance(find_candidates(f"{path}#context=u1,reply=r"), PairCandidates)


def test_a_label_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rated.csv"
    path.write_text("context,reply,label\na,b,1\na,c,good\n", encoding="utf-8")
    (first, *_) = find_candidates(str(path)).read_groups(tmp_path, 3).broken
    assert (first.what, str(first.where)) == ("a label is 0 or 1", f"{path}:3")


def test_a_folder_holds_a_file_of_any_kind_for_each_split(tmp_path: Path) -> None:
    folder = tmp_path / "faq"
    folder.mkdir()
    csv_of(folder / "train.CSV")
    csv_of(folder / "valid.csv")
    (folder / "test.jsonl").write_text('{"context": "a", "reply": "b"}\n', encoding="utf-8")
    corpus = load_pairs(str(folder), every_word=True, cache=tmp_path)
    assert {name: len(split) for name, split in corpus.splits.items()} == {"train": 3, "val": 3, "test": 1}
    csv_of(folder / "train.txt")
    with pytest.raises(ConfigError, match="two files of one folder are for train"):
        find_pairs(str(folder))


def test_a_split_with_too_few_replies_is_missed_only_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("context,reply\n" + "".join(f"question {n},answer {n}\n" for n in range(200)), encoding="utf-8")
    options = CandidateOptions(size=100, train_size=100)
    for _ in ("compiled", "opened"):
        corpus = load_candidates(str(path), options=options, cache=tmp_path)
        assert {len(group.candidates) for group in corpus.splits["train"]} == {100}
        with pytest.raises(DataError, match=r"val split has too few replies to draw 99 wrong ones(.|\n)*candidates\.size"):
            corpus.splits["val"]
        with pytest.raises(KeyError):
            corpus.splits["other"]
        assert corpus.lacking == {
            name: f"the {name} split has too few replies to draw 99 wrong ones for a context" for name in ("val", "test")
        }
