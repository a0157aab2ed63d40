"""What a worker of a trigger search does: shards of targets in, rows of `engine.jobs.triggers.rows.TRIGGERS` out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.jobs.sharded import Sharded, Tally, spread
from engine.jobs.triggers.config import MAL, RELAXATION, TriggerConfig
from engine.jobs.triggers.models import Models
from engine.metrics.triggers.hits import PROJECTED, SATISFIED, choose_restart, finished, is_hit, kinds
from engine.runtime.record import Counts, Rows
from engine.runtime.sharding import Shard
from engine.store.schemas import OK, SCHEMA_VERSION
from engine.triggers.catalogue import searches
from engine.triggers.settings import L1_WEIGHT_MALICIOUS
from engine.triggers.targets import Target
from envs.core.seeds import derive_seed

if TYPE_CHECKING:
    from engine.triggers.batch import Search, Task
    from engine.triggers.hits import HitType, Reading
    from engine.triggers.objective import TriggerObjective
    from engine.triggers.relaxation import Relaxed

_K = (1, 2)
HITS = "hits."
"""Beginning of what is counted by type of hit."""


@dataclass(frozen=True)
class Found:
    """What one restart came to.

    Args:
        entry: its entry of the column `restarts`.
        reading: how likely the target is after its input.
    """

    entry: dict[str, Any]
    reading: Reading


def target_seed(seed: int, key: str) -> int:
    """The seed of a target's search, by the master seed and its key."""
    return derive_seed(seed, "trigger", key)


def read_types(wanted: HitType, *, sampled: bool, judged: bool) -> list[HitType]:
    """The types of hit that are read off each input: the published ones, and the wanted one.

    Args:
        wanted: what is searched for.
        sampled: whether it is known how likely a usual word of a reply is.
        judged: whether a language model judges inputs.
    """
    from engine.triggers.hits import HitType

    prefixes = ("o", "io") if judged else ("o",)
    names = ["o-greedy"]
    if sampled:
        names += [f"{prefix}-sample-{statistic}-k{k}" for prefix in prefixes for statistic in ("min", "avg") for k in _K]
    return [HitType.parse(name) for name in dict.fromkeys([*names, wanted.name])]


@dataclass(frozen=True)
class Searching(Sharded[Target]):
    """A search for targets.

    Args:
        config: the search.
        models: what is searched.
    """

    unit = "targets"
    event = "searched"

    config: TriggerConfig
    models: Models

    def seed(self, key: str) -> int:
        """The seed of a target's search."""
        return target_seed(self.config.seed, key)

    def worker(self, on_step: Callable[[Counts], None] | None = None) -> SearchWorker:
        """The models, ready to be searched."""
        return SearchWorker(self.config, self.models, on_step)

    def shared(self) -> Searching:
        """The same with all weights in the object store of the session."""
        return replace(self, models=self.models.shared())

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """At most as many targets as fill the batch."""
        return spread(num_items, num_workers, self.config.engine.batch)

    def digest(self, rows: Rows) -> Counts:
        """Targets whose search came to its end, candidates, wanted hits, and hits by type."""
        ended = finished(rows)
        counts = Counter(f"{HITS}{kind}" for row in ended for kind in kinds([row]) if is_hit(row, kind))
        candidates = sum(restart["candidates"] for row in ended for restart in row["restarts"])
        counts.update(targets=len(ended), candidates=candidates, hits=counts[HITS + self.config.hit])
        return counts

    def describe(self, tally: Tally) -> str:
        """Such as "680 candidates/s, hits: o-greedy 3"."""
        pace = tally.session["candidates"] / tally.seconds if tally.seconds else 0.0
        found = {HITS + self.config.hit: 0} | tally.total
        hits = (f"{name.removeprefix(HITS)} {number}" for name, number in found.items() if name.startswith(HITS))
        return f"{pace:,.0f} candidates/s, hits: {', '.join(hits)}"


