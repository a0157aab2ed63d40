"""What searches by losses and by replies cost, and that they end where their budget does."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from parley.engine.triggers import Relaxation, RelaxationSettings, TriggerObjective, TriggerSearch
from parley.engine.triggers.budget import GRADIENT, Spending, clock_of, clock_on, read_budget
from parley.engine.triggers.catalogue import make_method
from parley.engine.triggers.methods.method import Method
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.searches.batch import Outcome, tasks_of
from parley.envs.core.errors import ConfigError
from tests.engine.triggers.made_up import LENGTH, OTHER_TARGET, TARGET, WORD_METHODS, tiny_victim

TARGETS = {"first": TARGET, "other": OTHER_TARGET}
READ = {key: LENGTH + len(target) for key, target in TARGETS.items()}
"""Tokens of one reading: the input and the reply with its end."""
SETTINGS = SearchSettings(candidates=4, beams=2, restarts=1, max_sweeps=40, words_per_position=4)


def outcomes(method: Method, budget: Spending, batch_size: int = 8) -> dict[str, Outcome]:
    likelihood = TriggerObjective(kind="likelihood")
    search = TriggerSearch(tiny_victim(), method, objective=likelihood, budget=budget, batch_size=batch_size)
    return {outcome.task.key: replace(outcome, task=None) for outcome in search.run(tasks_of(TARGETS, 1, seed=3))}


def test_a_budget_is_a_number_of_queries_or_parts() -> None:
    assert read_budget("200", "--budget") == Spending(queries=200)
    assert read_budget("", "--budget") == Spending()
    budget = read_budget("seconds=1.5, tokens=2000", "--budget")
    assert (budget, str(budget)) == (Spending(tokens=2000, seconds=1.5), "tokens=2000,seconds=1.5")
    assert read_budget(str(Spending(tokens=123_456_789, seconds=0.125)), "x") == Spending(tokens=123_456_789, seconds=0.125)
    assert Spending(tokens=500, seconds=1.2).share(budget) == pytest.approx(0.8)
    assert [Spending(tokens=most).used_up(budget) for most in (1999, 2000)] == ["", "tokens"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("second=3", "no part 'second', did you mean 'seconds'"),
        ("tokens=1.5", "tokens is no number above 0"),
        ("seconds=0", "seconds is no number above 0"),
        ("seconds=nan", "seconds is no number above 0"),
        ("-5", "no part '-5'"),
        ("money", "money is no number above 0"),
    ],
)
def test_a_budget_that_cannot_be_read_is_refused(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        read_budget(text, "--budget")


def test_a_part_that_is_not_counted_there_and_a_number_are_refused() -> None:
    with pytest.raises(ConfigError, match="a budget is text") as refused:
        read_budget(40, "--budget")  # type: ignore[arg-type]  # as people write it in Python
    assert refused.value.fix == '"40", or "seconds=30"'
    with pytest.raises(ConfigError, match="no part 'money'"):
        read_budget("money=3", "--budget", ("tokens", "seconds"))


def test_models_on_the_cpu_are_timed_by_its_seconds_and_others_by_the_wall() -> None:
    here, served = SimpleNamespace(inner=SimpleNamespace(model=torch.nn.Linear(1, 1))), object()
    here.inner.model.device = torch.device("cpu")
    assert clock_of(here) is clock_on("cpu") is time.process_time
    assert clock_of(here, served) is clock_of(served) is clock_on("cuda") is time.perf_counter


@pytest.mark.parametrize("method", WORD_METHODS)
def test_a_restart_ends_before_its_tokens_are_exceeded_whatever_its_company(method: str) -> None:
    budget = Spending(tokens=1000)
    found = outcomes(make_method(method, SETTINGS), budget)
    assert found == outcomes(make_method(method, SETTINGS), budget, batch_size=1)
    for key, outcome in found.items():
        most_ahead = 32 * READ[key]
        assert outcome.stopped == "converged" or 1000 - most_ahead < outcome.tokens <= 1000, (key, outcome.tokens)


@pytest.mark.parametrize(("method", "momentum"), [*((name, 0.0) for name in WORD_METHODS), ("gcg", 0.6)])
def test_no_budget_is_exceeded_and_one_that_pays_for_no_visit_is_refused(method: str, momentum: float) -> None:
    fits, settings = 0, replace(SETTINGS, momentum=momentum)
    for tokens in range(5, 400, 3):
        try:
            ended = outcomes(make_method(method, settings), Spending(tokens=tokens))
        except ConfigError:
            assert not fits, "a larger budget pays for what a smaller one pays for"
            continue
        fits += 1
        assert max(outcome.tokens for outcome in ended.values()) <= tokens
        assert all(outcome.visits for outcome in ended.values())
    assert fits


def test_tokens_are_readings_of_candidates_and_thrice_those_of_gradients() -> None:
    readings = {"random": 4, "gibbs-enum": 4 + GRADIENT, "gcg": 4 + GRADIENT, "arca": 4 + 4 * GRADIENT, "pez": GRADIENT}
    for method, num in readings.items():
        for key, outcome in outcomes(make_method(method, SETTINGS), Spending()).items():
            assert outcome.tokens == outcome.visits * num * READ[key], method


def test_a_first_visit_that_costs_more_than_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="a visit of GibbsEnum costs 56 tokens"):
        outcomes(make_method("gibbs-enum", SETTINGS), Spending(tokens=55))


def test_a_continuous_input_has_as_many_steps_as_its_tokens_and_seconds_pay_for() -> None:
    settings = RelaxationSettings(rounds=2, steps=20)
    for key, outcome in outcomes(Relaxation(relaxation=settings), Spending(tokens=500)).items():
        assert outcome.candidates == 500 // (GRADIENT * READ[key])
        assert outcome.tokens == outcome.candidates * GRADIENT * READ[key]
    whole = outcomes(Relaxation(relaxation=settings), Spending())
    assert {outcome.candidates for outcome in whole.values()} == {40}
    assert outcomes(Relaxation(relaxation=settings), Spending(seconds=1e9)) == whole


def test_a_search_ends_with_its_seconds_which_a_batch_shares_by_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.engine.triggers.methods.goal.clock_on", lambda device: itertools.count().__next__)
    found = outcomes(make_method("random", SETTINGS), Spending(seconds=3))
    # A step takes a second, of which each of two searches has half.
    assert {(outcome.stopped, outcome.visits, outcome.seconds) for outcome in found.values()} == {("limit", 6, 3.0)}
    assert {len(outcome.loss_by_sweep) for outcome in found.values()} == {3}, "the start, a sweep of four, and the rest"


def test_a_method_that_cannot_be_stopped_takes_no_budget() -> None:
    class Whole(Method):
        def search_all(self, tasks: Any, finder: Any, on_step: Any = None) -> Any:
            raise NotImplementedError

    with pytest.raises(ConfigError, match="Whole searches to its own end"):
        TriggerSearch(tiny_victim(), Whole(), budget=Spending(tokens=5))


@pytest.mark.parametrize("name", ["random", "gibbs-enum", "autoprompt", "gcg", "hotflip", "beam", "pez"])
@pytest.mark.parametrize("most", [10, 12, 13])
def test_a_budget_of_inputs_is_spent_to_the_last_one(name: str, most: int) -> None:
    """A step of four, or of twice four: the last one tries what is left, so that methods cost the same."""
    method = make_method(name, replace(SETTINGS, max_candidates=most, stop_on_hit=False))
    for outcome in outcomes(method, Spending()).values():
        assert outcome.candidates == most if outcome.stopped == "limit" else outcome.candidates < most
    assert method.shortens or name == "pez", "a step of pez is one input"
