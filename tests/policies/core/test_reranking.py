"""Reranking-RL: its gradient by enumeration, who overhears whom, baselines and controls, and that trainings go on exactly."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from parley.policies.core.fitting import loop
from parley.policies.core.fitting.batches import OutputLoss
from parley.policies.core.fitting.loop import Fit
from parley.policies.core.margin import (
    GREEDY_DRAW,
    AdversarialExample,
    AdversarialExamples,
    ExamplesByContext,
    MarginObjective,
    Overheard,
    RerankingObjective,
    Spoken,
    rotated_others,
    say,
)
from parley.policies.core.responder import TrainableResponder
from parley.policies.core.settings import FitConfig, RerankingSettings
from parley.policies.seq2seq.decoding import Seq2SeqResponder
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import build_seq2seq
from parley.policies.vhred.decoding import VhredResponder
from tests.policies.core.fitting.killed import goes_on, ignore
from tests.policies.seq2seq.made_up import VOCABULARY, seq2seq, sizes
from tests.policies.three_words import ThreeWords, along, by_teacher
from tests.policies.vhred.made_up import vhred

log = logging.getLogger(__name__)
FIT = FitConfig(learning_rate=0.01, batch_size=4, max_epochs=2, patience=2, decay_epochs=0, precision="float32", keep="last")
RELEASED = RerankingSettings(weight=0.5, others="rotated", num_others=2, per="word", baseline="greedy")
MEAN = RerankingSettings(weight=0.5, baseline="mean", warm_up=3)
KINDS = {
    "none": lambda: Seq2SeqResponder(seq2seq("none")),
    "general": lambda: Seq2SeqResponder(seq2seq()),
    "released": lambda: Seq2SeqResponder(seq2seq("released")),
    "stacked": lambda: Seq2SeqResponder(_stacked()),
    "vhred": lambda: VhredResponder(vhred()),
}


def _stacked() -> Seq2Seq:
    wide = replace(sizes(), attention="dot", input_feeding=True, layers=2)
    model = build_seq2seq(VOCABULARY, wide)
    model.initialise(torch.Generator().manual_seed(1))
    for parameter in model.parameters():
        parameter.data *= 15
    return model.eval()


def turns(*words: int) -> Turns:
    return (turn(*words),)


def turn(*words: int) -> Turn:
    return (tuple(f"w{word}" for word in words),)


CONTEXTS = [turns(1, 2, 3), turns(7), turns(13, 14), turns(1), turns(7), turns(4, 5, 6), turns(9, 9)]
REPLIES = [turn(4, 5), turn(8, 9, 10, 11), turn(15), turn(16, 17), turn(3), turn(2, 2, 2), turn(1, 8)]


def examples(responder: TrainableResponder) -> ExamplesByContext:
    return ExamplesByContext(responder, CONTEXTS, REPLIES)


def objective(responder: TrainableResponder, settings: RerankingSettings, **options: Any) -> RerankingObjective:
    return RerankingObjective(responder, examples(responder), settings, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_replies_are_as_likely_behind_each_context_as_training_finds_them(kind: str) -> None:
    responder = KINDS[kind]()
    model: Any = responder.model
    model.output.bias.data[EOS_ID] += 2 if kind == "general" else 4
    memory = model.hear(examples(responder).learned.batch(np.arange(7)))
    rows_LC = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [3, 0, 1, 6, 2, 4, 5], [1, 2, 0, 5, 6, 3, 4]])
    draws = torch.rand((7, 5), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    draws[5:] = GREEDY_DRAW
    spoken = say(model, memory, rows_LC, draws)
    assert len(set(spoken.lengths_C.tolist())) > 1, "nobody ends before the others"
    for rows_C, nats_C in zip(rows_LC, spoken.nats_LC, strict=True):
        heard = type(memory)(*(None if part is None else part[rows_C] for part in memory))
        torch.testing.assert_close(nats_C, by_teacher(model, heard, spoken), rtol=1e-4, atol=1e-4)
    greedy = responder.respond(CONTEXTS[5:])
    said = [responder.model.vocabulary.decode(reply) for reply in spoken.replies()[5:]]
    assert [list(itertools.chain.from_iterable(reply)) for reply in greedy] == said


def test_the_expected_gradient_is_that_of_the_expected_reward() -> None:
    made = ThreeWords()
    weights = list(made.model.parameters())
    objective = RerankingObjective(made.responder, made.train, RerankingSettings())
    with torch.no_grad():
        chances_C, rewards_C = (-made.nats(0)).exp(), made.nats(1)
    assert float(chances_C.sum()) == pytest.approx(1), "these are all replies"
    # Each reply as often as the model says it: the expectation of what a training step brings down.
    loss = objective.policy_loss(made.memory(0), made.all, chances_C * rewards_C, OutputLoss(made.model.output))
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    seen = []
    for way in made.ways():
        wanted = -made.slope(lambda: ((-made.nats(0)).exp() * rewards_C).sum(), way)
        assert along(gradients, way) == pytest.approx(wanted, rel=1e-5, abs=1e-9)
        seen.append((wanted, -made.slope(lambda: (chances_C * made.nats(1)).sum(), way)))
    # The papers hold the reward constant; through P(G | S_R) a second term would come.
    for first, second in seen:
        log.info("gradient %+.4f, what the second path would add %+.4f", first, second)
    assert all(abs(second) > 1e-6 for _, second in seen)


@pytest.mark.parametrize("baseline", ["none", "greedy", "mean"])
def test_what_is_sampled_has_that_gradient_in_the_mean_and_a_baseline_leaves_it(baseline: Any) -> None:
    made = ThreeWords()
    weights, loss = list(made.model.parameters()), OutputLoss(made.model.output)
    objective = RerankingObjective(made.responder, made.train, RerankingSettings(baseline=baseline))
    with torch.no_grad():
        rewards_C = made.nats(1)
    (way, *_) = made.ways()
    wanted = -made.slope(lambda: ((-made.nats(0)).exp() * rewards_C).sum(), way)
    found, batch = [], made.train.batch(np.zeros(400, dtype=np.int64))
    for seed in range(30):
        sum_ = objective.reward_loss(batch, np.random.default_rng(seed), loss)
        found.append(along(torch.autograd.grad(sum_, weights, allow_unused=True), way) / 400)
    error = np.std(found) / len(found) ** 0.5
    assert abs(np.mean(found) - wanted) < 3.5 * error < abs(wanted), "the mean says something, and the right thing"


def test_replies_are_said_as_often_as_they_are_likely() -> None:
    made = ThreeWords()
    memory, num = made.model.hear(made.train.learned.batch(np.array([0]))), 20_000
    draws = torch.rand((num, 3), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    said = say(made.model, memory, torch.zeros((1, num), dtype=torch.int64), draws).replies()
    ids = {tuple(reply): place for place, reply in enumerate(made.all.replies())}
    counts = np.bincount([ids[tuple(reply)] for reply in said], minlength=len(ids))
    chances = (-made.nats(0)).exp().detach().numpy()
    assert (np.abs(counts - num * chances) <= 5 * np.sqrt(num * chances + 1)).all()


def test_contexts_are_rotated_by_no_offset_twice_and_never_to_an_equal_one() -> None:
    classes = np.array([0, 1, 2, 3, 4, 5])
    for seed in range(20):
        rows_KB = rotated_others(classes, 2, np.random.default_rng(seed))
        offsets = (rows_KB - np.arange(6)) % 6
        assert (offsets == offsets[:, :1]).all(), "one offset for the whole batch"
        assert offsets[0, 0] != offsets[1, 0]
        assert (offsets > 0).all()
    assert {int(rotated_others(classes, 1, np.random.default_rng(seed))[0, 0]) for seed in range(60)} == {1, 2, 3, 4, 5}
    twice = np.array([0, 0, 0, 1, 0, 2])
    for seed in range(20):
        rows_KB = rotated_others(twice, 3, np.random.default_rng(seed))
        assert (twice[rows_KB] != twice).all()
    assert rotated_others(np.zeros(4, dtype=int), 2, np.random.default_rng(0)).tolist() == [[0, 1, 2, 3]] * 2
    assert rotated_others(np.array([3]), 2, np.random.default_rng(0)).tolist() == [[0]]


def test_contexts_are_drawn_uniformly_among_those_of_other_words() -> None:
    split = examples(Seq2SeqResponder(seq2seq()))
    assert split.classes.tolist() == [0, 1, 2, 3, 1, 4, 5], "w7 stands there twice"
    drawn = split.drawn_others(np.array([1, 0]), 6000, np.random.default_rng(1))
    assert sorted(set(drawn[:, 0])) == [0, 2, 3, 5, 6]
    assert sorted(set(drawn[:, 1])) == [1, 2, 3, 4, 5, 6]
    assert np.abs(np.bincount(drawn[:, 0])[[0, 2, 3, 5, 6]] - 1200).max() < 150


def test_contexts_are_equal_that_a_model_reads_alike() -> None:
    unknown: list[Turns] = [((("who", "w1"),),), ((("me", "w1"),),)]
    contexts = [turns(1, 2, 3, 4, 5, 6), turns(1, 2, 3, 4), turns(1, 2, 3, 4, 25), *unknown]
    split = ExamplesByContext(Seq2SeqResponder(seq2seq()), contexts, REPLIES[:5])
    # Four words are read; words that the model does not know are one.
    assert split.classes.tolist() == [0, 0, 0, 1, 1]
    apart: list[Turns] = [(turn(1), turn(2)), (turn(1, 2),), (turn(1), turn(2))]
    assert ExamplesByContext(VhredResponder(vhred()), apart, REPLIES[:3]).classes.tolist() == [0, 1, 0]


@pytest.mark.parametrize("others", ["corpus", "rotated"])
def test_where_all_contexts_are_equal_nothing_is_earned(others: Any) -> None:
    responder = Seq2SeqResponder(seq2seq())
    same = ExamplesByContext(responder, CONTEXTS[:1] * 4, REPLIES[:4])
    settings = RerankingSettings(others=others)
    with pytest.raises(ConfigError, match="all contexts of the training split are equal"):
        RerankingObjective(responder, same, settings)
    made = objective(responder, settings)
    spoken = made.spoken(same, same.batch(np.arange(4)), np.random.default_rng(0), greedy=False)
    assert made.advantages(spoken, np.random.default_rng(0)).tolist() == [0, 0, 0, 0]
    RerankingObjective(responder, same, RerankingSettings(weight=0)).measure(same)


def overheard() -> Overheard:
    """Three sampled replies of 2, 4 and 5 words, and greedy ones of one; the second has nobody who overhears."""
    sampled = Spoken(torch.ones(3, 5), torch.tensor([2, 4, 5]), torch.tensor([[1.0] * 3, [4, 8, 20], [8, 8, 30]]).double())
    greedy = Spoken(torch.ones(3, 5), torch.tensor([1, 1, 1]), torch.tensor([[1.0] * 3, [1, 2, 3], [3, 2, 3]]).double())
    return Overheard(sampled, greedy, torch.tensor([True, False, True]))


def test_advantages_are_rewards_less_the_baseline_that_is_asked_for() -> None:
    responder, rng = Seq2SeqResponder(seq2seq()), np.random.default_rng(0)
    alone = overheard()._replace(greedy=None)
    assert objective(responder, RerankingSettings()).advantages(alone, rng).tolist() == [6, 0, 25]
    assert objective(responder, RerankingSettings(per="word")).advantages(alone, rng).tolist() == [3, 0, 5]
    assert objective(responder, RELEASED).advantages(overheard(), rng).tolist() == [1, 0, 2]
    running = objective(responder, MEAN)
    assert running.advantages(alone, rng).tolist() == [6, 0, 25], "nothing is known before the first batch"
    assert running.advantages(alone, rng).tolist() == pytest.approx([6 - 15.5, 0, 25 - 15.5])
    unheard = overheard()
    unheard.sampled.words_CT[2, 3] = UNK_ID
    silent = replace(RELEASED, unknown=False)
    assert objective(responder, silent).advantages(unheard, rng).tolist() == [1, 0, -3], "with <unk> a reply earns nothing"
    shuffled = objective(responder, RerankingSettings(shuffled=True))
    found = [shuffled.advantages(alone, np.random.default_rng(seed)).tolist() for seed in range(9)]
    assert all(sorted(each) == [0, 6, 25] for each in found)
    assert len({tuple(each) for each in found}) > 2


def test_the_loss_is_the_mixture_and_the_weight_warms_up() -> None:
    responder = Seq2SeqResponder(seq2seq())
    made = objective(responder, MEAN)
    batch, loss = made.train.batch(np.arange(7)), OutputLoss(responder.model.output)
    own = float(responder.model.loss(batch.learned, loss).total.detach())
    for weight in (0.5 / 3, 1 / 3, 0.5, 0.5):
        assert made.weight == pytest.approx(weight)
        other = objective(responder, replace(MEAN, warm_up=0))
        other.carried |= {name: value for name, value in made.carried.items() if name != "steps"}
        torch.manual_seed(4)
        reward = float(other.reward_loss(batch, np.random.default_rng(int(torch.randint(2**62, ()))), loss).detach())
        torch.manual_seed(4)
        assert float(made.loss(batch, loss).total.detach()) == pytest.approx((1 - weight) * own + weight * reward, rel=1e-5)


@pytest.mark.parametrize("kind", ["none", "general", "stacked", "vhred"])
@pytest.mark.parametrize("settings", [RELEASED, MEAN], ids=["released", "mean"])
def test_dropout_of_training_leaves_replies_and_rewards_alone(kind: str, settings: RerankingSettings) -> None:
    responder = KINDS[kind]()
    model: Any = responder.model
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.5
    model.sizes = replace(model.sizes, dropout=0.5)
    made = objective(responder, settings)
    batch, loss, weights = made.train.batch(np.arange(7)), OutputLoss(model.output), list(model.parameters())
    found = {}
    for training in (False, True):
        model.train(training)
        made.carried |= {"reward": 0.0, "reward_weight": 0.0}
        total = made.reward_loss(batch, np.random.default_rng(2), loss)
        assert model.training == training
        found[training] = [total, *torch.autograd.grad(total, weights, allow_unused=True)]
    for mine, theirs in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    torch.manual_seed(1)
    losses = {float(model.loss(batch.learned, loss).total.detach()) for _ in range(2)}
    assert len(losses) == 2, "likelihood is learned with dropout"


def fit(path: Path, settings: RerankingSettings | None, dropout: float = 0.2, config: FitConfig = FIT) -> Fit[Any]:
    """A training from one and the same model; plain maximum likelihood without settings."""
    model = Seq2Seq(VOCABULARY, sizes(dropout=dropout))
    model.load_state_dict(seq2seq().state_dict())
    responder = Seq2SeqResponder(model.eval())
    train = examples(responder)
    if settings is None:
        return Fit(model, train.learned, train.learned, config, 1, path, fresh=False)
    made = RerankingObjective(responder, train, settings)
    return Fit(model, train, train, config, 1, path, fresh=False, objective=made)


def test_a_weight_of_zero_is_maximum_likelihood_bit_by_bit(tmp_path: Path) -> None:
    plain = fit(tmp_path / "plain", None).run(ignore).state_dict()
    without = fit(tmp_path / "without", RerankingSettings(weight=0)).run(ignore).state_dict()
    rewarded = fit(tmp_path / "rewarded", RELEASED).run(ignore).state_dict()
    shuffled = fit(tmp_path / "shuffled", replace(RELEASED, shuffled=True)).run(ignore).state_dict()
    assert all(torch.equal(plain[name], without[name]) for name in plain)
    for first, second in ((plain, rewarded), (rewarded, shuffled)):
        assert not all(torch.equal(first[name], second[name]) for name in plain)


@pytest.mark.parametrize("settings", [RELEASED, MEAN], ids=["released", "mean"])
def test_a_killed_training_goes_on_as_if_it_had_not_been(tmp_path: Path, settings: RerankingSettings) -> None:
    assert goes_on(lambda name: fit(tmp_path / name, settings), epochs=[1]) == (1, 0)
    assert fit(tmp_path / "killed", settings).objective.carried["steps"] == 4


@pytest.mark.parametrize("kind", ["general", "stacked", "vhred"])
def test_training_makes_replies_less_likely_behind_other_contexts(kind: str, tmp_path: Path) -> None:
    responder = KINDS[kind]()
    train = examples(responder)
    made = RerankingObjective(responder, train, replace(RELEASED, weight=1.0))

    def reward() -> float:
        sampled = made.measure(train).sampled
        return float((sampled.others / sampled.num_words).mean())

    before = reward()
    config = replace(FIT, max_epochs=25, patience=25, learning_rate=0.003)
    Fit(responder.model, train, train, config, 1, tmp_path / "state", fresh=False, objective=made).run(ignore)
    assert reward() > before + 0.1


def test_a_split_is_measured_alike_every_time_and_the_mixture_is_what_is_learned() -> None:
    responder = Seq2SeqResponder(seq2seq())
    made = objective(responder, replace(RELEASED, weight=0.3), num_watched=5)
    responder.model.train()
    first, second = made.measure(made.train), made.measure(made.train)
    assert responder.model.training, "measuring leaves the model in the mode in which it was"
    np.testing.assert_array_equal(first.sampled.others, second.sampled.others)
    assert len(first.greedy.replies) == len(first.sampled.replies) == 5
    assert first.sampled.replies != first.greedy.replies
    rewards = first.sampled.others / first.sampled.num_words
    wanted = 0.7 * first.fitness.nll - 0.3 * rewards.mean() / first.fitness.num_targets.mean()
    assert made.validation(made.train) == pytest.approx(wanted)
    silent, (taken, *_) = replace(made.settings, unknown=False), (reply for reply in first.sampled.replies if reply)
    said = first._replace(sampled=replace(first.sampled, replies=[[UNK_ID], taken, taken, [*taken, UNK_ID], []]))
    wanted = 0.7 * first.fitness.nll - 0.3 * rewards[[1, 2, 4]].sum() / 5 / first.fitness.num_targets.mean()
    assert objective(responder, silent).mixture(said) == pytest.approx(wanted)
    assert objective(responder, RerankingSettings(weight=0)).validation(made.train) == first.fitness.nll


@pytest.mark.parametrize("num_others", [1, 2])
@pytest.mark.parametrize("size", [129, 130])
def test_the_last_rows_of_a_split_are_heard_by_as_many_others(size: int, num_others: int) -> None:
    responder = Seq2SeqResponder(seq2seq())
    contexts = [turns(number // 12 + 1, number % 12 + 1) for number in range(size)]
    split = ExamplesByContext(responder, contexts, [turn(number % 9 + 1) for number in range(size)])
    made = RerankingObjective(responder, split, replace(RELEASED, num_others=num_others))
    heard = made.measure(split)
    for said in (heard.sampled, heard.greedy):
        assert len(said.replies) == len(said.others) == size
        assert (said.others != said.own).all(), "by no context is a reply heard that is its own"


def test_half_precision_leaves_replies_and_rewards_alone() -> None:
    responder = Seq2SeqResponder(seq2seq())
    made = objective(responder, RELEASED)
    batch, loss = made.train.batch(np.arange(7)), OutputLoss(responder.model.output)
    weights = list(responder.model.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(made.reward_loss(batch, np.random.default_rng(2), loss), weights)
    wanted = torch.autograd.grad(made.reward_loss(batch, np.random.default_rng(2), loss), weights)
    for mine, theirs in zip(found, wanted, strict=True):
        assert float((mine - theirs).norm()) < 0.1 * float(theirs.norm())


@pytest.mark.parametrize("kind", ["general", "vhred"])
def test_a_mixed_margin_is_the_mean_of_those_of_sampled_and_recorded_replies(kind: str) -> None:
    responder = KINDS[kind]()
    lessons = [
        AdversarialExample(CONTEXTS[0], REPLIES[0], CONTEXTS[1]),
        AdversarialExample(CONTEXTS[2], REPLIES[2], CONTEXTS[3]),
    ]

    def margin(targets: Any, own: list[AdversarialExample]) -> MarginObjective:
        return MarginObjective(responder, AdversarialExamples(responder, own), alpha=2.0, margin=5.0, targets=targets)

    mixed, truth = margin("mixed", lessons), margin("truth", lessons)
    torch.manual_seed(7)
    sampled = mixed._said([each.context for each in lessons], sampled=True)
    torch.manual_seed(7)
    found = mixed._gaps(lessons)
    as_recorded = [replace(each, reply=reply) for each, reply in zip(lessons, sampled, strict=True)]
    wanted = torch.cat([margin("truth", as_recorded)._gaps(as_recorded), truth._gaps(lessons)])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mixed.gaps(lessons), mixed.gaps(lessons))
    train, loss = AdversarialExamples(responder, lessons), OutputLoss(responder.model.output)
    torch.manual_seed(7)
    plain = responder.model.loss(train.learned.batch(np.arange(2)), loss).total
    hinges = (5.0 - mixed._gaps(lessons)).relu().mean(0).sum()
    torch.manual_seed(7)
    more = mixed.loss(train.batch(np.arange(2)), loss).total - plain
    torch.testing.assert_close(more, 2.0 * train.num_targets.mean() * hinges, rtol=1e-4, atol=0)


def test_words_in_are_what_a_decoder_reads() -> None:
    spoken = Spoken(torch.tensor([[5, 6, EOS_ID, PAD_ID]]), torch.tensor([3]), torch.zeros(1, 1))
    assert spoken.words_in_CT.tolist() == [[BOS_ID, 5, 6, EOS_ID]]
    assert spoken.replies() == [[5, 6]]


def test_steps_that_only_clock_the_precision_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "multiplies_bfloat16", lambda device: True)
    monkeypatch.setattr(loop, "cost_of_bfloat16", lambda device, what, measure: measure())
    made = fit(tmp_path / "state", MEAN, config=replace(FIT, precision="auto"))
    assert made.objective.carried == {"steps": 0, "reward": 0.0, "reward_weight": 0.0}
