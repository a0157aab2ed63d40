"""The watch of a campaign: a target that plays badly without an attack, or repeats itself, is no result."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parley.engine.core.stats.known import KnownAdversaries, LanguageWatch, Round, best_of, mixture
from parley.engine.core.stats.statistics import count, mean


def rounds(*figures: tuple[float, float]) -> list[Round]:
    return [
        Round(number, {"plain": count(plain, 9), "repetition": count(repetition, 9)})
        for number, (plain, repetition) in enumerate(figures)
    ]


@pytest.mark.parametrize(
    ("watch", "playing"),
    [
        (LanguageWatch("plain", repetition="repetition"), [0, 1]),
        (LanguageWatch("plain"), [0, 1, 3]),
        (LanguageWatch("plain", lower=True), [0, 1, 2, 3]),
        (LanguageWatch("other"), [0, 1, 2, 3]),
    ],
)
def test_only_rounds_that_still_play_may_be_the_result(watch: LanguageWatch, playing: list[int]) -> None:
    # The start repeats itself too, and stays: it is what there is.
    course = rounds((0.8, 0.5), (0.75, 0.05), (0.6, 0.05), (0.8, 0.2))
    assert [one.number for one in watch.still_playing(course, 0.1)] == playing
    worse = rounds((1.0, 0.0), (1.2, 0.0), (1.05, math.nan))
    assert [one.number for one in LanguageWatch("plain", lower=True).still_playing(worse, 0.1)] == [0, 2]


def test_the_best_by_itself_is_chosen_where_it_is_not_measured() -> None:
    # The first adversary gains in even dialogues alone, the second in odd ones.
    gains_GA = np.array([[1.0, 0.0], [0.0, 1.0]] * 4)
    assert best_of(gains_GA).value == 0.0
    clusters = ["a", "a", "b", "b", "c", "c", "d", "d"]
    assert best_of(gains_GA, clusters).value == 0.5, "dialogues of one cluster are in one half"
    estimate = mean([0.2, 0.4])
    known = KnownAdversaries(
        targets=["start"],
        adversaries=["one"],
        gains_TA=[[estimate]],
        best=[0],
        measured=[estimate],
        learned={},
        gained={},
        single=[estimate],
    )
    again = KnownAdversaries.from_json(known.to_json())
    assert again == known
    assert [row[0] for row in again.table().rows] == ["one", "best by itself, in other items", "exploitability"]
    earlier = {name: value for name, value in known.to_json().items() if name != "single"}
    assert [row[0] for row in KnownAdversaries.from_json(earlier).table().rows] == ["one", "exploitability"]


def test_the_latest_agents_have_all_weight() -> None:
    payoffs_TA = np.array([[0.5, 0.1], [0.4, 0.3]])
    assert mixture("latest", payoffs_TA, payoffs_TA).adversaries.tolist() == [0.0, 1.0]
    assert mixture("uniform", payoffs_TA, payoffs_TA).adversaries.tolist() == [0.5, 0.5]
    assert mixture("nash", payoffs_TA, payoffs_TA).targets.tolist() == pytest.approx([0.0, 1.0])
