"""The fast scorer answers as the plain one does, whatever else it is asked at the same time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.methods.objective import Kind, TriggerObjective
from parley.engine.triggers.scorers.lstm import half_spaces
from parley.engine.triggers.scorers.lstm.scorer import LstmScorer
from parley.engine.triggers.scorers.scorer import BestInput, PlainScorer, Swaps
from parley.engine.triggers.victims import Seq2SeqVictim
from parley.envs.corpora.pairs.vocabulary import EOS_ID, SPECIALS, PairVocabulary
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq
from parley.policies.seq2seq.settings import Attention, LanguageModelSizes, Seq2SeqSizes
from tests.engine.triggers.scorers.lstm.judge import LmInputModel

NUM_WORDS, LENGTH = 30, 5
EQUAL = {"atol": 1e-4, "rtol": 1e-4}
VOCABULARY = PairVocabulary((*SPECIALS, *(f"w{i}" for i in range(NUM_WORDS - len(SPECIALS)))))
OBJECTIVES = [
    TriggerObjective(kind=kind, t_out=-3.0, lm_weight=weight, t_in=-3.3, satisfied_weight=satisfied)
    for kind, satisfied in (("likelihood", 1.0), ("greedy", 0.0), ("sample", 0.01))
    for weight in (0.0, 1.0)
]
CASES = [
    *(pytest.param("general", objective, id=f"{objective.kind}-{objective.lm_weight}") for objective in OBJECTIVES),
    *(pytest.param(attention, OBJECTIVES[-1], id=attention) for attention in ("none", "released")),
]


@pytest.fixture(autouse=True)
def few_exact_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a small vocabulary must stand behind planes too."""
    monkeypatch.setattr(half_spaces, "SUBSET", 4)
    monkeypatch.setattr(half_spaces, "SEGMENTS", 3)


def networks(attention: Attention = "general", seed: int = 1) -> tuple[Seq2Seq, LanguageModel]:
    """Networks whose losses depend on the input."""
    generator = torch.Generator().manual_seed(seed)
    model = Seq2Seq(VOCABULARY, Seq2SeqSizes(embed=6, hidden=8, attention=attention, max_source=LENGTH + 1))
    lm = LanguageModel(VOCABULARY, LanguageModelSizes(embed=6, hidden=8))
    for network in (model, lm):
        network.initialise(generator)
        for parameter in network.parameters():
            parameter.data.mul_(4)
    return model, lm


