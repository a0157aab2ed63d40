"""Sweeps on the page: the best so far, which settings matter, and hostile names."""

from __future__ import annotations

import json

import pytest

from parley.engine.core.page.content import Report, Run
from parley.engine.core.page.sweeps import LEAST_TRIALS, Sweeps, Trial, Trials, importance, telling_budget
from parley.engine.core.ray.record import WORK
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.tables.table import EstimateTable
from tests.engine.core.page.pages import assert_brief, page_of, run_of


def trial(rate: int, kind: str, value: float, whole: bool = True) -> Trial:
    """Trial number `rate`; its setting of that name is the same. The whole budget is 9, the smaller one 3."""
    by_budget = {3: value, 9: value} if whole else {3: value}
    return Trial(rate, {"rate": rate, "kind": kind}, Estimate(value, value - 1, value + 1, 40), whole, by_budget)


TRIALS = [trial(1, "a", 2.0), trial(2, "b", 1.0, whole=False), trial(3, "a", 4.0), trial(4, "b", 3.0), trial(5, "b", 9.0)]


def section(
    direction: str = "max", trials: list[Trial] = TRIALS, name: str = "s", failures: int = 0, again: Estimate | None = None
) -> Run:
    rows = [
        {"item_key": str(trial.number), "status": "ok", "parameters": json.dumps(trial.parameters), "whole": trial.whole}
        | trial.value.to_json()
        | {"by_budget": [{"budget": budget, "value": value} for budget, value in trial.by_budget.items()]}
        for trial in trials
    ]
    rows += [{"item_key": f"f{number}", "status": "error", "error": "boom"} for number in range(failures)]
    start = {"kind": WORK, "objective": "gain", "direction": direction}
    return run_of("sweep", rows, {} if again is None else {"again": again}, heading=name, events=[start])


def best_trials(run: Run) -> EstimateTable:
    return Sweeps().tables(run)["Best trials"]


def note_of(run: Run) -> str:
    (note,) = Sweeps().notes(run)
    return note


def test_best_so_far_leaves_out_trials_that_were_stopped() -> None:
    assert Trials(section()).best_so_far() == [(1, 2.0, 2.0), (3, 4.0, 4.0), (4, 3.0, 4.0), (5, 9.0, 9.0)]
    assert [best for *_, best in Trials(section("min")).best_so_far()] == [2.0, 2.0, 2.0, 2.0]


def test_importance_is_the_rank_correlation() -> None:
    rising = [trial(x, "a", x**3) for x in (1, 2, 3, 4)]
    assert importance(rising, 9) == {"rate": pytest.approx(1.0), "kind": 0.0}
    falling = [trial(x, "a", -x) for x in (1, 2, 3, 4)]
    assert importance(falling, 9)["rate"] == pytest.approx(-1.0)


def test_importance_of_a_choice_is_the_share_between_its_values() -> None:
    decided = [trial(1, kind, value) for kind, value in (("a", 0), ("a", 0), ("b", 1), ("b", 1))]
    assert importance(decided, 9) == {"kind": pytest.approx(1.0), "rate": 0.0}
    undecided = [trial(1, kind, value) for kind, value in (("a", 0), ("a", 1), ("b", 0), ("b", 1))]
    assert importance(undecided, 9)["kind"] == pytest.approx(0.0)


def test_page_shows_three_figures_and_escapes_names() -> None:
    trials = [trial(number, "ab"[number % 2], number % 3, whole=number > 0) for number in range(LEAST_TRIALS + 1)]
    page = page_of(Report(title="t", found={"sweeps": [section(name="<b>s</b>", trials=trials, failures=2)]}))
    assert page.count("<figure>") == 3
    assert "<b>s</b>" not in page
    assert "13 trials, 2 failed, 10 with the whole budget" in page


def test_importance_is_of_the_largest_budget_that_enough_trials_were_given() -> None:
    some = [trial(number, "a", number, whole=number % 2 == 0) for number in range(2 * LEAST_TRIALS)]
    assert telling_budget(some) == 9
    assert telling_budget(some[1:]) == 3
    assert telling_budget(some[: LEAST_TRIALS - 1]) is None
    assert "over the 19 trials that were given 3" in [*Sweeps().figures(section(trials=some[1:]))][-1].caption


def test_few_trials_have_no_importance() -> None:
    assert [figure.name for figure in Sweeps().figures(section())] == ["Best so far", "Settings"]


def test_the_best_trials_stand_in_a_table_with_their_intervals() -> None:
    table = best_trials(section())
    assert table.columns == ("trial", "gain", "rate", "kind")
    assert table.rows[0] == ("5", "9 [8, 10] (n=40)", "5", "b")
    assert [row[0] for row in table.rows] == ["5", "3", "4", "1"], "trial 2 was stopped early"
    assert [row[0] for row in best_trials(section("min")).rows] == ["1", "4", "3", "5"]


def test_a_sweep_without_a_whole_trial_yet_is_shown() -> None:
    shown = section(trials=[trial(2, "b", 1.0, whole=False)])
    assert best_trials(shown).rows == ()
    assert "0 with the whole budget" in note_of(shown)
    assert "None of 1 trials was given the whole budget yet" in said(shown)


def said(run: Run) -> str:
    verdict = Sweeps().verdict([run])
    assert verdict is not None
    assert_brief(verdict)
    return " ".join([verdict.sentence, *verdict.cautions, *verdict.details])


def test_the_verdict_names_the_best_trial_and_warns_of_it() -> None:
    best, settings = "The best of 4 whole trials has gain = 9.00", "Its settings: rate = 5, kind = b."
    assert said(section()) == f"{best}. The best of many is too good on average: measure it again. {settings}"
    again = section(again=Estimate(1.25, 1.0, 1.5, 40))
    assert said(again) == f"{best}; measured again, from seeds that chose nothing, 1.25. {settings}"
    assert "Measured again, from seeds that chose nothing, the best settings have 1.25 [1, 1.5]" in best_trials(again).note
    assert "gain = 2.00" in said(section("min"))
