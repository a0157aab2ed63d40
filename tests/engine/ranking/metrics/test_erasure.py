"""The importance of words to rankers whose words matter as one knows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parley.engine.ranking.metrics.erasure import KeptPoint, importances, kept, kept_points, read_words
from parley.envs.ranking.groups import CandidateGroup
from parley.policies.ranking.ranker import Pair
from tests.engine.perturb.replies.groups import group


def shared(pairs: Sequence[Pair]) -> list[list[float]]:
    """Words of the reply that the context has, each place counted."""
    return [
        [float(sum(any(word in turn for turn in context) for word in reply)) for reply in replies] for context, replies in pairs
    ]


def figure_2(groups: Sequence[CandidateGroup], ks: Sequence[int]) -> list[KeptPoint]:
    scores = shared([(each.context, each.candidates) for each in groups])
    return kept_points([each.labels for each in groups], scores, read_words(shared, groups, ks), ks)


def test_importance_is_the_relative_drop_mean_over_the_places_of_a_word() -> None:
    (found,) = importances(shared, [group("disk full", "+the disk is full disk", "disk")])
    assert found == {0: {"the": 0.0, "disk": pytest.approx(1 / 3), "is": 0.0, "full": pytest.approx(1 / 3)}}


def test_a_negative_score_that_falls_is_a_drop_too() -> None:
    def below_zero(pairs: Sequence[Pair]) -> list[list[float]]:
        return [[score - 2 for score in scores] for scores in shared(pairs)]

    (found,) = importances(below_zero, [group("disk", "+a disk", "x")])
    assert found[0] == {"a": 0.0, "disk": 1.0}
    (found,) = importances(shared, [group("disk", "+a", "x")])
    assert found[0] == {"a": 0.0}


def test_the_most_important_words_stay_in_their_order() -> None:
    importance = {"a": 0.1, "b": 0.3, "c": 0.3, "d": 0.2}
    assert kept(("a", "b", "d", "c", "b"), importance, 2) == ("b", "c", "b")
    assert kept(("a", "b", "d", "c", "b"), importance, 9) == ("a", "b", "d", "c", "b")
    assert kept((), {}, 3) == ()


def test_figure_2_is_relative_to_the_whole_replies() -> None:
    groups = [group("w x y z", "+w x", "w") for _ in range(2)] + [group("w x y z", "+y z q", "w q", "w x")]
    points = figure_2(groups, ks=(1, 2))
    assert [point.k for point in points] == [1, 2]
    assert [point.accuracy.value for point in points] == [pytest.approx(1 / 3), pytest.approx(2.5 / 3)]
    assert points[1].relative.value == 1.0


def test_replies_without_words_and_no_groups_are_no_trouble() -> None:
    assert importances(shared, [group("a", "+", "b")]) == [{0: {}}]
    assert figure_2([], ks=(1,))[0].accuracy.n == 0


def test_a_group_without_scores_has_no_reading_and_dialogues_are_drawn_together() -> None:
    def partly(pairs: Sequence[Pair]) -> list[list[float] | None]:
        assert all(replies for _, replies in pairs)
        told = zip(pairs, shared(pairs), strict=True)
        return [None if context == (("silence",),) else scores for (context, _), scores in told]

    groups = [group("silence", "+w x", "w"), group("w x y z", "+y z q", "w q"), group("w", "+w", "+x")]
    first, second, _, last = read_words(partly, [*groups, group("w", "x", "y")])
    assert first == last == {}
    assert second == {0: ({"y": 0.5, "z": 0.5, "q": 0.0}, (1.0, 2.0, 2.0, 2.0, 2.0, 2.0))}
    scores = shared([(each.context, each.candidates) for each in groups])
    points = kept_points([each.labels for each in groups], scores, read_words(shared, groups), clusters=[7, 7, 8])
    assert points[0].accuracy.n == 1, "two contexts of one dialogue; a group without a wrong reply does not count"
