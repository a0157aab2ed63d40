"""Jobs that are made of other jobs: each stage is a run of its own below the run's folder, and resumes by itself.

Stages that need nothing of each other may be done side by side, in Ray actors on this machine (`Beside`).
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

from engine.jobs.job import ConfigT, FoundT, Job, PreparedT, Reporter, Silent
from engine.runtime.machines import machines_up
from engine.runtime.pool import run_sharded
from engine.runtime.session import connect
from engine.runtime.sharding import Shard, make_shards
from engine.store.layout import SUMMARY

logger = logging.getLogger(__name__)

Stage = tuple[Job[Any, Any, Any], Any]
"""A job and its configuration."""


class Composite(Job[ConfigT, PreparedT, FoundT]):
    """A job whose work is that of its stages."""

    @abstractmethod
    def stages(self, config: ConfigT, path: Path) -> Mapping[str, Stage]:
        """The stages by the names of their folders, in the order in which they are done.

        Args:
            config: what is asked for.
            path: the run's folder, as it was given; the stages name each other's folders below it.
        """


def run_stages(
    stages: Mapping[str, Stage], path: Path, reporter: Reporter, before: Callable[[str], None] = lambda name: None
) -> None:
    """Does what is left of each stage, one after the other.

    Args:
        stages: as `Composite.stages` gives them.
        path: the folder that theirs lie in.
        reporter: who looks on.
        before: called with the name of each before it is done.
    """
    for number, (name, (job, config)) in enumerate(stages.items(), start=1):
        reporter.say(f"stage {number} of {len(stages)}: {name}")
        before(name)
        job.run(config, path / name, reporter)


class Beside:
    """Stages that Ray actors on this machine do while this process does others.

    They are only done ahead: what fails there, or is lost with an actor, is left to be done here, where errors are told. On a
    cluster nothing is done ahead: another machine's actors would leave their runs there.

    Args:
        chains: stages by the names of their folders; those of a chain are done one after another, in this order, and chains
            are begun in theirs. Stages that are finished are left out.
        path: the folder of their runs.
        num_workers: actors, each with a CPU; with 0 nothing is done ahead.
        num_cpus: logical CPUs of the Ray session where none is there yet; the actors and this machine have as many at least.
    """

    def __init__(
        self, chains: Sequence[Mapping[str, Stage]], path: Path, num_workers: int, *, num_cpus: int = 0
    ) -> None:
        left = [
            [(*stage, path / name) for name, stage in chain.items() if not (path / name / SUMMARY).exists()] for chain in chains
        ]
        items = {f"{number:05d}": chain for number, chain in enumerate(left) if chain}
        self._shards = make_shards(items, 1) if num_workers else []
        self._num_workers, self._num_cpus = num_workers, max(num_cpus, num_workers, os.cpu_count() or 1)
        self._summaries = [folder / SUMMARY for chain in left for _, _, folder in chain]
        self._session = ExitStack()
        # Were it waited for when this process is interrupted, that would take as long as its stages.
        self._thread = Thread(target=self._work, daemon=True)

    def __enter__(self) -> Beside:
        if self._shards:
            self._session.enter_context(connect(num_cpus=self._num_cpus))
            if len(machines_up()) == 1:
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @property
    def has_done_all(self) -> bool:
        """Whether there was something to do ahead, and all of it is done."""
        return bool(self._summaries) and all(summary.exists() for summary in self._summaries)

    def wait(self, reporter: Reporter, title: str = "what was begun beside") -> None:
        """Waits until all has been tried.

        Args:
            reporter: who looks on.
            title: what it is shown.
        """
        if not self._thread.is_alive():
            return
        reporter.stage(title, len(self._summaries), "stages")
        while self._thread.is_alive():
            reporter.advance(sum(summary.exists() for summary in self._summaries))
            self._thread.join(1.0)

    def _work(self) -> None:
        try:
            run_sharded(
                _Stages, (Path.cwd(),), self._shards, num_workers=self._num_workers, on_result=lambda shard, result: None
            )
        except Exception:
            logger.warning("no stage is done beside this process", exc_info=True)


class _Stages:
    """The worker of `Beside`.

    Args:
        folder: which relative paths are relative to.
    """

    def __init__(self, folder: Path) -> None:
        os.chdir(folder)

    def run(self, shard: Shard[list[tuple[Job[Any, Any, Any], Any, Path]]]) -> None:
        """Does the stages of a chain."""
        for chain in shard.items:
            for job, config, path in chain:
                job.run(config, path, Silent())
