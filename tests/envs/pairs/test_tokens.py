from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.pairs.tokens import tokenise

PIECES = [
    "n't",
    "'s",
    "'ll",
    "'",
    "-",
    ".",
    "..",
    "/",
    "~/",
    ":",
    ")",
    "don",
    "can't",
    "10.04",
    "http://",
    "www.",
    "a.com",
    "<",
    "url>",
]
PIECES += ["<unk>", "<path>", " ", "\t", "É", "ß", "_", "3", "x", ";-", "d", "\u2019", "\x00", "</s>"]

texts = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))


@given(texts)
def test_tokens_joined_by_spaces_give_the_same_tokens(text: str) -> None:
    tokens = tokenise(text)
    assert tokenise(" ".join(tokens)) == tokens
    assert all(token.split() == [token] for token in tokens)


@given(texts)
def test_no_character_is_lost_but_space_and_what_a_mark_stands_for(text: str) -> None:
    tokens = tokenise(text)
    if not {"<url>", "<path>", "..."} & set(tokens):
        assert "".join(tokens) == "".join(text.lower().replace("\u2019", "'").split())


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't, I'm DONE!", "do n't , i 'm done !"),
        ("we'll've o'clock rock'n'roll", "we 'll 've o'clock rock'n'roll"),
        ("it\u2019s fine", "it 's fine"),
        ("apt-get dist-upgrade on 10.04, 1,000 files at 03:12", "apt-get dist-upgrade on 10.04 , 1,000 files at 03:12"),
        ("see https://a.example/x?y=1, or www.b.example.", "see <url> , or <url> ."),
        ("(http://a.example/x) ubuntu.com/desktop", "( <url> ) <url>"),
        ("edit /etc/apt/sources.list, then ~/bin or ./run.", "edit <path> , then <path> or <path> ."),
        ("and/or 1/2", "and / or 1 / 2"),
        ("well.... so..", "well ... so ..."),
        (":) ;-) :D :dpkg", ":) ;-) :d : dpkg"),
        ("<unk> <url> </s> <eou>", "<unk> <url> < / s > < eou >"),
        (" \t", ""),
    ],
)
def test_the_rules_by_example(text: str, tokens: str) -> None:
    assert tokenise(text) == tokens.split()
