"""Many searches at once: tasks in, outcomes out, and a batch that stays full (continuous batching).

A search is started from a task and then advanced one visit at a time, in lock-step with others so that a scorer can batch
them. `run_searches` lets new ones join as others leave. What comes out does not depend on the batch: every search owns its
randomness, scorers promise the same answers in any company, and of a target's restarts exactly those up to the first that
hits are kept, also where a later one was faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Literal, Protocol, TypeVar

from torch import Tensor

from engine.triggers.batch_finder import BatchFinder
from engine.triggers.hits import Reading
from engine.triggers.scorer import Incumbent
from engine.triggers.settings import SearchSettings
from engine.triggers.targets import target_seed

Stop = Literal["satisfied", "converged", "limit"]
"""Why a search ended: a hit, no swap that it would try helps, or out of sweeps."""


@dataclass(frozen=True, eq=False)
class Task:
    """One search: a target and the number of the restart.

    Args:
        key: names the target.
        target: word ids (T,) int64, the end included.
        restart: counted from 0.
        seed: of the target's search.
    """

    key: str
    target: Tensor
    restart: int
    seed: int


def tasks_of(targets: Mapping[str, Tensor], restarts: int, seed: int) -> Iterator[Task]:
    """The first restart of every target, then the second, so that fewer are begun in vain.

    Args:
        targets: word ids (T,) int64 by key, the end included.
        restarts: of each target.
        seed: master seed.
    """
    for restart in range(restarts):
        for key, target in targets.items():
            yield Task(key, target, restart, target_seed(seed, key))


@dataclass(frozen=True)
class Outcome:
    """What a search came to.

    Args:
        task: what was searched.
        words: ids of the best input found; None where it is none of words.
        loss: its objective.
        reading: how likely the target's words and the input are.
        sweeps: sweeps begun, each of as many visits as an input has words.
        visits: steps of the search.
        accepted: visits that moved it.
        candidates: inputs tried.
        loss_by_sweep: the best loss at the start and after each sweep, the last one possibly cut short.
        stopped: why it ended.
        projected: of a continuous input, how likely the target's words are after the words nearest to it.
    """

    task: Task
    words: tuple[int, ...] | None
    loss: float
    reading: Reading
    sweeps: int
    visits: int
    accepted: int
    candidates: int
    loss_by_sweep: tuple[float, ...]
    stopped: Stop
    projected: Reading | None = None


@dataclass(eq=False)
class SearchState:
    """A search under way; techniques add what they remember.

    Args:
        task: what is searched.
        best: the best input so far.
    """

    task: Task
    best: Incumbent
    visits: int = 0
    accepted: int = 0
    candidates: int = 0
    loss_by_sweep: list[float] = field(default_factory=list)
    stopped: Stop | None = None

    @property
    def finished(self) -> bool:
        """Whether it is over."""
        return self.stopped is not None

    def outcome(self) -> Outcome:
        """What it came to, once finished."""
        assert self.stopped is not None, "the search goes on"
        return Outcome(
            task=self.task,
            words=tuple(self.best.words.tolist()),
            loss=self.best.loss,
            reading=self.best.reading,
            sweeps=len(self.loss_by_sweep) - 1,
            visits=self.visits,
            accepted=self.accepted,
            candidates=self.candidates,
            loss_by_sweep=tuple(self.loss_by_sweep),
            stopped=self.stopped,
        )


StateT = TypeVar("StateT", bound=SearchState)


class Stepwise(Protocol[StateT]):
    """A method that advances searches visit by visit, ready to search."""

    @property
    def settings(self) -> SearchSettings:
        """How long it goes on, and whether a target's later restarts are dropped after a hit."""

    def start(self, tasks: Sequence[Task]) -> list[StateT]:
        """A state for each task, possibly finished already."""

    def step(self, states: Sequence[StateT]) -> None:
        """Advances each unfinished search by one visit.

        States change only after the model was asked for the last time, so that a step that ran out of memory can be repeated.
        """


def run_searches(
    method: Stepwise[StateT],
    tasks: Iterable[Task],
    finder: BatchFinder,
    on_step: Callable[[int], None] | None = None,
) -> Iterator[Outcome]:
    """Runs searches side by side.

    Args:
        method: what advances them.
        tasks: read as they are needed; the restarts of a key in rising order.
        finder: searches at once. With `stop_on_batch_mean` its size is also which tasks stop as one: consecutive ones.
        on_step: called after every step with the number of candidates tried so far.

    Yields:
        The outcomes, a target's restarts in rising order. With `stop_on_hit` those after its first satisfied one are left
        out, whether they were run or not.

    Raises:
        ConfigError: a single search does not fit into the device's memory.
        CheckpointError: the model's losses are no numbers.
    """
    return _Batch(method, iter(tasks), finder, on_step).run()


class _Restarts:
    """The restarts of each target that have begun and are not yet reported, and its first satisfied one."""

    def __init__(self, stop_on_hit: bool) -> None:
        self.stop_on_hit = stop_on_hit
        self._satisfied: dict[str, int] = {}
        self._begun: dict[str, dict[int, Outcome | None]] = defaultdict(dict)

    def wanted(self, task: Task) -> bool:
        """Whether no lower restart is known to be satisfied."""
        return task.restart <= self._satisfied.get(task.key, task.restart)

    def begin(self, task: Task) -> None:
        """Notes that a restart runs."""
        self._begun[task.key][task.restart] = None

    def end(self, outcome: Outcome) -> Iterator[Outcome]:
        """Notes how one ended; yields what can now be reported, that is all before the first that still runs."""
        task = outcome.task
        if self.stop_on_hit and outcome.stopped == "satisfied" and self.wanted(task):
            self._satisfied[task.key] = task.restart
        begun = self._begun[task.key]
        begun[task.restart] = outcome
        for restart, ended in list(begun.items()):
            if ended is None:
                return
            if self.wanted(ended.task):
                yield ended
            del begun[restart]


class _Batch(Generic[StateT]):
    """The searches that run, and what waits."""

    def __init__(
        self,
        method: Stepwise[StateT],
        tasks: Iterator[Task],
        finder: BatchFinder,
        on_step: Callable[[int], None] | None,
    ) -> None:
        self.method, self.finder, self.on_step = method, finder, on_step
        self.restarts = _Restarts(method.settings.stop_on_hit)
        self.waiting = (task for task in tasks if self.restarts.wanted(task))
        self.active: list[StateT] = []
        self.candidates = 0

    def run(self) -> Iterator[Outcome]:
        while True:
            while self._join():
                yield from self._leave()
            if not self.active:
                return
            before = sum(state.candidates for state in self.active)
            self.finder.in_pieces(self.method.step, self.active)
            self.candidates += sum(state.candidates for state in self.active) - before
            if self.on_step is not None:
                self.on_step(self.candidates)
            yield from self._leave()

    def _join(self) -> bool:
        """Starts as many searches as fit; returns whether there were any."""
        fixed = self.method.settings.stop_on_batch_mean and self.active
        joining = [] if fixed else list(islice(self.waiting, max(0, self.finder.size - len(self.active))))
        for task in joining:
            self.restarts.begin(task)
        self.finder.in_pieces(lambda tasks: self.active.extend(self.method.start(tasks)), joining)
        return bool(joining)

    def _leave(self) -> Iterator[Outcome]:
        """Reports the searches that are finished, and drops those that a hit has made pointless."""
        for state in self.active:
            if state.finished:
                yield from self.restarts.end(state.outcome())
        self.active = [state for state in self.active if not state.finished and self.restarts.wanted(state.task)]
