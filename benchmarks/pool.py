"""The pool: a dry run of a million items of work over Ray actors into a run folder, and what sharing work out costs.

The scorer is simulated (`simulated.py`): rows as long as a real search's, made at once, so that the pool alone is measured.

* dry run: `write_shards` over two actors. "items_per_s" is on the wall, the start of the actors included; memory is what the
  driver holds of its own (anonymous pages) at intervals, which must not grow with the items that are done; the pages of Ray's
  object store that it has touched come on top, shared with the workers, and the store bounds them.
* the reference: one Ray task an item, all rows collected and written as one file, on fewer items. "ratio" is of the rates.
* shards: milliseconds of the driver for each shard, by size of the shard, without and with the run folder; a line through them
  gives the cost of a shard and of an item in it.
* in flight: milliseconds to learn of one finished call among so many, which is what more actors cost the driver.
* actors: items a second of one and of two actors with a scorer that computes, each on one thread.

"identical" says that every item has one row, that the rows of some parts and of the reference are those that this process
makes, and that one and two actors give the same rows.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import BenchmarkOptions, Result, run
from benchmarks.simulated import SEED, Computing, Simulated, SimulatedWork, trigger_row
from parley.engine.core.ray.pool import Progress, run_sharded
from parley.engine.core.ray.record import write_shards
from parley.engine.core.ray.session import connect
from parley.engine.core.ray.worker import Shard, make_shards
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.triggers.verbs.config import TRIGGERS

MAX_GROWTH_MIB = 32.0
"""What the driver may hold more of at the end than after the first fifth of the items."""
SIZES = (1, 8, 64, 512)
IN_FLIGHT = (2, 20, 200, 2000)
_SAMPLES = 50
_CHECKED_PARTS = 20


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """A million items through the pool, and what a shard costs."""

    items: int = 1_000_000
    """Items of the dry run."""
    shard_size: int = 512
    """Items in a shard of it."""
    workers: int = 2
    """Actors of it."""
    restarts: int = 3
    """Restarts in a row, which decide how long it is."""
    run: Path | None = None
    """Folder that keeps the dry run; none is kept when not given."""

    @property
    def num_items(self) -> int:
        """Items of the dry run as it is made."""
        return self.items // 50 if self.quick else self.items

    @property
    def plain_items(self) -> int:
        """Items of the reference."""
        return 1000 if self.quick else 20_000

    @property
    def num_shards(self) -> int:
        """Most shards of one size that are measured."""
        return 40 if self.quick else 200

    @property
    def computing_items(self) -> int:
        """Items for the scorer that computes."""
        return 24 if self.quick else 200


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """The configuration of the run folder."""

    items: int
    shard_size: int
    seed: int = SEED


@dataclass
class Memory:
    """What this process holds while items are done.

    Args:
        step: items between two looks.
    """

    step: int
    done: list[int] = field(default_factory=list)
    own_mib: list[float] = field(default_factory=list)
    mapped_mib: list[float] = field(default_factory=list)

    def look(self, progress: Progress) -> None:
        """Look, when the last time is a step ago."""
        if self.done and progress.num_done < min(self.done[-1] + self.step, progress.num_items):
            return
        lines = Path("/proc/self/status").read_text().splitlines()
        kib = {name: float(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if "Rss" in name}
        self.done.append(progress.num_done)
        self.own_mib.append(kib["RssAnon"] / 1024)
        self.mapped_mib.append(kib["RssShmem"] / 1024)

    def figures(self) -> dict[str, float]:
        """MiB at the start, at the most and at the end; growth over the last four fifths, and as a slope.

        Raises:
            AssertionError: memory grows with the items that are done.
        """
        done, sizes = np.array(self.done), np.array(self.own_mib)
        later = done >= done[-1] / 5
        growth = float(sizes[-1] - sizes[later][0])
        assert growth <= MAX_GROWTH_MIB, f"the driver grew by {growth:.0f} MiB: {[round(size) for size in sizes]}"
        slope = float(np.polyfit(done[later] / 1e6, sizes[later], 1)[0])
        return {
            "start": sizes[0],
            "peak": sizes.max(),
            "end": sizes[-1],
            "growth": growth,
            "per_million_items": slope,
            "object_store_peak": max(self.mapped_mib),
        }


def measure(options: Options) -> Result:
    """Measures all parts in one Ray session."""
    with connect(num_cpus=max(2, options.workers)):
        dry, complete = _dry_run(options)
        plain_per_s, same = _plain(options.plain_items, options.restarts)
        shards = {"pool": _by_size(options, _through_pool), "recorded": _by_size(options, _into_folder)}
        actors, equal = _actors(options.computing_items)
        figures = {
            **dry,
            "plain_items_per_s": plain_per_s,
            "shard": shards,
            "in_flight_ms": {str(number): _in_flight_ms(number) for number in IN_FLIGHT},
            "actors": actors,
        }
    ratio = dry["items_per_s"] / plain_per_s
    return Result(ratio=ratio, identical=complete and same and equal, figures=figures)


def _dry_run(options: Options) -> tuple[dict[str, Any], bool]:
    shards = _shards(options.num_items, options.shard_size)
    memory = Memory(step=options.num_items // _SAMPLES)
    config = DryRun(items=options.num_items, shard_size=options.shard_size)
    with tempfile.TemporaryDirectory() if options.run is None else nullcontext(str(options.run)) as folder:
        path = Path(folder)
        with RunFolder.open(path, config, job="pool", schema=TRIGGERS) as target:
            began, cpu = time.perf_counter(), time.process_time()
            work = SimulatedWork(options.restarts)
            write_shards(target, work, shards, num_workers=options.workers, on_progress=lambda seen, _: memory.look(seen))
            seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        began = time.perf_counter()
        RunFolder.open(path, config, job="pool", schema=TRIGGERS).close()
        open_s, began = time.perf_counter() - began, time.perf_counter()
        num_done = RunFolder.load(path).outcomes().done
        status_s = time.perf_counter() - began
        complete = num_done == options.num_items and _is_complete(RunFolder.load(path), options)
        size = sum(part.stat().st_size for part in path.glob("rows/*"))
    figures = {
        "items_per_s": options.num_items / seconds,
        "items": options.num_items,
        "shards": len(shards),
        "workers": options.workers,
        "driver_us_per_item": 1e6 * cpu_s / options.num_items,
        "driver_mib": memory.figures(),
        "sent_bytes_per_item": len(pickle.dumps(Simulated(options.restarts).run(shards[0]), 5)) / len(shards[0]),
        "stored_bytes_per_item": size / options.num_items,
        "reopen_s": open_s,
        "count_s": status_s,
    }
    return figures, complete


def _is_complete(stored: RunFolder, options: Options) -> bool:
    """Whether every item has one row, and some parts hold what this process comes to."""
    seen = np.zeros(options.num_items, dtype=np.int64)
    for number, part in enumerate(stored.read_parts()):
        keys = part["item_key"].to_pylist()
        np.add.at(seen, [int(key) for key in keys], 1)
        if number < _CHECKED_PARTS and not part.equals(_table(keys, options.restarts)):
            return False
    return bool((seen == 1).all())


def _table(keys: Iterable[str], restarts: int) -> pa.Table:
    return pa.Table.from_pylist([trigger_row(key, restarts) for key in keys], schema=TRIGGERS)


def _plain(num_items: int, restarts: int) -> tuple[float, bool]:
    """Items a second of one task an item, and whether the rows are right."""
    import ray

    score = ray.remote(trigger_row)
    keys = list(map(_key, range(num_items)))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        rows = ray.get([score.remote(key, restarts) for key in keys])
        pq.write_table(pa.Table.from_pylist(rows, schema=TRIGGERS), Path(folder) / "rows.parquet", compression="zstd")
        seconds = time.perf_counter() - began
        table = pq.read_table(Path(folder) / "rows.parquet")
    return num_items / seconds, table.equals(_table(keys, restarts))


class Warm:
    """Clocks a pool from the moment at which all of its actors are up.

    Args:
        workers: how many those are.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.began: tuple[float, float, int] | None = None
        self.wall_s = self.cpu_s = 0.0
        self.items = 0

    def tick(self, progress: Progress) -> None:
        """Take note of a result."""
        now = time.perf_counter(), time.process_time()
        if self.began is None:
            self.began = (*now, progress.num_done) if progress.num_workers >= self.workers else None
            return
        self.wall_s, self.cpu_s = now[0] - self.began[0], now[1] - self.began[1]
        self.items = progress.num_done - self.began[2]


