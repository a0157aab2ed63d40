"""Random Swap: how often, where, and what stays."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings

from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from engine.perturb.swap import MARKS, RandomSwap, build
from envs.pairs.turns import Turns, Utterance
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
    for old, new in zip((u for turn in turns for u in turn), (u for turn in after for u in turn), strict=True):
        assert Counter(old) == Counter(new)
        assert sum(a != b for a, b in zip(old, new, strict=True)) <= 2 * limit(old, rule)
        assert [i for i, word in enumerate(old) if word in MARKS] == [i for i, word in enumerate(new) if word in MARKS]
        assert all(new[i] in (old[max(i - 1, 0)], old[i], old[min(i + 1, len(old) - 1)]) for i in range(len(old)))


def test_neighbouring_contexts_draw_differently() -> None:
    after = RandomSwap().perturb([((LETTERS,),)] * 20, range(20))
    assert sum(a != b for a, b in pairwise(after)) > 15
