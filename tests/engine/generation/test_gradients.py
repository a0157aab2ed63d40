"""Gradients on a generator of four words all of whose replies can be listed: what is unbiased, and what varies less.

The words are `</s>`, `<unk>` and two more, and a reply has three at most, so that there are forty replies. Gradients are
compared along a drawn direction in the space of all weights, in float64.

Shapes: Y replies, T words.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.engine.generation.rewards.rewards import (
    ReplyActions,
    RunningMean,
    action_batch,
    action_nll,
    baseline_values,
    critic_loss,
    forcing_loss,
    forcing_rewards,
    policy_loss,
    reply_actions,
    reply_rewards,
    rewards,
)
from parley.engine.generation.settings import Baseline, RewardSettings
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.vocabulary import EOS_ID, UNK_ID
from parley.policies.core.fitting.loop import Fit
from parley.policies.core.settings import FitConfig
from parley.policies.seq2seq.decoding import sample
from parley.policies.seq2seq.model import PairExamples
from tests.engine.generation.made_up import Pair, Said, heard, pair
from tests.policies.seq2seq.made_up import seq2seq, split

MAX_WORDS = 3
SOURCE = [6, 5, 6]
WORDS = (UNK_ID, 5, 6)
REPLIES = [list(words) for length in range(MAX_WORDS + 1) for words in product(WORDS, repeat=length)]
NUM_SAMPLES = 3000
EPSILON = 1e-5


class World(NamedTuple):
    """All that can be said, what it is worth, and the exact gradient of the expected reward along a direction."""

    models: Pair
    replies: ReplyActions
    probabilities_Y: Tensor
    rewards_Y: Tensor
    values_YT: Tensor
    """The exact value of every beginning, after each word."""
    direction: list[Tensor]
    scores_YT: Tensor
    """Derivative of each word's log-probability along the direction."""
    slope: float
    """Derivative of the expected reward along it, by finite differences."""

    @property
    def before_YT(self) -> Tensor:
        """The values before each word."""
        expected = (self.probabilities_Y @ self.rewards_Y).expand(len(REPLIES), 1)
        return torch.cat([expected, self.values_YT[:, :-1]], dim=1)


def moved(models: Pair, direction: list[Tensor], by: float) -> None:
    for parameter, towards in zip(models.generator.parameters(), direction, strict=True):
        parameter.data += by * towards


def said_nll(models: Pair, replies: ReplyActions) -> Tensor:
    return action_nll(models.generator, action_batch(models.generator, [SOURCE] * len(replies.lengths_B), replies))


def spread_out(models: Pair, batch: Said) -> None:
    """Makes the discriminator sure of some replies, and of as many that they are by people as that they are not."""
    output = models.discriminator.output
    output.weight.data *= 15
    odds_Y = reply_rewards(models.discriminator, batch.contexts, batch.replies)[:, 0].logit()
    output.bias.data[1] -= odds_Y.mean()


def expected_reward(models: Pair, replies: ReplyActions, rewards_Y: Tensor) -> Tensor:
    return (-said_nll(models, replies).sum(1)).exp() @ rewards_Y


@pytest.fixture(scope="module")
def world() -> World:
    models = pair(2, MAX_WORDS, seed=4)
    models.generator.double()
    models.discriminator.double()
    replies = reply_actions(REPLIES, MAX_WORDS)
    batch = heard(models, [SOURCE] * len(REPLIES), [0] * len(REPLIES), replies)
    with torch.no_grad():
        spread_out(models, batch)
        rewards_Y = reply_rewards(models.discriminator, batch.contexts, replies)[:, 0]
        probabilities_Y = (-said_nll(models, replies).sum(1)).exp()
        values_YT = torch.zeros(replies.words_BT.shape, dtype=torch.float64)
        for row, place in replies.real_BT.nonzero().tolist():
            same_Y = (replies.words_BT[:, : place + 1] == replies.words_BT[row, : place + 1]).all(1)
            values_YT[row, place] = (probabilities_Y * rewards_Y)[same_Y].sum() / probabilities_Y[same_Y].sum()
        generator = torch.Generator().manual_seed(1)
        weights = list(models.generator.parameters())
        direction = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in weights]
        direction = [torch.where(each.isfinite(), towards, 0.0) for each, towards in zip(weights, direction, strict=True)]
        found = []
        for by in (EPSILON, -2 * EPSILON):
            moved(models, direction, by)
            found.append((said_nll(models, replies), expected_reward(models, replies, rewards_Y)))
        moved(models, direction, EPSILON)
    scores_YT = (found[1][0] - found[0][0]) / (2 * EPSILON)
    slope = float(found[0][1] - found[1][1]) / (2 * EPSILON)
    return World(models, replies, probabilities_Y, rewards_Y, values_YT, direction, scores_YT, slope)


