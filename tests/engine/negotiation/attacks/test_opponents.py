"""Whom a learner meets: how often each adversary is drawn, how much play is ordinary, and what is remembered of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.stats.known import LEAST_WEIGHT
from parley.engine.negotiation.attacks.opponents import (
    MEMORY,
    Opponent,
    OpponentConfig,
    OpponentDraw,
    TrainingRoster,
    require_enough,
)
from parley.envs.core.config import from_dict
from parley.envs.core.errors import ConfigError

POOL = ("a", "b", "c")
SAMPLINGS = ("latest", "uniform", "prioritised")
shares = st.floats(0, 1)
wins_of_pool = st.dictionaries(st.sampled_from(POOL), shares)


def opponent(name: str, **changes: Any) -> Opponent:
    return Opponent(**{"name": name, "checkpoint": f"runs/{name}", "reward": "advantage", "complementary": True, **changes})


def roster(adversaries: Sequence[str] = POOL, *, partner: bool = False, **drawing: Any) -> TrainingRoster:
    """A target against adversaries, the oldest first, and where asked an ordinary partner."""
    met = [opponent(name) for name in adversaries]
    if partner:
        met.insert(0, opponent("partner", reward="points", complementary=False, ordinary=True))
    config = OpponentConfig(**drawing)
    return TrainingRoster(role="target", learner="runs/t", reference="runs/t", opponents=tuple(met), drawing=config)


def draw(wins: Mapping[str, float] | None = None, seed: int = 1, **cast: Any) -> OpponentDraw:
    found = OpponentDraw(roster(**cast), seed)
    found.restore(wins or {})
    return found


def drawn(drawing: OpponentDraw, updates: int) -> list[str]:
    """The adversary of each update."""
    return [drawing.names(update, 1)[0] for update in range(updates)]


def assert_drawn_like(drawing: OpponentDraw, weights: Mapping[str, float]) -> None:
    found = Counter(drawn(drawing, 4000))
    assert set(found) <= set(weights)
    expected = np.array(list(weights.values())) / sum(weights.values())
    assert scipy.stats.chisquare([found[name] for name in weights], 4000 * expected).pvalue > 0.01


@given(wins_of_pool, st.integers(0, 1000))
def test_latest_is_always_the_newest(wins: dict[str, float], update: int) -> None:
    assert draw(wins, sampling="latest").names(update, 3) == ["c", "c", "c"]


def test_uniform_draws_all_alike_whoever_wins() -> None:
    assert_drawn_like(draw({"a": 1.0, "b": 0.0}, sampling="uniform"), {"a": 1, "b": 1, "c": 1})


@pytest.mark.parametrize(
    ("wins", "weights"),
    [
        ({"a": 0.9, "b": 0.3, "c": 0.6}, {"a": 0.81, "b": 0.09, "c": 0.36}),
        ({"a": 0.5, "b": 0.05, "c": 0.0}, {"a": 0.25, "b": LEAST_WEIGHT, "c": LEAST_WEIGHT}),
        ({"a": 0.5, "c": 0.5}, {"a": 0.25, "b": 1.0, "c": 0.25}),
        ({"a": 0.0, "b": 0.0, "c": 0.0}, {"a": 1, "b": 1, "c": 1}),
    ],
    ids=["the share that they win, squared", "one that never wins is kept", "one never met is tried", "nobody wins"],
)
def test_prioritised_draws_the_harder_ones_more_often(wins: dict[str, float], weights: dict[str, float]) -> None:
    assert_drawn_like(draw(wins, sampling="prioritised"), weights)


@given(
    st.lists(st.text("abcde-123", min_size=1), min_size=1, max_size=12, unique=True),
    st.integers(1, 14),
    st.sampled_from(SAMPLINGS),
)
def test_the_pool_keeps_only_the_newest(names: list[str], pool: int, sampling: str) -> None:
    cast = roster(names, partner=True, sampling=sampling, pool=pool)
    newest = names[-1:] if sampling == "latest" else names[-pool:]
    assert [one.name for one in cast.drawable] == ["partner", *newest]
    assert set(drawn(OpponentDraw(cast, 1), 20)) <= set(newest)


def test_every_one_of_the_pool_is_drawn() -> None:
    assert set(drawn(draw(sampling="uniform", pool=2), 60)) == {"b", "c"}


@given(st.integers(0, 2**63), st.integers(0, 10_000), wins_of_pool, st.sampled_from(SAMPLINGS))
def test_a_draw_follows_from_seed_update_and_records_alone(
    seed: int, update: int, wins: dict[str, float], sampling: str
) -> None:
    first, second = (draw(wins, seed, sampling=sampling) for _ in range(2))
    # Whatever it was asked before, and in whatever order.
    drawn(second, 3)
    assert first.names(update, 4) == second.names(update, 4)


def test_seeds_and_updates_draw_differently() -> None:
    by_seed = [drawn(draw(seed=seed, sampling="uniform"), 40) for seed in (1, 2)]
    assert by_seed[0] != by_seed[1]
    assert all(len(set(names)) == 3 for names in by_seed)


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 200), st.sampled_from(SAMPLINGS))
def test_the_ordinary_share_is_exact_and_leaves_room_for_the_adversary(share: float, size: int, sampling: str) -> None:
    names = draw(partner=True, partner_share=share, sampling=sampling).names(3, size)
    count = names.count("partner")
    assert len(names) == size
    assert abs(count - share * size) <= 0.5 or count == size - 1
    assert len(set(names) - {"partner"}) == 1, "one adversary an update"


def test_without_a_partner_no_play_is_ordinary() -> None:
    assert draw(partner_share=0.5, sampling="latest").names(0, 4) == ["c"] * 4


def test_a_record_is_the_share_won_of_late() -> None:
    drawing = draw(partner=True, sampling="uniform")
    # Two won, one drawn, one lost; a partner has no record, nor has an adversary that was not met.
    drawing.note(["partner", "b", "b", "b", "b"], np.array([9, 3, 10, 0, -1]))
    assert drawing.wins == {"b": 0.625}
    drawing.note(["b", "a", "b"], np.array([-5, 1, -1]))
    assert drawing.wins == {"a": 1.0, "b": pytest.approx(MEMORY * 0.625)}
    drawing.note(["b"], np.array([1]))
    assert drawing.wins["b"] == pytest.approx(MEMORY * MEMORY * 0.625 + 1 - MEMORY)


@given(st.lists(st.tuples(st.sampled_from(POOL), st.integers(-10, 10)), min_size=1, max_size=30))
def test_a_record_stays_a_share(met: list[tuple[str, int]]) -> None:
    drawing = draw(sampling="uniform")
    for name, lead in met:
        drawing.note([name], np.array([lead]))
    assert set(drawing.wins) == {name for name, _ in met}
    assert all(0 <= share <= 1 for share in drawing.wins.values())


@given(st.lists(st.integers(-10, 10), min_size=1, max_size=20), st.integers(0, 100))
def test_records_written_down_and_put_back_draw_the_same(leads: list[int], seed: int) -> None:
    whole = draw(seed=seed, sampling="prioritised")
    for update, lead in enumerate(leads):
        whole.note(whole.names(update, 3), np.array([lead, 0, 1]))
    resumed = draw(json.loads(json.dumps(whole.wins)), seed, sampling="prioritised")
    for update in range(len(leads), len(leads) + 20):
        names = whole.names(update, 3)
        assert resumed.names(update, 3) == names
        for drawing in (whole, resumed):
            drawing.note(names, np.array([update % 3 - 1, 1, -1]))
    assert resumed.wins == whole.wins


def test_sides_are_those_of_the_game() -> None:
    alone = (opponent("other"),)
    sides = [TrainingRoster(role=role, learner="a", reference="a", opponents=alone).side for role in ("adversary", "target")]
    assert sides == [0, 1]


@pytest.mark.parametrize(
    ("field", "value"), [("pool", 0), ("partner_share", -0.1), ("partner_share", 1.1), ("sampling", "newest")]
)
def test_values_out_of_range_are_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field) as caught:
        from_dict(OpponentConfig, {field: value})
    assert repr(value) in str(caught.value)


def test_weighted_draws_as_a_mixture_says_and_meets_nobody_of_weight_0() -> None:
    drawing = draw(sampling="weighted", weights=(0.25, 0.0, 0.75))
    assert_drawn_like(drawing, {"a": 1, "c": 3})
    assert [one.name for one in roster(partner=True, sampling="weighted", weights=(0.0, 0.0, 1.0)).drawable] == ["partner", "c"]


@pytest.mark.parametrize(
    "drawing",
    [
        {"sampling": "weighted"},
        {"sampling": "weighted", "weights": (0.0, 0.0, 0.0)},
        {"sampling": "weighted", "weights": (1.0, -1.0, 1.0)},
        {"sampling": "uniform", "weights": (1.0, 1.0, 1.0)},
        {"sampling": "weighted", "weights": (1.0, 1.0)},
    ],
    ids=["none", "all 0", "below 0", "for another sampling", "too few"],
)
def test_weights_fit_the_opponents(drawing: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        roster(**drawing)


def test_why_opponents_failed_stands_on_one_line_of_the_error() -> None:
    reason = str(ConfigError("the Python file raised an error", where="mine.py:3", got="ValueError: no words", fix="mend it"))
    with pytest.raises(ConfigError) as caught:
        require_enough({0: ("mine", reason)}, {0: "mine", 1: "mine"}, 0.49)
    require_enough({0: ("mine", reason)}, {0: "mine", 1: "mine"}, 0.5)
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]] == ["where", "got", "fix"]
    assert str(caught.value.got).endswith("; the Python file raised an error, where: mine.py:3, got: ValueError: no words")
