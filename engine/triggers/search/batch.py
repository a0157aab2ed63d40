"""What a batch of searches is made of: tasks in, outcomes out, states in between, and a method that advances them.

A search is started from a task and then advanced one visit at a time, in lock-step with others so that a scorer can batch
them (`side_by_side.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from torch import Tensor

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.scorer import Incumbent
from parley.engine.triggers.targets import target_seed

Saved = dict[str, Any]
"""A search under way, as JSON types."""
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
    """The first restart of every target, then the second, and so on.

    Args:
        targets: word ids (T,) int64 by key, the end included.
        restarts: of each target.
        seed: master seed.
    """
    for restart in range(restarts):
        for key, target in targets.items():
            # Of its own, so that a search is told apart by it.
            yield Task(key, target.clone(), restart, target_seed(seed, key))


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
        refused: candidates among them that the victim's rules do not allow.
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
    refused: int = 0


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
    refused: int = 0
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
            refused=self.refused,
        )


StateT = TypeVar("StateT", bound=SearchState)


class Stepwise(Protocol[StateT]):
    """A method that advances searches visit by visit, ready to search."""

    @property
    def settings(self) -> SearchSettings:
        """How long it goes on, and whether a target's later restarts are dropped after a hit."""

    @property
    def most_visits(self) -> int:
        """Visits after which a search ends in any case."""

    def start(self, tasks: Sequence[Task]) -> list[StateT]:
        """A state for each task, possibly finished already."""

    def step(self, states: Sequence[StateT]) -> None:
        """Advances each unfinished search by one visit.

        States change only after the model was asked for the last time, so that a step that ran out of memory can be repeated.
        """

    def save(self, state: StateT) -> Saved | None:
        """What the search can be taken up from; None where it has to be begun again."""

    def restore(self, tasks: Sequence[Task], saved: Sequence[Saved]) -> list[StateT]:
        """The states that were saved of those tasks."""