def along(world: World, loss: Tensor) -> float:
    """The derivative of a loss along the direction."""
    gradients = torch.autograd.grad(loss, list(world.models.generator.parameters()), allow_unused=True)
    parts = zip(gradients, world.direction, strict=True)
    return sum(float((gradient.nan_to_num() * towards).sum()) for gradient, towards in parts if gradient is not None)


def mean_gradient(world: World, advantages_YT: Tensor) -> float:
    """The mean of the policy gradient over all replies, each as often as it is said."""
    nll_YT = said_nll(world.models, world.replies)
    return -along(world, policy_loss(RewardSettings(), nll_YT, advantages_YT, world.probabilities_Y, num_words=1))


def test_the_probabilities_of_all_replies_add_up_to_one(world: World) -> None:
    assert len(REPLIES) == 40
    assert float(world.probabilities_Y.sum()) == pytest.approx(1)
    assert float(world.probabilities_Y.max()) < 0.5
    assert float(world.rewards_Y.max() - world.rewards_Y.min()) > 0.3
    assert abs(world.slope) > 0.01


def test_reinforce_is_the_gradient_of_the_expected_reward_whatever_is_subtracted_in_a_context(world: World) -> None:
    for baseline in (0.0, float(world.probabilities_Y @ world.rewards_Y)):
        advantages_YT = (world.rewards_Y.unsqueeze(1) - baseline).expand(world.replies.words_BT.shape)
        assert mean_gradient(world, advantages_YT) == pytest.approx(world.slope, rel=1e-5)


def test_regs_with_the_value_of_a_beginning_is_too_and_with_the_value_before_the_word_subtracted(world: World) -> None:
    assert mean_gradient(world, world.values_YT) == pytest.approx(world.slope, rel=1e-5)
    assert mean_gradient(world, world.values_YT - world.before_YT) == pytest.approx(world.slope, rel=1e-5)


def test_a_baseline_that_has_seen_the_word_takes_the_gradient_away(world: World) -> None:
    """The paper's b(x, Y_t), read literally: the better its critic is, the less is left."""
    for skill in (0.5, 1.0):
        learned_YT = (1 - skill) * world.before_YT + skill * world.values_YT
        found = mean_gradient(world, world.values_YT - learned_YT)
        assert found == pytest.approx((1 - skill) * world.slope, rel=1e-5, abs=1e-12)


def indices(replies: list[list[int]]) -> Tensor:
    return torch.tensor([REPLIES.index(reply) for reply in replies])


