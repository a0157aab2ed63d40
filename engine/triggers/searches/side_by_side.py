"""Many searches at once: a batch that stays full, because new ones join as others leave (continuous batching).

Outcomes do not depend on the batch: every search owns its randomness, scorers promise the same answers in any company, and of
a target's restarts exactly those up to the first that hits are kept, also if a later one was faster. An interrupted search
gives a state from which it can resume.

    SteppedSearches   methods that go visit by visit; targets join at any moment
    ByPrompt          targets with prompts of their own: to a method each prompt is a model of its own
    Groups            targets that are searched for together to the end: the relaxation, whose inputs are optimised as one
                      tensor, batches that stop as one, and methods of one's own that have no more than `search_all`;
                      whole restarts of a group are saved
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Generic, Protocol

from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.searches.batch import Outcome, Saved, StateT, Stepper, Task
from parley.engine.triggers.searches.batch_finder import BatchFinder

AHEAD = 0.05
"""Most candidates, as a share of all, that are tried in restarts which a hit of an earlier one makes needless."""


@dataclass(frozen=True)
class StartedSearch:
    """The progress of the search for a target, from which it can resume.

    Args:
        outcomes: of the restarts that have ended.
        saved: of those under way, by number.
    """

    outcomes: Sequence[Outcome] = ()
    saved: Mapping[int, Saved] = field(default_factory=dict)


NOT_BEGUN = StartedSearch()


class BatchedSearch(Protocol):
    """Targets that are searched for together; new ones join as others end."""

    @property
    def keys(self) -> Collection[str]:
        """Return the targets whose search has not ended."""

    @property
    def num_free(self) -> int:
        """Return the free places of the batch; restarts that an earlier one may make needless leave their places free."""

    def add(self, tasks: Sequence[Task], begun: StartedSearch = NOT_BEGUN) -> None:
        """Add a target: its restarts in rising order, and the progress of an earlier search for it."""

    def step(self) -> list[Outcome]:
        """Run for a while; return the outcomes that are now certain to count, of each target in rising order of restarts."""

    def begun(self, key: str) -> StartedSearch:
        """Return the progress of the search for a target that has not ended."""

    def share(self, key: str) -> float:
        """Return the same as an estimated share of its work, 0 to 1."""

    def tried_for(self, key: str) -> int:
        """Return the number of candidates that were tried for it."""


def run_searches(
    method: Stepper[StateT],
    tasks: Iterable[Task],
    finder: BatchFinder,
    on_step: Callable[[int], None] | None = None,
    ahead: float = AHEAD,
) -> Iterator[Outcome]:
    """Run searches side by side.

    Args:
        method: advances them.
        tasks: the restarts of a key in rising order.
        finder: searches at once. With `stop_on_batch_mean` its size is also which tasks stop as one: consecutive ones.
        on_step: called after every step with the number of candidates tried so far.
        ahead: as in `SteppedSearches`.

    Yields:
        The outcomes, a target's restarts in rising order. With `stop_on_hit` those after its first satisfied one are left
        out, whether they were run or not.

    Raises:
        ConfigError: a single search does not fit into the device's memory.
        CheckpointError: the model's losses are no numbers.
    """
    searches, restarts = SteppedSearches(method, finder, ahead), defaultdict[str, list[Task]](list)
    for task in tasks:
        restarts[task.key].append(task)
    waiting = deque(restarts.values())
    while waiting or searches.keys:
        # Not all at once, because each step goes through all targets.
        while waiting and (len(searches.keys) < 2 * finder.size or method.settings.stop_on_batch_mean):
            searches.add(waiting.popleft())
        before = searches.tried
        outcomes = searches.step()
        if on_step is not None and searches.tried > before:
            on_step(searches.tried)
        yield from outcomes


class _Target(Generic[StateT]):
    """The restarts of a target: waiting, running, ended, and reported."""

    def __init__(self, tasks: Sequence[Task], begun: StartedSearch, stop_on_hit: bool) -> None:
        self.stop_on_hit = stop_on_hit
        self.waiting = deque(tasks)
        self.running: dict[int, StateT] = {}
        self.ended = {outcome.task.restart: outcome for outcome in begun.outcomes}
        self.order = [task.restart for task in tasks]
        self.num_told = 0

    @property
    def first_hit(self) -> float:
        """Return the first restart that is known to be satisfied, if that makes later ones needless."""
        hits = (restart for restart, outcome in self.ended.items() if outcome.stopped == "satisfied")
        return min(hits, default=inf) if self.stop_on_hit else inf

    @property
    def next(self) -> Task | None:
        """Return the task that may start next."""
        while self.waiting and (self.waiting[0].restart in self.ended or self.waiting[0].restart in self.running):
            self.waiting.popleft()
        return self.waiting[0] if self.waiting and self.waiting[0].restart < self.first_hit else None

    @property
    def num_certain(self) -> int:
        """Return the number of tasks that may start and are certain to count."""
        task = self.next
        if task is None or self.is_ahead(task.restart):
            return 0
        return 1 if self.stop_on_hit else len(self.waiting)

    @property
    def is_over(self) -> bool:
        """Return True if no restart runs or has to run."""
        return not self.running and self.next is None

    def is_ahead(self, restart: int) -> bool:
        """Return True if an earlier restart that has not ended may make this one needless."""
        return self.stop_on_hit and any(earlier < restart and earlier not in self.ended for earlier in self.order)

    def settle(self) -> int:
        """Move finished searches to `ended` and drop those that a hit made needless; return the candidates of the dropped."""
        for restart, state in list(self.running.items()):
            if state.finished:
                self.ended[restart] = self.running.pop(restart).outcome()
        first = self.first_hit
        dropped = [self.running.pop(restart) for restart in list(self.running) if restart > first]
        late = [self.ended.pop(restart) for restart in list(self.ended) if restart > first]
        return sum(state.candidates for state in dropped) + sum(outcome.candidates for outcome in late)

    def tell(self) -> Iterator[Outcome]:
        """Yield the outcomes before the first restart that has not ended."""
        while self.num_told < len(self.order) and self.order[self.num_told] in self.ended:
            yield self.ended[self.order[self.num_told]]
            self.num_told += 1


class SteppedSearches(BatchedSearch, Generic[StateT]):
    """The `BatchedSearch` of a method that goes visit by visit.

    A place goes to a restart that is certain to count: the next one of a target for which no search runs; targets that have
    begun come first. Only the remaining places go to restarts ahead of others of their target, and only as long as few
    candidates are tried in them, because a hit makes them needless.

    Args:
        method: advances searches.
        finder: searches at once.
        ahead: most candidates that may be tried in vain, as a share of all; 1 for no limit but the places.
    """

    def __init__(self, method: Stepper[StateT], finder: BatchFinder, ahead: float = AHEAD) -> None:
        self.method, self.finder, self.ahead = method, finder, ahead
        self.tried = self.in_vain = 0
        self._targets: dict[str, _Target[StateT]] = {}
        self._as_one = method.settings.stop_on_batch_mean
        self._ended: list[int] = []
        self._most = 0

    @property
    def keys(self) -> Collection[str]:
        return self._targets.keys()

    @property
    def num_free(self) -> int:
        certain = sum(target.num_certain for target in self._targets.values())
        return max(0, self.finder.size - certain - len(self._at_work(ahead=False)))

    def add(self, tasks: Sequence[Task], begun: StartedSearch = NOT_BEGUN) -> None:
        target = self._targets[tasks[0].key] = _Target[StateT](tasks, begun, self.method.settings.stop_on_hit)
        first = target.first_hit
        states = {restart: saved for restart, saved in begun.saved.items() if restart < first}
        taken_up = [(task, states[task.restart]) for task in tasks if task.restart in states]
        self.finder.in_pieces(lambda piece: self._join(self.method.restore(*map(list, zip(*piece, strict=True)))), taken_up)

    def step(self) -> list[Outcome]:
        began = self.method.clock()
        outcomes = self._leave()
        while joining := self._joining():
            self.finder.in_pieces(lambda tasks: self._join(self.method.start(tasks)), joining)
            outcomes += self._leave()
        states = self._at_work(ahead=False)
        states += self._at_work(ahead=True)[: min(max(0, self.finder.size - len(states)), self._num_ahead())]
        before = [state.candidates for state in states]
        self.finder.in_pieces(self.method.step, states)
        tried = [state.candidates - already for state, already in zip(states, before, strict=True)]
        self.tried, self._most = self.tried + sum(tried), max([self._most, *tried])
        self.method.spend(states, self.method.clock() - began, tried)
        return outcomes + self._leave()

    def begun(self, key: str) -> StartedSearch:
        target = self._targets[key]
        saved = {restart: self.method.save(state) for restart, state in target.running.items()}
        return StartedSearch(
            list(target.ended.values()), {restart: state for restart, state in saved.items() if state is not None}
        )

    def share(self, key: str) -> float:
        target = self._targets[key]
        under_way = sum(min(0.9, self._share_of(state)) for state in target.running.values())
        return (len(target.ended) + under_way) / len(target.order)

    def _share_of(self, state: StateT) -> float:
        """Return the share of a search that is done, by the usual number of visits and by its limits."""
        most_visits, most_candidates = max(1, self.method.most_visits), self.method.settings.max_candidates
        usual = max(1, sum(self._ended) / len(self._ended)) if self._ended else most_visits
        of_candidates = state.candidates / most_candidates if most_candidates else 0.0
        return max(state.visits / usual, state.visits / most_visits, of_candidates)

    def tried_for(self, key: str) -> int:
        target = self._targets[key]
        ended = sum(outcome.candidates for outcome in target.ended.values())
        return ended + sum(state.candidates for state in target.running.values())

    def _at_work(self, *, ahead: bool) -> list[StateT]:
        """Return the running searches that are certain to count, or the others, lower restarts first."""
        states = [
            state
            for target in self._targets.values()
            for restart, state in target.running.items()
            if target.is_ahead(restart) == ahead
        ]
        return sorted(states, key=lambda state: state.task.restart) if ahead else states

    def _num_ahead(self) -> int:
        """Return the number of searches that may make a visit ahead, so that few candidates are tried in vain."""
        if self.ahead >= 1:
            return self.finder.size
        at_risk = sum(state.candidates for state in self._at_work(ahead=True))
        for target in self._targets.values():
            at_risk += sum(target.ended[restart].candidates for restart in target.ended if target.is_ahead(restart))
        left = self.ahead * self.tried - self.in_vain - at_risk
        return max(0, int(left // self._most)) if self._most else 0

    def _joining(self) -> list[Task]:
        """Remove and return as many waiting tasks as there are places for."""
        num_certain, num_ahead = len(self._at_work(ahead=False)), len(self._at_work(ahead=True))
        if self._as_one and num_certain:
            return []
        tasks: list[Task] = []
        while num_certain < self.finder.size:
            ranks = {target: rank for target in self._targets.values() if (rank := self._rank(target)) is not None}
            target = min(ranks, key=ranks.__getitem__, default=None)
            if target is None:
                break
            # Searches ahead make room for those that are certain to count.
            is_ahead, _ = ranks[target]
            if is_ahead and num_ahead >= min(self.finder.size - num_certain, self._num_ahead()):
                break
            num_certain, num_ahead = num_certain + (not is_ahead), num_ahead + is_ahead
            tasks.append(target.waiting.popleft())
        return tasks

    def _rank(self, target: _Target[StateT]) -> tuple[bool, int] | None:
        """Return whether a target's next restart is ahead of others, and its order among them; None if there is none."""
        task = target.next
        if task is None:
            return None
        is_ahead = target.is_ahead(task.restart)
        # Targets that have begun come first; where a batch stops as one, the first restart of every target does.
        return is_ahead, task.restart if is_ahead or self._as_one else int(task.restart == target.order[0])

    def _join(self, states: Sequence[StateT]) -> None:
        for state in states:
            self._targets[state.task.key].running[state.task.restart] = state

    def _leave(self) -> list[Outcome]:
        """Return the outcomes that can be reported, and remove targets that are over."""
        outcomes: list[Outcome] = []
        for key, target in list(self._targets.items()):
            running = len(target.running)
            self.in_vain += target.settle()
            if running > len(target.running) or not target.num_told:
                reported = list(target.tell())
                outcomes += reported
                self._ended += [outcome.visits for outcome in reported]
            if target.is_over:
                del self._targets[key]
        return outcomes


