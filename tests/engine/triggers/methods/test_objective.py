"""What is minimised, by numbers worked out by hand; and that it rises with the nats of every word."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.triggers.methods.objective import RELEASED_WEIGHT, Kind, TriggerObjective
from parley.envs.core.errors import ConfigError

NLL = torch.tensor([[0.5, 2.0, 4.0, 9.0]])
LIKELIEST = torch.tensor([[True, False, True, True]])
THREE_WORDS = torch.tensor([[True, True, True, False]])


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        (TriggerObjective(kind="likelihood"), (0.5 + 2 + 4) / 3),
        (TriggerObjective(kind="greedy"), 2 / 3),
        (TriggerObjective(kind="greedy", satisfied_weight=RELEASED_WEIGHT), (0.005 + 2 + 0.04) / 3),
        (TriggerObjective(kind="sample", t_out=-2.5), 4 / 3),
        (TriggerObjective(kind="sample", t_out=-2.5, satisfied_weight=RELEASED_WEIGHT), (0.005 + 0.02 + 4) / 3),
        (TriggerObjective(kind="sample", t_out=-2.0), (2 + 4) / 3),
        (TriggerObjective(kind="sample", t_out=-5), 0),
        (TriggerObjective(kind="likelihood", mellowmax=1.0), math.log((math.exp(0.5) + math.exp(2) + math.exp(4)) / 3)),
        (TriggerObjective(kind="greedy", mellowmax=2.0), math.log((1 + math.exp(4) + 1) / 3) / 2),
    ],
)
def test_satisfied_words_are_dropped_and_the_mean_is_over_all_words(objective: TriggerObjective, loss: float) -> None:
    assert objective.loss(NLL, LIKELIEST, THREE_WORDS, None).item() == pytest.approx(loss)


@pytest.mark.parametrize(
    ("objective", "input_nll", "added"),
    [
        (TriggerObjective(kind="likelihood", lm_weight=1.0, t_in=-3), 4.0, 4.0),
        (TriggerObjective(kind="likelihood", lm_weight=0.5, t_in=-3), 4.0, 2.0),
        (TriggerObjective(kind="likelihood", lm_weight=1.0, t_in=-3), 2.9, 0.0),
        (TriggerObjective(kind="likelihood", lm_weight=1.0, t_in=-3), 3.0, 3.0),
        (TriggerObjective(kind="likelihood", lm_weight=2.0, t_in=-3, satisfied_weight=RELEASED_WEIGHT), 2.0, 0.04),
    ],
)
def test_an_unlikely_input_costs_until_it_is_likely_enough(objective: TriggerObjective, input_nll: float, added: float) -> None:
    plain = objective.loss(NLL, LIKELIEST, THREE_WORDS, None)
    judged = objective.loss(NLL, LIKELIEST, THREE_WORDS, torch.tensor([input_nll]))
    assert (judged - plain).item() == pytest.approx(added, abs=1e-6)


nats = st.floats(0, 20, width=32)


@given(
    kind=st.sampled_from(["likelihood", "greedy", "sample"]),
    t_out=st.floats(-6, 0, width=32),
    satisfied_weight=st.sampled_from([0.0, RELEASED_WEIGHT, 1.0]),
    words=st.lists(st.tuples(nats, nats, st.booleans(), st.booleans()), min_size=1, max_size=5),
    inputs=st.tuples(nats, nats),
)
def test_less_likely_words_never_lower_the_loss(
    kind: Kind, t_out: float, satisfied_weight: float, words: list[tuple[float, float, bool, bool]], inputs: tuple[float, float]
) -> None:
    objective = TriggerObjective(kind=kind, t_out=t_out, lm_weight=1.0, t_in=-3, satisfied_weight=satisfied_weight)
    losses = []
    for pick, lose in ((min, any), (max, all)):
        nll = torch.tensor([[pick(word[:2]) for word in words]])
        likeliest = torch.tensor([[lose(word[2:]) for word in words]])
        mask = torch.ones_like(likeliest)
        losses.append(objective.loss(nll, likeliest, mask, torch.tensor([pick(inputs)])).item())
    assert losses[0] <= losses[1] + 1e-5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "loud"),
        ("t_out", 0.1),
        ("t_in", -math.inf),
        ("lm_weight", -1.0),
        ("lm_weight", math.inf),
        ("satisfied_weight", 1.5),
        ("satisfied_weight", math.nan),
    ],
)
def test_a_value_out_of_range_is_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{field} is out of range"):
        TriggerObjective(**{field: value})
