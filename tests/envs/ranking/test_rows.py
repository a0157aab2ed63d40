"""Reader of rows: what groups it makes, and what it says of each kind of broken or doubtful line."""

from __future__ import annotations

import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.lines import WordList, split_lines
from parley.envs.corpora.pairs import tokens as chinese
from parley.envs.ranking.groups import CandidateGroup, CandidateKind
from parley.envs.ranking.sources import MAX_WORDS, CandidateText, read_rows
from tests.envs.corpora.pairs.made_up import write_lines
from tests.envs.ranking.made_up import ROWS, listed


def read(folder: Path, *lines: str) -> CandidateText:
    return read_rows({"test": write_lines(folder / "test", *lines)})


def groups(text: CandidateText, split: str = "test") -> list[CandidateGroup]:
    said = text.splits[split].utterances.utterances()
    return list(text.splits[split].split(split, WordList(tuple({word: None for words in said for word in words}))))


def places(errors: list[DataError]) -> list[str]:
    return [f"{str(error.where).rpartition(':')[2]}: {error.what}" for error in errors]


def test_neighbouring_rows_of_one_context_are_a_group(tmp_path: Path) -> None:
    text = read(tmp_path, *ROWS, ROWS[0], ROWS[1])
    text.require_whole()
    first, second, again = groups(text)
    assert listed(first) == (["my disk is full", "which disk ?"], {"the first one": True, "good morning": False, "no": False})
    assert listed(second) == (["hello"], {"hi there": True, "it is red": False})
    assert first.kinds == (CandidateKind.POSITIVE, CandidateKind.NEGATIVE, CandidateKind.NEGATIVE)
    assert first.attackable == (True, True, True)
    assert [group.key for group in (first, second, again)] == ["test-0000000", "test-0000001", "test-0000002"]
    assert again.context == first.context
    assert not text.mended


words = st.lists(st.sampled_from(["a", "b", "it 's", "ubuntu", "10.04", "?", "<url>"]), min_size=1, max_size=4).map(" ".join)
row_groups = st.lists(
    st.tuples(
        st.lists(words, min_size=1, max_size=4),
        st.lists(st.tuples(words, st.booleans()), min_size=2, max_size=5, unique_by=itemgetter(0)),
    ),
    max_size=6,
    unique_by=lambda group: tuple(group[0]),
)


@given(row_groups)
def test_groups_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, written: list[Any]) -> None:
    lines = ["\t".join([str(int(label)), *turns, said]) for turns, replies in written for said, label in replies]
    text = read(tmp_path_factory.mktemp("rows"), *lines).require_whole()
    assert [listed(group) for group in groups(text)] == [(turns, dict(replies)) for turns, replies in written]


@given(st.lists(st.sampled_from([b"0", b"1", b"\t", b"\n", b"a", b" ", b"\xff", "你".encode(), b"\r", b"\x00"]), max_size=60))
def test_any_bytes_are_groups_or_named_lines(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("bytes") / "test"
    path.write_bytes(content := b"".join(pieces))
    text = read_rows({"test": path})
    num_lines, num_candidates = len(split_lines(content)), sum(len(group.candidates) for group in groups(text))
    left_out = [error for error in text.mended if "a wrong reply" in error.what]
    assert num_candidates + len(left_out) == num_lines if not text.broken else num_candidates < num_lines
    assert {int(str(error.where).rpartition(":")[2]) for error in (*text.broken, *text.mended)} <= {*range(1, num_lines + 1)}


def test_a_file_for_all_splits_keeps_rows_of_a_context_together(tmp_path: Path) -> None:
    rows = [f"{label}\tquestion {i}\tanswer {i} {label}" for i in range(200) for label in (1, 0)]
    splits = read_rows({None: write_lines(tmp_path / "all", *rows)}).splits
    assert sum(map(len, splits.values())) == 200
    assert len(splits["train"]) > 160
    assert min(len(splits["val"]), len(splits["test"])) > 2


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("2\thello\thi", "a label is 0 or 1"),
        ("\thello\thi", "a label is 0 or 1"),
        ("1\thello", "a row is a label, a turn or more, and a response, with tabs between"),
        ("", "a row is a label, a turn or more, and a response, with tabs between"),
    ],
)
def test_a_row_of_another_form_is_named_with_file_and_line(line: str, what: str, tmp_path: Path) -> None:
    text = read(tmp_path, *ROWS, line)
    assert [f"broken line: {what}" in str(error) for error in text.broken] == [True]
    assert str(text.broken[0].where) == f"{tmp_path / 'test'}:6"
    assert len(groups(text)) == 2
    with pytest.raises(DataError, match="1 broken in all"):
        text.require_whole()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["1\tonly\tone row"], ["1: a broken line: a context has two replies or more to choose from, and this one has fewer"]),
        (["1\ta\tb", "0\ta\t \u200b"], ["2: a broken line: a reply has no word", "1: a broken line: a context has two"]),
        (["1\t \t\tb", "0\t \t\tc"], ["1: a broken line: no turn of the context has a word"]),
        (["1\ta\tb", "0\ta\tB", "0\ta\t \u200b"], ["3: a broken line: a reply has no word"]),
        (["1\ta\tb", f"0\ta\t{'c ' * (MAX_WORDS + 1)}"], [f"2: a broken line: a reply has {MAX_WORDS + 1:,} words"]),
        ([f"1\t{'c ' * (MAX_WORDS + 1)}\tb", f"0\t{'c ' * (MAX_WORDS + 1)}\td"], ["1: a broken line: a turn has 10,001 words"]),
    ],
)
def test_a_group_that_cannot_be_ranked_is_named(lines: list[str], expected: list[str], tmp_path: Path) -> None:
    found = places(read(tmp_path, *lines).broken)
    assert len(found) == len(expected)
    assert all(place.startswith(each) for place, each in zip(found, expected, strict=True))