class ByPrompt(BatchedSearch):
    """A batch of searches of several compositions.

    Args:
        begin: the searches of a target, by its key; those of its prompt where it is not the first.
        size: targets at once.
    """

    def __init__(self, begin: Callable[[str], BatchedSearch], size: int) -> None:
        self._begin, self._size = begin, size
        self._of: dict[str, BatchedSearch] = {}

    @property
    def keys(self) -> Collection[str]:
        return self._of.keys()

    @property
    def num_free(self) -> int:
        return max(0, self._size - len(self._of))

    def add(self, tasks: Sequence[Task], begun: StartedSearch = NOT_BEGUN) -> None:
        key = tasks[0].key
        self._of[key] = self._begin(key)
        self._of[key].add(tasks, begun)

    def step(self) -> list[Outcome]:
        """Make a step of each search."""
        outcomes = [
            outcome for searches in {id(batch): batch for batch in self._of.values()}.values() for outcome in searches.step()
        ]
        self._of = {key: searches for key, searches in self._of.items() if key in searches.keys}
        return outcomes

    def begun(self, key: str) -> StartedSearch:
        return self._of[key].begun(key)

    def share(self, key: str) -> float:
        return self._of[key].share(key)

    def tried_for(self, key: str) -> int:
        return self._of[key].tried_for(key)


