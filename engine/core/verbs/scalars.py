"""Figures of a training as TensorBoard reads them: `tensorboard --logdir RUN`.

The event log of a run stays what counts; this is a second view of it for those who watch many runs at once. So a failure to
write it is a warning and ends nothing. It is written by the thread that calls: tensorboardX's own `SummaryWriter` leaves that
to another one, which dies of a full disk, and then waits for it for ever.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

FOLDER = "tensorboard"

logger = logging.getLogger(__name__)


class Scalars:
    """Scalars by step, for the length of a `with` block.

    Args:
        run: the run's folder.
        behind: steps that are saved already, -1 for not even the start; later ones that an interrupted process wrote are
            superseded.
    """

    def __init__(self, run: Path, behind: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self._folder = run / FOLDER
        self._writer: Any = None
        with self._trying():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(self._folder / "events"))
            self._write(behind + 1, session_log=SessionLog(status=SessionLog.START))

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._writer is not None:
            with self._trying():
                self._writer.close()

    def add(self, step: int, figures: Mapping[str, Any]) -> None:
        """The figures of one step; after a failure to write, nothing."""
        from tensorboardX.summary import scalar

        if self._writer is not None:
            with self._trying():
                for name, value in figures.items():
                    self._write(step, summary=scalar(name, value))
                self._writer.flush()

    def _write(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(step=step, wall_time=time.time(), **content))

    @contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._writer = None
            logger.warning("%s: figures for TensorBoard are no longer written: %s", self._folder, error)
