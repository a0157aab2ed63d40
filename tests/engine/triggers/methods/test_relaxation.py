"""Continuous inputs: the descent is the one written out by hand, and what it ends at is read off honestly."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.relaxation import relax
from parley.engine.triggers.methods.settings import RelaxationSettings
from parley.engine.triggers.searches.batch import Task
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.seeds import stream
from tests.engine.triggers.made_up import (
    EMBED,
    LENGTH,
    NUM_SPECIALS,
    OTHER_TARGET,
    SEARCHABLE,
    TARGET,
    TinyVictim,
    scorer,
    tasks,
    tiny_victim,
)

Mode = Literal["embedding", "one-hot"]
FIRST = Task("first", TARGET, 0, 3)
SHORT = RelaxationSettings(rounds=2, steps=3)
LONG = RelaxationSettings(rounds=2, steps=150, l1_weight=0.1)


def loss_of(embedded_NE: Tensor) -> Tensor:
    log_TV = tiny_victim().reply_logits(embedded_NE[None], TARGET[None])[0].log_softmax(-1)
    nll_T = -log_TV[range(4), TARGET]
    return (nll_T * torch.where(log_TV.argmax(-1) == TARGET, 0.01, 1.0)).sum() / 4


@pytest.mark.parametrize("mode", ["embedding", "one-hot"])
def test_the_descent_is_momentum_that_starts_anew_each_round(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RelaxationSettings, "learning_rate", 0.5)
    monkeypatch.setattr(RelaxationSettings, "weight_decay", 0.2)
    words_SE = tiny_victim().embedding_VE[NUM_SPECIALS:]
    width = EMBED if mode == "embedding" else len(SEARCHABLE)
    drawn = stream(3, "relaxation", "first", 0).standard_normal((LENGTH, width), dtype=np.float32)
    z = torch.from_numpy(drawn) - (3.0 if mode == "one-hot" else 0.0)
    for _ in range(2):
        speed = torch.zeros_like(z)
        for _ in range(3):
            z.requires_grad_()
            if mode == "embedding":
                loss = loss_of(z)
            else:
                x = z.sigmoid()
                loss = loss_of(x @ words_SE) + 0.7 * sum(x_S.sum() - 2 * x_S.max() for x_S in x) / LENGTH
            (slope,) = torch.autograd.grad(loss, [z])
            speed = 0.9 * speed + slope + 0.2 * z.detach()
            z = z.detach() - 0.5 * speed
    settings = replace(SHORT, mode=mode, l1_weight=0.7)
    (found,) = relax(tiny_victim(), [FIRST], settings)
    embedded_NE = z if mode == "embedding" else z.sigmoid() @ words_SE
    assert found.loss == pytest.approx(loss_of(embedded_NE).item(), abs=1e-4)
    if mode == "one-hot":
        assert found.words == tuple((z.argmax(1) + NUM_SPECIALS).tolist())


def test_readings_are_those_of_the_continuous_input_and_of_its_projection() -> None:
    plain = scorer(TriggerObjective())
    for found in relax(tiny_victim(), tasks(restarts=2), LONG):
        assert found.words is not None
        assert found.projected is not None
        (after,) = plain.measure([found.task.target], torch.tensor([found.words]))
        assert found.projected.word_log_probability == pytest.approx(after.reading.word_log_probability, abs=1e-5)
        assert found.projected.likeliest == after.reading.likeliest
        assert len(found.reading.word_log_probability) == len(found.task.target) == len(found.reading.likeliest)
        assert set(found.words) <= set(SEARCHABLE)


def test_embeddings_reach_further_than_words() -> None:
    todo = tasks(restarts=2)
    free = relax(tiny_victim(), todo, replace(LONG, mode="embedding"))
    one_hot = relax(tiny_victim(), todo, LONG)
    assert all(found.words is None and found.projected is None for found in free)

    def mean(readings: list[list[float]]) -> float:
        return sum(sum(reading) / len(reading) for reading in readings) / len(readings)

    reached = [mean([list(found.reading.word_log_probability) for found in kind]) for kind in (free, one_hot)]
    projected = mean([list(found.projected.word_log_probability) for found in one_hot if found.projected])
    assert min(reached) > projected


def test_the_second_term_draws_inputs_towards_one_word() -> None:
    loose, tight = (relax(tiny_victim(), [FIRST], replace(LONG, l1_weight=weight))[0] for weight in (0.0, 3.0))
    assert tight.projected is not None
    assert loose.projected is not None
    gaps = [
        np.abs(np.subtract(found.reading.word_log_probability, found.projected.word_log_probability)).mean()
        for found in (loose, tight)
        if found.projected
    ]
    assert gaps[1] < gaps[0]


def test_the_second_term_brings_inputs_near_to_words() -> None:
    loose, tight = (relax(tiny_victim(), [FIRST], replace(LONG, l1_weight=weight))[0].nearness for weight in (0.0, 3.0))
    assert {*tight} == {"largest", "second", "word_change", "word_norm"}, "the states of other models are not known"
    assert {len(values) for values in tight.values()} == {LENGTH}
    for near in (loose, tight):
        assert all(1 >= largest >= second >= 0 for largest, second in zip(near["largest"], near["second"], strict=True))
    assert np.mean(tight["largest"]) > 0.9 > np.mean(loose["largest"])
    assert np.mean(tight["word_change"]) < np.mean(loose["word_change"])
    (free,) = relax(tiny_victim(), [FIRST], replace(SHORT, mode="embedding"))
    assert free.nearness == {}


@pytest.mark.parametrize("mode", ["embedding", "one-hot"])
def test_a_target_goes_its_own_way_in_any_batch(mode: Mode) -> None:
    settings = replace(SHORT, mode=mode)
    todo = [FIRST, Task("other", OTHER_TARGET, 1, 3), Task("first", TARGET, 2, 3)]
    together = relax(tiny_victim(), todo, settings)
    for task, found in zip(todo, together, strict=True):
        (alone,) = relax(tiny_victim(), [task], settings)
        assert found.loss == pytest.approx(alone.loss, abs=1e-4)
        assert found.words == alone.words
    assert len({found.loss for found in together}) == 3


def test_satisfied_words_keep_a_hundredth_unless_told_otherwise() -> None:
    content = TriggerObjective(kind="sample", t_out=-99.0)
    (still,) = relax(tiny_victim(), [FIRST], replace(LONG, mode="embedding"), content)
    (moved,) = relax(tiny_victim(), [FIRST], replace(LONG, mode="embedding"))
    assert still.loss == 0
    assert sum(moved.reading.word_log_probability) > sum(still.reading.word_log_probability)


def test_a_loss_out_of_bounds_names_the_target() -> None:
    victim = replace(TinyVictim.draw(0), output_HV=torch.full((8, 12), torch.nan))
    with pytest.raises(CheckpointError, match="target first"):
        relax(victim, [FIRST], SHORT)


def test_one_hot_inputs_are_drawn_to_words_as_strongly_as_in_the_paper_unless_told_otherwise() -> None:
    untold, full, weak = (relax(tiny_victim(), [FIRST], replace(SHORT, l1_weight=weight))[0] for weight in (None, 1.0, 0.1))
    assert untold.loss == full.loss != weak.loss


@pytest.mark.parametrize("field", ["rounds", "steps", "l1_weight"])
def test_settings_out_of_range_are_named(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        replace(SHORT, **{field: -1})
