"""What counts as a hit: the paper's table by numbers worked out by hand, and which type implies which."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.triggers.hits import HitType, Reading, Thresholds
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.envs.core.errors import ConfigError

THRESHOLDS = Thresholds(t_out=-2.0, t_in=-3.0)
LN2, LN3 = math.log(2), math.log(3)

MEAN_JUST_LIKELY = Reading([-1.0, -2.0, -3.0], [False, True, True], -3.0)
ALL_LIKELY = Reading([-2.0, -1.0, -0.5], [True, True, True], -3.5)
TWICE_AS_RARE = Reading([-2.0 - LN2 + 1e-9, -2.6], [True, False], -3.0 - LN2 + 1e-9)
RARE = Reading([-9.0, -9.0], [True, True], -1.0)


@pytest.mark.parametrize(
    ("reading", "hits"),
    [
        (MEAN_JUST_LIKELY, {"o-sample-avg-k1", "o-sample-avg-k2", "o-sample-min-k3", "io-sample-avg-k1", "io-sample-avg-k2"}),
        (
            ALL_LIKELY,
            {"o-greedy", "o-sample-avg-k1", "o-sample-avg-k2", "o-sample-min-k1", "o-sample-min-k2", "o-sample-min-k3"}
            | {"io-sample-avg-k2", "io-sample-min-k2"},
        ),
        (TWICE_AS_RARE, {"o-sample-avg-k2", "o-sample-min-k2", "o-sample-min-k3", "io-sample-avg-k2", "io-sample-min-k2"}),
        (RARE, {"o-greedy"}),
    ],
)
def test_the_types_that_a_reading_is_a_hit_of(reading: Reading, hits: set[str]) -> None:
    names = ["o-greedy", "o-sample-min-k3"]
    names += [f"{io}-sample-{statistic}-k{k}" for io in ("o", "io") for statistic in ("avg", "min") for k in (1, 2)]
    assert {name for name in names if HitType.parse(name).is_hit(reading, THRESHOLDS)} == hits


log_probabilities = st.floats(-8, 0)


@given(words=st.lists(log_probabilities, min_size=1, max_size=6), given_input=log_probabilities, k=st.integers(1, 5))
def test_stronger_types_imply_weaker_ones(words: list[float], given_input: float, k: int) -> None:
    reading = Reading(words, [False] * len(words), given_input)

    def hit(name: str) -> bool:
        return HitType.parse(name).is_hit(reading, THRESHOLDS)

    for strong, weak in [
        (f"o-sample-min-k{k}", f"o-sample-avg-k{k}"),
        (f"o-sample-avg-k{k}", f"o-sample-avg-k{k + 1}"),
        (f"o-sample-min-k{k}", f"o-sample-min-k{k + 1}"),
        (f"io-sample-min-k{k}", f"o-sample-min-k{k}"),
        (f"io-sample-min-k{k}", f"io-sample-avg-k{k + 1}"),
    ]:
        assert hit(weak) or not hit(strong), (strong, weak)


@pytest.mark.parametrize("name", ["o-greedy", "o-sample-avg-k1", "io-sample-min-k12"])
def test_a_name_is_read_and_told_alike(name: str) -> None:
    assert HitType.parse(name).name == name


@pytest.mark.parametrize("name", ["io-greedy", "o-sample-min", "o-sample-min-k0", "o-sample-max-k1", "", "o-greedy "])
def test_an_unknown_name_is_an_error_that_tells_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match="io-sample-min-k1"):
        HitType.parse(name)


def test_a_near_name_is_offered() -> None:
    with pytest.raises(ConfigError, match="did you mean 'o-sample-min-k1'"):
        HitType.parse("o-sample-min-1")


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("o-greedy", TriggerObjective(kind="greedy")),
        ("o-sample-min-k1", TriggerObjective(kind="sample", t_out=-2.0, satisfied_weight=0.01)),
        ("o-sample-avg-k1", TriggerObjective(kind="sample", t_out=-2.0, satisfied_weight=0.01)),
        ("o-sample-min-k3", TriggerObjective(kind="sample", t_out=-2.0 - LN3, satisfied_weight=0.01)),
        (
            "io-sample-min-k2",
            TriggerObjective(kind="sample", t_out=-2.0 - LN2, lm_weight=1.0, t_in=-3.0 - LN2, satisfied_weight=0.01),
        ),
    ],
)
def test_each_type_is_searched_for_by_its_own_objective(name: str, objective: TriggerObjective) -> None:
    asked = HitType.parse(name).objective
    assert asked(THRESHOLDS, satisfied_weight=0.01) == objective
    assert asked(THRESHOLDS, lm_weight=0.5, satisfied_weight=0.01) == replace(objective, lm_weight=0.5), "fluency for any hits"


def test_a_limit_on_the_input_needs_a_language_model() -> None:
    with pytest.raises(ConfigError, match="--lm"):
        HitType.parse("io-sample-min-k1").objective(Thresholds(t_out=-2.0))


@given(words=st.lists(st.floats(-8, -0.001), min_size=1, max_size=6), likeliest=st.booleans())
def test_a_loss_of_zero_is_a_hit_of_the_type_that_is_searched_for(words: list[float], likeliest: bool) -> None:
    reading = Reading(words, [likeliest] * len(words), None)
    nll, mask = -torch.tensor([words], dtype=torch.float64), torch.ones(1, len(words), dtype=torch.bool)
    for name in ("o-greedy", "o-sample-min-k1", "o-sample-min-k2"):
        kind = HitType.parse(name)
        loss = kind.objective(THRESHOLDS).loss(nll, torch.tensor([reading.likeliest]), mask, None)
        if loss.item() == 0:
            assert kind.is_hit(reading, THRESHOLDS)
