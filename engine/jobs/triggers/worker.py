"""What a worker of a trigger search does: targets in, rows of `engine.jobs.triggers.rows.TRIGGERS` out.

A worker searches for the targets of several shards side by side, so that its batch is full while any target waits anywhere. A
shard is one target, unless there are very many; where targets have to be searched for together from first to last (continuous
inputs, batches that stop as one) it is a batch of them, and a worker holds one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from engine.jobs.sharded import Sharded, Tally, spread
from engine.jobs.triggers.config import MAL, TriggerConfig
from engine.jobs.triggers.models import Models, input_model
from engine.jobs.triggers.verification import UNVERIFIED, verifier
from engine.metrics.rows import finished
from engine.metrics.triggers.hits import PROJECTED, is_hit, kinds
from engine.runtime.record import Counts, Rows
from engine.runtime.sharding import Shard
from engine.runtime.worker import TurnResult, TurnWorker, UnderWay
from engine.store.schemas import ok_row
from engine.triggers.catalogue import make_method
from engine.triggers.settings import L1_WEIGHT_MALICIOUS, SearchSettings
from engine.triggers.target_pairs import has_prompts
from engine.triggers.targets import Target, target_seed

if TYPE_CHECKING:
    from engine.triggers.attack import TriggerSearch
    from engine.triggers.batch import Outcome
    from engine.triggers.hits import HitType, Reading
    from engine.triggers.scorer import TextVictim
    from engine.triggers.side_by_side import SideBySide
    from policies.hugging_face_victims import HuggingFaceCausal, HuggingFaceVictim

_K = (1, 2)
KEPT_EVERY_S = 30.0
"""Seconds after which it is told again what a shard is gone on from, though no restart of a single target has ended."""
MOST_PARTS = 10_000
"""Parts of a run, each with one target if there are no more targets."""
AT_HAND = 4
"""Targets that a worker holds for places that are not free yet."""
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

    def worker(self) -> SearchWorker:
        return SearchWorker(self.config, self.models)

    def shared(self) -> Searching:
        return replace(self, models=self.models.shared())

    @property
    def takes_any(self) -> bool:
        """Whether targets may join a search and leave it at any moment."""
        return make_method(self.config.method, effort(self.config)).takes_any

    def shard_size(self, num_items: int, num_workers: int) -> int:
        if self.takes_any:
            return -(-num_items // MOST_PARTS)
        most = self.config.engine.batch_size
        # What stops as one is part of what is searched for, and does not depend on the number of workers.
        return most if self.config.search.stop_on_batch_mean else spread(num_items, num_workers, most)

    def room(self, shard_size: int) -> int:
        if not self.takes_any:
            return 1
        return -(-(self.config.engine.batch_size + AT_HAND) // shard_size) + (shard_size > 1)

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


@dataclass(eq=False)
class _Held:
    """A shard under way.

    Args:
        shard: what is searched for.
        outcomes: of its targets' restarts, by target.
        has_news: whether a restart has ended since it was told what the shard is gone on from.
        told_at: when that was, on the clock of `time.monotonic`.
    """

    shard: Shard[Target]
    outcomes: dict[str, list[Outcome]]
    has_news: bool = False
    told_at: float = field(default_factory=time.monotonic)


class SearchWorker(TurnWorker[Target, Rows]):
    """Holds the models, and searches for the targets of several shards at a time.

    Args:
        config: the search.
        models: what is searched.
    """

    def __init__(self, config: TriggerConfig, models: Models) -> None:
        from engine.triggers.attack import TriggerSearch
        from engine.triggers.hits import HitType

        self.config, self.thresholds = config, models.thresholds
        wanted, settings = HitType.parse(config.hit), config.objective
        sampled, judged = models.thresholds.t_out is not None, bool(config.lm)
        self.types = read_types(wanted, sampled=sampled, judged=judged)
        self.victim = models.load(config.device, unknown=config.engine.unknown)
        objective = wanted.objective(
            models.thresholds, lm_weight=settings.lm_weight, satisfied_weight=settings.satisfied_weight
        )
        judge = input_model(config, cast("HuggingFaceCausal", self.victim)) if config.is_hugging_face else None
        self._compose = partial(
            TriggerSearch,
            input_model=judge,
            hit=wanted,
            thresholds=models.thresholds,
            objective=objective,
            batch_size=config.engine.batch_size,
        )
        self._verifier = verifier(config, self.victim)
        self.search = self._composed(self.victim)
        self.drop()

    def drop(self) -> None:
        from engine.triggers.prompted import ByPrompt

        self._by_prompt: dict[str, SideBySide] = {}
        self._side_by_side: SideBySide = (
            ByPrompt(self._searches_of, self.config.engine.batch_size)
            if has_prompts(self.config.targets)
            else self.search.method.side_by_side(self.search.finder)
        )
        self._held: dict[str, _Held] = {}
        self._shard_of: dict[str, _Held] = {}
        self._targets: dict[str, Target] = {}

    def turn(self, joining: Sequence[Shard[Target]], seconds: float) -> TurnResult[Rows]:
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
                ended[name] = [self._row(target, held.outcomes[target.key]) for target in held.shard.items]
            if time.monotonic() >= until or (ended and self._side_by_side.num_free):
                break
        return TurnResult(ended, {name: self._stands(held) for name, held in self._held.items()})

    def _composed(self, victim: TextVictim) -> TriggerSearch:
        return self._compose(victim, make_method(self.config.method, effort(self.config)))

    def _asked(self, target: Target) -> TextVictim:
        """The model with the prompt of a target."""
        return self.victim if target.prompt is None else cast("HuggingFaceCausal", self.victim).behind(target.prompt)

    def _searches_of(self, key: str) -> SideBySide:
        """The searches behind the prompt of a target."""
        target = self._targets[key]
        assert target.prompt is not None, "the target has no prompt"
        self._by_prompt = {prompt: searches for prompt, searches in self._by_prompt.items() if searches.keys}
        if target.prompt not in self._by_prompt:
            search = self._composed(self._asked(target))
            self._by_prompt[target.prompt] = search.method.side_by_side(search.finder)
        return self._by_prompt[target.prompt]

    def _add(self, shard: Shard[Target]) -> _Held:
        """Begins with a shard, or goes on from what is kept of it."""
        from engine.triggers.batch import tasks_of
        from engine.triggers.saved import outcome_from_json
        from engine.triggers.side_by_side import Begun

        for target in shard.items:
            self._targets[target.key] = target
            ids = self.victim.target(" ".join(target.words))
            tasks = list(tasks_of({target.key: ids}, self.config.search.restarts, self.config.seed))
            kept = (shard.kept or {}).get(target.key, {"outcomes": [], "saved": {}})
            outcomes = [outcome_from_json(each, tasks.__getitem__) for each in kept["outcomes"]]
            self._side_by_side.add(tasks, Begun(outcomes, {int(number): each for number, each in kept["saved"].items()}))
        return _Held(shard, {target.key: [] for target in shard.items})

    def _stands(self, held: _Held) -> UnderWay:
        """How a shard stands, and now and then what it is gone on from."""
        under_way = {key for key in held.outcomes if key in self._side_by_side.keys}
        share = len(held.outcomes) - len(under_way) + sum(map(self._side_by_side.share, under_way))
        ended = (each.candidates for key, found in held.outcomes.items() if key not in under_way for each in found)
        tried = Counter(candidates=sum(map(self._side_by_side.tried_for, under_way)) + sum(ended))
        # What is kept of many targets is large.
        if not (held.has_news and len(held.outcomes) == 1) and time.monotonic() - held.told_at < KEPT_EVERY_S:
            return UnderWay(share, tried)
        held.has_news, held.told_at = False, time.monotonic()
        return UnderWay(share, tried, {key: self._kept(held, key) for key in held.outcomes})

    def _kept(self, held: _Held, key: str) -> dict[str, Any]:
        """What a target is gone on from: the restarts that have ended, and those under way."""
        from engine.triggers.saved import outcome_to_json
        from engine.triggers.side_by_side import Begun

        is_over = key not in self._side_by_side.keys
        begun = Begun(held.outcomes[key]) if is_over else self._side_by_side.begun(key)
        saved = {str(number): each for number, each in begun.saved.items()}
        return {"outcomes": list(map(outcome_to_json, begun.outcomes)), "saved": saved}

    def _row(self, target: Target, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        from engine.triggers.attack import best_restart

        victim = self._asked(target)
        entries = {outcome.task.restart: self._entry(outcome, victim) for outcome in outcomes}
        kept = best_restart(outcomes)
        self._targets.pop(target.key, None)
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
            "prompt": target.prompt,
            "trigger_ids": entry["ids"],
            **self._verified(target, victim, kept),
            "hits": entry["hits"],
            "restarts": list(entries.values()),
        }

    def _verified(self, target: Target, victim: TextVictim, kept: Outcome) -> dict[str, Any]:
        """What the model says where the input that is kept is typed."""
        if self._verifier is None or kept.words is None:
            return UNVERIFIED
        seed = target_seed(self.config.seed, target.key)
        return self._verifier.verify(cast("HuggingFaceVictim", victim), kept.words, " ".join(target.words), seed)

    def _entry(self, outcome: Outcome, victim: TextVictim) -> dict[str, Any]:
        """A restart's entry of the column `restarts`."""
        return {
            "restart": outcome.task.restart,
            "words": None if outcome.words is None else victim.text(outcome.words),
            "loss": outcome.loss,
            "loss_by_sweep": list(outcome.loss_by_sweep),
            "sweeps": outcome.sweeps,
            "visits": outcome.visits,
            "accepted": outcome.accepted,
            "candidates": outcome.candidates,
            "stopped": outcome.stopped,
            "refused": outcome.refused,
            "ids": None if outcome.words is None else list(outcome.words),
            "hits": self._hits(outcome.reading) + self._hits(outcome.projected, PROJECTED),
        }

    def _hits(self, reading: Reading | None, prefix: str = "") -> list[dict[str, Any]]:
        """Whether a reading is a hit, by type; nothing of no reading."""
        if reading is None:
            return []
        return [{"type": prefix + kind.name, "hit": kind.is_hit(reading, self.thresholds)} for kind in self.types]
