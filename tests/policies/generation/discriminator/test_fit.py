"""Training of discriminators: that they learn, what their figures are, and what their checkpoints say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from parley.envs.core.errors import CheckpointError
from parley.policies.core.fitting.batches import evaluate
from parley.policies.core.fitting.loop import Fit
from parley.policies.core.settings import FitConfig
from parley.policies.generation.discriminator.batches import (
    DISCRIMINATOR,
    PREFIXES,
    Discriminator,
    ReplyExamples,
    judge,
    load_discriminator,
    require_prefixes,
)
from parley.policies.generation.discriminator.settings import DiscriminatorSizes, discriminator_fit, discriminator_released
from tests.policies.generation.discriminator.made_up import KINDS, VOCABULARY, judged, network

FAST = FitConfig(learning_rate=0.01, batch_size=16, max_epochs=4, patience=4, decay_epochs=1, precision="float32")


@pytest.mark.parametrize("prefixes", [False, True], ids=["whole", "prefixes"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_who_wrote_a_reply(kind: str, prefixes: bool, tmp_path: Path) -> None:
    sizes = DiscriminatorSizes(kind=kind, embed=16, hidden=24, words=12, dropout=0.0)
    model = Discriminator(VOCABULARY, sizes)
    train, validation = (ReplyExamples(judged(num, num), VOCABULARY, sizes, prefixes=prefixes) for num in (400, 100))
    fit = Fit(model, train, validation, FAST, 1, tmp_path / "state")
    before = judge(model, validation)
    fit.run(lambda _: None)
    after = judge(model, validation)
    assert abs(before.accuracy - 0.5) < 0.15
    assert after.accuracy > 0.7
    assert after.loss < before.loss
    assert evaluate(model, validation).nll == pytest.approx(after.loss, abs=1e-5)


def test_judgements_are_in_the_order_of_the_replies_and_do_not_depend_on_the_batch() -> None:
    model, items = network(), judged(300)
    found = judge(model, ReplyExamples(items, VOCABULARY, model.sizes))
    assert found.human.tolist() == [True, False] * 300
    backwards = judge(model, ReplyExamples(items[::-1], VOCABULARY, model.sizes))
    np.testing.assert_allclose(backwards.log_odds.reshape(-1, 2)[::-1].ravel(), found.log_odds, atol=1e-5)
    odds = found.vectors @ model.output.weight.detach().numpy().T + model.output.bias.detach().numpy()
    np.testing.assert_allclose(odds[:, 1] - odds[:, 0], found.log_odds, atol=1e-5)


def test_even_odds_are_half_right() -> None:
    model = network()
    for value in model.parameters():
        value.data.zero_()
    found = judge(model, ReplyExamples(judged(9), VOCABULARY, model.sizes))
    assert (found.accuracy, found.loss) == (0.5, pytest.approx(np.log(2)))


def test_a_checkpoint_says_whether_it_knows_beginnings(tmp_path: Path) -> None:
    model = network()
    for prefixes in (True, False):
        DISCRIMINATOR.save(model, tmp_path / str(prefixes), {PREFIXES: prefixes})
    require_prefixes(tmp_path / "True")
    with pytest.raises(CheckpointError, match="asked about their beginnings"):
        require_prefixes(tmp_path / "False")
    loaded = load_discriminator(tmp_path / "True")
    assert loaded.sizes == model.sizes
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_the_recipes_are_of_128_replies_a_step() -> None:
    assert discriminator_fit().batch_size == discriminator_released().batch_size == 64
    assert discriminator_released().momentum == 0
