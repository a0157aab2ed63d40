"""What an attack wants, against the rules of the game and the equations written out in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from parley.engine.negotiation.attacks.choices import Loss, Values, bounds, end_gaps, losses
from parley.envs.negotiation.dealornodeal import DIVISION
from parley.envs.negotiation.dealornodeal_rules import MAX_SELECTIONS, complement, random_scenario, selection_table
from parley.envs.negotiation.domain import SELECTION_ID, Scenario, points

SEEDS = st.integers(0, 2**32)
KAPPAS = (0.0, 0.5, 4.0, math.inf)


def scenarios(seed: int, count: int) -> list[Scenario]:
    rng = np.random.default_rng(seed)
    return [random_scenario(rng) for _ in range(count)]


def stakes_of(played: list[Scenario]) -> Values:
    return Values.of(np.array([[scenario.context(side) for scenario in played] for side in (0, 1)], dtype=np.int64), DIVISION)


def earned(scenario: Scenario) -> list[tuple[int, int]]:
    """Both sides' points for every legal selection of the target, by the rules of the game."""
    counts = scenario.counts
    return [points(scenario, (complement(counts, i), i))[1] for i in range(len(selection_table(counts)))]


def scored(seed: int, played: list[Scenario], spread: float = 3.0) -> Tensor:
    """Scores as a decision network gives them: any numbers, minus infinity past the legal selections."""
    scores = torch.from_numpy(np.random.default_rng([seed, 1]).normal(0, spread, (len(played), MAX_SELECTIONS))).float()
    return scores.masked_fill(~torch.from_numpy(stakes_of(played).legal), -torch.inf)


def by_hand(scores: list[float], paid: list[tuple[int, int]], loss: Loss, kappa: float) -> float:
    ahead = [mine - theirs for mine, theirs in paid]
    legal = range(len(paid))
    inside = [i for i in legal if ahead[i] > 0]
    outside = [i for i in legal if ahead[i] <= 0]
    chosen, best = (max(among, key=lambda i: scores[i]) for among in (legal, inside))
    if loss == "outcome":
        return -ahead[chosen]
    if loss == "released":
        return 5 * (scores[chosen] - scores[best]) - ahead[best]
    return max(max(scores[i] for i in outside) - scores[best], -kappa)


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_stakes_are_what_the_game_pays_for_every_legal_selection(seed: int) -> None:
    played = scenarios(seed, 6)
    values = stakes_of(played)
    for row, scenario in enumerate(played):
        paid = earned(scenario)
        num_legal = len(paid)
        assert values.legal[row].tolist() == [True] * num_legal + [False] * (MAX_SELECTIONS - num_legal)
        found = list(zip(values.adversary[row].tolist(), values.target[row].tolist(), strict=True))
        assert found == paid + [(0, 0)] * (MAX_SELECTIONS - num_legal)
        assert values.advantage[row, :num_legal].tolist() == [mine - theirs for mine, theirs in paid]


@settings(deadline=None, max_examples=40)
@given(SEEDS)
def test_there_is_something_to_want_and_something_to_fear_in_every_scenario(seed: int) -> None:
    """The losses compare the best selection of either kind; both kinds must exist."""
    values = stakes_of(scenarios(seed, 20))
    assert (values.advantage == 10).any(1).all()
    assert (values.legal & (values.advantage <= 0)).any(1).all()


def test_refusals_pay_nobody() -> None:
    played = scenarios(3, 40)
    values = stakes_of(played)
    for row, scenario in enumerate(played):
        refusals = [len(selection_table(scenario.counts)) - back for back in (2, 1)]
        assert values.legal[row, refusals].all()
        assert not values.adversary[row, refusals].any()
        assert not values.target[row, refusals].any()
        deals = values.adversary[row, : refusals[0]] + values.target[row, : refusals[0]]
        assert (deals > 0).all(), "whoever takes the item that both want earns by it"


