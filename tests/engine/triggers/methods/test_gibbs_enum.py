"""gibbs-enum against algorithm 1 written out plainly, against brute force, and with each quirk of the released code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.gibbs_enum import GibbsEnum
from parley.engine.triggers.methods.goal import Initial, Satisfied
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings, he2018, released
from parley.engine.triggers.scorers.scorer import LEAST_GAIN, BestInput, PlainScorer, Swaps, to_beat
from parley.engine.triggers.searches.batch import Outcome, Task
from parley.envs.core.errors import CheckpointError, ConfigError
from tests.engine.triggers.made_up import (
    LENGTH,
    NUM_WORDS,
    SEARCHABLE,
    TARGET,
    WORD_METHODS,
    TinyVictim,
    bound,
    every_input,
    never,
    scorer,
    searched,
    tasks,
    tiny_input_model,
    tiny_victim,
)

OBJECTIVES = {
    "likelihood": TriggerObjective(kind="likelihood"),
    "greedy": TriggerObjective(kind="greedy"),
    "sample": TriggerObjective(kind="sample", t_out=-3),
    "judged": TriggerObjective(kind="sample", t_out=-3, lm_weight=1.0, t_in=-2),
}
every_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
ALL_WORDS = SearchSettings(candidates=len(SEARCHABLE), stop_on_hit=False)


def search(
    objective: TriggerObjective, settings: SearchSettings, satisfied: Satisfied = never, initial: Initial | None = None
) -> GibbsEnum:
    return bound(GibbsEnum, scorer(objective), settings, satisfied, initial)


def swaps_of(words_N: Tensor) -> Tensor:
    """Every input that differs from this one in one word, and itself (N S, N)."""
    tried = words_N.repeat(LENGTH * len(SEARCHABLE), 1)
    places = torch.arange(LENGTH).repeat_interleave(len(SEARCHABLE))
    tried[torch.arange(len(tried)), places] = torch.tensor(SEARCHABLE).repeat(LENGTH)
    return tried


def algorithm_1(plain: PlainScorer, words_N: Tensor, target_T: Tensor, num_candidates: int) -> tuple[Tensor, int]:
    """The paper's loop on one input, one candidate at a time: the input it ends at, and the moves on the way."""
    moves = 0
    while True:
        before = moves
        for place in range(LENGTH):
            (incumbent,) = plain.measure([target_T], words_N[None])
            slopes_V = plain.slopes([incumbent], torch.tensor([place]))[0]
            steepest = sorted(SEARCHABLE, key=lambda word: float(slopes_V[word]))[:num_candidates]
            best_loss, best_word = to_beat(incumbent.loss), None
            for word in steepest:
                tried_N = words_N.clone()
                tried_N[place] = word
                loss = float(plain.losses([target_T], tried_N[None]))
                if loss < best_loss:
                    best_loss, best_word = loss, word
            if best_word is not None:
                words_N = words_N.clone()
                words_N[place] = best_word
                moves += 1
        if moves == before:
            return words_N, moves


@every_objective
@pytest.mark.parametrize("num_candidates", [2, 4, 7])
def test_it_ends_where_the_algorithm_of_the_paper_ends(objective: TriggerObjective, num_candidates: int) -> None:
    method = search(objective, replace(ALL_WORDS, candidates=num_candidates))
    todo = tasks(restarts=3)
    starts = {(state.task.key, state.task.restart): state.best.words for state in method.start(todo)}
    moved = 0
    for outcome in searched(method, todo, 4):
        task = outcome.task
        words_N, moves = algorithm_1(scorer(objective), starts[task.key, task.restart], task.target, num_candidates)
        assert (outcome.words, outcome.accepted) == (tuple(words_N.tolist()), moves)
        moved += moves
    assert moved > 6, "the searches went somewhere"


@every_objective
def test_with_all_words_no_single_swap_is_better_than_where_it_ends(objective: TriggerObjective) -> None:
    for outcome in searched(search(objective, ALL_WORDS), tasks(restarts=4), 8):
        losses = scorer(objective).losses([outcome.task.target] * 28, swaps_of(torch.tensor(outcome.words)))
        assert losses.min() >= outcome.loss - 2 * LEAST_GAIN * max(1.0, outcome.loss)
        assert outcome.stopped == ("satisfied" if outcome.loss == 0 else "converged")


@pytest.mark.parametrize("objective", [OBJECTIVES["likelihood"], OBJECTIVES["judged"]], ids=["likelihood", "judged"])
def test_some_restart_finds_the_best_of_all_inputs(objective: TriggerObjective) -> None:
    inputs, outcomes = every_input(), list(searched(search(objective, ALL_WORDS), tasks(restarts=40), 80))
    for key, target in {task.key: task.target for task in tasks(restarts=1)}.items():
        optimum = float(scorer(objective).losses([target] * len(inputs), inputs).min())
        assert min(outcome.loss for outcome in outcomes if outcome.task.key == key) == pytest.approx(optimum, abs=1e-5)


