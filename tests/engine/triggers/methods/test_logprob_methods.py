"""Searches by the log probability of the target's first token, on a target whose best input is known by enumeration."""

from __future__ import annotations

import itertools
import math
import zlib

import numpy as np
import pytest

from parley.engine.triggers.methods.evolution import Evolution, EvolutionSettings, Proposals, RatedReply, Words
from parley.engine.triggers.methods.prs import Prs, PrsSettings, num_changed
from parley.engine.triggers.methods.qcg import Qcg, QcgSettings
from parley.engine.triggers.success import likelihood_rating, rated_nats
from parley.engine.triggers.verbs.text_search import probability_of

LIST = tuple("abcdefgh")
LENGTH = 4
WEIGHTS = np.random.default_rng(3).exponential(2.0, (LENGTH, len(LIST)))
"""Nats that each word costs at each place."""


def nats(words: Words, noise: float = 0.0) -> float:
    rng = np.random.default_rng(zlib.crc32(" ".join(words).encode())) if noise else None
    cost = sum(float(WEIGHTS[place, LIST.index(word)]) for place, word in enumerate(words))
    return -cost + (float(rng.normal(0, noise)) if rng is not None else 0.0)


BEST = max(itertools.product(LIST, repeat=LENGTH), key=nats)
"""Of 4,096 inputs."""


def searched(search: Proposals) -> Proposals:
    seen: list[Words] = []
    while not search.finished:
        inputs = search.ask()
        seen += inputs
        ratings = [RatedReply(likelihood_rating(nats(words)).value, "") for words in inputs]
        if inputs:
            search.tell(ratings, success=BEST in inputs)
    assert len(set(seen)) == len(seen) == search.num_asked <= search.max_queries
    return search


def prs(seed: int, most: int = 400) -> Proposals:
    return searched(Prs(PrsSettings(), LIST, seed, num_words=LENGTH, max_queries=most, probability=probability_of))


def qcg(seed: int, noise: float, most: int = 400) -> Proposals:
    settings = QcgSettings(candidates=32, queries=4)

    def likelihoods(inputs: list[Words]) -> list[float]:
        return [nats(words, noise) for words in inputs]

    return searched(Qcg(settings, LIST, seed, num_words=LENGTH, max_queries=most, likelihoods=likelihoods))


def test_both_find_the_best_of_all_inputs_where_random_inputs_do_not() -> None:
    for seed in range(3):
        assert prs(seed).best.words == BEST
        assert qcg(seed, noise=0.5).best.words == BEST
        blind = Evolution(EvolutionSettings(num_words=LENGTH, max_queries=400), LIST, seed, blind=True)
        assert searched(blind).best.words != BEST, "one of 4,096"


def test_a_better_proxy_saves_queries() -> None:
    good, bad = ([qcg(seed, noise).num_asked for seed in range(5)] for noise in (0.1, 100.0))
    assert max(good) < min(bad)


def test_an_input_is_kept_unless_the_token_becomes_less_likely_and_the_budget_is_exact() -> None:
    search = prs(seed=1, most=30)
    assert search.best_by_generation == sorted(search.best_by_generation)
    assert search.num_asked == 30
    assert qcg(seed=1, noise=100.0, most=30).num_asked in (30, 4 * 7 + 2)


def test_a_plateau_is_walked_on() -> None:
    search = Prs(
        PrsSettings(max_changed=1), LIST, 1, num_words=LENGTH, max_queries=9, probability=probability_of, start=tuple("abcd")
    )
    inputs = []
    while not search.finished:
        inputs += search.ask()
        search.tell([RatedReply(0.0, "")], success=False)
    assert inputs[0] == tuple("abcd")
    changes = [sum(a != b for a, b in zip(before, after, strict=True)) for before, after in itertools.pairwise(inputs)]
    assert changes == [1] * 8, "each from the last one"


@pytest.mark.parametrize(("probability", "num"), [(0.0, 4), (0.1, 4), (0.3, 2), (0.9, 1)])
def test_fewer_words_change_where_the_token_is_likelier(probability: float, num: int) -> None:
    assert num_changed(4, probability) == num
    assert num_changed(1, probability) == 1
    assert rated_nats(likelihood_rating(-2.5).value) == pytest.approx(-2.5)
    assert probability_of(likelihood_rating(-math.inf).value) == 0
