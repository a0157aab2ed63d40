"""A run's driver in a process of its own, and the most memory of each of its phases; started by `memory.py`.

    python -m benchmarks.driver_memory scan FOLDER --port PORT     # asks a server, measures, writes files and page
    python -m benchmarks.driver_memory ranking FOLDER              # the end of an evaluation that holds its rows; or search
    python -m benchmarks.driver_memory ranking FOLDER --rows 1000000 --rules none --no-lines    # of one that is made first
    python -m benchmarks.driver_memory plain FOLDER                # the same rows as a list of dictionaries, and their rates

One line of JSON: MiB and seconds of the processor by phase, bytes of the page, and the shares of breaches. Apart from
`memory.py`, so that nothing is loaded here that the driver does not load.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

POLICY = """
name: numbers
rules: [{name: no code, must_not: {contains: SAVE50}}]
limits: {breach.none: 0.5}
prompts: [{file: prompts.csv, column: prompt}]
"""


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """Which driver is measured."""

    kind: Annotated[Literal["scan", "ranking", "search", "plain"], tyro.conf.Positional]
    """The driver."""
    folder: Annotated[Path, tyro.conf.Positional]
    """Its run."""
    port: int = 0
    """Port of the server that a scan asks."""
    rows: int = 0
    """Rows of the run, which is made first by a process of its own; 0 for a run that is there."""
    rules: str = "random-swap,typos"
    """Rules of a ranking that is made; none: TF-IDF beside its controls, without rules."""
    lines: bool = True
    """Also write all rows as lines, as `parley rows` does; there may be 60 and more a row."""


@dataclass
class Phases:
    """The most memory and the seconds of phases, by name."""

    mib: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a block as a phase."""
        # From here on the most memory is counted anew.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        began = time.process_time()
        yield
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        kib = next(float(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        self.mib[name], self.seconds[name] = kib / 1024, time.process_time() - began
        print(f"{name}: {self.mib[name]:.0f} MiB, {self.seconds[name]:.1f} s", file=sys.stderr, flush=True)


def scan(path: Path, port: int, phases: Phases) -> None:
    """Scan a server, whose prompts lie beside the run."""
    with phases.phase("start"):
        from parley.engine.core.verbs.job import Silent
        from parley.engine.scan.verbs import Scan, ScanAsking, ScanConfig, ScanPlan

        config = ScanConfig(
            policy=str(path.parent / "policy.yaml"),
            model=f"openai:http://127.0.0.1:{port}/v1#m",
            chat=ScanAsking(concurrency=32),
        )

    class Measured(Scan):
        """A scan whose phases are measured."""

        def work(self, run: Any, prepared: ScanPlan, reporter: Any) -> ScanPlan:
            """Ask."""
            with phases.phase("work"):
                return super().work(run, prepared, reporter)

        def measure(self, run: Any, plan: ScanPlan) -> Any:
            """Measure."""
            with phases.phase("end"):
                return super().measure(run, plan)

    Measured().run(config, path, Silent())


def rank(path: Path, phases: Phases) -> None:
    """Measure an evaluation of rankers that holds its rows, and write its summary and tables."""
    with phases.phase("start"):
        from parley.engine.core.runs.run_folder import RunFolder
        from parley.engine.core.verbs.job import Silent
        from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING, RankingConfig
        from parley.envs.core.config import from_dict

        stored = RunFolder.load(path)
        config = from_dict(RankingConfig, stored.config)
        prepared = EVALUATE_RANKING.prepare(config, path, Silent())
    opened = RunFolder.open(path, config, job=stored.job, schema=EVALUATE_RANKING.schema, weights=stored.weights)
    with phases.phase("end"), opened as run:
        EVALUATE_RANKING.conclude(run, config, EVALUATE_RANKING.measure(run, prepared))


def search(path: Path, phases: Phases) -> None:
    """Measure a search that holds its rows, and write its summary; there is no model."""
    with phases.phase("start"):
        from parley.engine.core.runs.run_folder import RunFolder
        from parley.engine.core.stats.statistics import NOTHING
        from parley.engine.triggers.metrics.hits import search_metrics
        from parley.engine.triggers.verbs.config import TRIGGERS, TriggerConfig
        from parley.envs.core.config import from_dict

        stored = RunFolder.load(path)
        config = from_dict(TriggerConfig, stored.config)
    opened = RunFolder.open(path, config, job=stored.job, schema=TRIGGERS, weights=stored.weights)
    with phases.phase("end"), opened as run:
        about = {"title": "simulated", "description": "", "command": "", "thresholds": {}, "skipped": []}
        run.write_summary(search_metrics(run.rows(), NOTHING, 0), about)


def make(kind: str, path: Path, num: int, rules: str) -> None:
    """Write a run of so many rows."""
    from benchmarks.memory import ranked, searched

    {"ranking": ranked, "search": searched}[kind](path, num, rules)


def read(path: Path, phases: Phases, lines: bool) -> int:
    """Read a finished run as its page, its status and its rows do; return the bytes of the page."""
    from parley.engine.core.page.page import report_from_run
    from parley.engine.core.verbs.export import write_flat
    from parley.engine.core.verbs.job import Silent
    from parley.engine.core.verbs.status import run_status

    with phases.phase("report"):
        page = report_from_run(path)
    with phases.phase("status"):
        run_status(path)
    table = path.parent / f"{path.name}-rows.csv"
    table.unlink(missing_ok=True)
    if lines:
        with phases.phase("rows"):
            write_flat(str(path), str(table), Silent())
    return page.stat().st_size


def plain(path: Path, phases: Phases) -> dict[str, float]:
    """Return the share of breaches by attack from a list of all rows."""
    with phases.phase("start"):
        import pyarrow.parquet as pq

        paths = sorted(path.glob("rows/*.parquet"))
    with phases.phase("end"):
        rows = [row for part in paths for row in pq.read_table(part).to_pylist()]
        asked = Counter(row["attack"] for row in rows)
        broken = Counter(row["attack"] for row in rows if row["breach"])
        return {f"breach.{attack}": broken[attack] / num for attack, num in asked.items()}


def main(options: DriverOptions) -> None:
    """Measure a driver, and print one line of JSON."""
    phases, page, shares = Phases(), 0, dict[str, float]()
    if options.rows:
        given = options.kind, options.folder, options.rows, options.rules
        maker = multiprocessing.get_context("spawn").Process(target=make, args=given)
        maker.start()
        maker.join()
    if options.kind == "plain":
        shares = plain(options.folder, phases)
    else:
        if options.kind == "scan":
            scan(options.folder, options.port, phases)
        elif options.kind == "ranking":
            rank(options.folder, phases)
        else:
            search(options.folder, phases)
        page = read(options.folder, phases, options.lines)
        summary = json.loads((options.folder / "summary.json").read_bytes())
        shares = {name: figure["value"] for name, figure in summary["metrics"].items() if name.startswith("breach.")}
    print(json.dumps({"mib": phases.mib, "seconds": phases.seconds, "page_bytes": page, "shares": shares}))


if __name__ == "__main__":
    main(tyro.cli(DriverOptions, prog="python -m benchmarks.driver_memory"))
