"""Searches of several shards side by side, turn by turn: what every worker of a trigger search does, whatever its items are."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from parley.engine.core.ray.record import Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.ray.worker import TurnResult, TurnWorker, UnderWay
from parley.engine.core.runs.schemas import error_row
from parley.engine.triggers.targets import target_seed
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.envs.core.errors import ConfigError, ModelError, RefusedModelError

if TYPE_CHECKING:
    from parley.engine.triggers.search.batch import Outcome, Task
    from parley.engine.triggers.search.side_by_side import SideBySide

logger = logging.getLogger(__name__)

KEPT_EVERY_S = 30.0
"""Seconds after which it is told again what a shard is gone on from, though no restart of a single item has ended."""


class SearchItem(Protocol):
    """What is searched for."""

    @property
    def key(self) -> str:
        """Names it among all items of the run."""


SearchItemT = TypeVar("SearchItemT", bound=SearchItem)


@dataclass(eq=False)
class _Held(Generic[SearchItemT]):
    """A shard under way.

    Args:
        shard: what is searched for.
        outcomes: of its items' restarts, by item.
        has_news: whether a restart has ended since it was told what the shard is gone on from.
        told_at: when that was, on the clock of `time.monotonic`.
    """

    shard: Shard[SearchItemT]
    outcomes: dict[str, list[Outcome]]
    has_news: bool = False
    told_at: float = field(default_factory=time.monotonic)


class SearchTurns(TurnWorker[SearchItemT, Rows], ABC, Generic[SearchItemT]):
    """Searches for the items of several shards at a time; whoever derives from it calls `drop` once all is loaded.

    Attributes:
        config: the search.
    """

    config: TriggerConfig

    @abstractmethod
    def searches(self) -> SideBySide:
        """What searches for items; asked for anew whenever all shards are forgotten."""

    @abstractmethod
    def tasks(self, item: SearchItemT) -> list[Task]:
        """The searches for an item, its restarts in rising order; none where nothing is searched for."""

    @abstractmethod
    def row(self, item: SearchItemT, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """The row of an item whose searches have ended."""

    def drop(self) -> None:
        self._side_by_side = self.searches()
        self._held: dict[str, _Held[SearchItemT]] = {}
        self._shard_of: dict[str, _Held[SearchItemT]] = {}

    def turn(self, joining: Sequence[Shard[SearchItemT]], seconds: float) -> TurnResult[Rows]:
        until = time.monotonic() + seconds
        for shard in joining:
            held = self._held[shard.name] = self._add(shard)
            self._shard_of |= dict.fromkeys(held.outcomes, held)
        ended: dict[str, Rows] = {}
        while self._held:
            for outcome in self._side_by_side.step():
                held = self._shard_of[outcome.task.key]
                held.outcomes[outcome.task.key].append(outcome)
                held.has_news = True
            for name in [name for name, held in self._held.items() if held.outcomes.keys().isdisjoint(self._side_by_side.keys)]:
                held = self._held.pop(name)
                self._shard_of = {key: other for key, other in self._shard_of.items() if other is not held}
                ended[name] = [self._row(item, held.outcomes[item.key]) for item in held.shard.items]
            if time.monotonic() >= until or (ended and self._side_by_side.num_free):
                break
        return TurnResult(ended, {name: self._stands(held) for name, held in self._held.items()})

    def _row(self, item: SearchItemT, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Its row; one with the reason where who judges replies fails, which costs no other item."""
        try:
            return self.row(item, outcomes)
        except RefusedModelError:
            raise
        except (ConfigError, ModelError) as error:
            logger.warning("what was found for %s is not judged: %s", item.key, error.what)
            return error_row(item.key, target_seed(self.config.seed, item.key), str(error))

    def _add(self, shard: Shard[SearchItemT]) -> _Held[SearchItemT]:
        """Begins with a shard, or goes on from what is kept of it."""
        from parley.engine.triggers.search.saved import outcome_from_json
        from parley.engine.triggers.search.side_by_side import Begun

        for item in shard.items:
            if tasks := self.tasks(item):
                kept = (shard.kept or {}).get(item.key, {"outcomes": [], "saved": {}})
                outcomes = [outcome_from_json(each, tasks.__getitem__) for each in kept["outcomes"]]
                self._side_by_side.add(tasks, Begun(outcomes, {int(number): each for number, each in kept["saved"].items()}))
        return _Held(shard, {item.key: [] for item in shard.items})

    def _stands(self, held: _Held[SearchItemT]) -> UnderWay:
        """How a shard stands, and now and then what it is gone on from."""
        under_way = {key for key in held.outcomes if key in self._side_by_side.keys}
        share = len(held.outcomes) - len(under_way) + sum(map(self._side_by_side.share, under_way))
        ended = (each.candidates for key, found in held.outcomes.items() if key not in under_way for each in found)
        tried = Counter(candidates=sum(map(self._side_by_side.tried_for, under_way)) + sum(ended))
        # What is kept of many items is large.
        if not (held.has_news and len(held.outcomes) == 1) and time.monotonic() - held.told_at < KEPT_EVERY_S:
            return UnderWay(share, tried)
        held.has_news, held.told_at = False, time.monotonic()
        return UnderWay(share, tried, {key: self._kept(held, key) for key in held.outcomes})

    def _kept(self, held: _Held[SearchItemT], key: str) -> dict[str, Any]:
        """What an item is gone on from: the restarts that have ended, and those under way."""
        from parley.engine.triggers.search.saved import outcome_to_json
        from parley.engine.triggers.search.side_by_side import Begun

        is_over = key not in self._side_by_side.keys
        begun = Begun(held.outcomes[key]) if is_over else self._side_by_side.begun(key)
        saved = {str(number): each for number, each in begun.saved.items()}
        return {"outcomes": list(map(outcome_to_json, begun.outcomes)), "saved": saved}
