"""The shared parts of all benchmarks: command line, clock, description of the machine, and the JSON line of figures.

Seconds are those of the processor where one process is measured, so that neighbours on the machine count little (they take
caches and memory, not time), and those of the clock on the wall where several processes are, which mean little where the load
of "machine" is far from 0. Of a GPU they are those on the wall, until it is done. Ratios are reference seconds / our seconds:
above 1 is faster. `--quick` keeps every size that a ratio depends on, and takes fewer items.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import tyro

from parley.envs.core.errors import ParleyError
from parley.policies.core.layers import Weight, product

OptionsT = TypeVar("OptionsT")
CPU = torch.device("cpu")
INSTRUCTIONS = (
    *("avx2", "avx512_f", "avx512_vnni", "avx512_fp16", "avx512_bf16", "amx_bf16", "amx_fp16", "amx_int8"),
    *("neon", "bf16", "sve", "sve2"),
)
"""Those that a product of matrices may be made of, as torch calls them."""

PEAK_WIDTH = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the product whose rate is the peak."""
PEAK_PRODUCTS = 8


@dataclass
class Clock:
    """Adds up the seconds of the blocks run under `running`."""

    cpu_s: float = 0.0
    """Seconds of the processor, all threads of this process."""
    wall_s: float = 0.0
    """Seconds on the wall."""
    device: torch.device = CPU
    """Where the blocks compute; a GPU is waited for."""

    @property
    def seconds(self) -> float:
        """Return the seconds that count: those of the processor, on a GPU those on the wall."""
        return self.wall_s if self.device.type == "cuda" else self.cpu_s

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the seconds of a block."""
        self._wait()
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self._wait()
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Spans:
    """Wall seconds by name; what runs inside another span counts in its own alone."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = [0.0]

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a call: its seconds count under the name, without those of timed calls inside it."""

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
    """Measure matrix products (rows, inner) @ (inner, columns) on this thread, in 1e9 operations per CPU second."""
    left, right, repeats = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype), 400
    for _ in range(20):
        left @ right
    clock = Clock()
    with clock.running():
        for _ in range(repeats):
            left @ right
    return 2 * rows * inner * columns * repeats / clock.cpu_s / 1e9


def weight_gflop_per_s(rows: int, inner: int, columns: int, dtype: torch.dtype) -> float:
    """Measure as `gflop_per_s` the products of `policies/core/layers.py`."""
    left, weight, repeats = torch.randn(rows, inner), Weight(torch.randn(columns, inner), dtype), 200
    for _ in range(20):
        weight(left)
    clock = Clock()
    with clock.running():
        for _ in range(repeats):
            weight(left)
    return 2 * rows * inner * columns * repeats / clock.cpu_s / 1e9


def peak_flop_per_s(device: torch.device) -> float:
    """Measure the rate of a large square product in float32, in operations per second."""
    width, clock = PEAK_WIDTH[device.type], Clock(device=device)
    left, right = torch.randn(2, width, width, device=device)
    product(left, right)
    with clock.running():
        for _ in range(PEAK_PRODUCTS):
            product(left, right)
    return PEAK_PRODUCTS * 2 * width**3 / clock.seconds


def run(name: str, options: type[OptionsT], measure: Callable[[OptionsT], dict[str, Any]]) -> None:
    """Read the options, measure on one thread, and print the figures as one JSON line.

    Args:
        name: of the benchmark's module.
        options: dataclass of its options; its docstrings are the help.
        measure: returns the figures; must hold "ratio" and "identical".
    """
    load = os.getloadavg()[0]
    facts = machine()
    chosen = tyro.cli(options, prog=f"python -m benchmarks.{name}", description=options.__doc__)
    torch.set_num_threads(1)
    able = ", ".join(facts["instructions"])
    sys.stderr.write(f"{name} on {facts['processor']}, {facts['cores']} cores, one thread, {able}; load {load:.2f}\n")
    # Libraries print as they like; standard output is for the one line alone, also at the level of the file descriptor.
    result = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        figures = measure(chosen)
    except ParleyError as error:
        sys.exit(f"error: {error}")
    facts |= {"threads": torch.get_num_threads(), "load_before": load, "load_after": os.getloadavg()[0]}
    if torch.cuda.is_initialized():
        facts["gpu"] = torch.cuda.get_device_name()
    line = json.dumps({"benchmark": name, **_rounded(figures), "machine": _rounded(facts)})
    with os.fdopen(result, "w") as stream:
        print(line, file=stream)


def machine() -> dict[str, Any]:
    """Describe the processor: name, cores, and the instructions that speed up products of matrices."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().split("\n\n")[0].splitlines() if cpuinfo.is_file() else []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    processor = facts.get("model name", platform.processor() or platform.machine())
    if "cpu family" in facts:
        # A virtual machine may hide the rest of the name.
        processor += f" (family {facts['cpu family']}, model {facts.get('model', '?')})"
    able = torch.cpu.get_capabilities()
    sets = [name for name in INSTRUCTIONS if able.get(name) is True]
    return {"processor": processor, "cores": os.cpu_count(), "instructions": sets, "torch": torch.__version__}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
