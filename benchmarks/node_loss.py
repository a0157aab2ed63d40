"""Work that is done again when machines are lost: a simulated cluster, of which a machine is killed every so many seconds.

`ray.cluster_utils` gives each machine a raylet and one CPU. A machine in the middle of a shard is killed, and a new one joins.
A scorer (`simulated.py`) takes its time for each item and writes a line for it. More lines than items are work done again:

* "in_flight": of shards that the lost machine had begun and not given back;
* "beyond": of all other shards. It should stay below a twentieth of the items.

"ratio" is items / items that were computed. "identical": every item has one row, as a worker makes it that nothing befell.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkOptions, Result, run
from benchmarks.pool import DryRun
from benchmarks.simulated import LoggedWork, trigger_row
from parley.engine.core.ray.pool import Progress
from parley.engine.core.ray.record import write_shards
from parley.engine.core.ray.session import connect
from parley.engine.core.ray.worker import make_shards
from parley.engine.core.runs.documents import ROWS
from parley.engine.core.runs.parts import list_parts, to_table
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.triggers.verbs.config import TRIGGERS

MOST_BEYOND = 0.05
"""Share of the items that may be done again beyond the shards in flight."""
LEAN = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
HEALTH = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Items on machines that are lost."""

    items: int = 600
    """Items of the run."""
    shard_size: int = 4
    """Items in a shard."""
    machines: int = 2
    """Machines of one CPU beside the head, which has none."""
    item_s: float = 0.3
    """Seconds of the scorer for an item."""
    every_s: float = 20.0
    """Seconds between two losses."""

    @property
    def num_items(self) -> int:
        """Items of the run as it is made."""
        return self.items // 4 if self.quick else self.items


@dataclass
class Losses:
    """Kills a machine that is in the middle of a shard every so many seconds, and adds another one.

    Args:
        cluster: of `ray.cluster_utils`.
        every_s: seconds between two losses.
        log: lines of items, as `LoggedWork` writes them.
        rows: folder of the parts that are saved.
    """

    cluster: Any
    every_s: float
    log: Path
    rows: Path
    began: float | None = None
    in_flight: set[tuple[str, str]] = field(default_factory=set)
    """Lost machines, each with a shard that it had begun and that was not saved."""
    machines: list[str] = field(default_factory=list)
    """Lost machines."""

    def look(self, progress: Progress) -> None:
        """Kill a machine if it is time, as soon as the first shard is done."""
        if self.began is None:
            self.began = time.monotonic() if progress.num_done else None
            return
        if time.monotonic() - self.began < self.every_s or progress.num_done == progress.num_items:
            return
        saved = list_parts(self.rows)
        under_way = [(machine, shard) for machine, shard, _ in read_lines(self.log) if shard not in saved]
        # A machine in the middle of a shard.
        busy = next((machine for machine, _ in reversed(under_way) if machine not in self.machines), None)
        if busy is None:
            return
        lost = next(node for node in self.cluster.worker_nodes if node.node_id == busy)
        self.cluster.remove_node(lost, allow_graceful=False)
        self.in_flight |= {(machine, shard) for machine, shard in under_way if machine == busy}
        self.machines.append(busy)
        self.cluster.add_node(num_cpus=1)
        self.began = time.monotonic()


def read_lines(log: Path) -> list[tuple[str, str, str]]:
    """Return machine, shard and key of every item that was computed."""
    return [(machine, shard, key) for machine, shard, key in map(str.split, log.read_text(encoding="ascii").splitlines())]


def measure(options: Options) -> Result:
    """Measure in a cluster of its own."""
    from ray.cluster_utils import Cluster

    items = {f"{number:08d}": number for number in range(options.num_items)}
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder, "run"), Path(folder, "items.log")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": HEALTH, **LEAN})
        try:
            for _ in range(options.machines):
                cluster.add_node(num_cpus=1)
            losses = Losses(cluster, options.every_s, log, path / ROWS)
            config = DryRun(items=options.num_items, shard_size=options.shard_size)
            with RunFolder.open(path, config, job="node_loss", schema=TRIGGERS) as target, connect(cluster.address):
                began = time.monotonic()
                write_shards(
                    target,
                    LoggedWork(1, str(log), options.item_s),
                    make_shards(items, options.shard_size),
                    num_workers=options.machines,
                    on_progress=lambda progress, _: losses.look(progress),
                )
                seconds = time.monotonic() - began
                rows = target.read_rows().sort_by("item_key")
        finally:
            cluster.shutdown()
        lines = read_lines(log)
    again = Counter((shard, key) for _, shard, key in lines)
    of_lost = {shard for _, shard in losses.in_flight}
    done_again = {
        name: sum(num - 1 for (shard, _), num in again.items() if (shard in of_lost) == is_lost)
        for name, is_lost in (("in_flight", True), ("beyond", False))
    }
    beyond = done_again["beyond"] / len(items)
    assert beyond <= MOST_BEYOND, f"{done_again['beyond']} of {len(items)} items were done again beyond the shards in flight"
    figures = {
        "items": len(items),
        "shard_size": options.shard_size,
        "seconds": seconds,
        "losses": len(losses.machines),
        "shards_in_flight": len(losses.in_flight),
        "done_again": done_again,
        "share_beyond": beyond,
    }
    identical = rows.equals(to_table([trigger_row(key, 1) for key in items], TRIGGERS))
    return Result(ratio=len(items) / len(lines), identical=identical, figures=figures)


if __name__ == "__main__":
    run("node_loss", Options, measure)
