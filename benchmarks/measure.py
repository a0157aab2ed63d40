"""What every benchmark shares: its command line, its clock, and the one JSON line it prints.

Seconds are those of the processor where one process is measured, so that neighbours on the machine do not count, and
those of the clock on the wall where several processes are, which mean little where "load_before" is far from 0. Ratios are
reference seconds / our seconds: above 1 is faster.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import tyro

from envs.core.errors import ParleyError

OptionsT = TypeVar("OptionsT")


@dataclass
class Clock:
    """Adds up the seconds of the blocks run under `running`."""

    cpu_s: float = 0.0
    """Seconds of the processor, all threads of this process."""
    wall_s: float = 0.0
    """Seconds on the wall."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Counts the seconds of a block."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall


class Spans:
    """Wall seconds by name; what runs inside another span counts in its own alone."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = [0.0]

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, clocked."""

        def clocked(*arguments: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            started = time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                whole = time.perf_counter() - started
                self.seconds[name] += whole - self._inner.pop()
                self._inner[-1] += whole

        return clocked


def gflop_per_s(rows: int, inner: int, columns: int, dtype: torch.dtype) -> float:
    """The rate of matrix products (rows, inner) @ (inner, columns) on this thread, in 1e9 operations per CPU second."""
    left, right, repeats = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype), 400
    for _ in range(20):
        left @ right
    clock = Clock()
    with clock.running():
        for _ in range(repeats):
            left @ right
    return 2 * rows * inner * columns * repeats / clock.cpu_s / 1e9


def run(name: str, options: type[OptionsT], measure: Callable[[OptionsT], dict[str, Any]]) -> None:
    """Reads the options, measures on one thread, and prints the figures as one JSON line.

    Args:
        name: of the benchmark's module.
        options: dataclass of its options; its docstrings are the help.
        measure: returns the figures; must hold "ratio" and "identical".
    """
    load = os.getloadavg()[0]
    chosen = tyro.cli(options, prog=f"python -m benchmarks.{name}", description=options.__doc__)
    torch.set_num_threads(1)
    # Libraries print as they like; standard output is for the one line alone, also at the level of the file descriptor.
    result = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        figures = measure(chosen)
    except ParleyError as error:
        sys.exit(f"error: {error}")
    line = json.dumps({"benchmark": name, **{key: _rounded(value) for key, value in figures.items()}, "load_before": load})
    with os.fdopen(result, "w") as stream:
        print(line, file=stream)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
