"""Chinese text as words."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs import tokens as chinese
from parley.envs.corpora.pairs.tokens import comes_in_words, cut, is_chinese


def test_text_without_blanks_is_cut_and_the_rest_reads_as_ever() -> None:
    assert cut("你好，请问什么时候发货？ It's OK, see https://a.example/x") == [
        *("你好", "，", "请问", "什么", "时候", "发货", "？", "it", "'s", "ok", ",", "see", "<url>"),
    ]
    assert cut("") == []


def test_no_copy_of_the_dictionary_is_read_from_or_left_in_a_folder_of_all_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chinese.cutter.cache_clear()
    assert cut("今天天气很好") == ["今天天气", "很", "好"]
    assert not list(tmp_path.iterdir())


def test_without_jieba_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    chinese.cutter.cache_clear()
    assert cut("no need of it") == ["no", "need", "of", "it"]
    with pytest.raises(ConfigError, match=r'editable "\.\[chinese\]"'):
        cut("你好")


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("请问什么时候发货呢亲", False),
        ("请问 什么 时候 发货 呢 亲", True),
        ("请问 呢", None),
        ("what is this about", None),
        ("好 的 ok ok 谢谢 你 我 知道 了", True),
    ],
)
def test_it_is_told_whether_text_comes_in_words(text: str, known: bool | None) -> None:
    assert comes_in_words(text) is known


def test_the_script_of_most_words_decides() -> None:
    assert is_chinese(["你好", "吗", "ok", "?", "..."])
    assert not is_chinese(["hello", "there", "你好"])
    assert not is_chinese([])