def test_rows_repeat_the_stakes_of_their_dialogues() -> None:
    values, index = stakes_of(scenarios(4, 5)), np.array([3, 0, 3, 4])
    chosen = values.rows(index)
    for name in ("adversary", "target", "legal", "advantage"):
        assert np.array_equal(getattr(chosen, name), getattr(values, name)[index])


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS, loss=st.sampled_from(["hinge", "released", "outcome"]), kappa=st.sampled_from(KAPPAS))
def test_losses_are_the_equations_written_out(seed: int, loss: Loss, kappa: float) -> None:
    played = scenarios(seed, 8)
    scores = scored(seed, played)
    found = losses(scores, stakes_of(played), loss, kappa)
    assert found.shape == (8,)
    assert found.dtype == torch.float32
    wanted = [by_hand(row, earned(scenario), loss, kappa) for row, scenario in zip(scores.tolist(), played, strict=True)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-4)


@settings(deadline=None, max_examples=60)
@given(SEEDS)
@example(0)
def test_without_a_margin_the_hinge_is_at_its_floor_just_where_the_choice_pays_the_adversary(seed: int) -> None:
    played = scenarios(seed, 30)
    scores, values = scored(seed, played), stakes_of(played)
    advantage = values.advantage[np.arange(30), scores.argmax(1).numpy()]
    assert np.array_equal((losses(scores, values, "hinge") == 0).numpy(), advantage > 0)


def test_there_are_both_kinds_of_choices_to_tell_apart() -> None:
    played = scenarios(0, 30)
    at_floor = losses(scored(0, played), stakes_of(played), "hinge") == 0
    assert 5 < int(at_floor.sum()) < 25


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, kappa=st.sampled_from([0.5, 4.0]))
def test_a_margin_asks_for_a_lead_of_its_size(seed: int, kappa: float) -> None:
    played = scenarios(seed, 30)
    scores, values = scored(seed, played), stakes_of(played)
    surest = losses(scores, values, "hinge", math.inf)
    found = losses(scores, values, "hinge", kappa)
    assert torch.equal(found == -kappa, surest <= -kappa)
    assert torch.equal(found < 0, surest < 0)
    assert torch.equal(found[found > -kappa], surest[surest > -kappa])


def test_the_released_loss_may_be_negative_while_the_choice_is_unfavourable() -> None:
    """A property of the published formula, and why it does not say whether an attack succeeds."""
    (scenario,) = played = scenarios(5, 1)
    values = stakes_of(played)
    scores = torch.full((1, MAX_SELECTIONS), -9.0).masked_fill(~torch.from_numpy(values.legal), -torch.inf)
    refusal = len(selection_table(scenario.counts)) - 1
    scores[0, int(values.advantage[0].argmax())] = 0.0
    scores[0, refusal] = 0.5
    assert int(scores.argmax()) == refusal
    assert float(losses(scores, values, "released")) == pytest.approx(5 * 0.5 - 10)
    assert float(losses(scores, values, "hinge")) == pytest.approx(0.5)
    assert float(losses(scores, values, "outcome")) == 0


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, factor=st.floats(0.0, 1.0))
def test_the_outcome_tells_nothing_but_the_choice(seed: int, factor: float) -> None:
    """What a black box shows: shuffling or shrinking the scores of what is not chosen changes nothing."""
    played = scenarios(seed, 8)
    scores, values, rng = scored(seed, played), stakes_of(played), np.random.default_rng([seed, 2])
    other = scores.clone()
    for row, scenario in enumerate(played):
        chosen = int(scores[row].argmax())
        rest = [i for i in range(len(selection_table(scenario.counts))) if i != chosen]
        top = scores[row, chosen]
        other[row, rest] = top - 1 - factor * (top - scores[row, rng.permutation(rest)])
    assert torch.equal(losses(other, values, "outcome"), losses(scores, values, "outcome"))
    assert not torch.equal(losses(other, values, "hinge", math.inf), losses(scores, values, "hinge", math.inf))


