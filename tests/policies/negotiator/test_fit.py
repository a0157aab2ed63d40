"""Supervised training: that it learns, that a seed names it, its schedule, and that a killed one goes on exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.policies.negotiator.model import Negotiator, by_length, evaluate, make_batch, word_nll
from parley.policies.negotiator.settings import NegotiatorFitConfig
from parley.policies.negotiator.speaker import NegotiatorEpoch, NegotiatorFit
from tests.policies.core.fitting.killed import assert_equal, goes_on, ignore, weights
from tests.policies.negotiator.made_up import TINY, VOCABULARY, MadeUp, dialogues

TRAIN, VALIDATION = dialogues(40, seed=1), dialogues(20, seed=2)
SIZES = replace(TINY, init_range=0.4)
FAST = NegotiatorFitConfig(sizes=SIZES, max_epochs=5, patience=3, batch_size=8, learning_rate=0.02)
RELEASED = NegotiatorFitConfig(
    sizes=SIZES, optimiser="sgd", learning_rate=1.0, momentum=0.1, batch_size=16, max_epochs=4, patience=2, anneal_floor=0.01
)
NUM_FAST_EPOCHS = 3 + 2
"""Three at the full rate, two of annealing: 1/5 and 1/25 are at or above 0.01, 1/125 is not."""


class Recorded(MadeUp):
    """Remembers which dialogues are asked for, in order."""

    asked: ClassVar[list[int]] = []

    def tokens(self, index: int, /) -> np.ndarray:
        self.asked.append(index)
        return super().tokens(index)


def fit(path: Path, config: NegotiatorFitConfig = FAST, seed: int = 1) -> NegotiatorFit:
    return NegotiatorFit(Negotiator(VOCABULARY, config.sizes), TRAIN, VALIDATION, config, seed, path / "state.safetensors")


def opened(folder: Path, config: NegotiatorFitConfig, name: str) -> NegotiatorFit:
    return fit(folder / name, config)


def test_it_learns(tmp_path: Path) -> None:
    training = fit(tmp_path, replace(FAST, max_epochs=8, patience=6))
    before = evaluate(training.model, VALIDATION)
    epochs: list[NegotiatorEpoch] = []
    model = training.run(epochs.append)
    assert before.perplexity == pytest.approx(len(VOCABULARY), rel=0.2), "untrained, every word is about as likely"
    after = evaluate(model, VALIDATION)
    assert after.perplexity < 0.75 * before.perplexity
    assert epochs[-1].train_perplexity < 0.8 * epochs[0].train_perplexity
    assert not model.training


def test_one_seed_one_model(tmp_path: Path) -> None:
    first, second, other = (fit(tmp_path / name, seed=seed).run(ignore) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert_equal(weights(first), weights(second))
    assert not torch.equal(first.decoder.weight, other.decoder.weight)


def test_each_epoch_has_an_order_of_its_own_that_the_seed_names(tmp_path: Path) -> None:
    orders = []
    for number, seed in enumerate((1, 1, 2)):
        train = Recorded(TRAIN.contexts, TRAIN.outputs, TRAIN.words)
        model = Negotiator(VOCABULARY, SIZES)
        Recorded.asked.clear()
        recipe = replace(FAST, max_epochs=2, anneal_floor=1.0)
        NegotiatorFit(model, train, VALIDATION, recipe, seed, tmp_path / str(number)).run(ignore)
        orders.append([Recorded.asked[start : start + len(train)] for start in (0, len(train))])
    assert all(sorted(epoch) == list(range(len(TRAIN))) for order in orders for epoch in order)
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]
    assert orders[0][0] != orders[2][0]


def test_a_killed_training_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    for after in range(1, NUM_FAST_EPOCHS + 1):
        assert goes_on(partial(opened, tmp_path / str(after), FAST), epochs=[after]) == (after, 0)
    # Momentum is a state of the optimiser, and is there at the full rate alone.
    assert goes_on(partial(opened, tmp_path / "released", RELEASED), epochs=range(1, 5)) == (4, 0)


def test_a_training_killed_within_an_epoch_makes_it_again(tmp_path: Path) -> None:
    assert goes_on(partial(opened, tmp_path, FAST), batch=(2, 3)) == (1, 0)


def test_the_released_recipe_anneals_twice_without_momentum(tmp_path: Path) -> None:
    training = fit(tmp_path, RELEASED)
    seen: list[tuple[str, float, float, bool]] = []

    def on_epoch(epoch: NegotiatorEpoch) -> None:
        group = training._optimiser.param_groups[0]
        assert group["lr"] == epoch.learning_rate
        seen.append((epoch.stage, epoch.learning_rate, group["momentum"], group["nesterov"]))

    training.run(on_epoch)
    assert seen == [
        ("full", 1.0, 0.1, True),
        ("full", 1.0, 0.1, True),
        ("anneal", pytest.approx(0.2), 0.0, False),
        ("anneal", pytest.approx(0.04), 0.0, False),
    ]


def test_the_best_model_by_selection_loss_is_taken_back(tmp_path: Path) -> None:
    # No annealing, so that what is taken back is what is returned; a rate at which the loss goes up and down.
    training = fit(tmp_path, replace(FAST, max_epochs=8, patience=8, learning_rate=0.2, anneal_floor=1.0))
    kept: list[tuple[float, dict[str, Tensor]]] = []
    best: list[bool] = []

    def on_epoch(epoch: NegotiatorEpoch) -> None:
        kept.append((epoch.validation.selection_loss, weights(training.model)))
        best.append(epoch.best)

    model = training.run(on_epoch)
    losses = [loss for loss, _ in kept]
    assert best == [loss == min(losses[: i + 1]) for i, loss in enumerate(losses)]
    place = int(np.argmin(losses))
    assert place < len(losses) - 1, "the last model is the best one: nothing would be taken back"
    assert_equal(weights(model), kept[place][1])


def test_patience_ends_the_full_rate_early(tmp_path: Path) -> None:
    training = fit(tmp_path, replace(FAST, max_epochs=50, patience=2, learning_rate=0.3, anneal_floor=1.0))
    epochs: list[NegotiatorEpoch] = []
    training.run(epochs.append)
    assert len(epochs) < 50
    assert [epoch.best for epoch in epochs[-3:]] == [True, False, False]


def test_the_reported_perplexity_is_that_of_the_training_words(tmp_path: Path) -> None:
    # Without dropout and at a rate that moves nothing, the first epoch's figure is that of the initial weights.
    still = replace(FAST, sizes=replace(SIZES, dropout=0.0), learning_rate=1e-12, max_epochs=1, anneal_floor=1.0)
    epochs: list[NegotiatorEpoch] = []
    model = fit(tmp_path, still).run(epochs.append)
    losses = []
    with torch.no_grad():
        for batch in (make_batch(TRAIN, group) for group in by_length(TRAIN, still.batch_size)):
            logits, _ = model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
            for nll_T, length in zip(word_nll(logits, batch.tokens_BT), batch.lengths_B, strict=True):
                losses += nll_T[: length - 1].tolist()
    assert epochs[0].train_perplexity == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)


def test_half_precision_learns_in_full_precision_weights(tmp_path: Path) -> None:
    training = fit(tmp_path, replace(FAST, precision="bfloat16", max_epochs=4))
    before = evaluate(training.model, VALIDATION).perplexity
    model = training.run(ignore)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    assert evaluate(model, VALIDATION).perplexity < before


def test_a_training_that_diverges_stops_and_says_what_to_lower(tmp_path: Path) -> None:
    training = fit(tmp_path, replace(FAST, optimiser="sgd", learning_rate=1e6, clip=1e6))
    with pytest.raises(ConfigError, match=r"diverged(.|\n)*epoch 1(.|\n)*learning_rate"):
        training.run(ignore)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"momentum": 1.0},
        {"batch_size": 0},
        {"clip": 0.0},
        {"selection_weight": -0.1},
        {"max_epochs": 0},
        {"patience": 0},
        {"anneal_divisor": 1.0},
        {"anneal_floor": 0.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_recipes_out_of_range_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        NegotiatorFitConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("most", "stages"),
    [(1, ["full"]), (2, ["full", "anneal"]), (3, ["full", *["anneal"] * 2]), (4, ["full"] * 2 + ["anneal"] * 2)],
)
def test_there_are_no_more_epochs_than_asked_for(tmp_path: Path, most: int, stages: list[str]) -> None:
    epochs: list[NegotiatorEpoch] = []
    fit(tmp_path, replace(FAST, max_epochs=most)).run(epochs.append)
    assert [epoch.stage for epoch in epochs] == stages


@pytest.mark.parametrize(
    ("divisor", "floor", "epochs"), [(5.0, 0.01, 2), (5.0, 0.2, 1), (5.0, 0.04, 2), (5.0, 1.0, 0), (10.0, 0.001, 3)]
)
def test_annealing_ends_where_the_rate_would_fall_below_its_floor(divisor: float, floor: float, epochs: int) -> None:
    assert NegotiatorFitConfig(anneal_divisor=divisor, anneal_floor=floor).anneal_epochs == epochs
