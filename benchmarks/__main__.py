"""Every benchmark in one table, held against the table that this processor has in docs/results/speed.md.

    python -m benchmarks --all --quick            # below ten minutes on a quiet machine
    python -m benchmarks bootstrap subwords --quick

Each benchmark runs in a process of its own, and measures everything two to five times. The ratio is the median of the repeats;
its spread is their range, "lowest" to "highest". The first run on a processor writes a section of its own. A later one adds
benchmarks that the section lacks, and fails where the highest ratio of a benchmark is below nine tenths of the lowest that is
stored, where results are not identical, and where a benchmark ends with an error. `--replace` stores what was measured.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from benchmarks.measure import machine
from parley.engine.core.runs.documents import write_whole
from parley.envs.core.errors import ConfigError, ParleyError

FOLDER = Path(__file__).parent
STORED = FOLDER.parent / "docs" / "results" / "speed.md"
NO_SPEED = {"chat_choices", "memory", "node_loss", "time_to_trigger"}
"""Benchmarks whose ratio compares choices, bytes or items, or hangs on the luck of a step when they are quick."""
REAL_MODELS = {"chat_selfplay", "chat_reinforce", "chat_scores", "peer_reinforce"}
"""Benchmarks on a model of a package (`make real-models`), minutes each: they are run alone, `python -m benchmarks.NAME`."""
MOST_FALL = 0.1
"""Share of a ratio that may be lost beyond the spread."""
PATIENCE_S = 600.0
COLUMNS = "| benchmark | ratio | lowest | highest | identical | share of floor |"
TITLE = """# Speed against plain references

`python -m benchmarks --all --quick` writes a section for each processor. A ratio is the reference's seconds over ours, the
median of repeats in one process; lowest and highest are those of the repeats. "Identical": both sides computed the same.
"Share of floor": the share of our seconds that the arithmetic alone needs on this processor, where it is counted.
`benchmarks/NAME.py` says what each one compares. See [scaling](../scaling.md#one-table-of-all-benchmarks).
"""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Run benchmarks and print one table."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Benchmarks to run."""
    all: bool = False
    """Run every benchmark."""
    quick: bool = False
    """Take fewer items of each."""
    repeats: int = 5
    """Times that each benchmark measures everything at most; two at least."""
    replace: bool = False
    """Store these figures in the place of those of this processor, and accept what was lost."""
    file: Path = STORED
    """Where the tables are stored."""


@dataclass(frozen=True)
class SpeedRow:
    """A benchmark's line of the table."""

    ratio: float
    lowest: float
    highest: float
    identical: bool
    share_of_floor: float | None

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> SpeedRow:
        """Return the row of a benchmark's JSON line."""
        ratios = figures["ratios"]
        return cls(figures["ratio"], min(ratios), max(ratios), figures["identical"], figures["share_of_floor"])

    @classmethod
    def parse(cls, cells: list[str]) -> SpeedRow:
        """Return the row of the cells behind a name."""
        ratio, lowest, highest = map(float, cells[:3])
        return cls(ratio, lowest, highest, cells[3] == "yes", float(cells[4]) if cells[4] else None)

    @property
    def cells(self) -> list[str]:
        """Return the cells of the table."""
        share = "" if self.share_of_floor is None else f"{self.share_of_floor:.2f}"
        return [
            *(f"{ratio:.3g}" for ratio in (self.ratio, self.lowest, self.highest)),
            "yes" if self.identical else "NO",
            share,
        ]

    def has_lost(self, stored: SpeedRow) -> bool:
        """Return True if the best repeat is more than a tenth below the worst that is stored."""
        return self.highest < (1 - MOST_FALL) * stored.lowest


@dataclass
class Section:
    """The table of a processor.

    Args:
        about: a line on the machine.
        rows: by the names of benchmarks.
    """

    about: str
    rows: dict[str, SpeedRow]


def benchmark_names(folder: Path) -> list[str]:
    """Return the benchmarks of a folder that measure speed without a model of another package."""
    paths = (path for path in folder.glob("*.py") if path.stem != "__main__")
    names = {path.stem for path in paths if re.search(r"^    run\(\"", path.read_text(encoding="utf-8"), re.MULTILINE)}
    return sorted(names - NO_SPEED - REAL_MODELS)


def read_sections(text: str) -> dict[str, Section]:
    """Return the sections of a stored file by their titles."""
    sections: dict[str, Section] = {}
    for part in text.split("\n## ")[1:]:
        title, _, rest = part.partition("\n")
        about, _, table = rest.strip().partition("\n\n")
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
        sections[title] = Section(about, {cells[0]: SpeedRow.parse(cells[1:]) for cells in lines})
    return sections


def format_sections(sections: Mapping[str, Section]) -> str:
    """Return the file of sections."""
    parts = [TITLE]
    for title, section in sections.items():
        lines = [f"| {' | '.join([name, *row.cells])} |" for name, row in sorted(section.rows.items())]
        table = "\n".join([COLUMNS, "|---|---:|---:|---:|---|---:|", *lines])
        parts.append(f"\n## {title}\n\n{section.about}\n\n{table}\n")
    return "".join(parts)


def measure_one(name: str, options: TableOptions, package: str = "benchmarks") -> SpeedRow:
    """Run one benchmark in a process of its own.

    Raises:
        ConfigError: it ends with an error, or not in time.
    """
    command = [sys.executable, "-m", f"{package}.{name}", "--repeats", str(options.repeats)]
    command += ["--quick"] if options.quick else []
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    patience = PATIENCE_S if options.quick else None
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=patience)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            "the benchmark does not end", where=name, got=f"{error.timeout:.0f} s", fix="run it by itself"
        ) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError("the benchmark failed", where=name, got=last, fix=f"run {' '.join(command[1:])}")
    return SpeedRow.of(json.loads(done.stdout.splitlines()[-1]))


