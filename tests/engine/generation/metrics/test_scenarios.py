"""What judges are asked: who stands against whom, in which fold, and that nothing depends on the order of lines."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from parley.engine.generation.metrics.adversarial import (
    KEPT_BY_CUT,
    JudgedScenario,
    against,
    assign_folds,
    by_source,
    cut,
    halves,
    matched,
    next_utterances,
    random_replies,
    shares_of_people,
    source_name,
)
from parley.envs.corpora.pairs.compiled import RepliedPair

NUM, FOLDS = 60, 5


def pairs(kind: str, num: int = NUM, several: int = 1) -> list[RepliedPair]:
    rng = random.Random(kind)
    return [
        RepliedPair(((f"source{number}",),), (kind, str(number), str(copy), *["word"] * rng.randrange(3, 9)))
        for number in range(num)
        for copy in range(several)
    ]


def made(several: int = 1) -> tuple[dict[str, list[RepliedPair]], dict[str, list[RepliedPair]], dict[str, int]]:
    human, machine = (by_source(pairs(kind, several=several), 1, 10) for kind in ("human", "machine"))
    return human, machine, assign_folds([human], human, FOLDS, 1)


def sides(scenario: JudgedScenario) -> tuple[list[RepliedPair], list[RepliedPair]]:
    first, second = ([each.pair for each in scenario.pairs if each.label is label] for label in (True, False))
    return first, second


def test_folds_part_the_sources_and_are_of_one_size() -> None:
    sources = [f"s{number}" for number in range(63)]
    folds = assign_folds([], sources, FOLDS, 1)
    assert Counter(Counter(folds.values()).values()) == {12: 2, 13: 3}
    assert folds == assign_folds([], sources[::-1], FOLDS, 1)
    assert folds != assign_folds([], sources, FOLDS, 2)


def test_sources_of_one_last_turn_are_in_one_fold() -> None:
    said = [RepliedPair(((f"before{number}",), (f"turn{number // 7}",)), ("yes",)) for number in range(70)]
    one = by_source(said, 1, 10)
    folds = assign_folds([one], one, FOLDS, 1)
    by_turn = {
        turn: {folds[source_name(pair)] for pair in said if pair.context[-1] == turn}
        for turn in {pair.context[-1] for pair in said}
    }
    assert {len(some) for some in by_turn.values()} == {1}
    assert Counter(folds.values()) == dict.fromkeys(range(FOLDS), 14)
    # What a judge of another file reads joins two of these turns, so that all of both are in one fold.
    names = list(one)
    joined = {names[0]: [RepliedPair((("<unk>",),), ("yes",))], names[-1]: [RepliedPair((("<unk>",),), ("yes",))]}
    together = assign_folds([one, joined], one, FOLDS, 1)
    assert together[names[0]] == together[names[-1]]
    assert together == assign_folds([joined, one], names[::-1], FOLDS, 1)


def test_a_last_turn_of_half_the_sources_leaves_the_other_folds_the_rest() -> None:
    said = [RepliedPair(((f"before{number}",), ("yes",) if number % 2 else (str(number),)), ("no",)) for number in range(40)]
    one = by_source(said, 1, 10)
    assert sorted(Counter(assign_folds([one], one, FOLDS, 1).values()).values()) == [5, 5, 5, 5, 20]


def test_a_scenario_has_equally_many_pairs_of_both_sides_from_each_source() -> None:
    human, machine, folds = made(several=3)
    few = {source: some[:1] if folds[source] else some for source, some in machine.items()}
    found = against("adversuc.m", human, few, folds)
    labels = np.array([each.label for each in found.pairs])
    assert Counter(each.source for each in found.pairs) == {source: 2 if fold else 6 for source, fold in folds.items()}
    assert labels.sum() == len(labels) / 2
    assert all(folds[each.source] == fold for each, fold in zip(found.pairs, found.folds, strict=True))
    assert found.least(FOLDS) == 12


def test_sources_of_one_side_alone_are_left_out() -> None:
    human, machine, folds = made()
    shared = dict(list(machine.items())[:20])
    assert {each.source for each in against("adversuc.m", human, shared, folds).pairs} == set(shared)


def test_nothing_depends_on_the_order_of_lines() -> None:
    several = pairs("human", several=4)
    shuffled = several.copy()
    random.Random(1).shuffle(shuffled)
    assert by_source(several, 1, 2) == by_source(shuffled, 1, 2)
    assert by_source(several, 1, 2) != by_source(several, 2, 2)
    assert all(len(some) == 2 for some in by_source(several, 1, 2).values())


def test_random_replies_are_the_human_replies_of_other_sources_of_the_fold() -> None:
    human, machine, folds = made()
    found = random_replies(machine, human, folds, 1)
    for fold in range(FOLDS):
        here = [source for source in folds if folds[source] == fold]
        taken = Counter(pair.reply for source in here for pair in found[source])
        assert taken == Counter(pair.reply for source in here for pair in human[source]), "each of them once"
    for source, (pair,) in found.items():
        assert source_name(pair) == source
        assert pair.reply != human[source][0].reply


def test_random_replies_are_as_many_as_are_wanted_and_differ() -> None:
    human, machine, folds = made(several=3)
    found = random_replies(machine, human, folds, 1)
    for source, some in found.items():
        replies = {pair.reply for pair in some}
        assert len(replies) == 3
        assert not replies & {pair.reply for pair in human[source]}


def test_halves_are_disjoint_and_equal_in_every_fold() -> None:
    human, _, folds = made(several=2)
    found = halves("human-human", human, folds, 1)
    assert len({each.source for each in found.pairs}) == len(found.pairs) == NUM
    for fold in range(FOLDS):
        here = [each.label for each, of in zip(found.pairs, found.folds, strict=True) if of == fold]
        assert sum(here) == len(here) / 2


def test_matched_sides_have_the_same_lengths_in_every_fold() -> None:
    human, machine, folds = made()
    found = matched("matched.m", against("adversuc.m", human, machine, folds), 1)
    assert 0 < len(found.pairs) < 2 * NUM
    for fold in range(FOLDS):
        here = [each for each, of in zip(found.pairs, found.folds, strict=True) if of == fold]
        first, second = (Counter(len(each.pair.reply) for each in here if each.label is label) for label in (True, False))
        assert first == second


def test_cut_replies_have_one_length_and_keep_their_counterparts() -> None:
    human, machine, folds = made(several=2)
    found, length = cut("cut.m", against("adversuc.m", human, machine, folds))
    first, second = sides(found)
    assert {len(pair.reply) for pair in (*first, *second)} == {length}
    assert KEPT_BY_CUT * 2 * NUM <= len(first) == len(second) <= 2 * NUM
    assert Counter(map(source_name, first)) == Counter(map(source_name, second))


def test_the_next_utterance_is_the_reply_of_the_line_behind() -> None:
    lines = [(("a",), "b"), (("a", "b"), "c"), (("b", "c"), "d"), (("x", "d"), "e"), (("e",), "f")]
    found = [RepliedPair(tuple((turn,) for turn in context), (reply,)) for context, reply in lines]
    assert [(pair.context[-1][0], pair.reply[0]) for pair in next_utterances(found)] == [("a", "c"), ("b", "d"), ("d", "f")]


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_drawn_is_the_seeds(seed: int) -> None:
    human, machine, folds = made()
    plain = against("adversuc.m", human, machine, folds)
    first, second = (matched("matched.m", plain, each) for each in (seed, seed + 1))
    assert first.pairs == matched("matched.m", plain, seed).pairs
    assert first.pairs != second.pairs


def test_replies_of_people_to_other_sources_count_as_often_as_people_gave_them() -> None:
    human, machine, folds = made()
    assert shares_of_people(human, machine) == (0, 0)
    assert shares_of_people(human, human) == (1, 0)
    assert shares_of_people(human, random_replies(human, human, folds, 1)) == (0, 1)
    (first, *_) = human.values()
    same = {source: [RepliedPair(some[0].context, first[0].reply)] for source, some in human.items()}
    assert shares_of_people(human, same) == (1 / NUM, 1 / NUM), "a system that says one thing has it once from people"
