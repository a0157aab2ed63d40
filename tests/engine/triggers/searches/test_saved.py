"""Searches are taken up where they were left: at any moment, in any company, to the same outcomes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.hits import HitType, Reading, Thresholds
from parley.engine.triggers.methods.gibbs_enum import RandomSearch
from parley.engine.triggers.methods.method import Method
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import RelaxationSettings, SearchSettings
from parley.engine.triggers.searches.batch import Outcome, SearchState, Task, outcome_from_json, outcome_to_json
from parley.engine.triggers.searches.batch_finder import BatchFinder
from parley.engine.triggers.searches.side_by_side import BatchedSearch, StartedSearch
from tests.engine.triggers.made_up import WORD_METHODS, bound, scorer, tasks

SETTINGS = SearchSettings(
    candidates=4, max_sweeps=3, words_per_position=3, beams=2, restarts=3, relaxation=RelaxationSettings(rounds=1, steps=3)
)
BEGUN_AGAIN = ("relaxation",)
"""Methods of which nothing is saved within a search: they descend for all targets at once."""
HIT, LIKELY_ENOUGH = HitType.parse("o-sample-avg-k1"), Thresholds(t_out=-2.2)


def method(name: str, settings: SearchSettings = SETTINGS) -> Method:
    plain = scorer(TriggerObjective(kind="likelihood"))
    return bound(searches.get(name), plain, settings, lambda reading: HIT.is_hit(reading, LIKELY_ENOUGH))


def by_key() -> dict[str, list[Task]]:
    found: dict[str, list[Task]] = {}
    for task in tasks(restarts=SETTINGS.restarts):
        found.setdefault(task.key, []).append(task)
    return found


def finished(search: BatchedSearch) -> dict[tuple[str, int], Outcome]:
    found = {}
    while search.keys:
        for outcome in search.step():
            place = outcome.task.key, outcome.task.restart
            assert place not in found, "told once"
            found[place] = replace(outcome, task=None)  # type: ignore[arg-type]
    return found


def sent(begun: StartedSearch, own: Sequence[Task]) -> StartedSearch:
    """What is left of it in a file."""
    outcomes, saved = json.loads(json.dumps([[*map(outcome_to_json, begun.outcomes)], begun.saved]))
    return StartedSearch(
        [outcome_from_json(each, own.__getitem__) for each in outcomes], {int(k): each for k, each in saved.items()}
    )


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", [*WORD_METHODS, "relaxation"])
def test_a_search_taken_up_at_any_step_comes_to_the_same(name: str, size: int) -> None:
    # Alone they make more steps, of which every seventh is enough.
    stride = 7 if size == 1 else 2
    undisturbed = method(name).side_by_side(BatchFinder(size, "searches"))
    for own in by_key().values():
        undisturbed.add(own)
    expected = finished(undisturbed)
    first = method(name).side_by_side(BatchFinder(size, "searches"))
    for own in by_key().values():
        first.add(own)
    num_steps, num_saved = 0, 0
    ended: dict[tuple[str, int], Outcome] = {}
    while first.keys:
        num_steps += 1
        ended |= {(each.task.key, each.task.restart): replace(each, task=None) for each in first.step()}  # type: ignore[arg-type]
        if num_steps % stride:
            continue
        # A relaxation's bits depend on the company, as its inputs are one tensor.
        second = method(name).side_by_side(BatchFinder(size if name == "relaxation" else 2, "searches"))
        for key, own in by_key().items():
            if key in first.keys:
                assert 0 <= first.share(key) <= 1
                begun = sent(first.begun(key), own)
                num_saved += len(begun.saved)
                second.add(own, begun)
        assert ended | finished(second) == expected, f"left after {num_steps} steps"
    assert num_steps >= 3
    assert (num_saved > 0) == (name not in BEGUN_AGAIN)


def test_batches_that_stop_as_one_are_taken_up_at_whole_batches() -> None:
    settings = replace(SETTINGS, stop_on_hit=False, stop_on_batch_mean=True)
    whole = method("gibbs-enum", settings).side_by_side(BatchFinder(2, "searches"))
    for own in by_key().values():
        whole.add(own)
    outcomes, moments = [], []
    while whole.keys:
        outcomes += whole.step()
        moments.append({key: whole.begun(key) for key in whole.keys})
    expected = {(outcome.task.key, outcome.task.restart): replace(outcome, task=None) for outcome in outcomes}  # type: ignore[arg-type]
    assert len(expected) == 6
    for begun in filter(None, moments):
        second = method("gibbs-enum", settings).side_by_side(BatchFinder(2, "searches"))
        for key, own in by_key().items():
            second.add(own, sent(begun[key], own))
        assert finished(second) == expected


@dataclass(eq=False)
class Peculiar(SearchState):
    seen: set[int] = field(default_factory=set)


class OfMyOwn(RandomSearch):
    def begin(self, task: Task, incumbent: object) -> Peculiar:
        return Peculiar(task, incumbent)  # type: ignore[arg-type]


def test_a_search_whose_state_has_no_form_is_begun_again() -> None:
    plain = scorer(TriggerObjective(kind="likelihood"))
    expected = None
    for stopped_after in (0, 2):
        search = bound(OfMyOwn, plain, SETTINGS).side_by_side(BatchFinder(2, "searches"))
        own = by_key()["first"]
        search.add(own)
        for _ in range(stopped_after):
            search.step()
        begun = search.begun("first")
        assert begun.saved == {}
        again = bound(OfMyOwn, plain, SETTINGS).side_by_side(BatchFinder(2, "searches"))
        again.add(own, begun)
        found = finished(again)
        assert expected is None or found == expected
        expected = found


def test_an_outcome_is_the_same_out_of_a_file() -> None:
    task = by_key()["first"][1]
    reading = Reading([-1.1, float("-inf")], [True, False], None)
    outcome = Outcome(task, (5, 6), 0.1 + 0.2, reading, 1, 2, 3, 4, (1.5, 0.3), "limit", Reading([-2.0], [False], -1.25))
    assert outcome_from_json(json.loads(json.dumps(outcome_to_json(outcome))), {1: task}.__getitem__) == outcome
