"""Random Swap: how often, where, and what stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.strategies.swap import MARKS, RandomSwap, build
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.corpora.pairs.turns import Turns, Utterance
from tests.engine.perturb.fakes import contexts, seeds

LETTERS = tuple("abcdefghijkl")


def one(words: Utterance, strategy: RandomSwap, seed: int = 1) -> Utterance:
    return strategy.perturb([((words,),)], [seed])[0][0][0]


def swapped(before: Utterance, after: Utterance) -> list[int]:
    """Where words of a sentence without repetition changed places with the next one."""
    places = [i for i in range(len(before) - 1) if (after[i], after[i + 1]) == (before[i + 1], before[i])]
    moved = {i for place in places for i in (place, place + 1)}
    assert len(moved) == 2 * len(places), "a word moved twice"
    assert all(before[i] == after[i] for i in range(len(before)) if i not in moved)
    return places


@pytest.mark.parametrize(("length", "expected"), [(1, 0), (3, 0), (4, 1), (7, 1), (8, 2), (12, 3)])
def test_there_is_one_swap_for_every_four_words(length: int, expected: int) -> None:
    for seed in range(20):
        assert len(swapped(LETTERS[:length], one(LETTERS[:length], RandomSwap(), seed))) == expected


def test_the_share_is_a_setting() -> None:
    strategy = build(PerturbSettings(swap_every=2), Resources(PerturbSettings()))
    # Greedy draws may leave no room for the fourth of 8 words' swaps.
    assert {len(swapped(LETTERS[:8], one(LETTERS[:8], strategy, seed))) for seed in range(40)} == {3, 4}


def test_marks_neither_move_nor_count() -> None:
    assert one(("a", ",", "b", ".", "c", "?", "d", "..."), RandomSwap()) == ("a", ",", "b", ".", "c", "?", "d", "...")
    assert one(("a", "b", "c", ",", "!"), RandomSwap()) == ("a", "b", "c", ",", "!")


@pytest.mark.parametrize(("length", "expected"), [(4, 0), (5, 1), (7, 1), (8, 2)])
def test_the_released_rule_keeps_both_ends_and_swaps_once_in_three(length: int, expected: int) -> None:
    words = LETTERS[:length]
    for seed in range(20):
        places = swapped(words, one(words, RandomSwap("released"), seed))
        assert len(places) == expected
        assert all(1 <= place < length - 2 for place in places)


def test_the_released_rule_counts_between_marks() -> None:
    words = ("x", "a", "b", "c", ",", "d", "e", "f", "g", "h", "i", "y")
    for seed in range(20):
        places = swapped(words, one(words, RandomSwap("released"), seed))
        assert sum(place < 4 for place in places) == 1
        assert sum(place > 4 for place in places) == 2


def test_every_choice_of_places_is_as_likely_as_drawing_one_after_the_other() -> None:
    words, num = LETTERS[:8], 4000
    drawn = Counter(tuple(swapped(words, after[0][0])) for after in RandomSwap().perturb([((words,),)] * num, range(num)))

    # First any of 7 places, then any of those that do not touch it: 4 that an inner and 5 that an outer place leaves.
    def exact(first: int, second: int) -> float:
        return 1 / 7 / (5 if first in (0, 6) else 4) + 1 / 7 / (5 if second in (0, 6) else 4)

    expected = {(i, j): exact(i, j) for i in range(7) for j in range(i + 2, 7)}
    assert sum(expected.values()) == pytest.approx(1)
    assert set(drawn) == set(expected)
    for places, share in expected.items():
        assert drawn[places] / num == pytest.approx(share, abs=0.02)


def joined(words: Utterance, rule: str) -> Utterance:
    """Words as people count them: contractions, and under the paper's rule negations, are one."""
    found: list[str] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ","
        ends = word in ("n't", "'re") or (rule == "paper" and is_denied(before, word))
        leads = rule == "paper" and before == "not" and not (place > 1 and is_denied(words[place - 2], before))
        if (ends or leads) and not {word, before} & MARKS:
            found[-1] += f" {word}"
        else:
            found.append(word)
    return tuple(found)


