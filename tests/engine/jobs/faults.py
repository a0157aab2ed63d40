"""Small runs of every kind for clusters that lose machines, and workers that take their time, so that there is time to lose them.

Here, because scripts in processes of their own, and Ray's workers, import it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.jobs import match, robustness, search
from engine.jobs.job import Result, Silent, Watcher
from engine.jobs.match import MatchConfig
from engine.jobs.robustness_config import EngineSettings as RobustnessSettings
from engine.jobs.search_config import EngineSettings as SearchSettings
from engine.jobs.whitebox import JOBS as ATTACKS
from engine.runtime import pool
from engine.runtime.actors import ActorPool
from engine.runtime.sharding import Shard
from engine.runtime.worker import ShardWorker
from tests.engine.jobs import robust, searches
from tests.engine.jobs.made_up import Notes, rows, save_negotiator

SECONDS = 0.3
NUM_SHARDS = 12
HEALTH = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
"""Of a cluster that is to notice soon when a machine is gone; Ray's own settings take a quarter of a minute."""


class Slowed:
    """A worker that sleeps before each shard, and leaves a file per attempt: `FOLDER/SHARD.PID.NANOSECONDS`."""

    def __init__(self, folder: Path, worker_class: Callable[..., ShardWorker[Any, Any]], *args: Any) -> None:
        self.folder, self.worker = folder, worker_class(*args)

    def run(self, shard: Shard[Any]) -> Any:
        (self.folder / f"{shard.name}.{os.getpid()}.{time.monotonic_ns()}").touch()
        time.sleep(SECONDS)
        return self.worker.run(shard)


def slow_workers(folder: Path) -> None:
    """Makes every pool of this process one of `Slowed` workers."""
    folder.mkdir()

    def slowed(worker_class: Callable[..., Any], worker_args: Any, **rest: Any) -> ActorPool[Any, Any]:
        return ActorPool(partial(Slowed, folder, worker_class), worker_args, **rest)

    pool.ActorPool = slowed  # type: ignore[assignment, misc]


def attempts(folder: Path) -> list[tuple[str, int]]:
    """The shard and the process of every attempt, in order."""
    found = (path.name.split(".") for path in folder.iterdir())
    return [(shard, int(pid)) for shard, pid, _ in sorted(found, key=lambda parts: int(parts[2]))]


@dataclass(frozen=True)
class Case:
    """A run of `NUM_SHARDS` shards.

    Args:
        config: of it, without workers.
        run: does it.
    """

    config: Any
    run: Callable[[Any, Path, Watcher], Result]

    def rows_of(self, path: Path, watcher: Watcher | None = None, **changes: Any) -> list[dict[str, Any]]:
        """Does the run with some settings changed; its rows."""
        self.run(replace(self.config, **changes), path, watcher or Silent())
        return rows(path)


def make_case(kind: str, folder: Path) -> Case:
    """A run of "search", "attack", "robustness" or "selfplay" on models made in a folder."""
    return _CASES[kind](folder)


def _search(folder: Path) -> Case:
    corpus = searches.write_corpus(folder)
    model = searches.save_seq2seq(folder / "model", searches.words_of(corpus), corpus=str(corpus))
    engine = SearchSettings(batch=4, targets_per_shard=1)
    return Case(searches.search(model, "random", num_targets=NUM_SHARDS, engine=engine), search.run)


def _attack(folder: Path) -> Case:
    speaker, target = (str(save_negotiator(folder / name, seed)) for seed, name in enumerate(("speaker", "target")))
    job = ATTACKS["reactive"]
    preset = job.presets["cheng2019"]()
    few = replace(preset.search, replies=2, finalists=2)
    config = replace(
        preset, target=target, speaker=speaker, dialogues=2 * NUM_SHARDS, shard_size=2, max_turns=4, temperature=1.0, search=few
    )
    return Case(config, job.run)


def _robustness(folder: Path) -> Case:
    model = robust.save_responder(folder / "model", robust.words_of_the_desk())
    engine = RobustnessSettings(batch=8, examples_per_shard=2)
    return Case(robust.evaluation(model, limit=2 * NUM_SHARDS, engine=engine), robustness.run)


def _selfplay(folder: Path) -> Case:
    target = str(save_negotiator(folder / "target"))
    config = MatchConfig(adversary="scripted", target=target, dialogues=2 * NUM_SHARDS, shard_size=2, max_turns=6)
    return Case(config, match.run)


_CASES = {"search": _search, "attack": _attack, "robustness": _robustness, "selfplay": _selfplay}


class When(Notes):
    """A watcher that does something once, when some items are done and two workers have begun."""

    def __init__(self, folder: Path, done: int, act: Callable[[], None]) -> None:
        super().__init__()
        self.folder, self.done, self.act = folder, done, act
        self.acted = False

    def advance(self, done: int, note: str = "") -> None:
        super().advance(done, note)
        if not self.acted and done >= self.done and len({pid for _, pid in attempts(self.folder)}) >= 2:
            self.acted = True
            self.act()
