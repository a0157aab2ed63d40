"""The base classes of all methods of trigger search: settings, goal, and the bookkeeping of a visit.

A method is made of its settings, `GibbsEnum(candidates=50)`, and bound to a goal before it searches. A subclass of `Method`
has one entry, `search_all`: tasks in, outcomes out. Most methods go from words to words and derive from `WordMethod`: they
define what a search remembers (`begin`) and one visit (`step`).

    B searches, N searched positions, V words, G words of a list
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, ClassVar, Generic, Self

import torch
from torch import Tensor

from parley.engine.triggers.budget import GRADIENT
from parley.engine.triggers.methods.goal import Goal
from parley.engine.triggers.methods.settings import CANDIDATES, SearchSettings
from parley.engine.triggers.scorers.scorer import BestInput, Scorer, Victim, to_beat
from parley.engine.triggers.searches.batch import Outcome, Saved, StateT, Task, fill, state_to_json, words_in
from parley.engine.triggers.searches.batch_finder import BatchFinder
from parley.engine.triggers.searches.side_by_side import AHEAD, BatchedSearch, Groups, SteppedSearches, run_searches
from parley.envs.core.config import from_dict, to_dict
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.model import Access


class Method(ABC):
    """A way to search for inputs.

    Args:
        settings: length and width of the search; the paper's when None.
        changes: single settings by name, which replace those.

    Raises:
        ConfigError: a setting is not one of this method's, or its value is not allowed.
    """

    access: ClassVar[Access] = Access.GRADIENTS
    """The access to a model that it needs."""
    searches_words: ClassVar[bool] = True
    """True if an input is words at every moment, so that a language model can judge it."""
    continues: ClassVar[bool] = False
    """True if it needs a victim that predicts the next word of its inputs (`ContinuingScorer`)."""
    embeds: ClassVar[bool] = False
    """True if it moves among embeddings, which no two models share."""
    uses: ClassVar[tuple[str, ...]] = tuple(field.name for field in fields(SearchSettings))
    """The settings that this method reads."""
    sizes: ClassVar[Mapping[str, int]] = {"candidates": CANDIDATES}
    """The method's defaults for settings that are not given."""
    cost: ClassVar[int] = 1
    """Inputs that are counted for each candidate of a visit."""
    shortens: ClassVar[bool] = False
    """True if the last visit tries what is left of `max_candidates`, so that all of it is spent."""
    holds_budget: ClassVar[bool] = False
    """True if a restart ends once the tokens or seconds of its goal's budget are spent."""

    def __init__(self, settings: SearchSettings | None = None, **changes: Any) -> None:
        name, chosen = type(self).__name__, settings or SearchSettings()
        if type(chosen) is not SearchSettings:
            fix = f"{name}(SearchSettings(...)), or single settings by name: {name}({self.uses[0]}=...)"
            raise ConfigError(f"{name} takes settings of a search", got=repr(chosen), fix=fix)
        for change in changes:
            if change not in self.uses:
                what = f"{name} has no setting {change!r}{nearest(change, self.uses)}"
                raise ConfigError(what, fix=f"settings: {', '.join(self.uses)}")
        plain = {key: to_dict(value) if is_dataclass(value) else value for key, value in changes.items()}
        values = to_dict(chosen) | plain
        defaults = {key: size for key, size in self.sizes.items() if values[key] is None}
        self.settings = from_dict(SearchSettings, values | defaults)
        self._goal: Goal | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self.settings, name)!r}' for name in self.uses)})"

    @property
    def candidates(self) -> int:
        """Return the number of inputs tried at each visit; no more than a restart may try."""
        assert self.settings.candidates is not None, "the method's sizes name no candidates"
        most = self.settings.max_candidates // self.cost
        return min(self.settings.candidates, max(1, most)) if self.settings.max_candidates else self.settings.candidates

    @property
    def finds_words(self) -> bool:
        """Return True if it finds words that can be typed."""
        return self.searches_words

    @property
    def beams(self) -> int:
        """Return the number of inputs that are kept."""
        assert self.settings.beams is not None, "the method's sizes name no beams"
        return self.settings.beams

    def fewest_candidates(self, length: int) -> int:
        """Return the least number of candidates that a restart needs to search at all."""
        return 1

    def require_length(self, length: int) -> None:
        """Raise ConfigError if a restart may not try enough candidates for inputs of that length.

        Raises:
            ConfigError: `search.max_candidates` is too small.
        """
        if 0 < self.settings.max_candidates < (fewest := self.fewest_candidates(length)):
            what = f"{type(self).__name__} needs {fewest} candidates for an input of {length} words"
            fix = f"allow {fewest} at least (--budget of search methods), or search fewer words"
            raise ConfigError(what, where="search.max_candidates", got=str(self.settings.max_candidates), fix=fix)

    def bind(self, goal: Goal) -> Self:
        """Return the same method, ready to search for a goal."""
        bound = copy.copy(self)
        bound._goal = goal
        return bound

    @property
    def goal(self) -> Goal:
        """Return the goal that it is bound to."""
        assert self._goal is not None, "a method is bound to a goal before it searches"
        return self._goal

    @property
    def scorer(self) -> Scorer:
        """Return the scorer of the model under test."""
        return self.goal.scorer

    @property
    def victim(self) -> Victim:
        """Return the model under test."""
        return self.goal.victim

    @abstractmethod
    def search_all(
        self, tasks: Iterable[Task], finder: BatchFinder, on_step: Callable[[int], None] | None = None
    ) -> Iterator[Outcome]:
        """Search for the target of each task, many side by side.

        Args:
            tasks: the first restart of every target, then the second, and so on.
            finder: how many fit into memory together; it outlives a call, so that this is found out once.
            on_step: called with the number of candidates tried so far.

        Yields:
            The outcomes, a target's restarts in rising order. With `stop_on_hit` those after its first satisfied one are left
            out, whether they were run or not.

        Raises:
            ConfigError: a single search does not fit into the device's memory.
            CheckpointError: the model's losses are no numbers.
        """

    @property
    def takes_any(self) -> bool:
        """Return True if targets may join and leave at any moment; otherwise a group is searched for to its end."""
        return False

    def side_by_side(self, finder: BatchFinder) -> BatchedSearch:
        """Return a search that targets join as others end.

        Args:
            finder: as of `search_all`.
        """
        return Groups(self.search_all, self.settings, finder)


