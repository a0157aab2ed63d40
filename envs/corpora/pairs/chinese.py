"""Chinese text as words: what is written without blanks is cut by jieba, which the optional extra `chinese` installs.

Text that comes in words needs nothing but blanks: `tokenise` takes each run of Chinese characters as one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.extras import how_to_install
from parley.envs.corpora.pairs.tokens import tokenise

EXTRA = "chinese"
_PACKAGE = "jieba"
_HAN = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
_HAN_CHARACTER = re.compile(_HAN)
_BLANK_BETWEEN = re.compile(rf"(?<={_HAN})\s+(?={_HAN})")
_DECIDES = 8
"""Chinese characters of a text by which it can be told whether it comes in words."""
_CHARACTERS_PER_BLANK = 8
"""Text in words has a blank between neighbouring characters after two of them on average, text as it is written none."""


def cut(text: str) -> list[str]:
    """The words and punctuation marks of a text in which some or all is Chinese without blanks.

    Raises:
        ConfigError: jieba is not installed.
    """
    words: list[str] = []
    for token in tokenise(text):
        words += cutter().lcut(token) if _HAN_CHARACTER.search(token) else [token]
    return words


@cache
def cutter() -> Any:
    """The tokeniser of jieba with its own dictionary, loaded once.

    Raises:
        ConfigError: jieba is not installed.
    """
    try:
        import jieba
    except ImportError:
        raise ConfigError(
            "Chinese text without blanks is cut into words by the package jieba, which is not installed",
            fix=f"{how_to_install(EXTRA)}; or put blanks between the words",
        ) from None
    made = jieba.Tokenizer()
    # As its `initialize` does, but for the copy of the dictionary that it would read from a folder that all users write to.
    made.FREQ, made.total = made.gen_pfdict(made.get_dict_file())
    made.initialized = True
    return made


def cutter_version() -> str:
    """What the cut words depend on: the installed version of jieba, or that there is none."""
    try:
        return f"{_PACKAGE} {version(_PACKAGE)}"
    except PackageNotFoundError:
        return f"no {_PACKAGE}"


def comes_in_words(text: str) -> bool | None:
    """Whether Chinese text has blanks between its words; None where too little of it is Chinese to tell."""
    if text.isascii():
        return None
    num = len(_HAN_CHARACTER.findall(text))
    return None if num < _DECIDES else num <= _CHARACTERS_PER_BLANK * len(_BLANK_BETWEEN.findall(text))


def is_chinese(words: Iterable[str]) -> bool:
    """Whether more of the words hold a Chinese character than a letter of another script alone."""
    num_chinese = num_others = 0
    for word in words:
        if _HAN_CHARACTER.search(word):
            num_chinese += 1
        elif any(map(str.isalpha, word)):
            num_others += 1
    return num_chinese > num_others