def test_the_mean_over_seeds_is_unbiased_and_baselines_lower_the_variance(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    models = world.models
    seeds = [derive_seed(7, number) for number in range(NUM_SAMPLES)]
    said = sample(models.generator, [SOURCE] * NUM_SAMPLES, seeds)
    replies = reply_actions(said, MAX_WORDS)
    batch, rows = heard(models, [SOURCE] * NUM_SAMPLES, seeds, replies), indices(said)
    expected = float(world.probabilities_Y @ world.rewards_Y)
    critic_BT1 = torch.cat([torch.full((NUM_SAMPLES, 1), expected), world.values_YT[rows]], dim=1)
    lines, variances = [], {}
    for method, baselines in {"reinforce": ("none", "mean", "critic"), "regs-mc": ("none", "mean", "critic", "prefix")}.items():
        settings = RewardSettings(method=method)
        args = models.generator, batch.memory, models.discriminator, batch.contexts, replies, seeds, MAX_WORDS
        rewards_BT = rewards(settings, *args)
        for baseline in baselines:
            mean = RunningMean().after(rewards_BT, replies)
            values_BT = baseline_values(baseline, replies, mean, critic_BT1)
            found_B = ((rewards_BT - values_BT) * world.scores_YT[rows]).sum(1)
            error = float(found_B.std()) / math.sqrt(NUM_SAMPLES)
            assert abs(float(found_B.mean()) - world.slope) < 4 * error, (method, baseline)
            variances[method, baseline] = float(found_B.var())
            lines.append(f"{method:10} {baseline:7} mean {float(found_B.mean()):8.4f} variance {float(found_B.var()):8.4f}")
    with capsys.disabled():
        print("", f"exact gradient {world.slope:.4f}, {NUM_SAMPLES} samples", *lines, sep="\n")  # noqa: T201  # figures to read
    for method, baseline in variances:
        if baseline != "none":
            assert variances[method, baseline] < variances[method, "none"], (method, baseline)
    assert variances["regs-mc", "prefix"] < variances["regs-mc", "critic"]


def test_many_rollouts_have_the_mean_that_all_continuations_have(world: World) -> None:
    models, number = world.models, 600
    seeds = [derive_seed(3, row) for row in range(len(REPLIES))]
    batch = heard(models, [SOURCE] * len(REPLIES), seeds, world.replies)
    args = models.generator, batch.memory, models.discriminator, batch.contexts, world.replies, seeds, MAX_WORDS
    found_YT = rewards(RewardSettings(num_rollouts=number), *args)
    spread = float(world.rewards_Y.max() - world.rewards_Y.min()) / 2
    assert float((found_YT - world.values_YT).abs().max()) < 4.5 * spread / math.sqrt(number)


def test_baselines_stand_where_they_are_said_to(world: World) -> None:
    replies = reply_actions([[5, 6], [5, 6, 5]], MAX_WORDS)
    values_BT1 = torch.arange(10.0).view(2, 5)
    wanted: dict[Baseline, list[float]] = {
        "none": [0] * 4,
        "mean": [0.25] * 4,
        "critic": [5] * 4,
        "prefix": [5, 6, 7, 8],
        "literal": [6, 7, 8, 9],
    }
    mean = RunningMean().after(torch.full((2, 4), 0.25), replies)
    for baseline, values in wanted.items():
        found_BT = baseline_values(baseline, replies, mean, values_BT1)
        assert found_BT[1].tolist() == pytest.approx(values)
    of_context = baseline_values("critic", replies, mean, values_BT1[:, :1])
    assert of_context[1].tolist() == [5] * 4


def test_the_running_mean_counts_actions_alone_and_starts_without_a_batch(world: World) -> None:
    replies = reply_actions([[5], [5, 6, 5]], MAX_WORDS)
    rewards_BT = torch.tensor([[0.2, 0.4, 9, 9], [0.3, 0.5, 0.6, 9]])
    assert RunningMean().value == 0
    first = RunningMean().after(rewards_BT, replies)
    assert first.value == pytest.approx(0.4)
    assert first.after(rewards_BT * 2, replies).value == pytest.approx((0.99 * 0.4 + 0.8) / 1.99)


def test_a_critic_learns_rewards_of_words_or_the_replys_own() -> None:
    replies = reply_actions([[5], [5, 6, 5]], MAX_WORDS)
    rewards_BT = torch.tensor([[0.2, 0.4, 0, 0], [0.3, 0.5, 0.6, 0]])
    values_BT = torch.zeros(2, 4, requires_grad=True)
    words, final = (
        critic_loss(RewardSettings(critic_target=each), values_BT, rewards_BT, replies) for each in ("words", "final")
    )
    assert words.item() == pytest.approx(np.mean(np.square([0.2, 0.4, 0.3, 0.5, 0.6])))
    assert final.item() == pytest.approx(np.mean(np.square([0.4, 0.4, 0.6, 0.6, 0.6])))
    words.backward()
    assert values_BT.grad is not None
    assert values_BT.grad.ne(0).sum() == 5


def test_the_released_loss_is_divided_by_the_batch_once_more() -> None:
    nll_BT, advantages_BT = torch.rand(4, 3), torch.rand(4, 3)
    settings = [RewardSettings(divide=each) for each in ("once", "twice")]
    once, twice = (policy_loss(each, nll_BT, advantages_BT, torch.ones(4), 7) for each in settings)
    assert once.item() == pytest.approx((nll_BT * advantages_BT).sum().item() / 7)
    assert twice.item() == pytest.approx(once.item() / 4)


def test_forced_replies_weigh_one_or_what_they_earn_above_the_baseline() -> None:
    scores_B, baselines_B = torch.tensor([0.2, 0.6, 0.5]), torch.tensor([0.5, 0.5, 0.5])
    assert forcing_rewards(RewardSettings(), scores_B, baselines_B).tolist() == [1, 1, 1]
    found_B = forcing_rewards(RewardSettings(teacher_forcing="rewarded"), scores_B, baselines_B)
    torch.testing.assert_close(found_B, torch.tensor([0, 0.6, 0]))


def test_forcing_with_reward_one_is_a_step_of_maximum_likelihood(tmp_path: Path) -> None:
    model, data = seq2seq(), split(20)
    examples, forced = PairExamples(data, model.sizes), seq2seq()
    recipe = FitConfig(optimiser="sgd", learning_rate=0.5, batch_size=20, max_epochs=1, decay_epochs=0)
    config = replace(recipe, keep="last", precision="float32")
    Fit(model, examples, examples, config, 1, tmp_path / "state", fresh=False).run(lambda _: None)
    sources, replies = ([data.utterances[row].tolist() for row in side] for side in data.pairs.T)
    cut = reply_actions([reply[: forced.sizes.max_reply - 1] for reply in replies], forced.sizes.max_reply)
    nll_BT = action_nll(forced, action_batch(forced, sources, cut))
    weights_B = forcing_rewards(RewardSettings(), torch.zeros(20), torch.ones(20))
    loss = forcing_loss(nll_BT, weights_B, num_words=float(examples.num_targets.sum()))
    optimiser = torch.optim.SGD(forced.parameters(), lr=0.5, momentum=0.9)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(forced.parameters(), config.clip)
    optimiser.step()
    for (name, ours), theirs in zip(forced.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)
    assert int((cut.words_BT == EOS_ID).sum()) == 20
