"""What every benchmark shares: options, result, clock, the machine that it names, and the one JSON line that it prints.

Seconds are those of the processor where one process is measured, so that neighbours on the machine count little (they take
caches and memory, not time), and those of the clock on the wall where several processes are, which mean little where the load
of "machine" is far from 0. Of a GPU they are those on the wall, until it is done. Ratios are reference seconds / our seconds:
above 1 is faster. With `--repeats` the whole measurement is made several times in one process, and the median counts.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
import tyro

from parley.envs.core.errors import ParleyError
from parley.policies.core.layers import Weight, product

OptionsT = TypeVar("OptionsT", bound="BenchmarkOptions")
CPU = torch.device("cpu")
INSTRUCTIONS = (
    *("avx2", "avx512_f", "avx512_vnni", "avx512_fp16", "avx512_bf16", "amx_bf16", "amx_fp16", "amx_int8"),
    *("neon", "bf16", "sve", "sve2"),
)
"""Those that a product of matrices may be made of, as torch calls them."""

PEAK_WIDTH = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the product whose rate is the peak."""
PEAK_PRODUCTS = 8


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Options of every benchmark."""

    quick: bool = False
    """Take fewer items, and keep every size that the ratio depends on: below a minute."""
    repeats: int = 1
    """Times that everything is measured at most."""
    seconds: float = 10.0
    """No third repeat begins later than this."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a benchmark measured once.

    Args:
        ratio: reference seconds / our seconds.
        identical: whether both sides computed the same.
        share_of_floor: share of our seconds that the arithmetic alone needs; None where the benchmark does not count it.
        figures: everything else, by name.
    """

    ratio: float
    identical: bool
    share_of_floor: float | None = None
    figures: dict[str, Any] = field(default_factory=dict)


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
        """Those that count: the processor's, but on a GPU those on the wall."""
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
        """Return the call, clocked."""

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
    """Return the rate of products (rows, inner) @ (inner, columns) on this thread, in 1e9 operations per CPU second."""
    left, right, repeats = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype), 400
    for _ in range(20):
        left @ right
    clock = Clock()
    with clock.running():
        for _ in range(repeats):
            left @ right
    return 2 * rows * inner * columns * repeats / clock.cpu_s / 1e9


def weight_gflop_per_s(rows: int, inner: int, columns: int, dtype: torch.dtype) -> float:
    """As `gflop_per_s`, of the products that `policies/core/layers.py` forms."""
    left, weight, repeats = torch.randn(rows, inner), Weight(torch.randn(columns, inner), dtype), 200
    for _ in range(20):
        weight(left)
    clock = Clock()
    with clock.running():
        for _ in range(repeats):
            weight(left)
    return 2 * rows * inner * columns * repeats / clock.cpu_s / 1e9


def peak_flop_per_s(device: torch.device) -> float:
    """Return the rate of a large square product in float32."""
    width, clock = PEAK_WIDTH[device.type], Clock(device=device)
    left, right = torch.randn(2, width, width, device=device)
    product(left, right)
    with clock.running():
        for _ in range(PEAK_PRODUCTS):
            product(left, right)
    return PEAK_PRODUCTS * 2 * width**3 / clock.seconds


def run(name: str, options: type[OptionsT], measure: Callable[[OptionsT], Result]) -> None:
    """Read the options, measure on one thread, and print the figures as one JSON line.

    Args:
        name: of the benchmark's module.
        options: dataclass of its options; its docstrings are the help.
        measure: measures once.
    """
    load = os.getloadavg()[0]
    about = machine()
    chosen = tyro.cli(options, prog=f"python -m benchmarks.{name}", description=options.__doc__)
    torch.set_num_threads(1)
    able = ", ".join(about["instructions"])
    sys.stderr.write(f"{name} on {about['processor']}, {about['cores']} cores, one thread, {able}; load {load:.2f}\n")
    # Libraries print as they like; standard output is for the one line alone, also at the level of the file descriptor.
    line = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        results, began = list[Result](), time.monotonic()
        while len(results) < chosen.repeats and (len(results) < 2 or time.monotonic() - began < chosen.seconds):
            results.append(measure(chosen))
    except ParleyError as error:
        sys.exit(f"error: {error}")
    finally:
        # The last line that a process writes is its error, not what waited in a buffer.
        sys.stdout.flush()
    about |= {"threads": torch.get_num_threads(), "load_before": load, "load_after": os.getloadavg()[0]}
    if torch.cuda.is_initialized():
        about["gpu"] = torch.cuda.get_device_name()
    figures = {"benchmark": name, **summary(results), "machine": about}
    with os.fdopen(line, "w") as stream:
        print(json.dumps(_rounded(figures)), file=stream)


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Return the medians, all ratios, whether every repeat was identical, and the other figures of the last one."""
    ratios = [result.ratio for result in results]
    shares = [result.share_of_floor for result in results if result.share_of_floor is not None]
    return {
        "ratio": statistics.median(ratios),
        "identical": all(result.identical for result in results),
        "share_of_floor": statistics.median(shares) if shares else None,
        "ratios": ratios,
        **results[-1].figures,
    }


def machine() -> dict[str, Any]:
    """Return the processor, its cores, and those of its instructions that products of matrices depend on."""
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