def _by_size(options: Options, work: Callable[[list[Shard[int]], int, Warm], None]) -> dict[str, Any]:
    """Return the driver's milliseconds, of the processor and on the wall, for a shard of each size."""
    cpu_ms, wall_ms = [], []
    for size in SIZES:
        shards = _shards(size * max(10, min(options.num_shards, 25_600 // size)), size)
        warm = Warm(1)
        work(shards, options.restarts, warm)
        cpu_ms.append(1e3 * warm.cpu_s * size / warm.items)
        wall_ms.append(1e3 * warm.wall_s * size / warm.items)
    per_item, per_shard = np.polyfit(SIZES, cpu_ms, 1, w=1 / np.array(cpu_ms))
    return {
        "sizes": SIZES,
        "driver_ms": cpu_ms,
        "wall_ms": wall_ms,
        "driver_ms_per_shard": float(per_shard),
        "driver_us_per_item": 1e3 * float(per_item),
    }


def _through_pool(shards: list[Shard[int]], restarts: int, warm: Warm) -> None:
    run_sharded(Simulated, (restarts,), shards, num_workers=1, on_result=lambda shard, rows: None, on_progress=warm.tick)


def _into_folder(shards: list[Shard[int]], restarts: int, warm: Warm) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = DryRun(items=len(shards), shard_size=len(shards[0]))
        with RunFolder.open(Path(folder), config, job="pool", schema=TRIGGERS) as target:
            write_shards(target, SimulatedWork(restarts), shards, num_workers=1, on_progress=lambda seen, _: warm.tick(seen))


def _in_flight_ms(number: int, rounds: int = 200) -> float:
    """Milliseconds of the driver to learn of one result among so many calls, to take it and to make another."""
    import ray

    echo = ray.remote(_Echo).options(num_cpus=0).remote()
    ray.get(echo.say.remote())
    running = {echo.say.remote(): None for _ in range(number)}
    began = time.process_time()
    for _ in range(rounds):
        (ref,), _ = ray.wait(list(running))
        del running[ref]
        ray.get(ref)
        running[echo.say.remote()] = None
    spent = time.process_time() - began
    ray.kill(echo)
    return 1e3 * spent / rounds


class _Echo:
    def say(self) -> None:
        return None


def _actors(num_items: int) -> tuple[dict[str, Any], bool]:
    """Items a second of one and of two actors, and whether their rows are the same."""
    shards = _shards(num_items, 2)
    rates: dict[str, float] = {}
    by_workers: dict[str, dict[str, Any]] = {"1": {}, "2": {}}
    for workers in (1, 2):
        warm, kept = Warm(workers), by_workers[str(workers)]

        def take(shard: Shard[int], rows: Any, kept: dict[str, Any] = kept) -> None:
            kept.update(zip(shard.keys, rows, strict=True))

        run_sharded(Computing, (400, 128), shards, num_workers=workers, on_result=take, on_progress=warm.tick)
        rates[str(workers)] = warm.items / warm.wall_s
    return {"items_per_s": rates, "scaling": rates["2"] / rates["1"]}, by_workers["1"] == by_workers["2"]


def _shards(num_items: int, size: int) -> list[Shard[int]]:
    return make_shards({_key(number): number for number in range(num_items)}, size)


def _key(number: int) -> str:
    return f"{number:08d}"


if __name__ == "__main__":
    run("pool", Options, measure)