def is_denied(verb: str, word: str) -> bool:
    return word == "not" and verb in ("is", "do", "n't", "'re")


def limit(words: Utterance, rule: str) -> int:
    if rule == "paper":
        return sum(word not in MARKS for word in words) // 4
    fixed = [word in MARKS or i in (0, len(words) - 1) for i, word in enumerate(words)]
    return sum(len(list(group)) // 3 for is_fixed, group in groupby(fixed) if not is_fixed)


@pytest.mark.parametrize("rule", ["paper", "released"])
@settings(deadline=None)
@given(turns=contexts, seed=seeds)
def test_words_stay_in_their_utterance_and_swaps_within_the_rule(rule: str, turns: Turns, seed: int) -> None:
    (after,) = RandomSwap(rule).perturb([turns], [seed])  # type: ignore[arg-type]
    for before, swapped_words in zip((u for turn in turns for u in turn), (u for turn in after for u in turn), strict=True):
        assert Counter(before) == Counter(swapped_words)
        old = joined(before, rule)
        left = list(swapped_words)
        new = []
        # What was one word is one word again, at its own place or at that of a neighbour.
        for i in range(len(old)):
            near = sorted(old[max(i - 1, 0) : i + 2], key=lambda word: (-len(word.split()), word != old[i]))
            new.append(next(word for word in near if left[: len(word.split())] == word.split()))
            del left[: len(new[-1].split())]
        assert not left
        assert sum(a != b for a, b in zip(old, new, strict=True)) <= 2 * limit(old, rule)
        assert [i for i, word in enumerate(old) if word in MARKS] == [i for i, word in enumerate(new) if word in MARKS]


SAID = [
    ("it does n't work at all today", ["does n't"]),
    ("i 'm sure you 've seen what they 're doing", ["i 'm", "you 've", "they 're"]),
    ("i could not resolve it at all", ["could not"]),
    ("we are not due to see you today", ["are not"]),
    ("there is no sound on the machine", ["no sound"]),
    ("it works well without a password here", ["without a"]),
    ("please type dpkg - l in a big terminal", ["dpkg - l"]),
    ("please run java - version in here", ["java - version"]),
    ("now run sudo service apache2 in a shell", ["sudo service apache2"]),
    ("now run sudo apt-get install vim in a shell", ["sudo apt-get install"]),
    ("this is a very nice day : d is it", [": d"]),
    ("wine is not an ;) emulator at all now", ["is not", ";)"]),
    ("ask them in # ubuntu or here again", ["# ubuntu"]),
]


@pytest.mark.parametrize(("text", "kept"), SAID)
def test_contractions_negations_smileys_and_commands_are_not_torn(text: str, kept: Sequence[str]) -> None:
    words = tuple(text.split())
    drawn = {" ".join(one(words, RandomSwap(every=2), seed)) for seed in range(60)}
    assert drawn != {text}
    for line in drawn:
        assert all(phrase in line for phrase in kept), line


def test_smileys_and_an_answer_keep_their_places() -> None:
    words = ("no", "i", "see", "it", ":)", "so", "we", "do", "it")
    for seed in range(40):
        after = one(words, RandomSwap(every=2), seed)
        assert (after[0], after[4]) == ("no", ":)")


def test_a_contraction_counts_as_one_word_under_both_rules() -> None:
    for seed in range(20):
        assert one(("it", "does", "n't", "work"), RandomSwap(), seed) == ("it", "does", "n't", "work")
        assert one(("x", "it", "does", "n't", "y"), RandomSwap("released"), seed) == ("x", "it", "does", "n't", "y")
    drawn = {one(("a", "does", "n't", "work", "b"), RandomSwap(), seed) for seed in range(20)}
    assert ("a", "work", "does", "n't", "b") in drawn


def test_neighbouring_contexts_draw_differently() -> None:
    after = RandomSwap().perturb([((LETTERS,),)] * 20, range(20))
    assert sum(a != b for a, b in pairwise(after)) > 15
