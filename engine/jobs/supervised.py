"""The settings of jobs that fit a model in one process: from which seed, with how many threads, on which device."""

from __future__ import annotations

from dataclasses import dataclass

from envs.core.config import check

UNCHECKED = ("data_root", "device", "threads")
"""Settings that change how a model is fitted and not what it is; a resumed run may differ in them."""


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig:
    """How a model is fitted."""

    seed: int = 1
    """Master seed."""
    threads: int = 1
    """CPU threads that the training computes with."""
    device: str = "cpu"
    """Torch device, such as cpu or cuda."""

    def __post_init__(self) -> None:
        check(self, "seed", self.seed >= 0, "at least 0")
        check(self, "threads", self.threads >= 1, "at least 1")