class WordMethod(Method, Generic[StateT]):
    """A method that goes from words to words, visit by visit; many searches advance in lock-step."""

    uses: ClassVar[tuple[str, ...]] = ("candidates", "max_candidates", "max_sweeps", "restarts", "stop_on_hit")
    holds_budget = True

    @abstractmethod
    def begin(self, task: Task, incumbent: BestInput) -> StateT:
        """Return the state of a search at its first input."""

    @abstractmethod
    def step(self, states: Sequence[StateT]) -> None:
        """Advance each search by one visit.

        States change only after the model was asked for the last time, so that a step that ran out of memory can be repeated.
        """

    def search_all(
        self, tasks: Iterable[Task], finder: BatchFinder, on_step: Callable[[int], None] | None = None
    ) -> Iterator[Outcome]:
        """Search in one batch; searches that end leave it, and others join it."""
        return run_searches(self, tasks, finder, on_step, self._ahead)

    @property
    def takes_any(self) -> bool:
        return not self.settings.stop_on_batch_mean

    def side_by_side(self, finder: BatchFinder) -> BatchedSearch:
        return SteppedSearches(self, finder, self._ahead) if self.takes_any else super().side_by_side(finder)

    @property
    def _ahead(self) -> float:
        """Return the allowed share of restarts ahead: on a GPU a step costs nearly the same for any number of searches."""
        return AHEAD if self.victim.searchable_V.device.type == "cpu" else 1.0

    @property
    def most_visits(self) -> int:
        """Return the number of visits after which a search ends in any case."""
        return self.settings.max_sweeps * self.victim.input_length

    def save(self, state: StateT) -> Saved | None:
        """Return the state as JSON types, to resume from; None if JSON cannot hold it and the search has to restart."""
        return state_to_json(state)

    def restore(self, tasks: Sequence[Task], saved: Sequence[Saved]) -> list[StateT]:
        """Return the states of saved searches; their inputs are measured again."""
        inputs = [(task, words) for task, state in zip(tasks, saved, strict=True) for words in words_in(state)]
        device = self.victim.searchable_V.device
        words = [torch.tensor(words, device=device) for _, words in inputs]
        measured = self.measure([task for task, _ in inputs], words)
        for task in tasks:
            # Counted before it was saved.
            self.goal.refused(task.target)
        states, rest = [], iter(measured)
        for task, state in zip(tasks, saved, strict=True):
            incumbents = list(islice(rest, sum(1 for _ in words_in(state))))
            states.append(self.begin(task, incumbents[0]))
            fill(states[-1], state, iter(incumbents))
        return states

    def start(self, tasks: Sequence[Task]) -> list[StateT]:
        """Return states at their first inputs; all methods start a (seed, key, restart) from the same one."""
        seeds = [derive_seed(task.seed, "input", task.key, task.restart) for task in tasks]
        incumbents = self.measure(tasks, self.goal.initial(seeds).unbind())
        states = [self.begin(task, incumbent) for task, incumbent in zip(tasks, incumbents, strict=True)]
        for state in states:
            state.loss_by_sweep.append(state.best.loss)
            if self.ends(state.best):
                state.stopped = "satisfied"
            self._require_tokens(state.task)
        return states

    @property
    def first_visit(self) -> int:
        """Return the readings of a search's first visit, those of its gradients among them."""
        return self.candidates + GRADIENT

    def _require_tokens(self, task: Task) -> None:
        """Raise ConfigError if the tokens of the budget do not pay for a first visit."""
        visit = self.first_visit * self.goal.num_read(task.target)
        if 0 < self.goal.budget.tokens < visit:
            fix = f"allow {visit:,} tokens at least" + ", or fewer search.candidates" * ("candidates" in self.uses)
            got = f"{self.goal.budget.tokens:,} tokens"
            raise ConfigError(f"a visit of {type(self).__name__} costs {visit:,} tokens", where="budget", got=got, fix=fix)

    def clock(self) -> float:
        """Return the time by the clock of the model's work."""
        return self.goal.clock()

    def spend(self, states: Sequence[StateT], seconds: float, shares: Sequence[float]) -> None:
        """Add a step's seconds to its searches, by their shares of its work, and end those that have used up theirs."""
        whole = sum(shares) or 1
        for state, share in zip(states, shares, strict=True):
            state.seconds += seconds * share / whole
            if not state.finished and 0 < self.goal.budget.seconds <= state.seconds:
                state.stopped = "limit"
                if state.visits % self.victim.input_length:
                    state.loss_by_sweep.append(state.best.loss)

    def affordable(self, state: StateT, num: int) -> int:
        """Return the number of inputs that a visit of `num` tries: of the last one what is left of `max_candidates`."""
        return min(num, self.settings.max_candidates - state.candidates) if self.settings.max_candidates else num

    def ends(self, incumbent: BestInput) -> bool:
        """Return True if nothing better is wanted, or possible."""
        is_hit = self.settings.stop_on_hit and incumbent.allowed and self.goal.satisfied(incumbent.reading)
        return incumbent.loss == 0 or is_hit

    def keep(self, state: StateT, incumbent: BestInput) -> None:
        """Store an input if it is the best so far, or one that ends the search."""
        if incumbent.loss < state.best.loss or self.ends(incumbent):
            state.best = incumbent

    def visited(
        self,
        state: StateT,
        *,
        tried: int,
        moved: bool,
        converged: bool = False,
        ahead: int | None = None,
        beside: int = 0,
        beside_ahead: int | None = None,
    ) -> None:
        """Record a visit, and end the search if it was the last.

        Args:
            state: of the search.
            tried: candidates of the visit.
            moved: True if it changed the current input of the search.
            converged: True if no further visit could move it.
            ahead: candidates of the next visit; as many as of this one when None.
            beside: readings beside the candidates: `GRADIENT` for each input whose gradient was taken.
            beside_ahead: those of the next visit; as many as of this one when None.
        """
        ahead = tried if ahead is None else ahead
        beside_ahead = beside if beside_ahead is None else beside_ahead
        num_read, most_tokens = self.goal.num_read(state.task.target), self.goal.budget.tokens or math.inf
        state.visits += 1
        state.candidates += tried
        state.tokens += (tried + beside) * num_read
        state.refused += self.goal.refused(state.task.target)
        state.accepted += moved
        ahead = max(1, self.affordable(state, ahead)) if self.shortens else ahead
        length = self.victim.input_length
        if self.ends(state.best):
            state.stopped = "satisfied"
        elif converged:
            state.stopped = "converged"
        elif (
            state.visits == self.most_visits
            or state.candidates + ahead > (self.settings.max_candidates or math.inf)
            or state.tokens + (ahead + beside_ahead) * num_read > most_tokens
        ):
            state.stopped = "limit"
        if state.finished or state.visits % length == 0:
            state.loss_by_sweep.append(state.best.loss)

    def move_to_best(self, states: Sequence[StateT], inputs: Sequence[Tensor]) -> list[bool]:
        """Move each search to the best of its inputs (R, N) if that lowers the loss; return which have moved."""
        best_inputs = []
        for state, words_RN in zip(states, inputs, strict=True):
            loss_R = self.scorer.losses([state.task.target] * len(words_RN), words_RN)
            best = int(loss_R.argmin())
            best_inputs.append(words_RN[best] if float(loss_R[best]) < to_beat(state.best.loss) else None)
        moving = [(state, words_N) for state, words_N in zip(states, best_inputs, strict=True) if words_N is not None]
        measured = self.measure([state.task for state, _ in moving], [words_N for _, words_N in moving])
        for (state, _), incumbent in zip(moving, measured, strict=True):
            state.best = incumbent
        return [words_N is not None for words_N in best_inputs]

    def measure(self, tasks: Sequence[Task], inputs: Sequence[Tensor]) -> list[BestInput]:
        """Measure an input (N,) for each task.

        Raises:
            CheckpointError: a loss is no number.
        """
        if not tasks:
            return []
        incumbents = self.scorer.measure([task.target for task in tasks], torch.stack(list(inputs)))
        for task, incumbent in zip(tasks, incumbents, strict=True):
            _check_finite(math.isfinite(incumbent.loss) or not incumbent.allowed, "loss", task.key)
        return incumbents

    def steepest(self, incumbents: Sequence[BestInput], positions_B: Tensor, num: int) -> Tensor:
        """Return the searchable words of steepest descent at a position of each incumbent (B, G), steepest first (equation 8).

        Raises:
            CheckpointError: a slope is no number.
        """
        return self.slopes(incumbents, positions_B).topk(min(num, self.goal.num_searchable), largest=False).indices

    def slopes(self, incumbents: Sequence[BestInput], positions_B: Tensor) -> Tensor:
        """Return first-order changes (B, V), infinite for words that an input may not hold."""
        slopes_BV = self.scorer.slopes(incumbents, positions_B).masked_fill(~self.victim.searchable_V, torch.inf)
        _check_finite(not bool(slopes_BV.isnan().any()), "gradient", "")
        return slopes_BV

    def everywhere(self, incumbents: Sequence[BestInput]) -> tuple[list[BestInput], Tensor]:
        """Return each incumbent at each of its positions: (B N) incumbents and positions, for `slopes` and `steepest`."""
        length = self.victim.input_length
        positions = torch.arange(length, device=self.victim.searchable_V.device).repeat(len(incumbents))
        return [incumbent for incumbent in incumbents for _ in range(length)], positions


def _check_finite(ok: bool, what: str, key: str) -> None:
    if not ok:
        raise CheckpointError(
            f"the model's {what} is no number",
            where=f"target {key}" if key else None,
            fix="the weights have left all bounds: fit the model again, or name another checkpoint",
        )
