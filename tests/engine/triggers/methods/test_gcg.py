"""GCG moves to the best of its random swaps, better or not, and returns the best input that it met."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.gcg import Gcg, GcgState
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings, gcg
from parley.engine.triggers.scorers.scorer import BestInput, PlainScorer, Swaps
from parley.engine.triggers.searches.batch import Task
from tests.engine.triggers.made_up import LENGTH, NUM_WORDS, TARGET, bound, scorer, searched, tasks

LIKELIHOOD = TriggerObjective(kind="likelihood")
SETTINGS = SearchSettings(candidates=3, words_per_position=3, max_sweeps=5)


class Listening(PlainScorer):
    """Remembers the swaps that it was asked for."""

    def __init__(self) -> None:
        plain = scorer(LIKELIHOOD)
        super().__init__(plain.victim, plain.objective)
        self.lists: list[tuple[BestInput, Tensor, Tensor]] = []

    def best_swap(self, incumbents: list[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        assert bool(beat_B.isinf().all())
        self.lists += list(zip(incumbents, swaps.positions_BG, swaps.words_BG, strict=True))
        return super().best_swap(incumbents, swaps, beat_B)


def walk(method: Gcg, state: GcgState) -> list[BestInput]:
    seen = [state.current]
    while not state.finished:
        method.step([state])
        seen.append(state.current)
    return seen


def test_it_moves_to_the_best_of_its_list_even_where_that_is_worse() -> None:
    plain = Listening()
    method = bound(Gcg, plain, SETTINGS)
    (state,) = method.start([Task("first", TARGET, 0, 3)])
    seen = walk(method, state)
    for (before, positions_G, words_G), after in zip(plain.lists, seen[1:], strict=True):
        tried = before.words.repeat(len(words_G), 1)
        tried[torch.arange(len(words_G)), positions_G] = words_G
        assert after.words.tolist() == tried[plain.losses([TARGET] * len(tried), tried).argmin()].tolist()
    losses = [incumbent.loss for incumbent in seen]
    assert any(after > before for before, after in pairwise(losses))
    assert (state.outcome().accepted, state.outcome().stopped) == (5 * LENGTH, "limit")


def test_the_best_input_met_is_returned_wherever_it_ends() -> None:
    method = bound(Gcg, scorer(LIKELIHOOD), replace(SETTINGS, candidates=1, max_sweeps=2))
    astray = 0
    for state in method.start(tasks(restarts=3)):
        losses = [incumbent.loss for incumbent in walk(method, state)]
        assert state.outcome().loss == min(losses)
        astray += losses[-1] > min(losses)
    assert astray > 0


def test_swaps_are_drawn_from_the_steepest_words_of_every_position() -> None:
    plain = Listening()
    method = bound(Gcg, plain, SETTINGS)
    (state,) = method.start([Task("first", TARGET, 0, 3)])
    walk(method, state)
    places, ranks = set(), set()
    for incumbent, positions_G, words_G in plain.lists:
        for place, word in zip(positions_G.tolist(), words_G.tolist(), strict=True):
            steepest = method.steepest([incumbent], torch.tensor([place]), NUM_WORDS)[0].tolist()
            places.add(place)
            ranks.add(steepest.index(word))
    assert places == set(range(LENGTH))
    assert ranks == {0, 1, 2}


def test_restarts_and_seeds_draw_their_own_swaps() -> None:
    def words(seed: int) -> list[tuple[int, ...]]:
        def same(seeds: list[int]) -> Tensor:
            return torch.full((len(seeds), LENGTH), 7)

        few = SearchSettings(candidates=2, max_sweeps=1)
        method = bound(Gcg, scorer(LIKELIHOOD), few, initial=same)
        states = method.start(tasks(restarts=4, seed=seed))
        method.step(states)
        return [tuple(state.current.words.tolist()) for state in states]

    assert words(1) == words(1)
    assert words(1) != words(2)
    assert len(set(words(1))) > 2


def test_a_hit_on_the_way_is_what_is_returned() -> None:
    reference = bound(Gcg, scorer(LIKELIHOOD), SETTINGS)
    (state,) = reference.start([Task("first", TARGET, 0, 3)])
    seen = walk(reference, state)
    worse = next(at for at in range(1, len(seen)) if seen[at].loss > min(one.loss for one in seen[:at]))

    def the_worse_one(reading: Reading) -> bool:
        return reading == seen[worse].reading

    (outcome,) = searched(bound(Gcg, scorer(LIKELIHOOD), SETTINGS, the_worse_one), [Task("first", TARGET, 0, 3)], 1)
    assert (outcome.stopped, outcome.visits, outcome.loss) == ("satisfied", worse, seen[worse].loss)
    assert outcome.words == tuple(seen[worse].words.tolist())


def test_its_sizes_are_nanogcgs_where_none_are_given() -> None:
    alone, preset = Gcg().settings, Gcg(gcg()).settings
    assert (alone.candidates, alone.words_per_position) == (preset.candidates, preset.words_per_position) == (512, 256)
    assert Gcg(candidates=7).settings.candidates == 7
    assert preset.max_sweeps * 14 == 252


def test_with_a_buffer_each_visit_starts_from_the_best_input_met() -> None:
    plain = Listening()
    method = bound(Gcg, plain, replace(SETTINGS, buffer=2))
    (state,) = method.start([Task("first", TARGET, 0, 3)])
    met = {tuple(state.current.words.tolist()): state.current.loss}
    while not state.finished:
        assert state.current.loss == min(met.values())
        before = len(plain.lists)
        method.step([state])
        (at, positions_G, words_G) = plain.lists[before]
        tried = at.words.repeat(len(words_G), 1)
        tried[torch.arange(len(words_G)), positions_G] = words_G
        reached = tried[plain.losses([TARGET] * len(tried), tried).argmin()]
        met[tuple(reached.tolist())] = method.measure([state.task], [reached])[0].loss
        assert [known.loss for known in state.buffer] == sorted(met.values())[:2]
    assert len(met) > 2
    (again,) = method.restore([state.task], [method.save(state) or {}])
    assert [known.words.tolist() for known in again.buffer] == [known.words.tolist() for known in state.buffer]


def test_several_words_are_replaced_at_once_at_different_positions() -> None:
    plain = scorer(LIKELIHOOD)
    method = bound(Gcg, plain, replace(SETTINGS, num_replaced=3, candidates=4))
    (state,) = method.start([Task("first", TARGET, 0, 3)])
    changed = [int((before.words != after.words).sum()) for before, after in pairwise(walk(method, state))]
    assert max(changed) == 3
    assert state.outcome().candidates == 4 * state.outcome().visits
    assert state.outcome().loss < state.outcome().loss_by_sweep[0]


def test_momentum_weighs_the_slopes_of_earlier_steps() -> None:
    method = bound(Gcg, scorer(LIKELIHOOD), replace(SETTINGS, momentum=0.5))
    (state,) = method.start([Task("first", TARGET, 0, 3)])
    seen = walk(method, state)
    assert [each.words.tolist() for each in state.past] == [each.words.tolist() for each in seen[::-1]][:10]
    expected = sum(0.5**steps * method.slopes(*method.everywhere([each])) for steps, each in enumerate(state.past))
    assert isinstance(expected, Tensor)
    assert method._lists([state])[0].tolist() == expected.topk(3, largest=False).indices.tolist()
    alone = method.steepest(*method.everywhere([state.current]), 3)
    assert method._lists([state])[0].tolist() != alone.tolist(), "or earlier steps would change nothing"
