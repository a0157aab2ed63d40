"""Many searches at once: nobody's outcome depends on the company, the batch stays full, a hit ends its target's restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.hits import HitType, Reading, Thresholds
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.scorer import BestInput
from parley.engine.triggers.searches.batch import Outcome, Saved, SearchState, Stop, Task, state_to_json
from parley.engine.triggers.searches.batch_finder import BatchFinder
from parley.engine.triggers.searches.side_by_side import SteppedSearches
from parley.envs.core.errors import ConfigError
from tests.engine.triggers.made_up import WORD_METHODS, bound, scorer, searched, tasks

SETTINGS = SearchSettings(candidates=4, max_sweeps=3, words_per_position=3, beams=2)
LIKELY_ENOUGH = Thresholds(t_out=-3.6)
Script = dict[tuple[str, int], tuple[int, Stop]]
"""Of each (key, restart): after how many visits it ends, and why."""


class Scripted:
    """A search whose restarts end as written, and which remembers who was stepped together."""

    def __init__(self, script: Script, *, fits: int = 10**6, **settings: int) -> None:
        self.script, self.fits = script, fits
        self.settings = SearchSettings(**settings)  # type: ignore[arg-type]  # flags and limits
        self.started: list[tuple[str, int]] = []
        self.together: list[int] = []

    most_visits = 10

    def clock(self) -> float:
        return 0.0

    def spend(self, states: Sequence[SearchState], seconds: float, shares: Sequence[float]) -> None:
        """No search has a limit."""

    def save(self, state: SearchState) -> Saved | None:
        return state_to_json(state)

    def restore(self, tasks: Sequence[Task], saved: Sequence[Saved]) -> list[SearchState]:
        raise NotImplementedError

    def start(self, tasks: Sequence[Task]) -> list[SearchState]:
        self._fit(tasks)
        self.started += [(task.key, task.restart) for task in tasks]
        words = torch.tensor([0])
        incumbent = BestInput(words, words, 1.0, Reading([], []), None)
        return [self._look(SearchState(task, incumbent, loss_by_sweep=[1.0])) for task in tasks]

    def step(self, states: Sequence[SearchState]) -> None:
        assert not any(state.finished for state in states)
        self._fit(states)
        self.together.append(len(states))
        for state in states:
            state.visits += 1
            state.candidates += 10
            self._look(state)

    def _look(self, state: SearchState) -> SearchState:
        visits, stop = self.script[state.task.key, state.task.restart]
        if state.visits == visits:
            state.stopped = stop
        return state

    def _fit(self, items: Sequence[object]) -> None:
        if len(items) > self.fits:
            raise torch.OutOfMemoryError(f"{len(items)} do not fit\nand more")


def reported(search: Scripted, batch_size: int, ahead: float = 1.0) -> list[tuple[str, int]]:
    todo = [Task(key, torch.tensor([1]), restart, 0) for key, restart in search.script]
    return [(outcome.task.key, outcome.task.restart) for outcome in searched(search, todo, batch_size, ahead=ahead)]


def results(method: str, batch_size: int) -> dict[tuple[str, int], Outcome]:
    hit = HitType.parse("o-sample-avg-k1")
    plain = scorer(TriggerObjective(kind="likelihood"))
    search = bound(searches.get(method), plain, SETTINGS, lambda reading: hit.is_hit(reading, LIKELY_ENOUGH))
    found = {}
    for outcome in searched(search, tasks(restarts=4), batch_size):
        found[outcome.task.key, outcome.task.restart] = replace(outcome, task=None)
    return found


@pytest.mark.parametrize("method", WORD_METHODS)
def test_outcomes_are_the_same_in_any_batch(method: str) -> None:
    alone = results(method, 1)
    assert results(method, 3) == alone
    assert results(method, 50) == alone
    assert {outcome.stopped for outcome in alone.values()} >= {"satisfied"}
    assert len(alone) < 8, "some restart was dropped, so that the batches differed"


scripts = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4)),
    st.tuples(st.integers(0, 5), st.sampled_from(["satisfied", "converged", "limit"])),
    max_size=12,
).map(lambda script: dict(sorted(script.items(), key=lambda item: (item[0][1], item[0][0]))))


@given(script=scripts, batch_size=st.integers(1, 8))
def test_of_each_target_the_restarts_up_to_the_first_hit_are_told_in_order(script: Script, batch_size: int) -> None:
    expected = []
    for key in "abc":
        for restart in sorted(restart for name, restart in script if name == key):
            expected.append((key, restart))
            if script[key, restart][1] == "satisfied":
                break
    found = reported(Scripted(script), batch_size)
    assert [name for key in "abc" for name in found if name[0] == key] == expected
    assert len(found) == len(expected)


@given(script=scripts, batch_size=st.integers(1, 8))
def test_every_restart_is_told_when_hits_do_not_stop(script: Script, batch_size: int) -> None:
    assert sorted(reported(Scripted(script, stop_on_hit=False), batch_size)) == sorted(script)


def test_a_hit_ends_later_restarts_and_lets_earlier_ones_finish() -> None:
    script: Script = {("a", 0): (6, "limit"), ("a", 1): (2, "satisfied"), ("a", 2): (9, "limit"), ("a", 3): (1, "limit")}
    search = Scripted(script)
    assert reported(search, 3) == [("a", 0), ("a", 1)]
    assert search.started == [("a", 0), ("a", 1), ("a", 2)], "the fourth was never begun"
    assert search.together == [3, 3, 1, 1, 1, 1], "the third left with the hit"


def test_the_batch_is_filled_up_as_searches_end() -> None:
    script: Script = {("a", restart): (1 + restart % 3, "limit") for restart in range(9)}
    search = Scripted(script)
    assert len(reported(search, 4)) == 9
    assert search.together == [4, 4, 4, 3, 2, 1], "full until none is left to begin"


def test_a_place_is_given_to_a_target_that_waits_before_a_restart_ahead() -> None:
    script: Script = {(key, restart): (4, "limit") for restart in range(2) for key in "abc"}
    search = Scripted(script)
    assert len(reported(search, 2)) == 6
    assert search.started[:3] == [("a", 0), ("b", 0), ("a", 1)], "a target that has begun goes on before another begins"
    assert search.together == [2] * 12
    alone = Scripted({("a", restart): (3, "limit") for restart in range(4)})
    assert len(reported(alone, 4, ahead=0.0)) == 4
    assert alone.together == [1] * 12


many = st.dictionaries(
    st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 4)),
    st.tuples(st.integers(0, 30), st.sampled_from(["satisfied", "converged", "limit"])),
    max_size=50,
)


@given(script=many, size=st.integers(1, 8), share=st.sampled_from([0.0, 0.05, 0.3]))
def test_no_more_than_a_share_of_all_candidates_is_tried_in_vain(script: Script, size: int, share: float) -> None:
    searches = SteppedSearches(Scripted(script), BatchFinder(size, "searches"), share)
    for key in "abcdefghij":
        if own := sorted(restart for name, restart in script if name == key):
            searches.add([Task(key, torch.tensor([1]), restart, 0) for restart in own])
    told = 0
    while searches.keys:
        told += sum(outcome.candidates for outcome in searches.step())
    assert searches.tried == told + searches.in_vain
    assert searches.in_vain <= share * searches.tried


def test_targets_join_while_others_are_searched_for() -> None:
    script: Script = {("a", 0): (5, "limit"), ("b", 0): (2, "satisfied"), ("c", 0): (3, "limit")}
    search = Scripted(script)
    searches = SteppedSearches(search, BatchFinder(2, "searches"))
    assert searches.num_free == 2
    for step, key in enumerate("abc"):
        searches.add([Task(key, torch.tensor([1]), 0, 0)])
        assert searches.num_free == max(0, 1 - step)
        searches.step()
    assert (sorted(searches.keys), search.started) == (["a", "c"], [("a", 0), ("b", 0)])
    assert (searches.share("c"), searches.num_free) == (0, 0)
    while searches.keys:
        searches.step()
    assert (search.together, searches.tried) == ([1, 2, 2, 2, 2, 1], 100)


def test_searches_that_end_before_their_first_visit_make_room_at_once() -> None:
    search = Scripted({("a", 0): (0, "satisfied"), ("b", 0): (1, "limit"), ("c", 0): (1, "limit")})
    assert reported(search, 2) == [("a", 0), ("b", 0), ("c", 0)]
    assert search.together == [2]


def test_a_batch_that_stops_as_one_is_joined_by_nobody() -> None:
    script: Script = {("a", restart): (1 + restart % 3, "limit") for restart in range(5)}
    search = Scripted(script, stop_on_hit=False, stop_on_batch_mean=True)
    assert reported(search, 3) == list(script)
    assert search.together == [3, 2, 1, 2, 1]


@pytest.mark.parametrize("fits", [1, 2, 3, 7])
def test_running_out_of_memory_halves_the_batch_and_keeps_the_size(fits: int, caplog: pytest.LogCaptureFixture) -> None:
    script: Script = {("a", restart): (3, "limit") for restart in range(16)}
    search = Scripted(script, fits=fits)
    assert reported(search, 8) == list(script)
    assert max(search.together) == {1: 1, 2: 2, 3: 2, 7: 4}[fits]
    assert len(caplog.records) == {1: 3, 2: 2, 3: 2, 7: 1}[fits], "one warning for each halving, none for each step"


def test_a_search_that_does_not_fit_alone_is_an_error() -> None:
    with pytest.raises(ConfigError, match="1 do not fit"):
        reported(Scripted({("a", 0): (1, "limit")}, fits=0), 4)


def test_progress_counts_every_candidate_once() -> None:
    seen: list[int] = []
    script: Script = {("a", 0): (3, "limit"), ("b", 0): (1, "limit"), ("c", 0): (2, "limit")}
    todo = [Task(key, torch.tensor([1]), restart, 0) for key, restart in script]
    outcomes = list(searched(Scripted(script), todo, 2, seen.append))
    assert seen == [20, 40, 60]
    assert sum(outcome.candidates for outcome in outcomes) == 60


@pytest.mark.parametrize("name", WORD_METHODS)
@pytest.mark.parametrize("budget", [3, 17, 30])
def test_no_method_tries_more_than_its_budget_of_candidates(name: str, budget: int) -> None:
    settings = replace(SETTINGS, max_sweeps=50, max_candidates=budget, stop_on_hit=False)
    kind, plain = searches.get(name), scorer(TriggerObjective(kind="likelihood"))
    if budget < kind(settings).fewest_candidates(plain.victim.input_length):
        with pytest.raises(ConfigError, match="needs 4 candidates for an input of 4 words"):
            bound(kind, plain, settings)
        return
    method = bound(kind, plain, settings)
    ended = set()
    for outcome in searched(method, tasks(restarts=4), 3):
        assert 0 < outcome.candidates <= budget
        if outcome.stopped == "limit":
            # No visit of these sizes tries more than 8.
            assert outcome.candidates > budget - 8
        ended.add(outcome.stopped)
    assert "limit" in ended


def test_the_share_that_is_done_knows_how_many_candidates_a_search_may_try() -> None:
    script: Script = {(key, 0): (4, "limit") for key in "ab"}
    searches = SteppedSearches(Scripted(script, max_candidates=40), BatchFinder(1, "searches"))
    for key in "ab":
        searches.add([Task(key, torch.tensor([1]), 0, 0)])
    searches.step()
    assert searches.share("a") == 1 / 4, "ten candidates of forty, though one visit of ten"
    plain = SteppedSearches(Scripted(script), BatchFinder(1, "searches"))
    plain.add([Task("a", torch.tensor([1]), 0, 0)])
    plain.step()
    assert plain.share("a") == 1 / 10
    while "a" in searches.keys:
        searches.step()
    searches.step()
    assert searches.share("b") in (1 / 4, 1 / 2), "as those that have ended took"
