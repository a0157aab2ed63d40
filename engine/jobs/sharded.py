"""The settings of jobs whose work is cut into shards: from which seed, over how many workers, on which cluster."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.runtime.session import connect
from envs.core.config import check
from envs.core.errors import ConfigError

RESUME_SAFE = ("workers", "gpus_per_worker", "address", "data_root")
"""Settings that change how work is done and not its rows; a resumed run may differ in them."""


@dataclass(frozen=True, kw_only=True)
class ShardedConfig:
    """How the work is done."""

    seed: int = 1
    """Master seed."""
    workers: int = 0
    """Ray actors that work; 0 works in this process without Ray."""
    gpus_per_worker: float = 0.0
    """GPUs, or a fraction of one, for each actor."""
    address: str = ""
    """Address of a Ray cluster for those actors; a local one when empty."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""

    def __post_init__(self) -> None:
        check(self, "seed", self.seed >= 0, "at least 0")
        check(self, "workers", self.workers >= 0, "at least 0")
        if self.address and not self.workers:
            fix = "say how many Ray actors work there: --workers N"
            raise ConfigError("a cluster is named and no work would go there", where="--address", got=self.address, fix=fix)
        check(self, "gpus_per_worker", self.gpus_per_worker >= 0, "at least 0")


def session(workers: int, address: str) -> AbstractContextManager[Any]:
    """The Ray session of some workers; none where there are none."""
    if not workers:
        return nullcontext()
    return connect(address or None, num_cpus=None if address else max(workers, os.cpu_count() or 1))