def measure_all(
    names: Iterable[str],
    measure: Callable[[str], SpeedRow],
    stored: Mapping[str, SpeedRow],
    keep: Callable[[str, SpeedRow], None],
) -> list[str]:
    """Measure benchmarks, print each row as it comes, beside the stored one, and keep it.

    Args:
        names: of the benchmarks.
        measure: measures one.
        stored: the rows of this processor before.
        keep: takes a row with its name.

    Returns:
        a line for everything that fails.
    """
    print(f"{COLUMNS} stored | seconds |\n|---|---:|---:|---:|---|---:|---:|---:|", flush=True)
    problems = []
    for name in names:
        began = time.monotonic()
        try:
            row = measure(name)
        except ParleyError as error:
            problems.append(str(error))
            print(f"| {name} | failed | | | | | | {time.monotonic() - began:.0f} |", flush=True)
            continue
        before = stored.get(name)
        cells = [name, *row.cells, f"{before.ratio:.3g}" if before else "", f"{time.monotonic() - began:.0f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
        if row.identical:
            keep(name, row)
        else:
            problems.append(f"{name}: results are not identical, and are not stored")
        if before is not None and row.has_lost(before):
            problems.append(
                f"{name}: {row.ratio:.3g} [{row.lowest:.3g}, {row.highest:.3g}], "
                f"stored {before.ratio:.3g} [{before.lowest:.3g}, {before.highest:.3g}]: lost more than a tenth"
            )
    return problems


def make_table(options: TableOptions, measure: Callable[[str], SpeedRow], known: list[str]) -> list[str]:
    """Measure, print and store the table.

    Args:
        options: which benchmarks, and where they are stored.
        measure: measures one.
        known: all benchmarks.

    Returns:
        a line for everything that fails.

    Raises:
        ConfigError: no benchmark, or an unknown one, is named.
    """
    names = known if options.all else list(options.names)
    unknown = sorted(set(names) - set(known))
    if unknown or not names or (options.all and options.names):
        given = ", ".join(unknown) or "nothing" if not options.all else "--all and names"
        raise ConfigError("name benchmarks, or take --all", where="names", got=given, fix=f"one of {', '.join(known)}")
    about = machine()
    title = f"{about['processor']}, {'quick' if options.quick else 'full'} size"
    sections = read_sections(options.file.read_text(encoding="utf-8")) if options.file.is_file() else {}
    facts = f"{about['cores']} cores; {', '.join(about['instructions'])}; torch {about['torch']}"
    facts += f"; load before {os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d')}"
    section = sections.setdefault(title, Section(facts, {}))
    print(f"{title}: {facts}\n", flush=True)
    section.about = facts if options.replace else section.about

    def keep(name: str, row: SpeedRow) -> None:
        # One that is killed has lost the benchmark in flight alone.
        section.rows = {**section.rows, name: row} if options.replace else {name: row, **section.rows}
        write_whole(options.file, format_sections(sections).encode())

    return measure_all(names, measure, dict(section.rows), keep)


def main() -> None:
    """Print the table; end with status 1 where something fails."""
    options = tyro.cli(TableOptions, prog="python -m benchmarks", description=TableOptions.__doc__)
    try:
        problems = make_table(options, lambda name: measure_one(name, options), benchmark_names(FOLDER))
    except ParleyError as error:
        sys.exit(f"error: {error}")
    if problems:
        sys.exit("\n".join(["", *problems]))


if __name__ == "__main__":
    main()
