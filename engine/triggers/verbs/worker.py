"""What a worker of a trigger search does: targets in, rows of `parley.engine.triggers.verbs.rows.TRIGGERS` out.

A worker searches for the targets of several shards side by side, so that its batch is full while any target waits anywhere. A
shard is one target, unless there are very many; where targets have to be searched for together from first to last (continuous
inputs, batches that stop as one) it is a batch of them, and a worker holds one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.runs.schemas import ok_row
from parley.engine.core.stats.rows import finished
from parley.engine.core.verbs.sharded import Sharded, Tally, spread
from parley.engine.triggers.catalogue import make_method
from parley.engine.triggers.methods.composition import AttackComposition, settings_told, shown_access
from parley.engine.triggers.methods.settings import L1_WEIGHT_MALICIOUS, SearchSettings
from parley.engine.triggers.metrics.hits import PROJECTED, is_hit, kinds
from parley.engine.triggers.targets import Target, target_seed
from parley.engine.triggers.verbs.config import MAL, TriggerConfig
from parley.engine.triggers.verbs.models import HuggingFaceFolder, Models, input_model
from parley.engine.triggers.verbs.turns import SearchTurns
from parley.engine.triggers.verbs.verification import UNVERIFIED, verifier

if TYPE_CHECKING:
    from parley.engine.triggers.hits import HitType, Reading, Thresholds
    from parley.engine.triggers.methods.objective import TriggerObjective
    from parley.engine.triggers.scorers.scorer import TextVictim, Victim
    from parley.engine.triggers.search.attack import TriggerSearch
    from parley.engine.triggers.search.batch import Outcome, Task
    from parley.engine.triggers.search.side_by_side import SideBySide
    from parley.policies.hugging_face.victims import HuggingFaceCausal, HuggingFaceVictim

_K = (1, 2)
MOST_PARTS = 10_000
"""Parts of a run, each with one target if there are no more targets."""
AT_HAND = 4
"""Targets that a worker holds for places that are not free yet."""
AT_MOST = "the time left is the longest: a success ends a search"
"""What is told beside a time left while no search has ended."""
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
    from parley.engine.triggers.hits import HitType

    prefixes = ("o", "io") if judged else ("o",)
    names = ["o-greedy"]
    if sampled:
        names += [f"{prefix}-sample-{statistic}-k{k}" for prefix in prefixes for statistic in ("min", "avg") for k in _K]
    return [HitType.parse(name) for name in dict.fromkeys([*names, wanted.name])]


def objective_of(config: TriggerConfig, thresholds: Thresholds) -> TriggerObjective:
    """What is minimised: as the wanted type of hit says, and the settings.

    Raises:
        ConfigError: there is no threshold that the type of hit needs.
    """
    from parley.engine.triggers.hits import HitType

    settings, wanted = config.objective, HitType.parse(config.hit)
    found = wanted.objective(thresholds, lm_weight=settings.lm_weight, satisfied_weight=settings.satisfied_weight)
    return replace(found, mellowmax=settings.mellowmax)


def composition(config: TriggerConfig, thresholds: Thresholds) -> AttackComposition:
    """The attack that a search is.

    Raises:
        ConfigError: the method reads more than the model shows, or a threshold is missing that the type of hit needs.
    """
    method, judged = make_method(config.method, effort(config)), f", inputs judged by {config.lm}" if config.lm else ""
    inputs, typed = settings_told(config.engine, "unknown"), "as claimed: what is typed are the model's own words"
    if config.is_hugging_face:
        inputs, typed = settings_told(config.hugging_face, "length", "end"), settings_told(config.success, "by")
    return AttackComposition(
        victim=config.model,
        shows=shown_access(config.model),
        method=repr(method),
        reads=method.access,
        objective=f"{objective_of(config, thresholds)!r}, until {config.hit}{judged}",
        prompts=f"{config.targets}: {inputs}",
        success=typed,
    )


def composer(config: TriggerConfig, models: Models, victim: TextVictim) -> Callable[[Victim], TriggerSearch]:
    """What composes the search that was asked for with a model behind whichever prompt.

    Args:
        config: the search.
        models: what is searched.
        victim: the model as it was loaded.
    """
    from parley.engine.triggers.hits import HitType
    from parley.engine.triggers.search.attack import TriggerSearch

    judge = input_model(config, cast("HuggingFaceCausal", victim)) if config.is_hugging_face else None
    return lambda asked: TriggerSearch(
        asked,
        make_method(config.method, effort(config)),
        input_model=judge,
        hit=HitType.parse(config.hit),
        thresholds=models.thresholds,
        objective=objective_of(config, models.thresholds),
        batch_size=config.engine.batch_size,
    )


@dataclass(frozen=True)
class Searching(Sharded[Target]):
    """A search for targets.

    Args:
        config: the search.
        models: what is searched.
        answers: folder in which answers of a chat model that judges are kept.
    """

    unit = "targets"
    event = "searched"

    config: TriggerConfig
    models: Models
    answers: str = field(default="", kw_only=True)

    def seed(self, key: str) -> int:
        return target_seed(self.config.seed, key)

    def worker(self) -> SearchWorker:
        return SearchWorker(self.config, self.models, self.answers)

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
        early = f", {AT_MOST}" if self.config.search.stop_on_hit and not tally.session[self.unit] else ""
        return f"{pace:,.0f} candidates/s, hits: {', '.join(hits)}{early}"


class SearchWorker(SearchTurns[Target]):
    """Holds the models, and searches for the targets of several shards at a time."""

    def __init__(self, config: TriggerConfig, models: Models, answers: str = "") -> None:
        from parley.engine.triggers.hits import HitType

        self.config, self.thresholds = config, models.thresholds
        wanted = HitType.parse(config.hit)
        sampled, judged = models.thresholds.t_out is not None, bool(config.lm)
        self.types = read_types(wanted, sampled=sampled, judged=judged)
        self.victim = models.load(config.device, unknown=config.engine.unknown)
        # Not by the file of targets, which need not lie on a worker's machine.
        self._has_prompts = isinstance(models.victim, HuggingFaceFolder) and models.victim.has_prompts
        self._composed = composer(config, models, self.victim)
        self._verifier = verifier(config, self.victim, answers)
        self.drop()

    @cached_property
    def search(self) -> TriggerSearch:
        """The search of targets without prompts."""
        return self._composed(self.victim)

    def drop(self) -> None:
        self._by_prompt: dict[str, SideBySide] = {}
        self._targets: dict[str, Target] = {}
        super().drop()

    def searches(self) -> SideBySide:
        from parley.engine.triggers.search.prompted import ByPrompt

        if self._has_prompts:
            return ByPrompt(self._searches_of, self.config.engine.batch_size)
        return self.search.method.side_by_side(self.search.finder)

    def tasks(self, item: Target) -> list[Task]:
        from parley.engine.triggers.search.batch import tasks_of

        self._targets[item.key] = item
        ids = self.victim.target(" ".join(item.words))
        return list(tasks_of({item.key: ids}, self.config.search.restarts, self.config.seed))

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

    def row(self, item: Target, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        from parley.engine.triggers.search.attack import best_restart

        victim = self._asked(item)
        entries = {outcome.task.restart: self._entry(outcome, victim) for outcome in outcomes}
        kept = best_restart(outcomes)
        self._targets.pop(item.key, None)
        entry, reading = entries[kept.task.restart], kept.reading
        return ok_row(item.key, target_seed(self.config.seed, item.key)) | {
            "target": " ".join(item.words),
            "trigger": entry["words"],
            "restart": entry["restart"],
            "loss": entry["loss"],
            "target_words": self.victim.words(kept.task.target.tolist()),
            "word_log_probability": list(reading.word_log_probability),
            "likeliest": list(reading.likeliest),
            "input_log_probability": reading.input_log_probability,
            "prompt": item.prompt,
            "trigger_ids": entry["ids"],
            **self._verified(item, victim, kept),
            "hits": entry["hits"],
            "restarts": list(entries.values()),
        }

    def _verified(self, target: Target, victim: TextVictim, kept: Outcome) -> dict[str, Any]:
        """What the model says where the input that is kept is typed."""
        if self._verifier is None or kept.words is None:
            return UNVERIFIED
        seed = target_seed(self.config.seed, target.key)
        return self._verifier.verify(cast("HuggingFaceVictim", victim), kept.words, " ".join(target.words), target.prompt, seed)

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
