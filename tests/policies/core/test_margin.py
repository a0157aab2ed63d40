"""The margin of adversarial training: its value, its gradient, what counts as met, and that no contrast means no change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.policies.core.fitting.batches import OutputLoss, evaluate
from parley.policies.core.fitting.loop import Fit
from parley.policies.core.margin import AdversarialExample, AdversarialExamples, MarginObjective
from parley.policies.core.responder import DecoderSettings
from parley.policies.core.settings import FitConfig
from parley.policies.seq2seq.decoding import Seq2SeqResponder
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.vhred.decoding import VhredResponder
from parley.policies.vhred.model import VHRED
from tests.policies.core.fitting.killed import goes_on, ignore
from tests.policies.seq2seq.made_up import VOCABULARY, seq2seq, sizes
from tests.policies.vhred.made_up import SIZES

FIT = FitConfig(learning_rate=0.01, batch_size=4, max_epochs=2, patience=2, decay_epochs=0, precision="float32")


def turns(*words: int) -> Turns:
    return (tuple_of(*words),)


def tuple_of(*words: int) -> Turn:
    return (tuple(f"w{word}" for word in words),)


LESSONS = (
    AdversarialExample(turns(1, 2, 3), tuple_of(4, 5), turns(1, 6, 3)),
    AdversarialExample(turns(7), tuple_of(8, 9, 10, 11), turns(12)),
    AdversarialExample(turns(13, 14), tuple_of(15)),
    AdversarialExample(turns(1), tuple_of(16, 17), turns(18, 19, 20)),
)


def likelihood(responder: Seq2SeqResponder, context: Turns, reply: Turn) -> float:
    """Nats of one reply alone."""
    return float(evaluate(responder.model, responder.examples([context], [reply])).nll_sums[0])


def objective(
    responder: Seq2SeqResponder,
    lessons: Sequence[AdversarialExample] = LESSONS,
    *,
    greedy: bool = False,
    margin: float = 0.1,
    alpha: float = 1.0,
) -> tuple[MarginObjective, AdversarialExamples]:
    train = AdversarialExamples(responder, lessons)
    return MarginObjective(responder, train, alpha=alpha, margin=margin, targets="greedy" if greedy else "truth"), train


def total(made: MarginObjective, train: AdversarialExamples) -> Tensor:
    return made.loss(train.batch(np.arange(len(train))), OutputLoss(made.model.output)).total


def margin_part(made: MarginObjective, train: AdversarialExamples) -> Tensor:
    """The loss without what is learned by likelihood."""
    plain = made.model.loss(train.learned.batch(np.arange(len(train))), OutputLoss(made.model.output)).total
    return (total(made, train) - plain) / train.num_targets.mean()


def test_the_value_is_the_papers_worked_out_example_by_example() -> None:
    responder = Seq2SeqResponder(seq2seq())
    made, train = objective(responder, LESSONS[:2], margin=20.0, alpha=0.5)
    gaps = []
    for lesson, words in zip(LESSONS[:2], (3, 5), strict=True):
        assert lesson.contrast is not None
        gaps.append(
            (likelihood(responder, lesson.contrast, lesson.reply) - likelihood(responder, lesson.context, lesson.reply)) / words
        )
    np.testing.assert_allclose(made.gaps(LESSONS[:2]), gaps, rtol=1e-5)
    hinges = [20.0 - gap for gap in gaps]
    assert margin_part(made, train).item() == pytest.approx(0.5 * sum(hinges), rel=1e-4)
    learned = sum(likelihood(responder, lesson.context, lesson.reply) for lesson in LESSONS[:2]) / 8
    assert made.validation(train) == pytest.approx(learned + 0.5 * sum(hinges) / 2, rel=1e-5)


def test_the_gradient_is_that_of_finite_differences() -> None:
    model = seq2seq().double()
    made, _ = objective(Seq2SeqResponder(model), margin=0.0)
    gaps = made.gaps(LESSONS)
    assert (gaps < 0).any(), "no hinge is active: the gradient says nothing"
    assert (gaps > 0).any(), "no hinge is met: nothing shows that it is left out"
    weight = model.source_embedding.weight

    def part() -> Tensor:
        hinges = (made.margin - made._gaps([each for each in LESSONS if each.contrast])).relu()
        return hinges.sum()

    found = torch.autograd.grad(part(), weight)[0]
    step, generator = 1e-6, torch.Generator().manual_seed(3)
    for _ in range(4):
        way = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        with torch.no_grad():
            weight += step * way
            above = part()
            weight -= 2 * step * way
            below = part()
            weight += step * way
        assert float((found * way).sum()) == pytest.approx(float(above - below) / (2 * step), rel=1e-4)


def test_a_margin_that_is_met_asks_for_nothing() -> None:
    responder = Seq2SeqResponder(seq2seq())
    _, train = objective(responder)
    gaps = objective(responder)[0].gaps(LESSONS)
    met = [lesson for lesson, gap in zip((LESSONS[0], LESSONS[1], LESSONS[3]), gaps, strict=True) if gap > 0]
    assert met, "no margin is met"
    made, train = objective(responder, met, margin=float(gaps[gaps > 0].min()) / 2)
    part = margin_part(made, train)
    assert part.item() == 0.0
    gradients = torch.autograd.grad(total(made, train), list(made.model.parameters()))
    made, train = objective(responder, [AdversarialExample(each.context, each.reply) for each in met])
    plain = torch.autograd.grad(total(made, train), list(made.model.parameters()))
    assert all(torch.equal(found, wanted) for found, wanted in zip(gradients, plain, strict=True))


def test_greedy_targets_are_what_the_model_says_itself() -> None:
    responder = Seq2SeqResponder(seq2seq())
    made, train = objective(responder, greedy=True, margin=20.0)
    contrasted = [lesson for lesson in LESSONS if lesson.contrast]
    said = responder.respond([lesson.context for lesson in contrasted])
    assert said != [lesson.reply for lesson in contrasted], "the model says what was recorded: nothing tells them apart"
    as_truth = [
        AdversarialExample(lesson.context, reply, lesson.contrast) for lesson, reply in zip(contrasted, said, strict=True)
    ]
    np.testing.assert_allclose(made.gaps(LESSONS), objective(responder, as_truth)[0].gaps(as_truth))
    made.model.train()
    total(made, train)
    assert made.model.training, "decoding leaves the model in the mode in which it was"


def test_what_has_no_contrast_is_learned_by_likelihood_alone() -> None:
    responder = Seq2SeqResponder(seq2seq())
    lessons = [AdversarialExample(lesson.context, lesson.reply) for lesson in LESSONS]
    made, train = objective(responder, lessons)
    assert margin_part(made, train).item() == 0.0
    assert made.gaps(lessons).shape == (0,)
    assert made.validation(train) == evaluate(responder.model, train.learned).nll


def fit(path: Path, alpha: float, *, plain: bool = False, greedy: bool = True, config: FitConfig = FIT) -> Fit[Any]:
    """A training from one and the same model."""
    model = Seq2Seq(VOCABULARY, sizes(dropout=0.2))
    model.load_state_dict(seq2seq().state_dict())
    responder = Seq2SeqResponder(model.eval())
    made, train = objective(responder, alpha=alpha, greedy=greedy)
    state = path / f"{alpha}-{plain}-{greedy}"
    if plain:
        return Fit(model, train.learned, train.learned, config, 1, state, fresh=False)
    return Fit(model, train, train, config, 1, state, fresh=False, objective=made)


def test_a_weight_of_zero_is_plain_training_bit_for_bit(tmp_path: Path) -> None:
    plain = fit(tmp_path, 0.0, plain=True).run(ignore).state_dict()
    without = fit(tmp_path, 0.0).run(ignore).state_dict()
    weighted = fit(tmp_path, 5.0).run(ignore).state_dict()
    assert all(torch.equal(plain[name], without[name]) for name in plain)
    assert not all(torch.equal(plain[name], weighted[name]) for name in plain)


@pytest.mark.parametrize("greedy", [False, True], ids=["truth", "greedy"])
def test_training_widens_the_margin(tmp_path: Path, greedy: bool) -> None:
    config = replace(FIT, max_epochs=10, patience=10, keep="last")
    training = fit(tmp_path, 20.0, greedy=greedy, config=config)
    made = training.objective
    assert isinstance(made, MarginObjective)
    before = np.minimum(made.gaps(LESSONS), made.margin).mean()
    training.run(ignore)
    assert np.minimum(made.gaps(LESSONS), made.margin).mean() > before


def test_another_kind_of_model_is_trained_alike(tmp_path: Path) -> None:
    model = VHRED(VOCABULARY, SIZES)
    model.initialise(torch.Generator().manual_seed(2))
    responder = VhredResponder(model.eval())
    lessons = [replace(lesson, contrast=turns(21, 22)) for lesson in LESSONS]
    train = AdversarialExamples(responder, lessons)
    made = MarginObjective(responder, train, alpha=20.0, margin=0.5, targets="truth")
    before = made.gaps(lessons)
    config = replace(FIT, max_epochs=10, patience=10, keep="last")
    Fit(model, train, train, config, 1, tmp_path / "state", fresh=False, objective=made).run(ignore)
    assert np.minimum(made.gaps(lessons), 0.5).mean() > np.minimum(before, 0.5).mean() + 0.1


class Precise(Seq2SeqResponder):
    """Refuses to answer in half precision."""

    def decode(self, contexts: Sequence[Turns], decoder: DecoderSettings, seeds: Sequence[int]) -> list[list[int]]:
        assert not torch.is_autocast_enabled("cpu")
        return super().decode(contexts, decoder, seeds)


def test_half_precision_gives_the_margin_a_gradient_and_leaves_answers_alone() -> None:
    responder = Precise(seq2seq())
    made, train = objective(responder, greedy=True, margin=20.0)
    contrasted, weights = train.batch(np.arange(len(train))).contrasted, list(made.model.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gradients = torch.autograd.grad(made._gaps(contrasted).sum(), weights)
    exact = torch.autograd.grad(made._gaps(contrasted).sum(), weights)
    for found, wanted in zip(gradients, exact, strict=True):
        assert float((found - wanted).norm()) < 0.1 * float(wanted.norm())


def test_a_killed_training_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    assert goes_on(lambda name: fit(tmp_path / name, 1.0), epochs=[1]) == (1, 0)
