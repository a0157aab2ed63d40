"""Supervised training: that it learns, that a seed names it, its schedules, and that a killed one goes on exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.policies.core.fitting import loop
from parley.policies.core.fitting.batches import evaluate
from parley.policies.core.fitting.loop import Epoch, Fit
from parley.policies.core.settings import FitConfig
from parley.policies.paraphraser import settings as pointer_generator
from parley.policies.seq2seq import settings
from parley.policies.seq2seq.model import Exchanges, LanguageModel, PairExamples, SentenceExamples, Seq2Seq
from parley.policies.vhred import settings as vhred
from tests.policies.core.fitting.killed import Killed, assert_equal, goes_on, ignore, weights
from tests.policies.seq2seq.made_up import LM_SIZES, VOCABULARY, sizes, split

SIZES = sizes(dropout=0.2)
TRAIN, VALIDATION = PairExamples(split(40, seed=1), SIZES), PairExamples(split(20, seed=2), SIZES)
FAST = FitConfig(learning_rate=0.02, batch_size=8, max_epochs=5, patience=3, decay_epochs=2, precision="float32")
PUBLISHED = replace(settings.he2018(), batch_size=8, learning_rate=0.1, max_epochs=4, decay_epochs=2)


def fit(path: Path, config: FitConfig = FAST, seed: int = 1, save_every_s: float = 1e9) -> Fit[Exchanges]:
    return Fit(Seq2Seq(VOCABULARY, SIZES), TRAIN, VALIDATION, config, seed, path / "state.safetensors", save_every_s)


def test_a_sequence_to_sequence_model_learns_what_a_reply_takes_from_its_source(tmp_path: Path) -> None:
    plain = sizes()
    train, validation = PairExamples(split(400, seed=1), plain), PairExamples(split(50, seed=2), plain)
    config = replace(FAST, max_epochs=10, patience=8, learning_rate=0.04, batch_size=16)
    training = Fit(Seq2Seq(VOCABULARY, plain), train, validation, config, 1, tmp_path / "state")
    before = evaluate(training.model, validation).nll
    model = training.run(ignore)
    assert before == pytest.approx(math.log(len(VOCABULARY)), rel=0.1), "untrained, every word is about as likely"
    # Without the source, a word is one of 25 and nobody knows how often it comes.
    assert evaluate(model, validation).nll < 1.3
    assert not model.training


def test_a_language_model_learns(tmp_path: Path) -> None:
    examples = SentenceExamples(split(100).utterances, LM_SIZES)
    training = Fit(LanguageModel(VOCABULARY, LM_SIZES), examples, examples, replace(FAST, max_epochs=8), 1, tmp_path / "state")
    before = evaluate(training.model, examples).nll
    epochs: list[Epoch] = []
    assert evaluate(training.run(epochs.append), examples).nll < 0.85 * before
    assert epochs[-1].train_nll < 0.85 * epochs[0].train_nll


def test_one_seed_one_model(tmp_path: Path) -> None:
    first, second, other = (fit(tmp_path / name, seed=seed).run(ignore) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert_equal(weights(first), weights(second))
    assert not torch.equal(first.output.weight, other.output.weight)


def test_torchs_own_generator_is_left_alone(tmp_path: Path) -> None:
    training = fit(tmp_path, replace(FAST, max_epochs=1))
    before = torch.random.get_rng_state()
    training.run(ignore)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_training_that_goes_on_begins_with_the_loss_of_the_weights_that_are_there(tmp_path: Path) -> None:
    model = fit(tmp_path / "first").run(ignore)
    loss, began = evaluate(model, VALIDATION).nll, weights(model)
    still = replace(FAST, learning_rate=1e-12, max_epochs=1, decay_epochs=0)
    training = Fit(model, TRAIN, VALIDATION, still, 1, tmp_path / "second", fresh=False)
    assert training.best_loss == loss
    epochs: list[Epoch] = []
    training.run(epochs.append)
    assert epochs[0].validation_nll == pytest.approx(loss, rel=1e-6)
    again = Fit(model, TRAIN, VALIDATION, replace(FAST, learning_rate=3.0), 1, tmp_path / "third", fresh=False)
    assert_equal(weights(again.run(epochs.append)), began)
    assert min(epoch.validation_nll for epoch in epochs[1:]) > loss, "an epoch was better: nothing shows that they are kept"


@pytest.mark.parametrize("config", [FAST, PUBLISHED], ids=["fast", "published"])
def test_a_training_killed_after_any_epoch_goes_on_as_if_it_had_not_been(tmp_path: Path, config: FitConfig) -> None:
    epochs = config.max_epochs
    assert goes_on(lambda name: fit(tmp_path / name, config), epochs=range(1, epochs + 1)) == (epochs, 0)


@pytest.mark.parametrize("epoch", [1, 3, 5])
def test_a_training_killed_within_an_epoch_goes_on_at_the_batch_that_was_kept(tmp_path: Path, epoch: int) -> None:
    assert goes_on(lambda name: fit(tmp_path / name, save_every_s=0), batch=(epoch, 4)) == (epoch - 1, 3)


def test_a_finished_training_says_so_at_once(tmp_path: Path) -> None:
    wanted = fit(tmp_path).run(ignore)
    epochs: list[Epoch] = []
    assert_equal(weights(fit(tmp_path).run(epochs.append)), weights(wanted))
    assert epochs == []


def test_the_published_recipe_halves_the_rate_and_keeps_the_last_model(tmp_path: Path) -> None:
    training = fit(tmp_path, PUBLISHED)
    seen: list[tuple[str, float, float, float]] = []

    def on_epoch(epoch: Epoch) -> None:
        group = training._optimiser.param_groups[0]
        assert group["lr"] == epoch.learning_rate
        seen.append((epoch.stage, epoch.learning_rate, group["momentum"], group["weight_decay"]))
        last.update(weights(training.model))

    last: dict[str, Tensor] = {}
    model = training.run(on_epoch)
    assert seen == [
        ("full", 0.1, 0.9, 1e-5),
        ("full", 0.1, 0.9, 1e-5),
        ("decay", pytest.approx(0.05), 0.9, 1e-5),
        ("decay", pytest.approx(0.025), 0.9, 1e-5),
    ]
    assert_equal(weights(model), last)


def test_the_published_settings_are_the_published_ones() -> None:
    recipe = settings.he2018()
    assert (recipe.optimiser, recipe.learning_rate, recipe.momentum, recipe.batch_size, recipe.clip) == (
        "sgd",
        1.0,
        0.9,
        64,
        5.0,
    )
    assert (recipe.max_epochs, recipe.patience, recipe.decay_epochs, recipe.decay, recipe.keep) == (20, 10, 10, 0.5, "last")


def test_the_best_model_by_validation_loss_is_taken_back(tmp_path: Path) -> None:
    # No decay, so that what is taken back is what is returned; a rate at which the loss goes up and down.
    training = fit(tmp_path, replace(FAST, max_epochs=4, patience=4, learning_rate=0.3, decay_epochs=0))
    kept: list[tuple[float, dict[str, Tensor]]] = []
    best: list[bool] = []

    def on_epoch(epoch: Epoch) -> None:
        kept.append((epoch.validation_nll, weights(training.model)))
        best.append(epoch.best)

    model = training.run(on_epoch)
    losses = [loss for loss, _ in kept]
    assert best == [loss == min(losses[: place + 1]) for place, loss in enumerate(losses)]
    place = int(np.argmin(losses))
    assert place < len(losses) - 1, "the last model is the best one: nothing would be taken back"
    assert_equal(weights(model), kept[place][1])


def test_patience_ends_the_full_rate_early(tmp_path: Path) -> None:
    epochs: list[Epoch] = []
    fit(tmp_path, replace(FAST, max_epochs=50, patience=2, learning_rate=0.5, decay_epochs=1)).run(epochs.append)
    assert len(epochs) < 50
    assert [epoch.best for epoch in epochs[-4:-1]] == [True, False, False]
    assert [epoch.stage for epoch in epochs[-2:]] == ["full", "decay"]


@pytest.mark.parametrize("bucketed", [False, True])
def test_the_reported_loss_is_that_of_the_training_words(tmp_path: Path, bucketed: bool) -> None:
    # Without dropout and at a rate that moves nothing, the first epoch's figure is that of the initial weights.
    still = replace(FAST, learning_rate=1e-12, max_epochs=1, decay_epochs=0, bucketed=bucketed)
    training = Fit(Seq2Seq(VOCABULARY, sizes()), TRAIN, VALIDATION, still, 1, tmp_path / "state")
    epochs: list[Epoch] = []
    model = training.run(epochs.append)
    assert epochs[0].train_nll == pytest.approx(evaluate(model, TRAIN).nll, rel=1e-5)
    assert epochs[0].validation_nll == pytest.approx(evaluate(model, VALIDATION).nll, rel=1e-5)


def test_half_precision_learns_in_full_precision_weights(tmp_path: Path) -> None:
    training = fit(tmp_path, replace(FAST, precision="bfloat16"))
    before = evaluate(training.model, VALIDATION).nll
    model = training.run(ignore)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    assert evaluate(model, VALIDATION).nll < before


def costing(monkeypatch: pytest.MonkeyPatch, cost: float) -> list[float]:
    """A machine on which bfloat16 costs so much, whatever is measured; what was measured."""
    found: list[float] = []

    def cost_of_bfloat16(device: torch.device, what: object, measure: Callable[[], float]) -> float:
        found.append(measure())
        return cost

    monkeypatch.setattr(loop, "multiplies_bfloat16", lambda device: True)
    monkeypatch.setattr(loop, "cost_of_bfloat16", cost_of_bfloat16)
    return found


@pytest.mark.parametrize(("cost", "precision"), [(0.5, "bfloat16"), (0.9, "float32"), (4.0, "float32")])
def test_auto_is_what_is_measured_to_be_faster_and_changes_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: float, precision: Literal["bfloat16", "float32"]
) -> None:
    measured = costing(monkeypatch, cost)
    torch.manual_seed(3)
    found = fit(tmp_path / "auto", replace(FAST, precision="auto"))
    state = torch.get_rng_state()
    assert (found.precision, len(measured)) == (precision, 1)
    assert 0 < measured[0] < 1000
    torch.manual_seed(3)
    wanted = fit(tmp_path / "set", replace(FAST, precision=precision))
    assert torch.equal(torch.get_rng_state(), state)
    assert_equal(weights(found.model), weights(wanted.model))
    assert_equal(weights(found.run(ignore)), weights(wanted.run(ignore)))


def test_precisions_are_clocked_on_batches_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In training no batch has the sizes of the last one, and what is made for a size is made anew."""
    costing(monkeypatch, 0.5)
    made: dict[str, list[list[int]]] = {"bfloat16": [], "float32": []}
    step = Fit.step

    def counted(self: Fit[Exchanges], group: np.ndarray) -> loop.StepLoss:
        made[self.precision].append(group.tolist())
        return step(self, group)

    monkeypatch.setattr(Fit, "step", counted)
    fit(tmp_path, replace(FAST, precision="auto"))
    assert made["bfloat16"] == made["float32"]
    assert len(made["float32"]) == loop.CLOCKED
    assert len(set(map(tuple, made["float32"]))) == min(loop.CLOCKED, 40 // FAST.batch_size)


def test_a_resumed_training_keeps_the_precision_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(epoch: Epoch) -> None:
        if epoch.number == 2:
            raise Killed

    auto = replace(FAST, precision="auto")
    costing(monkeypatch, 0.5)
    whole = fit(tmp_path / "whole", auto).run(ignore)
    with pytest.raises(Killed):
        fit(tmp_path / "killed", auto).run(dies)
    measured = costing(monkeypatch, 2.0)
    resumed = fit(tmp_path / "killed", auto)
    assert (resumed.precision, measured) == ("bfloat16", [])
    assert_equal(weights(resumed.run(ignore)), weights(whole))


def test_without_instructions_for_bfloat16_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = costing(monkeypatch, 0.1)
    monkeypatch.setattr(loop, "multiplies_bfloat16", lambda device: False)
    assert (fit(tmp_path, replace(FAST, precision="auto")).precision, measured) == ("float32", [])


def test_a_training_that_diverges_stops_and_says_what_to_lower(tmp_path: Path) -> None:
    training = fit(tmp_path, replace(PUBLISHED, learning_rate=1e6, clip=1e6))
    with pytest.raises(ConfigError, match=r"diverged(.|\n)*epoch 1(.|\n)*learning_rate"):
        training.run(ignore)


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.safetensors").write_bytes(b"not a state")
    with pytest.raises(CheckpointError, match=r"training state is damaged(.|\n)*state.safetensors(.|\n)*delete it"):
        fit(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"batch_size": 0},
        {"clip": 0.0},
        {"max_epochs": 0},
        {"patience": 0},
        {"decay_epochs": -1},
        {"decay": 0.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_recipes_out_of_range_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FitConfig(**wrong)  # type: ignore[arg-type]  # a setting of any kind, by name


@pytest.mark.parametrize(
    ("most", "stages"),
    [(1, ["full"]), (2, ["full", "decay"]), (3, ["full", *["decay"] * 2]), (4, ["full"] * 2 + ["decay"] * 2)],
)
def test_there_are_no_more_epochs_than_asked_for(tmp_path: Path, most: int, stages: list[str]) -> None:
    epochs: list[Epoch] = []
    fit(tmp_path, replace(FAST, max_epochs=most)).run(epochs.append)
    assert [epoch.stage for epoch in epochs] == stages


def test_recipes_have_as_many_epochs_at_the_full_rate_as_they_had() -> None:
    recipes = (settings.he2018(), settings.fast(), settings.demo(), vhred.niu2018_fit(), vhred.small_fit(), vhred.demo_fit())
    recipes += (pointer_generator.see2017(), pointer_generator.fast(), pointer_generator.demo())
    found = [(recipe.full_epochs, recipe.max_epochs - recipe.full_epochs) for recipe in recipes]
    assert found == [(10, 10), (10, 2), (16, 3), (80, 0), (20, 2), (16, 3), (20, 1), (12, 2), (5, 1)]
