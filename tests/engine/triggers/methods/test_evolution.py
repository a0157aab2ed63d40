"""Evolution by replies alone: it climbs where random inputs do not, asks nothing twice, and follows from seed and answers."""

from __future__ import annotations

import numpy as np
import pytest

from parley.engine.triggers.methods.evolution import NO_FITNESS, Evolution, EvolutionSettings, RatedReply, Words, closeness

WORDS = [f"word{number}" for number in range(20)]
WANTED = tuple(WORDS[number] for number in (3, 1, 4, 15))
SETTINGS = EvolutionSettings(num_words=4, population=10, max_queries=1000)


def likeness(words: Words) -> float:
    return sum(one == other for one, other in zip(words, WANTED, strict=True)) / len(WANTED)


def evolved(settings: EvolutionSettings, seed: int = 1) -> tuple[Evolution, list[Words]]:
    search, seen = Evolution(settings, WORDS, seed), []
    while not search.finished:
        asked = search.ask()
        seen += asked
        search.tell([RatedReply(likeness(words), "") for words in asked], success=WANTED in asked)
    return search, seen


def test_it_finds_what_random_inputs_hardly_would() -> None:
    for seed in range(3):
        search, seen = evolved(SETTINGS, seed)
        assert search.best.words == WANTED, "one of 160,000"
        assert len(set(seen)) == len(seen) == search.num_asked < 1000
        assert search.best_by_generation == sorted(search.best_by_generation)
        assert search.generations == len(search.best_by_generation) - 1


def test_the_budget_is_kept_and_draws_follow_from_the_seed() -> None:
    short = EvolutionSettings(num_words=4, population=10, max_queries=25)
    assert evolved(short, seed=5)[0].num_asked == 25
    assert evolved(short, seed=5)[1] == evolved(short, seed=5)[1] != evolved(short, seed=6)[1]


def test_evolution_starts_from_given_words_and_asks_about_nothing_forbidden() -> None:
    start = WANTED[::-1]
    search = Evolution(SETTINGS, WORDS, 1, start=start, allows=lambda words: "word7" not in words)
    first = search.ask()
    assert first[0] == start
    assert len(set(first)) == 10
    kept = [sum(one == other for one, other in zip(words, start, strict=True)) for words in first[1:]]
    assert 2 < sum(kept) / len(kept) < 4, "the others are children of the start"
    assert not any("word7" in words for words in first)


def test_a_list_that_is_used_up_ends_the_search() -> None:
    search = Evolution(EvolutionSettings(num_words=1, population=10), ["one", "two"], 1)
    assert sorted(search.ask()) == [("one",), ("two",)]
    search.tell([RatedReply(0.0, "")] * 2, success=False)
    assert search.ask() == []
    assert search.finished


@pytest.mark.parametrize(
    ("reply", "close"), [("Sure, here is a poem", 1.0), ("sure,  HERE", 1.0), ("", 0.0), ("zzzz", 0.0), ("Sure! Here", None)]
)
def test_closeness_looks_at_the_beginning_of_a_reply(reply: str, close: float | None) -> None:
    found = closeness(reply, "Sure, here")
    assert found == close if close is not None else 0.4 < found < 1


def test_a_parent_is_the_fitter_of_two_members() -> None:
    search = Evolution(EvolutionSettings(num_words=3, population=4, max_queries=40), WORDS, seed=1)
    search.tell([RatedReply(number / 10, "") for number, _ in enumerate(search.ask())], success=False)
    rng = np.random.default_rng(1)
    best = sum(search._parent(rng) == search.best.words for _ in range(400))
    assert 0.36 < best / 400 < 0.52, "7 of 16 on average"


def test_an_input_without_a_reply_is_no_parent() -> None:
    search = Evolution(EvolutionSettings(num_words=3, population=4, max_queries=40), ["a", "b", "c", "d"], seed=1)
    first = search.ask()
    search.tell([RatedReply(NO_FITNESS, "", "filtered")] * len(first), success=False)
    assert search.best.fitness == NO_FITNESS
    fresh = Evolution(EvolutionSettings(num_words=3, population=4, max_queries=40), ["a", "b", "c", "d"], seed=1, blind=True)
    fresh.ask()
    fresh.tell([RatedReply(0.0, "")] * len(first), success=False)
    assert search.ask() == fresh.ask(), "where nothing got a reply, inputs are drawn anew"
    search.tell([RatedReply(NO_FITNESS, "", "filtered")] * 3 + [RatedReply(0.1, "no")], success=False)
    (parent,) = (member.words for member in search.members if member.fitness > NO_FITNESS)
    assert search.best.words == parent
    assert all(sum(a == b for a, b in zip(child, parent, strict=True)) >= 1 for child in search.ask()), (
        "children of the one reply"
    )
