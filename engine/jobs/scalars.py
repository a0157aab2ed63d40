"""Figures of a training as TensorBoard reads them: `tensorboard --logdir RUN`.

The event log of a run stays what counts; this is a second view of it for those who watch many runs at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

FOLDER = "tensorboard"


class Scalars:
    """Scalars by step, for the length of a `with` block.

    Args:
        run: the run's folder.
        behind: steps that are saved already; later ones that an interrupted process wrote are superseded.
    """

    def __init__(self, run: Path, behind: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(run / FOLDER), purge_step=behind + 1)

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writer.close()

    def add(self, step: int, figures: Mapping[str, Any]) -> None:
        """The figures of one step."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
