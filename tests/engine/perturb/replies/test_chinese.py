"""Rules on Chinese replies: jieba's tags, synonyms of the Chinese Open Wordnet, and what is said when one is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.replies.catalogue import SEVEN, build_rules
from parley.engine.perturb.replies.language import FILE, FOLDER, Chinese
from parley.engine.perturb.replies.settings import CAREFUL, ReplySettings
from parley.engine.perturb.replies.shapes import RuleResources, Synonymous
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import DataError
from tests.engine.perturb.replies.groups import group

ANY = replace(CAREFUL, sense="any")


class Pair(NamedTuple):
    word: str
    flag: str


class MadeUpTagger:
    """Knows a few words, and cuts others into characters."""

    word_tag_tab = {"电影": "n", "喜欢": "v", "漂亮": "a", "我": "r", "北京": "ns", "的": "uj", "看": "v", "机": "n"}

    def cut(self, word: str) -> Iterator[Pair]:
        return (Pair(each, self.word_tag_tab.get(each, "x")) for each in word)


LINES = """# Chinese Open Wordnet	cmn	address	wordnet
00000001-n	cmn:lemma	电影
00000001-n	cmn:lemma	影+片
00000002-v	cmn:lemma	喜欢
00000002-v	cmn:lemma	喜爱
00000003-v	cmn:lemma	喜欢
00000003-v	cmn:lemma	爱好
00000004-a	cmn:lemma	漂亮
00000004-a	cmn:lemma	好 看
00000005-n	cmn:lemma	北京
00000005-n	cmn:lemma	京城
"""


@pytest.fixture
def chinese(tmp_path: Path) -> Chinese:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / FILE).write_text(LINES)
    return Chinese(tmp_path, MadeUpTagger())


def test_tags_are_those_of_the_dictionary_or_of_the_last_part(chinese: Chinese) -> None:
    assert chinese.tag_all([("我", "电影机", "。"), ()]) == [["r", "n", "x"], []]
    assert [chinese.class_of(tag) for tag in ("n", "ns", "vn", "r", "d", "x", "eng")] == [
        "noun",
        "name",
        "verb",
        "pronoun",
        "adverb",
        "other",
        "name",
    ]


def test_words_of_one_sense_have_synonyms_and_those_of_several_as_an_option(chinese: Chinese) -> None:
    assert chinese.synonyms([("电影", "n")], CAREFUL) == [("影片",)]
    assert chinese.synonyms([("喜欢", "v")], CAREFUL) == [()]
    assert chinese.synonyms([("喜欢", "v")], ANY) == [("喜爱", "爱好")]
    assert chinese.synonyms([("漂亮", "a")], ANY) == [()]
    assert chinese.synonyms([("电影", "v")], ANY) == [()]


def test_names_and_stop_words_stay(chinese: Chinese) -> None:
    rule = Synonymous(ReplySettings(), chinese)
    (found,) = rule.apply([group("看", "+我 喜欢 北京 的 电影 。", "好")], [1])
    assert " ".join(found.group.candidates[0]) == "我 喜爱 北京 的 影片 。"
    assert found.changed == (2, 0)


def test_a_broken_line_is_named(tmp_path: Path, chinese: Chinese) -> None:
    (tmp_path / FOLDER / FILE).write_text(f"{LINES}电影\n")
    with pytest.raises(DataError, match=rf"{FILE}:12"):
        chinese.synonyms([("电影", "n")], ANY)


def test_a_wordnet_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Chinese Open Wordnet"):
        Chinese(tmp_path, MadeUpTagger()).synonyms([("电影", "n")], ANY)


@pytest.mark.data
def test_all_seven_rules_attack_chinese_replies() -> None:
    pytest.importorskip("jieba")
    written = group(
        "你好 请问 这个 苹果 多少 钱|我 想 买 一些 新鲜 的 水果|这个 商店 的 水果 很 便宜",
        "+我们 商店 的 苹果 非常 好吃 , 您 可以 放心 购买 。",
        "我 昨天 看 了 一部 有趣 的 电影",
        "他 的 汽车 坏 了 , 需要 修理",
    )
    resources = RuleResources(ReplySettings(), Resources(PerturbSettings()), "zh", {"training": [written.context]})
    found = {rule.name: rule.apply([written], [2])[0] for rule in build_rules(SEVEN, resources)}
    assert [name for name, each in found.items() if not any(each.changed)] == []
    kept = found["rnpv"].group.candidates[0]
    assert "非常" not in kept
    assert {"我们", "苹果", "购买"} <= set(kept)
    there = {word for turn in written.context for word in turn}
    for before, after in list(zip(written.candidates, found["iiw"].group.candidates, strict=True))[1:]:
        assert {word for word, old in zip(after, before, strict=True) if word != old} <= there
