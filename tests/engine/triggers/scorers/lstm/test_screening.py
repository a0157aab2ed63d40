"""A screened search tells figures of float32 alone: bfloat16 may cost it a better swap, and never a false loss or hit."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor

from parley.engine.triggers import Beam, GibbsEnum, search
from parley.engine.triggers.methods.gcg import Gcg
from parley.engine.triggers.methods.method import Method
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.lstm import scorer as scorers
from parley.engine.triggers.scorers.lstm import scorer as screening
from parley.engine.triggers.scorers.lstm.scorer import FeasibleSet, LstmScorer
from parley.engine.triggers.scorers.scorer import PlainScorer, Swaps
from parley.engine.triggers.victims import Seq2SeqVictim
from parley.envs.core.errors import ConfigError
from parley.policies.core.layers import multiplies_bfloat16
from tests.engine.triggers.made_up import tiny_victim
from tests.engine.triggers.scorers.lstm.judge import LmInputModel
from tests.engine.triggers.scorers.lstm.test_scorer import CASES, EQUAL, LENGTH, networks, questions

LIKELIHOOD = TriggerObjective(kind="likelihood")
CPU = torch.device("cpu")
needs_bfloat16 = pytest.mark.skipif(not multiplies_bfloat16(CPU), reason="needs a processor that multiplies bfloat16")


@pytest.fixture(autouse=True)
def _unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "cost_of_bfloat16", lambda *_: 0.5)


def worst(found: FeasibleSet, known_BG: Tensor) -> Tensor:
    """A screen that leaves the worst candidates."""
    rough_n = known_BG.flatten()
    rough_n[found.rows_c] = found.least_c
    rough_n[rough_n.isinf()] = -torch.inf
    return rough_n.view_as(known_BG).topk(2).indices.sort(1).values


def searched(seed: int, method: Method) -> tuple[Seq2SeqVictim, list[tuple[Tensor, tuple[int, ...], float, bool]]]:
    """Targets, what a search found for each, its loss, and whether it calls it a hit."""
    victim = Seq2SeqVictim(networks(seed=seed)[0])
    targets = questions(seed)[0]
    found = search(victim, [target.tolist() for target in targets], method=method, seed=seed)
    assert all(trigger.words is not None for trigger in found)
    return victim, [(target, one.words or (), one.loss, one.hit) for target, one in zip(targets, found, strict=True)]


@needs_bfloat16
@pytest.mark.parametrize(("attention", "objective"), CASES)
@pytest.mark.parametrize("anywhere", [False, True], ids=["one position", "any position"])
def test_it_chooses_as_the_exact_scorer_does(attention: str, objective: TriggerObjective, anywhere: bool) -> None:
    model, lm = networks(attention)  # type: ignore[arg-type]
    victim = Seq2SeqVictim(model, lm)
    exact, screened = LstmScorer(victim, objective), LstmScorer(victim, objective, screening=True)
    same = asked = 0
    for seed in range(1, 4):
        targets, words_BN, here, there = questions(seed, lists=24)
        swaps = there if anywhere else here
        incumbents = exact.measure(targets, words_BN)
        for beat_B in (torch.full((4,), torch.inf), torch.tensor([incumbent.loss - 1e-4 for incumbent in incumbents])):
            choice_B, loss_B = exact.best_swap(incumbents, swaps, beat_B)
            found_B, found_loss_B = screened.best_swap(incumbents, swaps, beat_B)
            agree_B = choice_B == found_B
            torch.testing.assert_close(found_loss_B[agree_B], loss_B[agree_B], rtol=1e-6, atol=1e-6)
            same, asked = same + int(agree_B.sum()), asked + len(agree_B)
    assert same >= 0.95 * asked


@needs_bfloat16
@pytest.mark.parametrize("broken", [False, True])
def test_what_it_tells_is_what_float32_measures(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken:
        monkeypatch.setattr(scorers, "few", worst)
    model, lm = networks()
    objective = TriggerObjective(kind="sample", t_out=-3.0, lm_weight=1.0, t_in=-3.3)
    fast, plain = LstmScorer(Seq2SeqVictim(model, lm), objective, screening=True), None
    plain = PlainScorer(Seq2SeqVictim(model, lm), objective, LmInputModel(lm))
    told = 0
    for seed in range(1, 6):
        targets, words_BN, swaps, _ = questions(seed)
        incumbents = fast.measure(targets, words_BN)
        beat_B = torch.tensor([incumbent.loss - 1e-4 for incumbent in incumbents])
        choice_B, loss_B = fast.best_swap(incumbents, swaps, beat_B)
        for row, choice in enumerate(choice_B.tolist()):
            if choice < 0:
                assert loss_B[row] == beat_B[row]
                continue
            words_N = words_BN[row].clone()
            words_N[swaps.positions_BG[row, choice]] = swaps.words_BG[row, choice]
            torch.testing.assert_close(loss_B[row], plain.losses([targets[row]], words_N[None])[0], **EQUAL)
            assert loss_B[row] < beat_B[row]
            told += 1
    assert told >= 3


@needs_bfloat16
@pytest.mark.parametrize("kind", [GibbsEnum, Gcg])
def test_a_broken_screen_costs_quality_and_no_false_loss_or_hit(kind: type[Method], monkeypatch: pytest.MonkeyPatch) -> None:
    sums = {}
    for name in ("exact", "screened", "broken"):
        if name == "broken":
            monkeypatch.setattr(scorers, "few", worst)
        sums[name] = 0.0
        for seed in (1,):
            changes = {"candidates": 20, "max_sweeps": 2, "restarts": 1, "screening": name != "exact"}
            victim, found = searched(seed, kind(**changes))  # type: ignore[arg-type]
            plain = PlainScorer(victim, TriggerObjective(kind="greedy"))
            for target, words, loss, hit in found:
                (measured,) = plain.measure([target], torch.tensor([words]))
                assert loss == pytest.approx(measured.loss, abs=1e-5)
                assert hit == all(measured.reading.likeliest)
                sums[name] += loss
    assert sums["broken"] > sums["exact"]
    assert sums["screened"] == pytest.approx(sums["exact"], rel=0.02)


@needs_bfloat16
def test_it_answers_the_same_to_the_bit_in_any_company() -> None:
    model, lm = networks()
    fast = LstmScorer(Seq2SeqVictim(model, lm), TriggerObjective(kind="likelihood", lm_weight=1.0), screening=True)
    targets, words_BN, _, swaps = questions(lists=20)
    incumbents, beat_B = fast.measure(targets, words_BN), torch.full((4,), torch.inf)
    choice_B, loss_B = fast.best_swap(incumbents, swaps, beat_B)
    for i, incumbent in enumerate(incumbents):
        alone = Swaps(swaps.positions_BG[i : i + 1], swaps.words_BG[i : i + 1])
        choice, loss = fast.best_swap([incumbent], alone, beat_B[:1])
        assert (choice.item(), loss.item()) == (choice_B[i].item(), loss_B[i].item())


@needs_bfloat16
def test_groups_of_incumbents_are_screened_as_each_alone_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = LstmScorer(Seq2SeqVictim(networks()[0]), LIKELIHOOD, screening=True)
    targets, words_BN, _, swaps = questions(lists=20)
    incumbents = fast.measure(targets, words_BN)
    for beat_B in (torch.full((4,), torch.inf), torch.full((4,), 0.1)):
        alone = fast.best_swap(incumbents, swaps, beat_B)
        with monkeypatch.context() as patched:
            patched.setattr(LstmScorer, "_groups", lambda *_: [[0, 3], [2], [1]])
            grouped = fast.best_swap(incumbents, swaps, beat_B)
        assert grouped[0].tolist() == alone[0].tolist()
        torch.testing.assert_close(grouped[1], alone[1], **EQUAL)


@needs_bfloat16
def test_a_swap_for_the_word_that_is_there_may_be_the_best() -> None:
    fast = LstmScorer(Seq2SeqVictim(networks()[0]), LIKELIHOOD, screening=True)
    targets, words_BN, _, _ = questions()
    incumbents = fast.measure(targets, words_BN)
    positions_BG = torch.arange(LENGTH).repeat(4, 1)
    choice_B, loss_B = fast.best_swap(incumbents, Swaps(positions_BG, words_BN), torch.full((4,), torch.inf))
    assert choice_B.tolist() == [0] * 4
    assert loss_B.tolist() == pytest.approx([incumbent.loss for incumbent in incumbents])


def test_a_device_without_such_products_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "multiplies_bfloat16", lambda _: False)
    with pytest.raises(ConfigError, match="multiplies in bfloat16, and the processor cannot"):
        LstmScorer(Seq2SeqVictim(networks()[0]), LIKELIHOOD, screening=True)


def test_where_bfloat16_saves_nothing_it_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(screening, "multiplies_bfloat16", lambda _: True)
    monkeypatch.setattr(screening, "cost_of_bfloat16", lambda *_: 0.93)
    with caplog.at_level(logging.WARNING):
        screening.require_bfloat16(CPU, 8)
    assert "bfloat16 takes 93 % of float32's time" in caplog.text


def test_what_cannot_be_screened_is_refused() -> None:
    with pytest.raises(ConfigError, match="by gibbs-enum and gcg"):
        search(tiny_victim(), [[7, 9, 2]], method=GibbsEnum(screening=True))
    with pytest.raises(ConfigError, match="Beam has no setting 'screening'"):
        Beam(screening=True)
    settings = GibbsEnum(screening=True).settings
    with pytest.raises(ConfigError, match="by gibbs-enum and gcg"):
        search(Seq2SeqVictim(networks()[0]), [[7, 9, 2]], method=Beam(settings))
