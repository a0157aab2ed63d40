"""SOW, RLW and RNPV: what moves, what is repeated, what stays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.perturb.replies.settings import ReplySettings
from tests.engine.perturb.replies.groups import built_in, group

words = st.lists(st.sampled_from(["a", "disk", "works", ",", "!", "10.04"]), min_size=1, max_size=9)
numbers = st.integers(0, 2**63 - 1)


def attacked(name: str, text: str, seed: int = 1, **chosen: Any) -> tuple[list[str], int]:
    (rule,) = built_in(name, ReplySettings(**chosen))
    (found,) = rule.apply([group("x y", f"+{text}", "q")], [seed])
    assert found.changed[1] == 0
    return list(found.group.candidates[0]), found.changed[0]


@given(words, numbers)
def test_shuffled_words_are_the_same_words_in_another_order(before: list[str], seed: int) -> None:
    after, num = attacked("sow", " ".join(before), seed)
    assert Counter(after) == Counter(before)
    assert num == sum(a != b for a, b in zip(after, before, strict=True))
    assert (num > 0) == (len(set(before)) > 1)


@given(words, numbers)
def test_marks_keep_their_places_as_an_option(before: list[str], seed: int) -> None:
    after, num = attacked("sow", " ".join(before), seed, shuffled="words")
    assert Counter(after) == Counter(before)
    assert all((a in ",!") == (b in ",!") for a, b in zip(after, before, strict=True))
    assert (num > 0) == (len({word for word in before if word not in ",!"}) > 1)


@pytest.mark.parametrize("repeated", ["behind", "anywhere"])
@given(before=words, seed=numbers)
def test_half_of_the_words_stand_once_more(before: list[str], seed: int, repeated: str) -> None:
    after, num = attacked("rlw-half", " ".join(before), seed, repeated=repeated)
    copied = Counter(after) - Counter(before)
    own = [word for word in before if word not in ",!"]
    assert copied.total() == num == len(own) // 2
    assert not copied - Counter(own)
    without = list(after)
    if repeated == "behind":
        places = [place for place in range(1, len(after)) if after[place] == after[place - 1]]
        assert len(places) >= num
    for word in before:
        assert word in without
        without = without[without.index(word) + 1 :]


@pytest.mark.parametrize("repeated", ["behind", "anywhere"])
@given(before=words, seed=numbers)
def test_one_word_stands_half_the_length_more(before: list[str], seed: int, repeated: str) -> None:
    after, num = attacked("rlw-1", " ".join(before), seed, repeated=repeated)
    copied = Counter(after) - Counter(before)
    own = [word for word in before if word not in ",!"]
    assert copied.total() == num == len(own) // 2
    assert len(copied) == (num > 0)


def test_half_of_an_odd_number_is_rounded() -> None:
    assert attacked("rlw-1", "one two three")[1] == 1
    assert attacked("rlw-1", "one two three", rounding="up")[1] == 2
    assert attacked("rlw-1", "one", rounding="up")[1] == attacked("rlw-1", "one :d")[1] == 0
    assert attacked("rlw-half", "one two three , .", rounding="up")[1] == 2


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("we can open the very old file slowly , and it works !", "we can open file it works"),
        ("10.04 , !", "10.04 , !"),
        ("you know it", "you know it"),
        ("you know it :p", "you know it"),
        ("very slowly , of the 2 !", "very slowly , of the 2 !"),
    ],
)
def test_nouns_pronouns_and_verbs_alone_stay(text: str, after: str) -> None:
    found, num = attacked("rnpv", text)
    assert " ".join(found) == after
    assert num == len(text.split()) - len(after.split())


def test_modals_are_verbs() -> None:
    assert attacked("rnpv", "we can open it")[0] == ["we", "can", "open", "it"]