def test_it_ends_after_as_many_vain_visits_as_there_are_positions() -> None:
    method = search(OBJECTIVES["likelihood"], ALL_WORDS)
    (state,) = method.start(tasks(restarts=1)[:1])
    last_move = 0
    while not state.finished:
        accepted = state.accepted
        method.step([state])
        last_move = state.visits if state.accepted > accepted else last_move
    assert state.visits == last_move + LENGTH
    assert state.visits % LENGTH, "within a sweep, where the paper's loop would go on to its end"


def test_gradients_are_taken_anew_only_where_a_search_has_moved() -> None:
    class Counting(PlainScorer):
        measured = 0

        def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[BestInput]:
            self.measured += len(targets)
            return super().measure(targets, words_BN)

    plain = Counting(tiny_victim(), OBJECTIVES["likelihood"])
    outcomes = list(searched(bound(GibbsEnum, plain, ALL_WORDS), tasks(restarts=3), 4))
    assert plain.measured == sum(1 + outcome.accepted for outcome in outcomes)


def test_losses_are_told_at_the_start_and_after_each_sweep() -> None:
    outcomes = list(searched(search(OBJECTIVES["likelihood"], ALL_WORDS), tasks(restarts=5), 3))
    for outcome in outcomes:
        assert outcome.sweeps == -(-outcome.visits // LENGTH) == len(outcome.loss_by_sweep) - 1
        assert list(outcome.loss_by_sweep) == sorted(outcome.loss_by_sweep, reverse=True)
        assert outcome.loss_by_sweep[-1] == outcome.loss < outcome.loss_by_sweep[0]
        assert outcome.candidates == len(SEARCHABLE) * outcome.visits


def test_a_hit_ends_a_search_and_only_if_it_shall() -> None:
    def likely(reading: Reading) -> bool:
        return min(reading.word_log_probability) > -6

    def outcomes(stop_on_hit: bool) -> list[Outcome]:
        settings = replace(ALL_WORDS, stop_on_hit=stop_on_hit)
        return list(searched(search(OBJECTIVES["likelihood"], settings, likely), tasks(restarts=1), 2))

    for ended, whole in zip(outcomes(True), outcomes(False), strict=True):
        assert (ended.stopped, whole.stopped) == ("satisfied", "converged")
        assert likely(ended.reading)
        assert ended.visits < whole.visits
        assert ended.loss > whole.loss


def test_an_objective_of_zero_ends_a_search() -> None:
    content = TriggerObjective(kind="sample", t_out=-99.0)
    outcomes = list(searched(search(content, ALL_WORDS), tasks(restarts=1), 2))
    assert [(outcome.stopped, outcome.visits, outcome.sweeps) for outcome in outcomes] == [("satisfied", 0, 0)] * 2


def test_the_limit_on_sweeps_ends_a_search() -> None:
    outcomes = list(searched(search(OBJECTIVES["likelihood"], replace(ALL_WORDS, max_sweeps=1)), tasks(restarts=2), 2))
    assert {(outcome.stopped, outcome.visits, outcome.sweeps) for outcome in outcomes} == {("limit", LENGTH, 1)}


@pytest.mark.parametrize("method", WORD_METHODS)
def test_every_technique_starts_from_inputs_that_belong_to_the_restart(method: str) -> None:
    def starts(seed: int, batch: slice) -> list[tuple[int, ...]]:
        technique = bound(searches.get(method), scorer(OBJECTIVES["likelihood"]), ALL_WORDS)
        return [tuple(state.best.words.tolist()) for state in technique.start(tasks(restarts=5, seed=seed)[batch])]

    reference = search(OBJECTIVES["likelihood"], ALL_WORDS).start(tasks(restarts=5, seed=1))
    assert starts(1, slice(10)) == [tuple(state.best.words.tolist()) for state in reference]
    assert starts(1, slice(4, 7)) == starts(1, slice(10))[4:7]
    assert len({*starts(1, slice(10)), *starts(2, slice(10))}) > 15
    assert {word for words in starts(1, slice(10)) for word in words} <= set(SEARCHABLE)


def test_a_given_source_of_inputs_is_used() -> None:
    def sevens(seeds: Sequence[int]) -> Tensor:
        return torch.full((len(seeds), LENGTH), 7)

    states = search(OBJECTIVES["likelihood"], ALL_WORDS, initial=sevens).start(tasks(restarts=2))
    assert {tuple(state.best.words.tolist()) for state in states} == {(7,) * LENGTH}


def at_the_best(seeds: Sequence[int]) -> Tensor:
    """The best input of all for the first target."""
    inputs = every_input()
    best = scorer(OBJECTIVES["likelihood"]).losses([TARGET] * len(inputs), inputs).argmin()
    return inputs[best].repeat(len(seeds), 1)


@pytest.mark.parametrize("unconditional", [False, True])
def test_the_released_code_takes_the_best_of_the_first_list_even_if_it_is_worse(unconditional: bool) -> None:
    settings = replace(ALL_WORDS, candidates=1, first_visit_unconditional=unconditional)
    method = search(OBJECTIVES["likelihood"], settings, initial=at_the_best)
    (state,) = method.start([Task("first", TARGET, 0, 0)])
    optimum = state.best.loss
    (steepest,) = method.steepest([state.best], torch.tensor([0]), 1)[0].tolist()
    assert steepest != int(state.best.words[0]), "the list holds another word than the best"
    method.step([state])
    assert (state.best.loss > optimum) == unconditional
    assert (int(state.best.words[0]) == steepest) == unconditional
    worse = state.best.loss
    method.step([state])
    assert state.best.loss <= worse, "from the second visit on words must be better"


def test_the_released_code_stops_a_batch_of_targets_as_one() -> None:
    as_one = replace(ALL_WORDS, stop_on_batch_mean=True)
    todo = tasks(restarts=3)
    paper = {
        (outcome.task.key, outcome.task.restart): outcome
        for outcome in searched(search(OBJECTIVES["likelihood"], ALL_WORDS), todo, 6)
    }
    assert len({outcome.visits for outcome in paper.values()}) > 1
    groups = {}
    for size in (2, 6):
        outcomes = list(searched(search(OBJECTIVES["likelihood"], as_one), todo, size))
        assert [outcome.words for outcome in outcomes] == [paper[o.task.key, o.task.restart].words for o in outcomes]
        sweeps = [outcome.sweeps for outcome in outcomes]
        groups[size] = [sweeps[start : start + size] for start in range(0, 6, size)]
        assert all(len(set(group)) == 1 for group in groups[size]), "whoever shares a batch stops together"
        assert all(outcome.visits == outcome.sweeps * LENGTH for outcome in outcomes)
    assert max(groups[2]) != min(groups[2]), "which targets share a batch matters"


def test_a_batch_that_is_stopped_as_one_cannot_lose_those_that_hit() -> None:
    with pytest.raises(ConfigError, match="stop_on_batch_mean"):
        SearchSettings(stop_on_batch_mean=True)


def test_presets_are_those_of_the_paper_and_of_the_released_code() -> None:
    assert (GibbsEnum(he2018()).candidates, he2018().max_sweeps, he2018().restarts) == (100, 50, 10)
    assert (he2018().first_visit_unconditional, he2018().stop_on_batch_mean) == (False, False)
    assert (released().restarts, released().max_sweeps) == (5, 6)
    assert (released().first_visit_unconditional, released().stop_on_batch_mean) == (True, True)


def broken(initial: Initial | None = None, **weights: Tensor) -> GibbsEnum:
    victim = replace(TinyVictim.draw(0), **weights)
    plain = PlainScorer(victim, OBJECTIVES["likelihood"], tiny_input_model())
    return bound(GibbsEnum, plain, ALL_WORDS, initial=initial)


def test_a_model_without_numbers_is_named_with_the_target() -> None:
    method = broken(output_HV=torch.full((8, NUM_WORDS), torch.nan))
    with pytest.raises(CheckpointError, match="target first"):
        list(searched(method, tasks(restarts=1), 2))


def test_a_word_without_numbers_is_an_error_before_it_is_tried() -> None:
    embedding_VE = TinyVictim.draw(0).embedding_VE.clone()
    embedding_VE[11] = torch.nan
    method = broken(lambda seeds: torch.full((len(seeds), LENGTH), 7), embedding_VE=embedding_VE)
    states = method.start(tasks(restarts=1))
    with pytest.raises(CheckpointError, match="gradient"):
        method.step(states)


class Rising(PlainScorer):
    """Promises of every list that its first swap is better than it turns out to be when it is measured."""

    def best_swap(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        words_BN = torch.stack([incumbent.words for incumbent in incumbents])
        words_BN[torch.arange(len(words_BN)), swaps.positions_BG[:, 0]] = swaps.words_BG[:, 0]
        return torch.zeros(len(incumbents), dtype=torch.int64), beat_B - 1.0


@pytest.mark.parametrize("unconditional", [False, True])
def test_a_swap_is_taken_only_where_the_measured_loss_fell(unconditional: bool) -> None:
    rising = Rising(tiny_victim(), TriggerObjective(kind="likelihood"))
    settings = SearchSettings(candidates=3, max_sweeps=4, first_visit_unconditional=unconditional)
    refused = 0
    for state in (method := bound(GibbsEnum, rising, settings)).start(tasks(restarts=5)):
        while not state.finished:
            before = state.best
            method.step([state])
            if not (unconditional and state.visits == 1):
                assert state.best is before or state.best.loss < before.loss
                refused += state.best is before
        assert state.stopped == "converged"
    assert refused > 0
