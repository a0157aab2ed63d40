"""What a sweep knows of its trials, all of it read from and written to its run folder, row by row and event by event.

Nothing of Ray Tune's own state is kept, which it stores in a format that can run code when it is read. The settings of a trial
are an event before it starts, its values a row when it ends; whoever opens the folder knows as much as who was killed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK, error_row, ok_row
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import Reporter
from parley.envs.core.errors import RunError
from parley.envs.core.trust import require_trust_in
from parley.tune.trial import Setup, trial_folder, trial_name

if TYPE_CHECKING:
    # Optuna takes a while to load, which help need not wait for.
    from parley.tune.study import Study

PROPOSED = "trial"
"""Kind of the event that says which settings a trial is given; written before it starts."""
HOPELESS = 3
"""Failures for one reason, and no success, after which a sweep gives up."""

Row = Mapping[str, Any]


class Ledger:
    """The trials of a sweep: which are left, what the next one is given, and what each was worth.

    Args:
        folder: the sweep's run, opened for writing.
        setup: what all trials have in common.
        study: proposes settings; knows nothing yet.
        num_trials: all of them.
        reporter: hears of every trial that ends, and how the others stand.
    """

    def __init__(self, folder: RunFolder, setup: Setup, study: Study, num_trials: int, reporter: Reporter) -> None:
        self._folder, self._setup, self._num_trials, self._reporter = folder, setup, num_trials, reporter
        self._study = study
        self._rows = {int(row["item_key"]): row for row in folder.read_rows().to_pylist() if row["status"] == OK}
        proposed = [
            event for event in folder.events({PROPOSED: {"number": int, "parameters": dict}}) if event["kind"] == PROPOSED
        ]
        self._known = {event["number"]: event["parameters"] for event in proposed}
        self._known |= {number: json.loads(row["parameters"]) for number, row in self._rows.items()}
        require_trust_in(self._known)
        self._reasons: list[str] = []
        self._news = ""
        for number, parameters in sorted(self._known.items()):
            self._study.recall(number, parameters)
            if number in self._rows:
                self._study.tell(number, values_of(self._rows[number]), whole=self._rows[number]["whole"])
        # A trial that was interrupted, or failed, goes first and is given what it was given before.
        self._left = deque(number for number in range(num_trials) if number not in self._rows)

    def __getstate__(self) -> dict[str, Any]:
        # Ray Tune pickles its searcher and callbacks for a restart that is not ours; locks and screens cannot be.
        return {}

    @property
    def num_left(self) -> int:
        """Trials that have not been handed out."""
        return len(self._left)

    @property
    def num_ended(self) -> int:
        """Trials that have ended, well or not."""
        return len(self._rows) + len(self._reasons)

    @property
    def complete(self) -> bool:
        """Whether every trial has ended."""
        return self.num_ended == self._num_trials

    @property
    def rows(self) -> list[Row]:
        """The rows of trials that worked, in the order of their numbers."""
        return [row for _, row in sorted(self._rows.items())]

    def next_trial(self) -> tuple[int, dict[str, Any]]:
        """The number and the settings of the trial to start now; there must be one left.

        Raises:
            RunError: the disk refuses.
        """
        number = self._left.popleft()
        if number in self._known:
            return number, dict(self._known[number])
        parameters = self._study.propose(number)
        self._folder.event(PROPOSED, number=number, parameters=parameters)
        self._known[number] = parameters
        return number, parameters

    def hear(self, news: str) -> None:
        """Tells the reporter how the running trials stand."""
        self._news = news
        self._tell()

    def take_back(self, number: int) -> None:
        """Puts a trial that lost its process before those that have not begun."""
        self._left.appendleft(number)

    def end(self, number: int, values: Mapping[int, Estimate]) -> None:
        """Stores what a trial was worth.

        Args:
            number: of the trial.
            values: by rising budget, at least one.

        Raises:
            RunError: the disk refuses.
        """
        *_, (largest, last) = values.items()
        whole = largest == self._setup.budgets[-1]
        row = {
            **ok_row("", self._setup.seed),
            **last.to_json(),
            "budget": largest,
            "whole": whole,
            "by_budget": [{"budget": budget, "value": value.value} for budget, value in values.items()],
            **self._common(number),
        }
        self._write(number, row)
        self._rows[number] = row
        self._study.tell(number, values_of(row), whole=whole)
        self._tell()

    def fail(self, number: int, reason: str) -> None:
        """Stores that a trial failed.

        Args:
            number: of the trial.
            reason: why, in one line or some.

        Raises:
            RunError: the disk refuses; or all trials fail, for one reason.
        """
        self._write(number, error_row("", self._setup.seed, reason) | self._common(number))
        self._study.fail(number)
        self._reasons.append(reason)
        self._tell()
        if not self._rows and self._reasons[-HOPELESS:] == [reason] * HOPELESS:
            raise nothing_worked(self._folder, reason)

    def _common(self, number: int) -> dict[str, Any]:
        name = trial_name(number)
        return {"item_key": name, "parameters": json.dumps(self._known[number], sort_keys=True), "runs": trial_folder(number)}

    def _write(self, number: int, row: Row) -> None:
        self._folder.write_shard(trial_name(number), [row])

    def _tell(self) -> None:
        early = sum(not row["whole"] for row in self._rows.values())
        best = best_row(self.rows, self._setup.plan.direction)
        parts = (
            f"best {best['value']:.4g} (trial {int(best['item_key'])})" if best else "",
            f"{early} stopped early" if early else "",
            f"{len(self._reasons)} failed" if self._reasons else "",
            self._news,
        )
        self._reporter.advance(self.num_ended, ", ".join(filter(None, parts)))


def values_of(row: Row) -> dict[int, float]:
    """What a trial was worth, by rising budget."""
    return {entry["budget"]: entry["value"] for entry in row["by_budget"]}


def best_row(rows: Sequence[Row], direction: str) -> Row | None:
    """The best of the trials that were given the whole budget, the earlier one of two alike; None where there is none.

    Args:
        rows: in the order of the trials' numbers.
        direction: "max" or "min".
    """
    whole = [row for row in rows if row["status"] == OK and row["whole"]]
    sign = 1 if direction == "max" else -1
    return max(whole, key=lambda row: sign * row["value"], default=None)


def nothing_worked(folder: RunFolder, reason: str | None) -> RunError:
    """The error of a sweep without any result."""
    fix = "mend what it says, then the same command tries the trials again"
    return RunError("no trial of the sweep came to its end", where=folder.path, got=reason, fix=fix)