def questions(seed: int = 1, lists: int = 12) -> tuple[list[Tensor], Tensor, Swaps, Swaps]:
    """Targets of several lengths, inputs, swaps at one position of each, and swaps anywhere."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randint(len(SPECIALS), NUM_WORDS, shape, generator=generator)

    targets = [torch.cat([draw(length), torch.tensor([EOS_ID])]) for length in (3, 2, 5, 3)]
    places = torch.tensor([0, 3, LENGTH - 1, 2])[:, None].expand(-1, lists).contiguous()
    anywhere = torch.randint(0, LENGTH, (4, lists), generator=generator)
    return targets, draw(4, LENGTH), Swaps(places, draw(4, lists)), Swaps(anywhere, draw(4, lists))


def both(attention: Attention, objective: TriggerObjective) -> tuple[PlainScorer, LstmScorer]:
    model, lm = networks(attention)
    victim = Seq2SeqVictim(model, lm)
    return PlainScorer(victim, objective, LmInputModel(lm)), LstmScorer(victim, objective)


def figures(incumbent: BestInput) -> Tensor:
    reading = incumbent.reading
    assert reading.input_log_probability is not None
    return torch.tensor([incumbent.loss, *reading.word_log_probability, *reading.likeliest, reading.input_log_probability])


@pytest.mark.parametrize(("attention", "objective"), CASES)
def test_it_measures_and_slopes_as_the_plain_scorer_does(attention: Attention, objective: TriggerObjective) -> None:
    plain, fast = both(attention, objective)
    targets, words_BN, swaps, _ = questions()
    expected, measured = plain.measure(targets, words_BN), fast.measure(targets, words_BN)
    for theirs, ours in zip(expected, measured, strict=True):
        torch.testing.assert_close(figures(ours), figures(theirs), **EQUAL)
    positions_B = swaps.positions_BG[:, 0]
    torch.testing.assert_close(fast.slopes(measured, positions_B), plain.slopes(expected, positions_B), **EQUAL)
    many = torch.cat([words_BN, words_BN.flip(0), words_BN.roll(1, 1)])
    torch.testing.assert_close(fast.losses(targets * 3, many), plain.losses(targets * 3, many), **EQUAL)


@pytest.mark.parametrize(("attention", "objective"), CASES)
@pytest.mark.parametrize("anywhere", [False, True], ids=["one position", "any position"])
def test_the_best_swap_is_that_of_the_plain_scorer(attention: Attention, objective: TriggerObjective, anywhere: bool) -> None:
    plain, fast = both(attention, objective)
    targets, words_BN, here, there = questions()
    swaps = there if anywhere else here
    expected, measured = plain.measure(targets, words_BN), fast.measure(targets, words_BN)
    for beat_B in (torch.full((4,), torch.inf), torch.tensor([incumbent.loss - 1e-4 for incumbent in expected])):
        their_choice, their_loss = plain.best_swap(expected, swaps, beat_B)
        choice, loss = fast.best_swap(measured, swaps, beat_B)
        torch.testing.assert_close(loss, their_loss, **EQUAL)
        assert choice.tolist() == their_choice.tolist()


def test_of_equal_swaps_the_first_is_chosen() -> None:
    _, fast = both("general", TriggerObjective(kind="likelihood"))
    targets, words_BN, swaps, _ = questions()
    incumbents = fast.measure(targets, words_BN)
    beat_B = torch.full((4,), torch.inf)
    once, _ = fast.best_swap(incumbents, swaps, beat_B)
    twice, _ = fast.best_swap(incumbents, Swaps(swaps.positions_BG.repeat(1, 2), swaps.words_BG.repeat(1, 2)), beat_B)
    assert twice.tolist() == once.tolist()


def test_what_nothing_undercuts_is_left() -> None:
    _, fast = both("general", TriggerObjective(kind="likelihood"))
    targets, words_BN, swaps, _ = questions()
    choice, loss = fast.best_swap(fast.measure(targets, words_BN), swaps, torch.full((4,), 0.5))
    assert choice.tolist() == [-1] * 4
    assert loss.tolist() == [0.5] * 4


@pytest.mark.parametrize("kind", ["greedy", "sample"])
def test_an_incumbent_comes_out_the_same_to_the_bit_in_any_batch(kind: Kind) -> None:
    objective = TriggerObjective(kind=kind, t_out=-3.0, lm_weight=1.0, t_in=-3.3)
    _, fast = both("general", objective)
    targets, words_BN, _, swaps = questions()
    targets, words_BN = targets * 3, torch.cat([words_BN, words_BN.flip(0), words_BN.roll(1, 1)])
    swaps = Swaps(swaps.positions_BG.repeat(3, 1), swaps.words_BG.repeat(3, 1))
    beat_B = torch.full((12,), torch.inf)
    together = fast.measure(targets, words_BN)
    positions_B = swaps.positions_BG[:, 0]
    choice_B, loss_B = fast.best_swap(together, swaps, beat_B)
    slopes_BV, losses_B = fast.slopes(together, positions_B), fast.losses(targets, words_BN)
    for i in range(12):
        own = slice(i, i + 1)
        (alone,) = fast.measure([targets[i]], words_BN[own])
        assert torch.equal(figures(alone), figures(together[i]))
        assert torch.equal(fast.slopes([alone], positions_B[own])[0], slopes_BV[i])
        choice, loss = fast.best_swap([alone], Swaps(swaps.positions_BG[own], swaps.words_BG[own]), beat_B[own])
        assert (choice.item(), loss.item()) == (choice_B[i].item(), loss_B[i].item())
        assert fast.losses([targets[i]], words_BN[own])[0].item() == losses_B[i].item()


def test_rows_of_published_width_do_not_depend_on_their_place() -> None:
    # The library's products of such widths have other kernels than small ones.
    model = Seq2Seq(VOCABULARY, Seq2SeqSizes(max_source=LENGTH + 1))
    model.initialise(torch.Generator().manual_seed(1))
    fast = LstmScorer(Seq2SeqVictim(model), TriggerObjective(kind="likelihood"))
    targets, words_BN, _, _ = questions()
    together = fast.measure(targets, words_BN)
    positions_B = torch.tensor([0, 1, 2, 3])
    slopes_BV = fast.slopes(together, positions_B)
    for i, incumbent in enumerate(together):
        (alone,) = fast.measure([targets[i]], words_BN[i : i + 1])
        assert alone.loss == incumbent.loss
        assert torch.equal(fast.slopes([alone], positions_B[i : i + 1])[0], slopes_BV[i])


def test_groups_of_incumbents_choose_as_each_alone_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a GPU does, on this machine's processor.
    _, fast = both("general", TriggerObjective(kind="sample", t_out=-3.0, lm_weight=1.0, t_in=-3.3))
    targets, words_BN, here, there = questions()
    incumbents, beat_B = fast.measure(targets, words_BN), torch.full((4,), torch.inf)
    for swaps in (here, there):
        alone = fast.best_swap(incumbents, swaps, beat_B)
        with monkeypatch.context() as patched:
            patched.setattr(LstmScorer, "_groups", lambda *_: [[0, 3], [2], [1]])
            grouped = fast.best_swap(incumbents, swaps, beat_B)
        assert grouped[0].tolist() == alone[0].tolist()
        torch.testing.assert_close(grouped[1], alone[1], **EQUAL)


def test_special_words_are_not_searched() -> None:
    model, _ = networks()
    assert Seq2SeqVictim(model).searchable_V.nonzero()[0].item() == len(SPECIALS)
    assert Seq2SeqVictim(model, unknown=True).searchable_V.nonzero()[0].item() == len(SPECIALS) - 1
