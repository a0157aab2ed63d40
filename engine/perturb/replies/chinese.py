"""Chinese: tags by jieba, synonyms by the Chinese Open Wordnet.

Sources: Li et al. 2019, section 3.1: jieba for the Douban data; Wang & Bond 2013, "Building the Chinese Open Wordnet (COW)".

jieba takes the tag of a word that its dictionary holds from there, whatever stands around it, so each distinct word is tagged
once. Words are those of the corpus: one that no dictionary holds has the tag of its last part as jieba cuts it, for the head
of a Chinese compound stands last.

  * # Paper: WordNet from NLTK, which has no Chinese. Ours: the Chinese Open Wordnet. It does not order senses, so
    that under rule "careful" only words of one sense have synonyms.

Not here: how text is cut into words (`envs/corpora/pairs/chinese.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.perturb.replies.language import Tagged, WordClass, is_word
from parley.engine.perturb.replies.settings import SynonymChoice
from parley.engine.perturb.strategies.flat import FlatContexts
from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.pairs.chinese import cutter
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.root import data_root

FOLDER, FILE = "chinese_wordnet", "wn-data-cmn.tab"
_STOPWORDS = """
的 了 着 过 地 得 之 吗 呢 吧 啊 呀 哦 嗯 哈 嘛 啦 哇 喔 噢 唉 诶 么 是 在 有 和 与 及 或
而 但 但是 就 都 也 还 又 再 很 太 不 没 没有 别 被 把 给 对 从 到 向 于 以 为 因为 所以 如果 那么 只
只是 才 可 可以 能 会 要 想 去 来 说 上 下 里 个 些 一 一个 一下 一点 这 那 这个 那个 这些 那些 这样 那样 这么 什么
怎么 怎样 怎么样 哪 哪个 哪里 哪儿 谁 几 多少 为什么 我 你 您 他 她 它 我们 你们 他们 她们 它们 咱们 自己 人家
大家 这里 那里 这儿 那儿
"""
_CLASSES: Mapping[str, WordClass] = {
    "n": "noun",
    "r": "pronoun",
    "v": "verb",
    "a": "adjective",
    "b": "adjective",
    "z": "adjective",
    "d": "adverb",
}
"""Of the first letter of jieba's tags."""
_NAMES = ("nr", "ns", "nt", "nz", "eng")
"""What tags of names begin with; Latin letters in Chinese text mostly name something."""
_PARTS_OF_SPEECH: Mapping[WordClass, str] = {"noun": "n", "verb": "v", "adjective": "a", "adverb": "r"}
_NUM_WORDS = 1 << 17


class Chinese:
    """Chinese as jieba and the Chinese Open Wordnet know it; both are opened when they are first asked for.

    Args:
        root: where corpora lie; the usual places when not given.
        tagger: tags cut words, an iterable of pairs `word`, `flag`; jieba's when not given.
    """

    generic = (
        ("不好意思", "你", "能", "再", "说", "一遍", "吗"),
        ("太棒了", "听起来", "不错"),
        ("我", "不", "知道", "该", "说", "什么"),
        ("好", "的", "谢谢", "你", "告诉", "我"),
        ("这", "要", "看", "你", "想", "怎么样"),
    )
    """The first two say what the paper's English ones say."""

    def __init__(self, root: Path | None = None, tagger: Any = None) -> None:
        self._root, self._given = root, tagger
        self._tag = lru_cache(_NUM_WORDS)(self._tag_of)
        self._stopwords = frozenset(_STOPWORDS.split())

    def tag_all(self, utterances: Sequence[Utterance]) -> list[list[str]]:
        """Jieba's tags, see `ReplyLanguage`.

        Raises:
            ConfigError: jieba is not installed.
        """
        return [list(map(self._tag, words)) for words in utterances]

    def are_tags(self, utterances: Sequence[Utterance], tags: Sequence[Sequence[str]]) -> list[bool]:
        """See `ReplyLanguage`."""
        return [found == list(own) for found, own in zip(self.tag_all(utterances), tags, strict=True)]

    def class_of(self, tag: str) -> WordClass:
        """The class of one of jieba's tags, see `ReplyLanguage`."""
        return "name" if tag.startswith(_NAMES) else _CLASSES.get(tag[:1], "other")

    def is_content(self, word: str) -> bool:
        """Whether a word is neither a mark nor a stop word, see `ReplyLanguage`."""
        return is_word(word) and word not in self._stopwords

    def stays(self, flat: FlatContexts) -> np.ndarray:
        """None, see `ReplyLanguage`: names have tags of their own."""
        return np.zeros(len(flat.words), dtype=bool)

    def synonyms(self, asked: Sequence[Tagged], choice: SynonymChoice) -> list[Utterance]:
        """The other words of a word's synsets, see `ReplyLanguage`; Chinese words have one form.

        Raises:
            DataError: the Chinese Open Wordnet is not there, or a line of it is broken.
        """
        return [self._synonyms_of(word, tag, choice) for word, tag in asked]

    def fits(self, before: str, word: str, other: str) -> bool:
        """Always, see `ReplyLanguage`."""
        return True

    def _synonyms_of(self, word: str, tag: str, choice: SynonymChoice) -> Utterance:
        own = _PARTS_OF_SPEECH.get(self.class_of(tag))
        parts = ([] if own is None else [own]) if choice.same_class else _PARTS_OF_SPEECH.values()
        senses = [sense for part in parts for sense in self._senses.get((word, part), ())]
        if choice.sense != "any" and len(senses) > 1:
            return ()
        return tuple(dict.fromkeys(other for each in senses for other in self._words[each] if other != word))

    def _tag_of(self, word: str) -> str:
        known = self._tagger.word_tag_tab.get(word)
        if known is not None:
            return str(known)
        parts = [str(pair.flag) for pair in self._tagger.cut(word)]
        return parts[-1] if parts else "x"

    @cached_property
    def _tagger(self) -> Any:
        if self._given is not None:
            return self._given
        words = cutter()
        # jieba is there, or the line before has said that it is not.
        from jieba.posseg import POSTokenizer

        return POSTokenizer(words)

    @cached_property
    def _words(self) -> Mapping[str, Sequence[str]]:
        """The words of each synset."""
        path = data_root(self._root) / FOLDER / FILE
        if not path.is_file():
            raise DataError(
                "synonyms of Chinese words need the Chinese Open Wordnet",
                where=path,
                fix="put wns/cow/wn-data-cmn.tab of github.com/omwn/omw-data there",
            )
        found: dict[str, dict[str, None]] = {}
        for number, line in enumerate(read_lines(path), 1):
            if line.startswith("#") or not line:
                continue
            try:
                require_utf8(line)
                synset, kind, word, *rest = (*line.split("\t"), "", "")
                if not (synset[-2:-1] == "-" and synset[:-2].isdigit() and kind.endswith("lemma") and word) or any(rest):
                    raise broken_rule("a line is OFFSET-POS<TAB>cmn:lemma<TAB>WORD", line)
            except DataError as error:
                raise located(error, str(path), number) from None
            # The mark of a border of morphemes; blanks stand between the words of a phrase.
            if " " not in word and "_" not in word:
                found.setdefault(synset, {})[word.replace("+", "")] = None
        return {synset: tuple(words) for synset, words in found.items()}

    @cached_property
    def _senses(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """The synsets of each word and part of speech."""
        found: dict[tuple[str, str], list[str]] = {}
        for synset, words in self._words.items():
            for word in words:
                found.setdefault((word, synset[-1].replace("s", "a")), []).append(synset)
        return found