SearchAll = Callable[[Iterable[Task], BatchFinder], Iterator[Outcome]]
"""`Method.search_all`."""


class Groups(BatchedSearch):
    """The `BatchedSearch` of a method without steps: targets that join before the search starts are a group.

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

    def add(self, tasks: Sequence[Task], begun: StartedSearch = NOT_BEGUN) -> None:
        assert self._outcomes is None, "a group is searched for to its end before another one joins"
        self._tasks[tasks[0].key] = tasks
        self._known[tasks[0].key] = {outcome.task.restart: outcome for outcome in begun.outcomes}

    def step(self) -> list[Outcome]:
        """Return the restarts that are known, then one outcome after the other."""
        if self._outcomes is None:
            return self._begin()
        outcome = next(self._outcomes, None)
        if outcome is None:
            self._tasks, self._known, self._outcomes = {}, {}, None
            return []
        self._known[outcome.task.key][outcome.task.restart] = outcome
        return [outcome]

    def begun(self, key: str) -> StartedSearch:
        return StartedSearch([*self._known[key].values()])

    def share(self, key: str) -> float:
        return len(self._known[key]) / len(self._tasks[key])

    def tried_for(self, key: str) -> int:
        return sum(outcome.candidates for outcome in self._known[key].values())

    def _begin(self) -> list[Outcome]:
        first = self._whole_restarts()
        for key, outcomes in self._known.items():
            self._known[key] = {restart: outcome for restart, outcome in outcomes.items() if restart < first}
        left = [
            tasks[restart]
            for restart in range(first, max(map(len, self._tasks.values())))
            for key, tasks in self._tasks.items()
            if restart < len(tasks) and not self._is_hit(key)
        ]
        self._outcomes = self.search_all(left, self.finder)
        return [outcome for outcomes in self._known.values() for outcome in outcomes.values()]

    def _whole_restarts(self) -> int:
        """Return the number of restarts known of the whole group; the others are searched for as they would have been."""
        num = min(
            (len(outcomes) for key, outcomes in self._known.items() if not self._is_hit(key)), default=self.settings.restarts
        )
        while self.settings.stop_on_batch_mean and num * len(self._tasks) % self.finder.size:
            # Batches are consecutive tasks.
            num -= 1
        return num

    def _is_hit(self, key: str) -> bool:
        return self.settings.stop_on_hit and any(outcome.stopped == "satisfied" for outcome in self._known[key].values())
