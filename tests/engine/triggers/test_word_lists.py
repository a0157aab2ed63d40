from __future__ import annotations

import numpy as np

from parley.engine.triggers.targets import prototypes
from parley.engine.triggers.victims import MAL, NORM, RANDOM, REV, Find, WordLists, tally, word_lists

CORPUS = ["on", "no", "star", "level", "you", "are", "on"]


def lists(num_random: int = 50, seed: int = 0, longest: int = 12) -> WordLists:
    return word_lists(CORPUS, "abcdefghijklmnopqrstuvwxyz", longest, num_random, seed)


def test_words_are_listed_once_and_their_reverses_are_no_words() -> None:
    found = lists().lists
    assert found[NORM] == ("are", "level", "no", "on", "star", "you")
    assert found[REV] == ("era", "rats", "uoy")


def test_random_strings_are_distinct_as_long_as_words_are_and_no_words() -> None:
    strings = lists(500).lists[RANDOM]
    assert 400 < len(set(strings)) == len(strings) <= 500
    assert {len(string) for string in strings} == {2, 3, 4, 5}
    assert not set(strings) & set(CORPUS)
    assert lists(500).lists[RANDOM] == strings
    assert lists(500, seed=1).lists[RANDOM] != strings


def test_malicious_strings_are_prototypes_without_blanks_and_words_that_the_corpus_lacks() -> None:
    strings = set(lists().lists[MAL])
    assert {"youareafool", "fool", "idiot"} <= strings
    assert not strings & {"you", "are"}
    assert max(map(len, strings)) <= 12
    longest = max("".join(words) for words in prototypes())
    assert longest in lists(longest=40).lists[MAL]


def test_what_no_reply_can_hold_is_left_out() -> None:
    assert lists(longest=4).lists[NORM] == ("are", "no", "on", "star", "you")


WANTED = WordLists({"norm": ("on", "to", "ton"), "mal": ("not", "ont")})


def test_a_tally_counts_replies_and_tells_whole_ones_from_parts() -> None:
    inputs = np.array(["a", "b", "c", "d", "e"])
    found = tally(WANTED, inputs, np.array(["xton", "to", "xton", "ton", ""]))
    assert (found.num_inputs, found.num_outside) == (5, 3)
    assert found.finds == (
        Find("norm", "on", whole=False, input="a"),
        Find("norm", "to", whole=True, input="b"),
        Find("norm", "ton", whole=True, input="d"),
    )
    assert found.strays == (("a", "xton"), ("e", ""))


def test_a_find_of_a_later_list_stands_behind() -> None:
    found = tally(WANTED, np.array(["a"]), np.array(["onton"]))
    assert [(find.list, find.string) for find in found.finds] == [
        ("norm", "on"),
        ("norm", "to"),
        ("norm", "ton"),
        ("mal", "ont"),
    ]
