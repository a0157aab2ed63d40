from __future__ import annotations

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.corpora.pairs.tokens import normalised, tokenise
from parley.envs.corpora.pairs.turns import parse_turns

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
PIECES += [
    "e\u0301",
    "\u0301",
    "\u0915\u093f",
    "\u0130",
    "\u212a",
    "\u03a3",
    "\u2764\ufe0f",
    "\u20e3",
    "__eou__",
    "__EOT__",
    "<eou>",
]
NOTHING = ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200e", "\u202e", "\u3164", "\ufe0f", "\U000e0041"]

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
        assert "".join(tokens) == "".join(normalised(text).split())


@given(texts)
def test_accents_may_come_with_their_letters_or_behind_them(text: str) -> None:
    assert tokenise(normalize("NFD", text)) == tokenise(normalize("NFC", text)) == tokenise(text)


@given(texts, st.data())
def test_what_shows_nothing_changes_nothing(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    hidden = data.draw(st.lists(st.sampled_from(NOTHING), min_size=1, max_size=3).map("".join))
    assert tokenise(text[:place] + hidden + text[place:]) == tokenise(text)
    assert tokenise(hidden) == []


@given(texts)
def test_no_word_is_a_boundary(text: str) -> None:
    words = [word for turn in parse_turns(text) for utterance in turn for word in utterance]
    again = [word for turn in parse_turns(" ".join(words)) for utterance in turn for word in utterance]
    assert again == words
    assert len(parse_turns(" ".join(words))) == 1


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
        ("cafe\u0301 nai\u0308ve", "caf\u00e9 na\u00efve"),
        ("x\u0323\u030a \u0939\u093f\u0928\u094d\u0926\u0940", "x\u0323\u030a \u0939\u093f\u0928\u094d\u0926\u0940"),
        ("\u0130stanbul don't\u0301", "i\u0307stanbul don't\u0301"),
        ("co\u00adop foo\u200bbar \u200b \ufeffhi don\u200d't", "coop foobar hi do n't"),
        ("\u2764\ufe0f \U0001f469\u200d\U0001f4bb", "\u2764 \U0001f469 \U0001f4bb"),
        (" \t", ""),
    ],
)
def test_the_rules_by_example(text: str, tokens: str) -> None:
    assert tokenise(text) == tokens.split()
