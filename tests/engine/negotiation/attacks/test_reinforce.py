"""The learning rule against plain loops, hand-computed gradients and torch's own distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence

from parley.engine.core.rllib.reproducible import RunningBaseline
from parley.engine.negotiation.attacks.reinforce import (
    discounted_returns,
    entropy,
    kl_to_reference,
    policy_gradient_loss,
    policy_log_probs,
)
from parley.engine.negotiation.attacks.settings import RELEASED_GUARD, ReinforceConfig
from parley.engine.negotiation.verbs.training import cheng2019, hardened, lewis2017
from parley.envs.core.config import from_dict
from parley.envs.core.errors import ConfigError

FORBIDDEN = [1, 3]
ALLOWED = [0, 2, 4, 5]
SCALINGS = ("none", "deviation", "sign")

rewards = st.lists(st.lists(st.integers(-10, 10), min_size=1, max_size=8), min_size=1, max_size=6)


def logits(seed: int, rows: int = 7) -> torch.Tensor:
    return 3 * torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(rewards, st.sampled_from(SCALINGS))
def test_the_baseline_is_the_mean_of_all_rewards_the_newest_included(batches: list[list[int]], scaling: str) -> None:
    baseline = RunningBaseline()
    seen: list[int] = []
    for batch in batches:
        seen += batch
        centered = np.array(batch) - np.mean(seen)
        scaled = {"none": centered, "deviation": centered / max(1e-4, float(np.std(seen))), "sign": np.sign(centered)}
        found = baseline.center(np.array(batch, dtype=np.float64), scaling)
        np.testing.assert_allclose(found, scaled[scaling], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_equal_rewards_teach_nothing_and_divide_by_no_zero(scaling: str) -> None:
    baseline = RunningBaseline()
    for _ in range(3):
        assert baseline.center(np.full(5, 7.0), scaling).tolist() == [0.0] * 5


def test_a_baseline_goes_on_from_its_numbers() -> None:
    whole, first = RunningBaseline(), RunningBaseline()
    for baseline in (whole, first):
        baseline.center(np.array([1.0, 5.0, -2.0]), "deviation")
    second = RunningBaseline(**vars(first))
    more = np.array([3.0, 0.5])
    assert second.center(more, "deviation").tolist() == whole.center(more, "deviation").tolist()


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4), st.floats(0.1, 1.0))
def test_returns_are_discounted_back_from_the_last_own_word(own: list[list[bool]], gamma: float) -> None:
    own_NT = np.array(own)
    rewards_N = np.arange(len(own)) - 1.5
    expected = np.zeros(own_NT.shape)
    for row, reward in enumerate(rewards_N):
        value = reward
        for position in reversed(range(own_NT.shape[1])):
            if own_NT[row, position]:
                expected[row, position] = value
                value *= gamma
    found = discounted_returns(own_NT, rewards_N, gamma)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_speaking_distribution_is_tempered_and_has_no_forbidden_word(temperature: float) -> None:
    logits_MV = logits(0)
    found = policy_log_probs(logits_MV, FORBIDDEN, temperature)
    assert torch.isneginf(found[:, FORBIDDEN]).all()
    expected = Categorical(logits=logits_MV[:, ALLOWED] / temperature).logits
    torch.testing.assert_close(found[:, ALLOWED], expected)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(7, dtype=torch.float64))


def test_the_policy_gradient_is_that_of_a_softmax() -> None:
    """d(-R/N log p_w)/d logit_v = R/N (p_v - [v = w]) / temperature for allowed words, 0 for forbidden ones."""
    logits_MV = logits(1).requires_grad_()
    words_M = torch.tensor([0, 2, 4, 5, 0, 0, 2])
    returns_M = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, 1.5, -1.0], dtype=torch.float64)
    temperature, num_dialogues = 0.5, 3
    log_probs_M = policy_log_probs(logits_MV, FORBIDDEN, temperature).gather(1, words_M.unsqueeze(1)).squeeze(1)
    loss = policy_gradient_loss(log_probs_M, returns_M, num_dialogues)
    loss.backward()
    weights_MV = (logits_MV.detach() / temperature).exp()
    weights_MV[:, FORBIDDEN] = 0
    probabilities_MV = weights_MV / weights_MV.sum(1, keepdim=True)
    chosen_MV = torch.nn.functional.one_hot(words_M, 6)
    assert loss.item() == pytest.approx(float(-(probabilities_MV[chosen_MV.bool()].log() * returns_M).sum()) / num_dialogues)
    expected = returns_M.unsqueeze(1) / num_dialogues * (probabilities_MV - chosen_MV) / temperature
    assert logits_MV.grad is not None
    torch.testing.assert_close(logits_MV.grad, expected)


def test_the_policy_gradient_averages_over_dialogues_not_words() -> None:
    log_probs_M, returns_M = torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([1.0, 1.0, 2.0])
    assert policy_gradient_loss(log_probs_M, returns_M, 1) == 9
    assert policy_gradient_loss(log_probs_M, returns_M, 2) == 4.5


def test_kl_and_entropy_are_those_of_torch_with_finite_gradients() -> None:
    logits_MV, reference_MV = logits(2).requires_grad_(), logits(3)
    learner, reference = (policy_log_probs(values, FORBIDDEN, 0.5) for values in (logits_MV, reference_MV))
    first, second = (Categorical(logits=values[:, ALLOWED] / 0.5) for values in (logits_MV, reference_MV))
    kl = kl_to_reference(learner, reference)
    torch.testing.assert_close(kl, kl_divergence(first, second).mean())
    torch.testing.assert_close(entropy(learner), first.entropy().mean())
    found, expected = (torch.autograd.grad(value, logits_MV)[0] for value in (kl, kl_divergence(first, second).mean()))
    torch.testing.assert_close(found, expected)
    assert not found[:, FORBIDDEN].any()


def test_kl_is_nothing_to_itself_and_grows_with_the_distance() -> None:
    start = policy_log_probs(logits(4), FORBIDDEN, 1.0)
    assert kl_to_reference(start, start) == 0
    steps = [policy_log_probs(logits(4) + size * logits(5), FORBIDDEN, 1.0) for size in (0.1, 0.2, 0.4)]
    distances = [kl_to_reference(step, start).item() for step in steps]
    assert 0 < distances[0] < distances[1] < distances[2]


def test_no_words_at_all_are_no_loss_and_no_distance() -> None:
    none = policy_log_probs(logits(6, rows=0), FORBIDDEN, 1.0)
    assert policy_gradient_loss(none[:, 0], torch.zeros(0), 4) == 0
    assert kl_to_reference(none, none) == 0
    assert entropy(none) == 0


WRONG: list[tuple[str, Any]] = [
    ("dialogues", 0),
    ("dialogues_per_update", 0),
    ("supervised_batch", 0),
    ("max_turns", 0),
    ("gamma", 0.0),
    ("gamma", 1.01),
    ("learning_rate", 0.0),
    ("temperature", 0.0),
    ("supervised_weight", -0.1),
    ("kl_weight", -0.1),
    ("reward", "advantge"),
    ("optimiser", "adamw"),
    ("scenarios", "corpus"),
    ("scaling", "standardise"),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_values_out_of_range_are_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field) as caught:
        from_dict(ReinforceConfig, {field: value})
    assert repr(value) in str(caught.value)


def test_values_at_the_ends_of_their_ranges_are_taken() -> None:
    ReinforceConfig(dialogues=1, dialogues_per_update=1, supervised_batch=1, max_turns=1, gamma=1.0, supervised_weight=0.0)


def test_presets_of_the_papers_have_the_released_guard() -> None:
    # A supervised step of rate .5 for every four dialogues of rate .2, all clipped to norm 1.
    assert pytest.approx(0.5 / (4 * 0.2)) == RELEASED_GUARD
    for preset in (lewis2017, cheng2019, hardened):
        rule = preset().reinforce
        assert (rule.clipping, rule.supervised_weight) == ("parts", RELEASED_GUARD)
    assert ReinforceConfig().clipping == "whole", "as runs of earlier versions"