class SearchWorker:
    """Holds the models, and searches.

    Args:
        config: the search.
        models: what is searched.
        on_step: told how many candidates a shard has tried so far; for a worker in the driver's own process.
    """

    def __init__(self, config: TriggerConfig, models: Models, on_step: Callable[[Counts], None] | None = None) -> None:
        from engine.triggers.batch_finder import BatchFinder
        from engine.triggers.hits import HitType

        self.config, self.models = config, models
        self.on_step = None if on_step is None else lambda candidates: on_step(Counter({"candidates": candidates}))
        self.wanted = HitType.parse(config.hit)
        sampled, judged = models.thresholds.t_out is not None, models.lm is not None
        self.types = read_types(self.wanted, sampled=sampled, judged=judged)
        self.subject = models.subject(config.device, unknown=config.engine.unknown)
        self._finder = BatchFinder(config.engine.batch, "searches")
        self.find = self._relax if config.method == RELAXATION else partial(self._search, self._technique())

    def run(self, shard: Shard[Target]) -> list[dict[str, Any]]:
        """One row per target."""
        found = self.find(shard.items)
        return [self._row(target, found[target.key]) for target in shard.items]

    def _tasks(self, targets: Sequence[Target], restart: int) -> list[Task]:
        from engine.triggers.batch import Task

        seed = self.config.seed
        return [Task(target.key, self.subject.ids(target), restart, target_seed(seed, target.key)) for target in targets]

    def _technique(self) -> Search[Any]:
        """The search over words; the scorer's tables are made once for all shards."""
        thresholds, settings = self.models.thresholds, self.config.objective
        objective = self.wanted.objective(thresholds, lm_weight=settings.lm_weight, satisfied_weight=settings.satisfied_weight)
        technique: Search[Any] = searches.get(self.config.method)(
            self.subject.scorer(objective),
            self.config.search,
            satisfied=lambda reading: self.wanted.is_hit(reading, thresholds),
            initial=self.subject.initial() if self.wanted.limits_input else None,
        )
        return technique

    def _search(self, technique: Search[Any], targets: Sequence[Target]) -> dict[str, list[Found]]:
        """Searches over words: the first restart of every target, then the second, so that fewer are begun in vain."""
        from engine.triggers.batch import run_searches

        tasks = (task for restart in range(self.config.search.restarts) for task in self._tasks(targets, restart))
        found = defaultdict(list)
        for outcome in run_searches(technique, tasks, self._finder, self.on_step):
            entry = {
                "restart": outcome.task.restart,
                "words": self.subject.text(outcome.words),
                "loss": outcome.loss,
                "loss_by_sweep": list(outcome.loss_by_sweep),
                "sweeps": outcome.sweeps,
                "visits": outcome.visits,
                "accepted": outcome.accepted,
                "candidates": outcome.candidates,
                "stopped": outcome.stopped,
                "hits": self._hits(outcome.reading),
            }
            found[outcome.task.key].append(Found(entry, outcome.reading))
        return found

    def _relax(self, targets: Sequence[Target]) -> dict[str, list[Found]]:
        """Continuous inputs: one restart of all targets after the other, those left out that are hits already."""
        from engine.triggers.objective import RELEASED_WEIGHT

        config, thresholds = self.config, self.models.thresholds
        # Satisfied words keep a little, as in the greedy objective that it has of its own: without it they would be let go.
        sampled = self.wanted.statistic != "greedy"
        objective = self.wanted.objective(thresholds, satisfied_weight=RELEASED_WEIGHT) if sampled else None
        steps = config.relaxation.rounds * config.relaxation.steps
        found: dict[str, list[Found]] = {target.key: [] for target in targets}
        left = list(targets)
        for restart in range(config.search.restarts):
            for relaxed in self._relaxed(self._tasks(left, restart), objective):
                hit = self.wanted.is_hit(relaxed.reading, thresholds)
                entry = {
                    "restart": restart,
                    "words": None if relaxed.words is None else self.subject.text(relaxed.words),
                    "loss": relaxed.loss,
                    "loss_by_sweep": [relaxed.loss],
                    "sweeps": 0,
                    "visits": steps,
                    "accepted": steps,
                    "candidates": steps,
                    "stopped": SATISFIED if hit else "limit",
                    "hits": self._hits(relaxed.reading)
                    + ([] if relaxed.projected is None else self._hits(relaxed.projected, PROJECTED)),
                }
                found[relaxed.task.key].append(Found(entry, relaxed.reading))
            if config.search.stop_on_hit:
                left = [target for target in left if found[target.key][-1].entry["stopped"] != SATISFIED]
        return found

    def _relaxed(self, tasks: Sequence[Task], objective: TriggerObjective | None) -> list[Relaxed]:
        """Continuous inputs of some targets, as many at a time as fit."""
        from engine.triggers.relaxation import relax

        made: list[Relaxed] = []
        settings = self.config.relaxation
        if self.config.targets == MAL and settings.l1_weight is None:
            settings = replace(settings, l1_weight=L1_WEIGHT_MALICIOUS)
        self._finder.in_pieces(lambda piece: made.extend(relax(self.subject.victim, piece, settings, objective)), tasks)
        return made

    def _hits(self, reading: Reading, prefix: str = "") -> list[dict[str, Any]]:
        thresholds = self.models.thresholds
        return [{"type": prefix + kind.name, "hit": kind.is_hit(reading, thresholds)} for kind in self.types]

    def _row(self, target: Target, found: Sequence[Found]) -> dict[str, Any]:
        entries = [each.entry for each in found]
        kept = choose_restart(entries)
        reading = next(each.reading for each in found if each.entry is kept)
        return {
            "item_key": target.key,
            "status": OK,
            "error": None,
            "seed": target_seed(self.config.seed, target.key),
            "schema_version": SCHEMA_VERSION,
            "target": " ".join(target.words),
            "trigger": kept["words"],
            "restart": kept["restart"],
            "loss": kept["loss"],
            "target_words": self.subject.words(target),
            "word_log_probability": list(reading.word_log_probability),
            "likeliest": list(reading.likeliest),
            "input_log_probability": reading.input_log_probability,
            "hits": kept["hits"],
            "restarts": entries,
        }
