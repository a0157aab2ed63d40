"""Whole stages that Ray actors do ahead, while this process does others: `Beside`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

from parley.engine.core.ray.pool import run_sharded
from parley.engine.core.ray.progress_board import Board
from parley.engine.core.ray.session import connect
from parley.engine.core.ray.sharding import make_shards
from parley.engine.core.ray.shares import NOTHING, Reserved, Share, reserve
from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.verbs.composite import LOOK_S, Stage, Together
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.stage_progress import (
    StageNews,
    WholeStages,
    driver_of_several,
    num_at_once,
    settings_of,
    share_of,
)
from parley.envs.core.errors import RefusedModelError

logger = logging.getLogger(__name__)


class Beside:
    """Stages that Ray actors do while this process does others.

    They are only done ahead: what fails there, or is lost with an actor, is left to be done here, where errors are told. So is
    all of it where there is too little room.

    Args:
        chains: stages by the names of their folders; those of a chain are done one after another, in this order, and chains
            are begun in theirs. Stages that are finished are left out.
        path: the folder of their runs.
        num_workers: actors at most; with 0 nothing is done ahead.
        num_cpus: logical CPUs of the Ray session where none is there yet; this machine has as many at least.
        address: of a Ray cluster.
        least: actors that there must be room for, or nothing is done ahead.
        spare: what is to be left for what this process does meanwhile.

    Attributes:
        num_asked: actors that there is something to do for.
        num_actors: those that there is room for; 0 where nothing is done ahead.
    """

    def __init__(
        self,
        chains: Sequence[Mapping[str, Stage]],
        path: Path,
        num_workers: int,
        *,
        num_cpus: int = 0,
        address: str = "",
        least: int = 1,
        spare: Share = NOTHING,
    ) -> None:
        left = [{name: one for name, one in chain.items() if not (path / name / SUMMARY).exists()} for chain in chains]
        self._chains, self._path, self._address = [chain for chain in left if chain], path, address
        self.num_asked, self.num_actors = min(num_workers, len(self._chains)), 0
        self._num_cpus = max(num_cpus, 2, os.cpu_count() or 1)
        self._least, self._spare = least, spare
        self._heard = StageNews(Board())
        self._session = ExitStack()
        self._refused: RefusedModelError | None = None
        self._thread: Thread | None = None

    @property
    def names(self) -> list[str]:
        """The stages that were not finished before."""
        return [name for chain in self._chains for name in chain]

    def __enter__(self) -> Beside:
        if self.num_asked >= self._least:
            here = self._session.enter_context(connect(self._address or None, num_cpus=self._num_cpus))
            machine = driver_of_several()
            share = share_of([config for chain in self._chains for _, config in chain.values()], machine)
            number = num_at_once(share, here, self.num_asked, self._spare)
            if number >= self._least:
                self.num_actors = number
                # Reserved before anything else of this process is, which may then wait for what is left.
                places = reserve(share, number)
                # Were it waited for when this process is interrupted, that would take as long as its stages.
                self._thread = Thread(target=self._work, args=(places,), daemon=True)
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @property
    def has_done_all(self) -> bool:
        """Whether there was something to do ahead, and all of it is done."""
        return bool(self._chains) and all(map(self._is_done, self.names))

    def has_done(self, name: str) -> bool:
        """Whether a stage is finished, once it is or all have been tried."""
        while self._thread is not None and self._thread.is_alive() and not self._is_done(name):
            self._thread.join(LOOK_S)
        return self._is_done(name)

    def follow(self, told: Together) -> None:
        """Tells how far the stages are until all have been tried."""
        while self._thread is not None and self._thread.is_alive():
            told.hear(self._heard, self.names, self._path)
            self._thread.join(LOOK_S)
        told.hear(self._heard, self.names, self._path)

    def wait(self, reporter: Reporter, title: str = "what was begun beside") -> None:
        """Waits until all has been tried.

        Raises:
            RefusedModelError: a stage met it, so that asking again here is of no use.
        """
        if self._thread is not None and self._thread.is_alive():
            self.follow(Together(reporter, self.names, title))
        if self._refused:
            raise self._refused

    def _is_done(self, name: str) -> bool:
        return (self._path / name / SUMMARY).exists()

    def _work(self, places: Reserved) -> None:
        machine = places.share.machine
        items = {
            f"{number:05d}": [(job, settings_of(config, machine), self._path / name) for name, (job, config) in chain.items()]
            for number, chain in enumerate(self._chains)
        }
        arguments, number = WholeStages.arguments(self._heard.board), len(places.groups)
        shards = make_shards(items, 1)
        try:
            run_sharded(WholeStages, arguments, shards, num_workers=number, on_result=lambda *_: None, places=places)
        except RefusedModelError as error:
            self._refused = error
        except Exception:
            logger.warning("no stage is done beside this process", exc_info=True)
        finally:
            with suppress(Exception):
                places.release()
