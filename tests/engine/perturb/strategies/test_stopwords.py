"""Stopword Dropout: what goes, what stays, and how much of a turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.strategies.stopwords import StopwordDropout, build
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.corpora.pairs.turns import Turns
from tests.engine.perturb.fakes import FakeLexicon, contexts, seeds

LINE = ("you", "do", "n't", "see", "the", "disk", "of", "a", "machine")


def made(**changes: object) -> StopwordDropout:
    chosen = PerturbSettings(**changes)  # type: ignore[arg-type]
    resources = Resources(chosen)
    resources.__dict__["lexicon"] = FakeLexicon()
    return build(chosen, resources)


def test_verbs_negations_and_persons_stay() -> None:
    (after,) = made().perturb([((LINE,),)], [1])
    assert after == ((("you", "do", "n't", "see", "disk", "machine"),),)


def test_the_released_rule_drops_verbs_and_their_negations_too() -> None:
    (after,) = made(rule="released").perturb([((LINE,),)], [1])
    assert after == ((("you", "see", "disk", "machine"),),)


def test_not_and_the_ends_of_pronouns_stay_under_both_rules() -> None:
    for rule in ("paper", "released"):
        (after,) = made(rule=rule).perturb([((("you", "'re", "not", "the", "disk"),),)], [1])
        assert after == ((("you", "'re", "not", "disk"),),)


def test_at_most_so_many_words_of_a_turn_go_and_all_are_as_likely() -> None:
    turn = (("the", "x", "a", "y"), ("of", "z", "on", "w", "at", "v"))
    strategy = made(max_dropped=2)
    gone = dict.fromkeys(("the", "a", "of", "on", "at"), 0)
    num = 1000
    for after in strategy.perturb([(turn, turn)] * num, range(num)):
        for perturbed in after:
            left = [word for words in perturbed for word in words]
            assert len(left) == 8
            for word in gone:
                gone[word] += word not in left
    # Two of five, twice; four standard errors.
    assert all(count == pytest.approx(2 * num * 2 / 5, abs=4 * (2 * num * 0.24) ** 0.5) for count in gone.values())


def test_an_utterance_of_stop_words_stays_whole_and_empties_under_the_released_rule() -> None:
    context = ((("so", "the"), ("the", "disk")),)
    assert made().perturb([context], [1]) == [((("so", "the"), ("disk",)),)]
    assert made(rule="released").perturb([context], [1]) == [(((), ("disk",)),)]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("there is no menubar on the panel", "there is no menubar panel"),
        ("it makes no sense to me", "it makes no sense me"),
        ("the old one is more than the new", "old one is more than new"),
        ("run it before the reboot", "run it before reboot"),
        ("wait until the end", "wait until end"),
        ("turn it off and then on", "turn it off on"),
        ("log in to the machine", "log in machine"),
        ("type dpkg - s the name", "type dpkg - s name"),
        ("sudo apt-get a the", "sudo apt-get a the"),
        ("i don t know the name", "i don t know name"),
        ("ask in the room", "ask room"),
        ("quite a few of the users", "quite a few users"),
        ("where 's the file", "where 's file"),
        ("that 's the file on it", "that 's file it"),
        ("not at all", "not at all"),
        ("of course , what do you want the file for", "of course , what do you want file for"),
        ("if it 's so , wait for the end", "if it 's so , wait end"),
        ("is the file there", "is file there"),
        ("the first or the second", "first or second"),
    ],
)
def test_what_says_the_opposite_when_it_goes_and_what_belongs_to_a_command_stays(text: str, after: str) -> None:
    chosen = PerturbSettings(lexicon="built-in")
    perturbed = build(chosen, Resources(chosen)).perturb([((tuple(text.split()),),)], [1])
    assert perturbed == [((tuple(after.split()),),)]


@pytest.mark.parametrize("most", [1, 3])
@settings(deadline=None)
@given(turns=contexts, seed=seeds)
def test_what_is_left_is_a_part_of_what_was(most: int, turns: Turns, seed: int) -> None:
    strategy = made(max_dropped=most)
    (after,) = strategy.perturb([turns], [seed])
    for old, new in zip(turns, after, strict=True):
        assert sum(map(len, old)) - sum(map(len, new)) <= most
        for words, rest in zip(old, new, strict=True):
            following = iter(words)
            assert all(word in following for word in rest)
            assert bool(words) == bool(rest)
            assert [word for word in words if word not in strategy.dropped] == [
                word for word in rest if word not in strategy.dropped
            ]
