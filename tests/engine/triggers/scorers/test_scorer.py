"""The plain scorer against formulas written out word by word, gradients through one-hot inputs, and brute force."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.scorer import PlainScorer, Swaps, stack_targets
from tests.engine.triggers.made_up import (
    END_ID,
    LENGTH,
    NUM_WORDS,
    OTHER_TARGET,
    SEARCHABLE,
    TARGET,
    TinyVictim,
    crowd,
    every_input,
    scorer,
    tiny_input_model,
    tiny_victim,
)

OBJECTIVES = {
    "likelihood": TriggerObjective(kind="likelihood"),
    "greedy": TriggerObjective(kind="greedy"),
    "sample": TriggerObjective(kind="sample", t_out=-2.5),
    "released": TriggerObjective(kind="sample", t_out=-2.5, satisfied_weight=0.01),
    "judged": TriggerObjective(kind="sample", t_out=-2.5, lm_weight=0.7, t_in=-0.5),
    "judged-and-satisfied": TriggerObjective(kind="sample", t_out=-2.5, lm_weight=0.7, t_in=-9, satisfied_weight=0.01),
}
every_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
INPUTS = every_input()[[3, 700, 1234, 2400]]


def relaxed_loss(objective: TriggerObjective, target_T: Tensor, x_NV: Tensor) -> Tensor:
    """The loss of a one-hot input taken as continuous, term by term."""
    victim, judge = tiny_victim(), tiny_input_model()
    logits_TV = victim.reply_logits((x_NV @ victim.embedding_VE)[None], target_T[None])[0]
    loss = torch.zeros(())
    for logits_V, word in zip(logits_TV, target_T.tolist(), strict=True):
        nll = -logits_V.log_softmax(0)[word]
        satisfied = {
            "likelihood": False,
            "greedy": int(logits_V.argmax()) == word,
            "sample": nll.item() < -objective.t_out,
        }[objective.kind]
        loss = loss + nll * (objective.satisfied_weight if satisfied else 1.0) / len(target_T)
    if objective.lm_weight > 0:
        log_NV = judge.word_logits((x_NV @ judge.embedding_VE)[None])[0].log_softmax(-1)
        # The words of the input stand on both sides: as what is read and as what is predicted.
        nats = -((x_NV * log_NV[:LENGTH]).sum() + log_NV[LENGTH, END_ID]) / (LENGTH + 1)
        loss = loss + objective.lm_weight * (objective.satisfied_weight if nats.item() < -objective.t_in else 1.0) * nats
    return loss


def one_hot(words_N: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(words_N, NUM_WORDS).float()


@every_objective
def test_losses_are_those_of_the_formula(objective: TriggerObjective) -> None:
    targets = [TARGET, OTHER_TARGET, TARGET, OTHER_TARGET]
    expected = torch.stack([relaxed_loss(objective, target, one_hot(x)) for target, x in zip(targets, INPUTS, strict=True)])
    torch.testing.assert_close(scorer(objective).losses(targets, INPUTS), expected)
    measured = scorer(objective).measure(targets, INPUTS)
    torch.testing.assert_close(torch.tensor([incumbent.loss for incumbent in measured]), expected)


@every_objective
def test_slopes_are_the_gradient_through_a_one_hot_input(objective: TriggerObjective) -> None:
    plain = scorer(objective)
    for target, words_N in ((TARGET, INPUTS[0]), (OTHER_TARGET, INPUTS[1])):
        x_NV = one_hot(words_N).requires_grad_()
        (gradient_NV,) = torch.autograd.grad(relaxed_loss(objective, target, x_NV), [x_NV])
        incumbents = plain.measure([target], words_N[None]) * LENGTH
        slopes_NV = plain.slopes(incumbents, torch.arange(LENGTH))
        # Up to a constant per position.
        expected_NV = gradient_NV - gradient_NV.mean(1, keepdim=True)
        torch.testing.assert_close(slopes_NV - slopes_NV.mean(1, keepdim=True), expected_NV, rtol=1e-4, atol=1e-5)


@every_objective
def test_the_best_swap_is_the_argmin_over_all_inputs_of_the_list(objective: TriggerObjective) -> None:
    plain = scorer(objective)
    targets = [TARGET, OTHER_TARGET, TARGET, OTHER_TARGET]
    incumbents = plain.measure(targets, INPUTS)
    generator = torch.Generator().manual_seed(0)
    positions_BG = torch.randint(LENGTH, (4, 9), generator=generator)
    words_BG = torch.randint(SEARCHABLE[0], NUM_WORDS, (4, 9), generator=generator)
    choices_B, losses_B = plain.best_swap(incumbents, Swaps(positions_BG, words_BG), torch.full((4,), torch.inf))
    for row in range(4):
        tried = []
        for position, word in zip(positions_BG[row].tolist(), words_BG[row].tolist(), strict=True):
            words_N = INPUTS[row].clone()
            words_N[position] = word
            tried.append(float(relaxed_loss(objective, targets[row], one_hot(words_N))))
        assert tried[int(choices_B[row])] == pytest.approx(min(tried), abs=1e-6)
        assert float(losses_B[row]) == pytest.approx(min(tried), abs=1e-6)


def test_a_list_that_undercuts_nothing_has_no_best_swap() -> None:
    plain = scorer(TriggerObjective(kind="likelihood"))
    incumbents = plain.measure([TARGET, TARGET], INPUTS[:2])
    swaps = Swaps(torch.zeros(2, 3, dtype=torch.int64), torch.tensor([[5, 6, 7], [5, 6, 7]]))
    choices_B, losses_B = plain.best_swap(incumbents, swaps, torch.full((2,), torch.inf))
    beat_B = torch.stack([losses_B[0], losses_B[1] + 1e-3])
    choices_again_B, losses_again_B = plain.best_swap(incumbents, swaps, beat_B)
    assert choices_again_B.tolist() == [-1, int(choices_B[1])]
    assert losses_again_B.tolist() == [float(beat_B[0]), float(losses_B[1])]


def test_of_equal_swaps_the_first_is_taken() -> None:
    plain = scorer(TriggerObjective(kind="sample", t_out=-99.0))
    incumbents = plain.measure([TARGET], INPUTS[:1])
    swaps = Swaps(torch.tensor([[1, 0, 2]]), torch.tensor([[5, 6, 7]]))
    assert plain.best_swap(incumbents, swaps, torch.tensor([torch.inf]))[0].tolist() == [0]


def test_readings_tell_each_word_and_the_input() -> None:
    (incumbent,) = scorer(TriggerObjective(kind="likelihood")).measure([TARGET], INPUTS[:1])
    victim, judge = tiny_victim(), tiny_input_model()
    log_TV = victim.reply_logits(victim.embedding_VE[INPUTS[:1]], TARGET[None])[0].log_softmax(-1)
    assert incumbent.reading.word_log_probability == pytest.approx(log_TV[range(4), TARGET].tolist(), abs=1e-6)
    assert incumbent.reading.likeliest == (log_TV.argmax(-1) == TARGET).tolist()
    log_NV = judge.word_logits(judge.embedding_VE[INPUTS[:1]])[0].log_softmax(-1)
    said = [float(log_NV[place, word]) for place, word in enumerate([*INPUTS[0].tolist(), END_ID])]
    assert incumbent.reading.input_log_probability == pytest.approx(sum(said) / 5, abs=1e-6)


def test_without_a_language_model_the_input_is_not_read() -> None:
    (incumbent,) = PlainScorer(tiny_victim(), TriggerObjective()).measure([TARGET], INPUTS[:1])
    assert incumbent.reading.input_log_probability is None


@every_objective
def test_measured_inputs_do_not_depend_on_their_company(objective: TriggerObjective) -> None:
    plain, targets = scorer(objective), [TARGET, OTHER_TARGET, TARGET, OTHER_TARGET]
    together = plain.measure(targets, INPUTS)
    alone = [plain.measure([target], words_N[None])[0] for target, words_N in zip(targets, INPUTS, strict=True)]
    assert [(one.loss, one.reading) for one in together] == [(one.loss, one.reading) for one in alone]
    positions = torch.tensor([0, 1, 2, 3])
    rows = [plain.slopes([one], position[None])[0] for one, position in zip(alone, positions, strict=True)]
    assert torch.equal(plain.slopes(together, positions), torch.stack(rows))


def test_losses_come_in_the_order_of_the_inputs_whatever_fits_in_one_pass() -> None:
    objective = TriggerObjective(kind="likelihood", lm_weight=1.0)
    inputs, targets = every_input()[::97], [TARGET, OTHER_TARGET] * 13
    small = PlainScorer(tiny_victim(), objective, tiny_input_model(), rows=3)
    torch.testing.assert_close(
        small.losses(targets[: len(inputs)], inputs), scorer(objective).losses(targets[: len(inputs)], inputs)
    )


def test_passes_that_do_not_fit_into_memory_get_smaller_and_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = TriggerObjective(kind="likelihood")
    inputs, targets = every_input()[::97], [TARGET, OTHER_TARGET] * 13
    whole = scorer(objective).losses(targets[: len(inputs)], inputs)
    refused = crowd(monkeypatch, TinyVictim, most=5)
    small = PlainScorer(tiny_victim(), objective, tiny_input_model(), rows=16)
    for _ in range(2):
        torch.testing.assert_close(small.losses(targets[: len(inputs)], inputs), whole)
    assert refused == [16, 8]


def test_shorter_targets_are_padded_and_masked() -> None:
    ids_BT, mask_BT = stack_targets([TARGET, OTHER_TARGET])
    assert ids_BT.tolist() == [TARGET.tolist(), [*OTHER_TARGET.tolist(), 11]]
    assert mask_BT.tolist() == [[True] * 4, [True, True, True, False]]
