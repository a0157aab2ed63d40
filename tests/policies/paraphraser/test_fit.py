"""Training: that copying is learnt, its phases and optimisers, and that a killed one goes on exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from parley.policies.core.fitting.batches import evaluate
from parley.policies.core.fitting.loop import Epoch
from parley.policies.paraphraser import settings
from parley.policies.paraphraser.model import PointerFit, PointerGenerator, RewriteExamples
from parley.policies.paraphraser.settings import PointerFitConfig, PointerSizes
from tests.policies.core.fitting.killed import goes_on, ignore
from tests.policies.paraphraser.made_up import SIZES, VOCABULARY, copies

TRAIN, VALIDATION = RewriteExamples(copies(40, seed=1), SIZES), RewriteExamples(copies(20, seed=2), SIZES)
CONFIG = PointerFitConfig(learning_rate=0.02, batch_size=8, max_epochs=4, patience=2, decay_epochs=2, precision="float32")


def fit(path: Path, config: PointerFitConfig = CONFIG, sizes: PointerSizes = SIZES) -> PointerFit:
    return PointerFit(PointerGenerator(VOCABULARY, sizes), TRAIN, VALIDATION, config, 1, path)


def test_it_learns_to_copy_words_that_it_does_not_know(tmp_path: Path) -> None:
    train, validation = RewriteExamples(copies(300, seed=1), SIZES), RewriteExamples(copies(50, seed=2), SIZES)
    config = replace(CONFIG, max_epochs=10, patience=8, batch_size=16, learning_rate=0.03)
    training = PointerFit(PointerGenerator(VOCABULARY, SIZES), train, validation, config, 1, tmp_path / "state")
    before = evaluate(training.model, validation).nll
    assert evaluate(training.run(ignore), validation).nll < 0.5 * before


@pytest.mark.parametrize(("weight", "phases"), [(1e3, [False, False, True, True]), (0.0, [False] * 4)])
def test_coverage_belongs_to_the_last_phase(tmp_path: Path, weight: float, phases: list[bool]) -> None:
    found: list[bool] = []
    # At this weight coverage makes the likelihood worse, and still the network that is kept is one of the last phase.
    training = fit(tmp_path / "state", CONFIG, replace(SIZES, coverage=weight))
    model = training.run(lambda _: found.append(bool(training.model.covers)))
    assert found == phases
    assert bool(model.covers) == phases[-1]


@pytest.mark.parametrize("adagrad", [0.0, 0.1])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_killed_training_goes_on_exactly(tmp_path: Path, epochs: int, adagrad: float) -> None:
    config = replace(CONFIG, adagrad=adagrad)
    assert goes_on(lambda name: fit(tmp_path / name, config), epochs=[epochs]) == (epochs, 0)


def test_the_published_recipe_is_the_published_one(tmp_path: Path) -> None:
    config = settings.see2017()
    assert (config.adagrad, config.learning_rate, config.batch_size, config.clip, config.decay) == (0.1, 0.15, 16, 2.0, 1.0)
    optimiser = fit(tmp_path / "state", config)._optimiser
    assert isinstance(optimiser, torch.optim.Adagrad)
    assert optimiser.defaults["initial_accumulator_value"] == 0.1


def test_one_epoch_is_one_epoch(tmp_path: Path) -> None:
    epochs: list[Epoch] = []
    fit(tmp_path / "state", replace(CONFIG, max_epochs=1)).run(epochs.append)
    assert [epoch.stage for epoch in epochs] == ["full"]
