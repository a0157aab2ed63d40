"""Sweeps are told by their folder alone: a ledger that was closed anywhere goes on as if it had not been."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import Silent
from parley.envs.core.errors import RunError
from parley.tune.config import SweepConfig
from parley.tune.plan import Choice, Integer, Real
from parley.tune.sweep import SWEEP_TRIALS
from parley.tune.trial import HOPELESS, PROPOSED, Ledger, Setup, Study, best_row
from tests.tune import plans

SAMPLES = 16
"""More than the first ten, which Optuna draws without looking back."""
BUDGETS = (2, 8)
PLAN = replace(
    plans.SMALL, space={"temperature": Real(0.01, 1.0, log=True), "max_turns": Integer(4, 20), "judge": Choice(("a", "b"))}
)


def setup_of(path: Path) -> Setup:
    return Setup(plan=PLAN, base=None, budgets=BUDGETS, repeats=1, seed=3, run=str(path), folder=path)


class Watched(Silent):
    """A reporter that keeps the newest line."""

    line = ""

    def advance(self, done: float, note: str = "") -> None:
        self.line = f"{done}: {note}"


def opened(path: Path) -> RunFolder:
    return RunFolder.open(path, SweepConfig(sweep="x"), job="sweep", schema=SWEEP_TRIALS)


def ledger_of(folder: RunFolder, reporter: Silent | None = None) -> Ledger:
    setup = setup_of(folder.path)
    return Ledger(folder, setup, Study(PLAN.space, PLAN.direction, setup.seed), SAMPLES, reporter or Silent())


def worth(parameters: dict[str, Any], budget: int) -> Estimate:
    value = math.log(parameters["temperature"]) * (parameters["judge"] == "a") - abs(parameters["max_turns"] - 9) / budget
    return Estimate(value, value - 1, value + 1, budget)


def values(number: int, parameters: dict[str, Any]) -> dict[int, Estimate]:
    """What trials report; each third one is stopped at the first budget."""
    return {budget: worth(parameters, budget) for budget in BUDGETS[: 1 if number % 3 == 0 else 2]}


def sweep(path: Path, survives: Callable[[int, str], bool]) -> list[dict[str, Any]]:
    """Runs all trials one after the other, in a new ledger each time that `survives(trial, moment)` says no."""
    asked: set[tuple[int, str]] = set()

    def dies(number: int, moment: str) -> bool:
        first = (number, moment) not in asked
        asked.add((number, moment))
        return first and not survives(number, moment)

    left = SAMPLES
    while left:
        with opened(path) as folder:
            ledger = ledger_of(folder)
            left = ledger.num_left
            while ledger.num_left:
                number, parameters = ledger.next_trial()
                if dies(number, "proposed"):
                    break
                ledger.end(number, values(number, parameters))
                left = ledger.num_left
                if dies(number, "ended"):
                    break
            else:
                assert ledger.complete
    return RunFolder.load(path).read_rows().to_pylist()


@pytest.mark.parametrize("moment", ["proposed", "ended"])
@pytest.mark.parametrize("every", [1, 5])
def test_an_interrupted_sweep_makes_the_trials_of_an_undisturbed_one(tmp_path: Path, moment: str, every: int) -> None:
    undisturbed = sweep(tmp_path / "a", lambda number, when: True)
    disturbed = sweep(tmp_path / "b", lambda number, when: when != moment or number % every != 0)
    assert disturbed == undisturbed
    assert len({row["parameters"] for row in undisturbed}) == SAMPLES
    events = [event["number"] for event in RunFolder.load(tmp_path / "b").events() if event["kind"] == PROPOSED]
    assert events == list(range(SAMPLES)), "no trial is proposed twice"


def test_the_search_looks_back(tmp_path: Path) -> None:
    late = [json.loads(row["parameters"]) for row in sweep(tmp_path, lambda number, when: True)[10:]]
    assert sum(parameters["judge"] == "b" for parameters in late) >= len(late) - 1, "b is better at every temperature but 1"


def test_a_trial_stopped_early_is_never_the_best(tmp_path: Path) -> None:
    rows = sweep(tmp_path, lambda number, when: True)
    assert [row["whole"] for row in rows] == [number % 3 != 0 for number in range(SAMPLES)]
    best = best_row(rows, "max")
    assert best is not None
    assert best["value"] == max(row["value"] for row in rows if row["whole"])
    assert [entry["budget"] for entry in best["by_budget"]] == list(BUDGETS)
    assert best_row(rows[:1], "max") is None, "trial 0 was stopped early"


def test_rows_are_there_as_soon_as_a_trial_has_ended(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        reporter = Watched()
        ledger = ledger_of(folder, reporter)
        for _ in range(2):
            number, parameters = ledger.next_trial()
            ledger.end(number, values(number, parameters))
        assert [row["item_key"] for row in RunFolder.load(tmp_path).read_rows().to_pylist()] == ["00000", "00001"]
        assert reporter.line.startswith("2: best ")
        assert reporter.line.endswith("(trial 1), 1 stopped early")


def test_failed_trials_are_tried_again_with_the_same_settings(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        ledger = ledger_of(folder)
        number, first = ledger.next_trial()
        ledger.fail(number, "it broke")
        number, second = ledger.next_trial()
        ledger.end(number, values(number, second))
    (failed, _) = RunFolder.load(tmp_path).read_rows().to_pylist()
    assert (failed["status"], failed["error"], json.loads(failed["parameters"])) == ("error", "it broke", first)
    with opened(tmp_path) as folder:
        ledger = ledger_of(folder)
        assert ledger.next_trial() == (0, first)
        assert ledger.next_trial()[0] == 2


def test_a_sweep_gives_up_when_all_trials_fail_alike(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        ledger = ledger_of(folder)
        for reason in ("one", "two", *["no model"] * (HOPELESS - 1)):
            ledger.fail(ledger.next_trial()[0], reason)
        with pytest.raises(RunError, match="no model"):
            ledger.fail(ledger.next_trial()[0], "no model")


def test_one_success_is_hope(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        ledger = ledger_of(folder)
        number, parameters = ledger.next_trial()
        ledger.end(number, values(number, parameters))
        for _ in range(HOPELESS + 1):
            ledger.fail(ledger.next_trial()[0], "no model")
