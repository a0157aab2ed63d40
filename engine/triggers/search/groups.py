"""Targets that are searched for together from first to last, by methods that cannot take in others meanwhile.

These are the relaxation, whose inputs are optimised as one tensor, batches that stop as one, and methods of one's own that give
no more than `search_all`. What is kept of them is whole restarts of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.search.batch import Outcome, Task
from parley.engine.triggers.search.batch_finder import BatchFinder
from parley.engine.triggers.search.side_by_side import NOT_BEGUN, Begun, SideBySide

SearchAll = Callable[[Iterable[Task], BatchFinder], Iterator[Outcome]]
"""`Method.search_all`."""


class Groups(SideBySide):
    """The `SideBySide` of such a method: who joins while nobody is searched for is a group.

    Args:
        search_all: searches for a group.
        settings: of the method.
        finder: searches at once.
    """

    def __init__(self, search_all: SearchAll, settings: SearchSettings, finder: BatchFinder) -> None:
        self.search_all, self.settings, self.finder = search_all, settings, finder
        self._tasks: dict[str, Sequence[Task]] = {}
        self._known: dict[str, dict[int, Outcome]] = {}
        self._outcomes: Iterator[Outcome] | None = None

    @property
    def keys(self) -> Collection[str]:
        return self._tasks.keys()

    @property
    def num_free(self) -> int:
        return 0 if self._tasks else self.finder.size

    def add(self, tasks: Sequence[Task], begun: Begun = NOT_BEGUN) -> None:
        assert self._outcomes is None, "a group is searched for to its end before another one joins"
        self._tasks[tasks[0].key] = tasks
        self._known[tasks[0].key] = {outcome.task.restart: outcome for outcome in begun.outcomes}

    def step(self) -> list[Outcome]:
        """The restarts that are known, then one outcome after the other."""
        if self._outcomes is None:
            return self._begin()
        outcome = next(self._outcomes, None)
        if outcome is None:
            self._tasks, self._known, self._outcomes = {}, {}, None
            return []
        self._known[outcome.task.key][outcome.task.restart] = outcome
        return [outcome]

    def begun(self, key: str) -> Begun:
        return Begun([*self._known[key].values()])

    def share(self, key: str) -> float:
        return len(self._known[key]) / len(self._tasks[key])

    def tried_for(self, key: str) -> int:
        return sum(outcome.candidates for outcome in self._known[key].values())

    def _begin(self) -> list[Outcome]:
        first = self._whole_restarts()
        for key, known in self._known.items():
            self._known[key] = {restart: outcome for restart, outcome in known.items() if restart < first}
        left = [
            tasks[restart]
            for restart in range(first, max(map(len, self._tasks.values())))
            for key, tasks in self._tasks.items()
            if restart < len(tasks) and not self._is_hit(key)
        ]
        self._outcomes = self.search_all(left, self.finder)
        return [outcome for known in self._known.values() for outcome in known.values()]

    def _whole_restarts(self) -> int:
        """How many restarts are known of the whole group, so that the others are searched for as they would have been."""
        num = min((len(known) for key, known in self._known.items() if not self._is_hit(key)), default=self.settings.restarts)
        while self.settings.stop_on_batch_mean and num * len(self._tasks) % self.finder.size:
            # Batches are consecutive tasks.
            num -= 1
        return num

    def _is_hit(self, key: str) -> bool:
        return self.settings.stop_on_hit and any(known.stopped == "satisfied" for known in self._known[key].values())
