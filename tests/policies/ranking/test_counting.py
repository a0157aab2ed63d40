"""Controls, and rankers that are fitted by counting, against figures worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from parley.envs.core.errors import DataError, RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.ranking.ranker import (
    NO_CONTEXT,
    Bm25,
    Constant,
    Longest,
    Ranker,
    ResponseOnly,
    Shortest,
    TermCosine,
    TfIdf,
    WordOverlap,
    scores_of,
)

CONTEXT: Context = (("a", "b"), ("b", "c", "d"))
REPLIES: list[Utterance] = [("b", "b", "x"), ("a", "b", "c", "d", "e"), (), ("x", "y")]


@pytest.mark.parametrize(
    ("ranker", "wanted"),
    [
        (Constant(), [0, 0, 0, 0]),
        (Longest(), [3, 5, 0, 2]),
        (Shortest(), [-3, -5, 0, -2]),
        (WordOverlap(), [1 / 2, 4 / 4, 0, 0]),
    ],
    ids=lambda case: type(case).__name__,
)
def test_controls_score_what_their_names_say(ranker: Ranker, wanted: list[float]) -> None:
    assert list(ranker.score(CONTEXT, REPLIES)) == wanted
    assert list(ranker.score((), [])) == []


def test_a_ranker_without_its_context_sees_candidates_alone() -> None:
    class Spy(Longest):
        seen: list[Context] = []

        def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
            self.seen.append(context)
            return super().score(context, candidates) if len(candidates) > 1 else [math.nan]

    assert ResponseOnly(Spy()).score(CONTEXT, REPLIES).tolist() == [3, 5, 0, 2]
    assert Spy.seen == [NO_CONTEXT]
    with pytest.raises(RankerError, match=r"not finite(.|\n)*where: Spy"):
        scores_of(ResponseOnly(Spy()), [(CONTEXT, REPLIES), (CONTEXT, REPLIES[:1])])


TRAINING: list[Context] = [(("a", "b"), ("c",)), (("a", "b"), ("a", "a", "d"))]
"""Three distinct turns; a in two of them, b, c and d in one."""


def test_tf_idf_is_the_cosine_of_counts_by_rarity() -> None:
    common, rare = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    (score,) = TfIdf.fit(TRAINING).score((("a", "c"),), [("a", "a", "d")])
    wanted = 2 * common**2 / (math.hypot(common, rare) * math.hypot(2 * common, rare))
    assert score == pytest.approx(wanted)


def test_bm25_is_the_cosine_of_damped_counts() -> None:
    def weight(count: int, length: int, turns_with: int) -> float:
        idf = math.log(1 + (3 - turns_with + 0.5) / (turns_with + 0.5))
        return idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / 2))

    (score,) = Bm25.fit(TRAINING).score((("a", "c"),), [("a", "a", "d")])
    said, replied = [weight(1, 2, 2), weight(1, 2, 1)], [weight(2, 3, 2), weight(1, 3, 1)]
    assert score == pytest.approx(said[0] * replied[0] / (math.hypot(*said) * math.hypot(*replied)))


@pytest.mark.parametrize("kind", [TfIdf, Bm25])
def test_words_that_were_never_seen_are_the_rarest_and_shuffled_words_tie(kind: type[TermCosine]) -> None:
    ranker = kind.fit(TRAINING)
    unseen, seen, shuffled, empty = ranker.score((("a", "c", "z"),), [("z",), ("a",), ("z",), ()])
    assert unseen == shuffled > seen > empty == 0
    words = ("a", "b", "c", "z", "y", "b", "d")
    rng = np.random.default_rng(3)
    orders: list[Utterance] = [tuple(rng.permutation(words).tolist()) for _ in range(20)]
    assert len(set(ranker.score((("a", "z", "d", "b"),), orders))) == 1
    assert ranker.score(((),), [("a",)]) == [0.0]


@pytest.mark.parametrize("contexts", [[], [((),)], [((), ())]])
def test_nothing_to_count_is_an_error(contexts: list[Context]) -> None:
    with pytest.raises(DataError, match="no words to fit"):
        TfIdf.fit(contexts)