def test_other_encodings_are_named_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "test").write_bytes("1\t你好\t你 也 好\n0\thello\thi\n".encode("gbk"))
    assert places(read_rows({"test": tmp_path / "test"}).broken)[0] == "1: a broken line: the file is UTF-8 text"


def test_what_contradicts_itself_or_is_empty_is_left_out_and_told(tmp_path: Path) -> None:
    lines = ("1\thello\t\thow are you\tFine .", "0\thello\t\thow are you\tfine.", "0\thello\t\thow are you\tred")
    text = read(tmp_path, *lines)
    (group,) = groups(text.require_whole())
    assert listed(group) == (["hello", "how are you"], {"fine .": True, "red": False})
    assert places(text.mended) == [
        "1: a turn without a word is left out",
        "2: a wrong reply with the words of a right one is left out",
    ]


def test_a_context_whose_only_wrong_reply_is_its_right_one_is_left_out_and_told(tmp_path: Path) -> None:
    text = read(tmp_path, "1\thello there\tThanks", "0\thello there\tthanks", "1\thow are you\tfine", "0\thow are you\tred")
    (group,) = groups(text.require_whole())
    assert listed(group) == (["how are you"], {"fine": True, "red": False})
    assert places(text.mended) == [
        "2: a wrong reply with the words of a right one is left out",
        "1: a context that has one reply left is left out",
    ]


def test_many_turns_long_turns_and_several_right_replies_are_fine_and_told(tmp_path: Path) -> None:
    context = "\t".join(["word " * 3_000, *["so"] * 59])
    text = read(tmp_path, f"1\t{context}\tyes", f"1\t{context}\tof course", f"0\t{context}\tno")
    (group,) = groups(text.require_whole())
    assert (len(group.context), len(group.context[0])) == (60, 3_000)
    assert listed(group)[1] == {"yes": True, "of course": True, "no": False}
    assert not text.mended
    file = tmp_path / "test"
    assert text.long_told() == (
        f"{file}: contexts of more than 50 turns, of which the newest are kept (candidates.turns): line 1",
        f"{file}: turns of more than 1,000 words, of which networks read a part: line 1",
    )


def test_the_first_of_many_long_lines_are_named(tmp_path: Path) -> None:
    text = read(tmp_path, *(f"{label}\thello {number}\t{'word ' * 1_001}{label}" for number in range(4) for label in (1, 0)))
    (told,) = text.long_told()
    assert told.endswith("replies of more than 1,000 words, of which networks read a part: lines 1, 2, 3, 4, 5 and 3 more")
    assert not read(tmp_path, f"1\thello\t{'word ' * 1_000}", f"0\thello\t{'so ' * 10_001}").long_told()


RAW = ("1\t你好请问什么时候发货呢\t今天下午就会给您发货的", "0\t你好请问什么时候发货呢\t这个颜色没有了不好意思")
IN_WORDS = ("1\t你好 请问 什么 时候 发货 呢\t今天 下午 就 会 给 您 发货 的", "0\t你好 请问 什么 时候 发货 呢\t没有 了")


def test_chinese_without_blanks_is_cut_into_words(tmp_path: Path) -> None:
    (group,) = groups(read(tmp_path, *RAW).require_whole())
    assert group.context == (("你好", "请问", "什么", "时候", "发货", "呢"),)
    assert groups(read(tmp_path, *IN_WORDS))[0].context == group.context


def test_chinese_texts_that_are_too_short_to_tell_are_cut_as_all_of_them_come(tmp_path: Path) -> None:
    (group,) = groups(read(tmp_path, "1\t请问什么时候\t今天下午", "0\t请问什么时候\t没有了").require_whole())
    assert group.context == (("请问", "什么", "时候"),)
    (group,) = groups(read(tmp_path, "1\t请问 什么 时候\t今天 下午", "0\t请问 什么 时候\t没有 了").require_whole())
    assert group.candidates[0] == ("今天", "下午")


def test_chinese_in_words_needs_no_jieba_and_raw_chinese_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    chinese.cutter.cache_clear()
    assert len(groups(read(tmp_path, *IN_WORDS).require_whole())) == 1
    with pytest.raises(ConfigError, match=r'editable "\.\[chinese\]"'):
        read(tmp_path, *RAW)


def test_raw_chinese_among_words_is_told_line_by_line(tmp_path: Path) -> None:
    lines = (*IN_WORDS, *IN_WORDS[1:], "0\t你好 请问 什么 时候 发货 呢\t这个颜色没有了不好意思")
    text = read(tmp_path, *lines).require_whole()
    assert groups(text)[0].candidates[-1] == ("这个颜色没有了不好意思",)
    assert places(text.mended) == ["4: Chinese without blanks, in a file that comes in words, is read as it stands"]


def test_words_among_raw_chinese_are_told_line_by_line(tmp_path: Path) -> None:
    text = read(tmp_path, *RAW, "0\t你好请问什么时候发货呢\t没有 了 今天 下午 就 会 给 您").require_whole()
    assert places(text.mended) == ["3: Chinese in words, in a file that comes without blanks, may be cut further"]
