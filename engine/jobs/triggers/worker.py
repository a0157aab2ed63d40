"""What a worker of a trigger search does: shards of targets in, rows of `engine.jobs.triggers.rows.TRIGGERS` out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.jobs.sharded import Sharded, Tally, spread
from engine.jobs.triggers.config import MAL, TriggerConfig
from engine.jobs.triggers.models import Models
from engine.metrics.rows import finished
from engine.metrics.triggers.hits import PROJECTED, is_hit, kinds
from engine.runtime.record import Counts, Rows
from engine.runtime.sharding import Shard
from engine.store.schemas import ok_row
from engine.triggers.catalogue import make_method
from engine.triggers.settings import L1_WEIGHT_MALICIOUS, SearchSettings
from engine.triggers.targets import Target, target_seed

if TYPE_CHECKING:
    from engine.triggers.batch import Outcome
    from engine.triggers.hits import HitType, Reading

_K = (1, 2)
HITS = "hits."
"""Beginning of what is counted by type of hit."""


def effort(config: TriggerConfig) -> SearchSettings:
    """The settings of the method; as in the paper, continuous inputs are drawn to malicious targets' words more weakly."""
    relaxation = config.search.relaxation
    if config.targets == MAL and relaxation.l1_weight is None:
        relaxation = replace(relaxation, l1_weight=L1_WEIGHT_MALICIOUS)
    return replace(config.search, relaxation=relaxation)


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
        return target_seed(self.config.seed, key)

    def worker(self, on_step: Callable[[Counts], None] | None = None) -> SearchWorker:
        return SearchWorker(self.config, self.models, on_step)

    def shared(self) -> Searching:
        return replace(self, models=self.models.shared())

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, self.config.engine.batch_size)

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
        on_step: called with the candidates that a shard has tried so far; for a worker in the driver's own process.
    """

    def __init__(self, config: TriggerConfig, models: Models, on_step: Callable[[Counts], None] | None = None) -> None:
        from engine.triggers.attack import TriggerSearch
        from engine.triggers.hits import HitType

        self.config, self.thresholds = config, models.thresholds
        self.on_step = None if on_step is None else lambda candidates: on_step(Counter({"candidates": candidates}))
        wanted, settings = HitType.parse(config.hit), config.objective
        sampled, judged = models.thresholds.t_out is not None, models.lm is not None
        self.types = read_types(wanted, sampled=sampled, judged=judged)
        self.victim = models.load(config.device, unknown=config.engine.unknown)
        # Made once for all shards: the scorer's tables, and how many searches fit into memory.
        self.search = TriggerSearch(
            self.victim,
            make_method(config.method, effort(config)),
            hit=wanted,
            thresholds=models.thresholds,
            objective=wanted.objective(
                models.thresholds, lm_weight=settings.lm_weight, satisfied_weight=settings.satisfied_weight
            ),
            batch_size=config.engine.batch_size,
        )

    def run(self, shard: Shard[Target]) -> list[dict[str, Any]]:
        """One row per target."""
        from engine.triggers.batch import tasks_of

        targets = {target.key: self.victim.target(" ".join(target.words)) for target in shard.items}
        found: dict[str, list[Outcome]] = {key: [] for key in targets}
        for outcome in self.search.run(tasks_of(targets, self.config.search.restarts, self.config.seed), self.on_step):
            found[outcome.task.key].append(outcome)
        return [self._row(target, found[target.key]) for target in shard.items]

    def _row(self, target: Target, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        from engine.triggers.attack import best_restart

        entries = {outcome.task.restart: self._entry(outcome) for outcome in outcomes}
        kept = best_restart(outcomes)
        entry, reading = entries[kept.task.restart], kept.reading
        return ok_row(target.key, target_seed(self.config.seed, target.key)) | {
            "target": " ".join(target.words),
            "trigger": entry["words"],
            "restart": entry["restart"],
            "loss": entry["loss"],
            "target_words": self.victim.words(kept.task.target.tolist()),
            "word_log_probability": list(reading.word_log_probability),
            "likeliest": list(reading.likeliest),
            "input_log_probability": reading.input_log_probability,
            "hits": entry["hits"],
            "restarts": list(entries.values()),
        }

    def _entry(self, outcome: Outcome) -> dict[str, Any]:
        """A restart's entry of the column `restarts`."""
        return {
            "restart": outcome.task.restart,
            "words": None if outcome.words is None else self.victim.text(outcome.words),
            "loss": outcome.loss,
            "loss_by_sweep": list(outcome.loss_by_sweep),
            "sweeps": outcome.sweeps,
            "visits": outcome.visits,
            "accepted": outcome.accepted,
            "candidates": outcome.candidates,
            "stopped": outcome.stopped,
            "hits": self._hits(outcome.reading) + self._hits(outcome.projected, PROJECTED),
        }

    def _hits(self, reading: Reading | None, prefix: str = "") -> list[dict[str, Any]]:
        """Whether a reading is a hit, by type; nothing of no reading."""
        if reading is None:
            return []
        return [{"type": prefix + kind.name, "hit": kind.is_hit(reading, self.thresholds)} for kind in self.types]
