"""Trigger search: `parley search` (He & Glass 2018, arXiv 1809.04113).

Inputs are searched that make a model say the sentences of a list. A shard is a few targets with all of their restarts; what a
worker finds for them is one row each (`search_worker.py`), and depends on nothing but the configuration.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine.jobs.command import command_line
from engine.jobs.device import require_device, threads
from engine.jobs.job import Job, Reporter, Result
from engine.jobs.sharded import RESUME_SAFE, session
from engine.jobs.triggers.config import HUGGING_FACE, NORMAL, ObjectiveSettings, TriggerConfig, TriggerEngineSettings
from engine.jobs.triggers.models import Models, models_of, open_models
from engine.jobs.triggers.rows import TRIGGERS
from engine.jobs.triggers.targets import FILE, choose_targets, num_targets, open_targets, save_targets
from engine.jobs.triggers.worker import SearchWorker, ShardTally, effort, read_types, tally
from engine.metrics.statistics import NOTHING, Estimate, count
from engine.metrics.triggers.hits import COST_METRICS, HIT_RATE, describe, search_metrics
from engine.runtime.pool import Progress
from engine.runtime.record import record_shards
from engine.runtime.sharding import make_shards
from engine.store.layout import CONFIG, SUMMARY
from engine.store.run_folder import RunFolder
from engine.triggers import settings
from engine.triggers.settings import SearchSettings
from engine.triggers.targets import TargetList, target_seed
from envs.core.errors import ConfigError
from envs.storage.places import display_path

FILES = (SUMMARY, FILE, "rows")
SEARCHED = "searched"
"""Kind of the event that says how many candidates a session tried, and how long it took."""


def run(config: TriggerConfig, path: Path, reporter: Reporter) -> Result:
    """Searches for what is left of the targets and summarises the run."""
    if earlier := replace(SEARCH, num_rows=lambda _: num_targets(path)).finished(config, path, reporter):
        return _with_legend(earlier)
    models = open_models(config)
    _check(config, models)
    # In a folder that holds a run already, what its configuration has to say comes first.
    made = None if (path / CONFIG).is_file() else open_targets(config, models, path)
    with RunFolder.open(
        path, config, job=SEARCH.name, schema=TRIGGERS, resume_safe=SEARCH.resume_safe, weights=SEARCH.weights(config)
    ) as folder:
        targets = made or open_targets(config, models, path)
        save_targets(targets, path)
        _search(folder, config, models, targets, reporter)
        about = {
            "title": f"{config.hit} search for {targets.name} targets on {config.model}",
            "description": f"{len(targets.targets):,} targets, {config.method}, {config.search.restarts} restarts, "
            f"seed {config.seed}.",
            "command": command_line(SEARCH, config, path),
            "thresholds": models.limits,
            "skipped": [{"sentence": each.sentence, "unknown": each.unknown} for each in targets.skipped],
        }
        rows = (row for part in folder.read_parts() for row in part.to_pylist())
        folder.write_summary(search_metrics(rows, candidates_per_s(folder), len(targets.skipped)), about)
    return _with_legend(SEARCH.result(config, path))


def candidates_per_s(run: RunFolder) -> Estimate:
    """Candidates that all workers together tried in a second, over all sessions that came to their end."""
    needs = {SEARCHED: {"targets": int, "candidates": int, "seconds": float}}
    sessions = [event for event in run.events(needs) if event["kind"] == SEARCHED and event["targets"]]
    seconds = sum(event["seconds"] for event in sessions)
    tried = sum(event["candidates"] for event in sessions)
    return count(tried / seconds, sum(event["targets"] for event in sessions)) if sessions else NOTHING


def _check(config: TriggerConfig, models: Models) -> None:
    """Finds out before a run is made whether there is something to search with."""
    from engine.triggers.catalogue import make_method
    from engine.triggers.hits import HitType

    wanted = HitType.parse(config.hit)
    # Says so when a threshold is missing.
    wanted.objective(models.thresholds)
    method = make_method(config.method, effort(config))
    if not method.searches_words and (config.lm or wanted.limits_input):
        what = "a continuous input has no words that a language model could judge"
        got = f"--hit {config.hit}, --lm {config.lm!r}"
        raise ConfigError(what, got=got, fix="leave out --lm and take --hit o-greedy, or another method")
    if config.gpus_per_worker > 0 and not config.workers:
        require_device("cuda", "--gpus-per-worker")


class _Account:
    """What a session has found so far, in words for a reporter.

    Args:
        wanted: the type of hit that is searched for.
    """

    def __init__(self, wanted: str) -> None:
        self.began, self.candidates, self.targets = time.monotonic(), 0, 0
        self.in_shard = 0
        self._hits: Counter[str] = Counter({wanted: 0})

    def add(self, found: ShardTally) -> None:
        """Notes what came of a shard."""
        self.count(found)
        self.targets += found.targets
        self.candidates += found.candidates
        self.in_shard = 0

    def count(self, found: ShardTally) -> None:
        """Notes hits alone: of what was saved before."""
        self._hits.update(found.hits)

    def reported(self) -> str:
        """Such as "680 candidates/s, hits: o-greedy 3"."""
        seconds = time.monotonic() - self.began
        pace = (self.candidates + self.in_shard) / seconds if seconds else 0.0
        return f"{pace:,.0f} candidates/s, hits: {', '.join(f'{kind} {number}' for kind, number in self._hits.items())}"


def _search(run: RunFolder, config: TriggerConfig, models: Models, targets: TargetList, reporter: Reporter) -> None:
    """Searches for what the run does not hold yet.

    Raises:
        ClusterError: Ray cannot be reached or lacks room for the workers.
        RunError: the disk refuses.
    """
    shards = make_shards({target.key: target for target in targets.targets}, config.engine.targets_per_shard)
    reporter.stage(f"searching for {targets.name} targets", len(targets.targets), "targets")
    before = run.num_done
    account = _Account(config.hit)
    for part in run.read_parts():
        account.count(tally(part.to_pylist()))
    done = before

    def on_progress(progress: Progress) -> None:
        nonlocal done
        done = before + progress.num_done
        workers = f"{progress.num_workers} of {config.workers} workers" if config.workers else ""
        failed = f"{progress.num_failed} failed" if progress.num_failed else ""
        reporter.advance(done, ", ".join(filter(None, (account.reported(), workers, failed))))

    def on_step(candidates: int) -> None:
        account.in_shard = candidates
        reporter.advance(done, account.reported())

    record = partial(
        record_shards,
        run,
        SearchWorker,
        shards=shards,
        seed_of=partial(target_seed, config.seed),
        num_workers=config.workers,
        num_gpus_per_worker=config.gpus_per_worker,
        digest=tally,
        on_digest=account.add,
        meter=lambda found: {"candidates": found.candidates, "hits": found.hits[config.hit]},
        on_progress=on_progress,
    )
    if config.workers == 0:
        # As in an actor: sums may differ in the last digit with the number of threads.
        with threads(1):
            record((config, models, on_step))
    else:
        with session(config.workers, config.address):
            record((config, models.shared()))
    seconds = time.monotonic() - account.began
    run.event(SEARCHED, seconds=seconds, targets=account.targets, candidates=account.candidates, workers=max(config.workers, 1))


def _metrics_of(config: TriggerConfig) -> list[str]:
    from engine.triggers.hits import HitType

    sampled = not config.model.startswith(HUGGING_FACE) or config.objective.t_out is not None
    kinds = read_types(HitType.parse(config.hit), sampled=sampled, judged=bool(config.lm))
    return [*(f"{HIT_RATE}{kind.name}" for kind in kinds), *COST_METRICS]


def _num_items(config: TriggerConfig) -> int:
    models = open_models(config)
    _check(config, models)
    return len(choose_targets(config, models).targets)


def _with_legend(result: Result) -> Result:
    return replace(result, legend={name: describe(name) for name in result.metrics})


def _next_commands(config: TriggerConfig, path: Path) -> tuple[str, ...]:
    return (shlex.join(["parley", "report", display_path(path)]),)


def he2018() -> TriggerConfig:
    """gibbs-enum as published: lists of 100 words, up to 50 sweeps, 10 restarts, until a hit (He & Glass 2018)."""
    return TriggerConfig(search=settings.he2018())


def released() -> TriggerConfig:
    """The released code's: 5 restarts of 5 sweeps, a hundredth of satisfied terms, batches of 100 that stop as one."""
    engine = TriggerEngineSettings(batch_size=100, targets_per_shard=100, unknown=True)
    return TriggerConfig(search=settings.released(), objective=ObjectiveSettings(satisfied_weight=0.01), engine=engine)


def quick() -> TriggerConfig:
    """A first look: 100 targets, 2 restarts of up to 10 sweeps."""
    return TriggerConfig(num_targets=100, search=SearchSettings(restarts=2, max_sweeps=10))


def demo() -> TriggerConfig:
    """Seconds, on the model of parley train seq2seq demo: what it says anyway, 20 targets, 2 restarts of up to 5 sweeps."""
    effort = SearchSettings(candidates=20, restarts=2, max_sweeps=5)
    return TriggerConfig(targets=NORMAL, num_targets=20, hit="o-greedy", search=effort)


SEARCH = Job(
    "search",
    TriggerConfig,
    {"he2018": he2018, "released": released, "quick": quick, "demo": demo},
    run,
    {},
    FILES,
    _next_commands,
    RESUME_SAFE,
    models_of,
    metrics_of=_metrics_of,
    num_items=_num_items,
)
