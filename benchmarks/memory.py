"""Memory of the driver by the number of rows: a scan of a served model, and the ends of a ranking evaluation and of a search.

Each size has a process of its own (`driver_memory.py`). The scan asks a server that answers at once. The ranking evaluation's
rows are those of the built-in help desk, copied under other keys; the search's are simulated (`simulated.py`). What is shown
of each phase is the most memory of the process, in MiB, and its seconds of the processor. "bytes_a_row" is the growth of the
most memory of all phases from the smaller size to the larger one, by row.

The reference reads the rows of the scan into a list of dictionaries, and counts their breaches. "ratio" is of the bytes that a
further row takes at the end. "identical": the shares of breaches are equal.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.driver_memory import POLICY
from benchmarks.measure import BenchmarkOptions, Result, run
from benchmarks.scan import serve
from benchmarks.simulated import trigger_row
from parley.engine.core.runs.documents import ROWS
from parley.engine.core.runs.parts import Part, part_path, to_table, write_part
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING, RankingConfig
from parley.engine.triggers.verbs.config import TRIGGERS, TriggerConfig
from parley.engine.triggers.verbs.search import SEARCH

PART = 256
"""Rows that are made; a run holds them again and again, a part each time."""
RESTARTS = 3
_SIZES, _QUICK = (1_000, 100_000), (500, 2_500)


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Most memory of drivers at two sizes."""

    small: int = 0
    """Rows of the smaller size; 1,000, and 500 of the quick form, if 0."""
    large: int = 0
    """Rows of the larger size; 100,000, and 2,500 of the quick form, if 0."""

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of rows."""
        small, large = _QUICK if self.quick else _SIZES
        return self.small or small, self.large or large


def driven(kind: str, path: Path, *options: str) -> dict[str, Any]:
    """Return what a driver in a process of its own prints."""
    command = [sys.executable, "-m", "benchmarks.driver_memory", kind, str(path), *options]
    # As the command line does.
    surroundings = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=surroundings)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def write_copies(path: Path, config: Any, job: Any, rows: pa.Table, num: int) -> None:
    """Write a run of so many rows: those of a table again and again, under other keys, in other dialogues and contexts."""
    with RunFolder.open(path, config, job=job.name, schema=rows.schema, weights=job.weights(config)) as run:
        for number, start in enumerate(range(0, num, rows.num_rows)):
            table, copy = rows.slice(0, num - start).combine_chunks(), f"{number:06d}"
            columns = {"item_key": pc.binary_join_element_wise(copy, table["item_key"], "-")}
            if "context" in table.schema.names:
                columns["dialogue"] = pc.add(table["dialogue"], number * 1_000_000)
                turns = table["context"].chunk(0)
                texts = pc.binary_join_element_wise(turns.values, copy, " ")
                columns["context"] = pa.ListArray.from_arrays(turns.offsets, texts)
            for name, column in columns.items():
                place = table.schema.get_field_index(name)
                table = table.set_column(place, rows.schema.field(name), column)
            run.note_part(copy, Part.of(table), write_part(part_path(run.path / ROWS, copy), table))


def ranked(path: Path, num: int, rules: str = "random-swap,typos") -> None:
    """Write a ranking evaluation of so many contexts."""
    config = RankingConfig(limit=PART, rules=rules)
    if rules == "none":
        config = replace(config, model="tfidf", num_erased=0)
    with tempfile.TemporaryDirectory() as folder:
        EVALUATE_RANKING.run(config, Path(folder, "run"), Silent())
        rows = pa.concat_tables(RunFolder.load(Path(folder, "run")).read_parts())
    write_copies(path, config, EVALUATE_RANKING, rows, num)


def searched(path: Path, num: int, rules: str = "") -> None:
    """Write a search for so many targets."""
    rows = to_table([trigger_row(f"{number:08d}", RESTARTS) for number in range(min(num, PART))], TRIGGERS)
    write_copies(path, TriggerConfig(model="made-up"), SEARCH, rows, num)


def measure(options: Options) -> Result:
    """Measure all drivers."""
    small, large = options.sizes
    with tempfile.TemporaryDirectory() as folder:
        scans = {str(num): _scanned(Path(folder, f"scan-{num}"), num) for num in options.sizes}
        plain = {str(num): driven("plain", Path(folder, f"scan-{num}", "run")) for num in options.sizes}
        ends = {
            kind: _ends(kind, Path(folder, kind), options.sizes, write)
            for kind, write in (("ranking", ranked), ("search", searched))
        }

    def a_row(of: Mapping[str, Any], *phases: str) -> float:
        peaks = [max(of[str(num)]["mib"][phase] for phase in phases or of[str(num)]["mib"]) for num in (small, large)]
        return (peaks[1] - peaks[0]) * 2**20 / (large - small)

    return Result(
        ratio=a_row(plain, "end") / max(a_row(scans, "end"), 1.0),
        identical=all(scans[size]["shares"] == plain[size]["shares"] for size in scans),
        figures={
            "sizes": options.sizes,
            "bytes_a_row": {"plain": a_row(plain), "scan": a_row(scans)} | {kind: a_row(of) for kind, of in ends.items()},
            "scan": scans,
            "plain": plain,
            **ends,
        },
    )


def _scanned(folder: Path, num: int) -> dict[str, Any]:
    """Return the figures of a scan of so many questions, half of them with random words."""
    folder.mkdir()
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    server = context.Process(target=serve, args=(ports, 0.0), daemon=True)
    server.start()
    lines = (f"what is number {number}?{' SAVE50' * (number % 10 == 0)}\n" for number in range(num // 2))
    (folder / "prompts.csv").write_text(f"prompt\n{''.join(lines)}", encoding="utf-8")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    try:
        return driven("scan", folder / "run", "--port", str(ports.get()))
    finally:
        server.kill()


def _ends(kind: str, folder: Path, sizes: Iterable[int], write: Callable[[Path, int], None]) -> dict[str, Any]:
    """Return the figures of the ends of runs of some sizes."""
    figures = {}
    for num in sizes:
        write(folder / str(num), num)
        figures[str(num)] = driven(kind, folder / str(num))
    return figures


if __name__ == "__main__":
    run("memory", Options, measure)
