"""What is asked of a ranker, and what becomes of one that does not keep to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from parley.envs.core.errors import DataError, RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.ranking.ranker import Pair, TfIdf, outcomes_of, scores_of

PAIRS: list[Pair] = [
    ((("hello",), ("my", "screen", "is", "black")), [("is", "it", "on", "?"), (), ("thanks",)]),
    (((),), [("yes",), ("no",)]),
]


class Length:
    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        return [float(len(candidate)) for candidate in candidates]


class Returns:
    """Says the same of every context of two candidates, and lengths of others."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def score(self, context: Context, candidates: Sequence[Utterance]) -> Any:
        if len(candidates) != 2:
            return Length().score(context, candidates)
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said


class Batched(Returns):
    calls = 0

    def score_all(self, pairs: Sequence[Pair]) -> list[Any]:
        self.calls += 1
        return [self.score(*pair) for pair in pairs]


BAD = [
    ([0.5, float("nan")], r"not finite(.|\n)*nan for candidate 2: 'no'"),
    ([float("inf"), 0.5], r"not finite(.|\n)*inf for candidate 1: 'yes'"),
    ([0.5], r"one score for each(.|\n)*shape \(1,\) for 2 candidates"),
    ([[0.5], [0.2]], r"one score for each(.|\n)*shape \(2, 1\)"),
    (0.5, "one score for each"),
    (([0.5, 0.2], "why"), r"no list of scores(.|\n)*a tuple"),
    ((0.5, 0.2), "no list of scores"),
    (None, "one score for each|no numbers|not finite"),
    (["good", "bad"], "no numbers"),
    (RuntimeError("out of luck"), r"raised an error(.|\n)*RuntimeError: out of luck"),
    (SystemExit(3), r"raised an error(.|\n)*SystemExit: 3"),
]


@pytest.mark.parametrize("kind", [Returns, Batched])
@pytest.mark.parametrize(("said", "reason"), BAD, ids=[str(index) for index in range(len(BAD))])
def test_bad_scores_are_an_error_that_says_why_and_cost_no_other_pair(kind: type[Returns], said: Any, reason: str) -> None:
    good, bad, again = outcomes_of(kind(said), [*PAIRS, PAIRS[0]])
    assert isinstance(bad, RankerError)
    assert isinstance(good, np.ndarray)
    assert isinstance(again, np.ndarray)
    assert good.tolist() == again.tolist() == [4.0, 0.0, 1.0]
    with pytest.raises(RankerError, match=reason):
        scores_of(kind(said), PAIRS)


def test_batches_are_one_call_and_arrays_are_scores() -> None:
    ranker = Batched(np.array([2, 1], dtype=np.int32))
    assert [scores.tolist() for scores in scores_of(ranker, PAIRS)] == [[4.0, 0.0, 1.0], [2.0, 1.0]]
    assert ranker.calls == 1
    assert scores_of(ranker, []) == []


class Miscounts(Length):
    def score_all(self, pairs: Sequence[Pair]) -> list[list[float]]:
        return [[1.0, 2.0]]


def test_a_batch_with_another_number_of_contexts_is_an_error() -> None:
    three, two = outcomes_of(Miscounts(), PAIRS)
    assert isinstance(three, RankerError)
    assert isinstance(two, np.ndarray)
    with pytest.raises(RankerError, match=r"one score for each(.|\n)*shape \(2,\) for 3 candidates"):
        scores_of(Miscounts(), PAIRS)


@pytest.mark.parametrize("pair", [("a b", ["c"]), ((("a",),), ["c"]), (("a b",), [("c",)])])
def test_texts_in_the_place_of_words_are_an_error(pair: Any) -> None:
    with pytest.raises(DataError, match="an utterance is a tuple of words"):
        scores_of(Length(), [pair])
    with pytest.raises(DataError, match="an utterance is a tuple of words"):
        TfIdf.fit([("my screen", "is black")])  # type: ignore[arg-type]