@settings(deadline=None, max_examples=60)
@given(
    seed=SEEDS,
    loss=st.sampled_from(["hinge", "released", "outcome"]),
    kappa=st.sampled_from(KAPPAS[:3]),
    doubt=st.sampled_from([0.0, 0.3, 2.0]),
)
def test_what_rough_scores_leave_open_holds_what_exact_ones_say(seed: int, loss: Loss, kappa: float, doubt: float) -> None:
    played = scenarios(seed, 8)
    rough, values, rng = scored(seed, played), stakes_of(played), np.random.default_rng([seed, 3])
    least, largest, low, high = bounds(rough, values, loss, kappa, torch.full((8,), doubt))
    assert (least <= largest).all()
    for _ in range(5):
        # No two scores move apart by more than the doubt.
        exact = rough + doubt * torch.from_numpy(rng.uniform(-0.5, 0.5, rough.shape)).float()
        found = losses(exact, values, loss, kappa)
        advantage = torch.from_numpy(values.advantage[np.arange(8), exact.argmax(1).numpy()])
        assert ((least - 1e-4 <= found) & (found <= largest + 1e-4)).all()
        assert ((low <= advantage) & (advantage <= high)).all()
    if doubt == 0:
        assert torch.equal(low, high)
        torch.testing.assert_close(least, largest)


def test_rough_scores_that_are_plain_leave_nothing_open() -> None:
    """What a doubt leaves open is no more than it must be: the choice is open where another comes near."""
    (scenario,) = played = scenarios(5, 1)
    values = stakes_of(played)
    scores = torch.full((1, MAX_SELECTIONS), -9.0).masked_fill(~torch.from_numpy(values.legal), -torch.inf)
    refusal = len(selection_table(scenario.counts)) - 1
    scores[0, int(values.advantage[0].argmax())], scores[0, refusal] = 0.0, 0.5
    plain, open_ = (bounds(scores, values, "outcome", 0.0, torch.tensor([doubt])) for doubt in (0.4, 0.6))
    assert [float(limit) for limit in plain] == [0, 0, 0, 0]
    assert [float(limit) for limit in open_] == [-10, 0, 0, 10]
    hinge = bounds(scores, values, "hinge", 0.0, torch.tensor([0.6]))
    assert [float(limit) for limit in hinge] == pytest.approx([0, 1.1, 0, 10])
    scores[0, refusal] = -5.0
    released = bounds(scores, values, "released", 0.0, torch.tensor([0.6]))
    assert [float(limit) for limit in released] == pytest.approx([-10, 5 * 0.6 - 10, 10, 10])


def test_a_hinge_without_a_floor_has_a_slope_everywhere() -> None:
    played = scenarios(6, 12)
    values = stakes_of(played)
    scores = scored(6, played).requires_grad_()
    (slope,) = torch.autograd.grad(losses(scores, values, "hinge", math.inf).sum(), scores)
    assert (slope.abs().sum(1) == 2).all()
    assert ((slope == -1).sum(1) == 1).all()
    assert (slope[torch.from_numpy(values.advantage > 0)] <= 0).all()


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_end_gaps_are_leads_over_the_end_of_the_talk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(0, 2, (7, 12))).float()
    logits[:, [1, 3, 5]] = -torch.inf
    before = logits.clone()
    gaps = end_gaps(logits)
    assert torch.equal(logits, before)
    for gap, row in zip(gaps.tolist(), logits.tolist(), strict=True):
        ending = row.pop(SELECTION_ID)
        assert gap == pytest.approx(max(row) - ending, abs=1e-5)
    assert torch.equal(gaps <= 0, logits.argmax(1) == SELECTION_ID)


def test_an_end_as_likely_as_another_word_counts_as_the_end() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 2.0, 2.0], [0.0, -torch.inf, -torch.inf, 2.0]])
    assert end_gaps(logits).tolist() == [0.0, math.inf]
