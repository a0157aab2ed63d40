"""Disturb runs, go on with them, and count what differs from runs that nothing disturbed: `make chaos`.

Each case of `cases.py` runs once undisturbed, where its steps are counted: each opening, renaming, removing or writing of a
file in its folder. A disturbance comes at a step drawn from the seed: early (the first fifth), in the middle, or in the
middle of a write, half of which reaches the disk. Then the same command goes on. All rows, epochs, metrics and checkpoints are
compared with those of the undisturbed run.

`python -m benchmarks.chaos selfplay scan` disturbs two cases; results of each stay below runs/chaos, and docs/reliability.md
gets the table of all that are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tyro

from benchmarks.chaos.cases import CASES, FILES, RAY
from benchmarks.chaos.page import write_cases
from benchmarks.measure import machine

ROOT = Path(__file__).resolve().parents[2]
SHIM = Path(__file__).parent / "shim"
BACK_S = 3 * 3600.0
"""Seconds by which the clock is set back."""
LIMIT_S = 300.0
"""Seconds after which a command counts as hanging."""
CLOCKED = ("second", "_per_s", "overhead", "_s", "share_outside_networks")
"""Ends of the names of figures that are times."""
ASIDE = (
    "environment.json",
    "lock",
    "report.html",
    "begun.json",
    "config.json",
    "summary.json",
    "events.jsonl",
    "answers.jsonl",
    "training.safetensors",
    "table.md",
)
"""Files of one machine, one moment or one session; events, rows and metrics are compared by content, answers are counted.

The tables show metrics, and how many answers were paid for.
"""
PROGRESS = ("epoch", "iteration", "update", "step", "round")
"""Kinds of events that are numbered, each once in a run."""


@dataclass
class Outcome:
    """What came of a disturbance.

    Args:
        disturbance: what was done.
        at: file that was about to change.
        items: rows, epochs, metrics and checkpoints of the undisturbed run.
        lost: those that are missing after all.
        twice: those that are there twice.
        different: those that differ.
        again: items, questions or updates beyond those of the undisturbed run.
        seconds: from the second start of the command to its first new event; 0 where none was needed.
        resumed: whether the command had to be given again.
        left: processes that were still there five seconds after the disturbed command ended.
        problem: what went wrong; empty if nothing did.
    """

    disturbance: str
    at: str = ""
    items: int = 0
    lost: int = 0
    twice: int = 0
    different: int = 0
    again: int = 0
    seconds: float = 0.0
    resumed: bool = True
    left: int = 0
    problem: str = ""
    names: list[str] = field(default_factory=list)


@dataclass
class Options:
    """Disturb runs and count what is lost."""

    cases: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of cases; all if none are given."""
    seed: int = 1
    """Decides when each disturbance comes."""
    only: tuple[str, ...] = ()
    """Disturbances; all of each case if none are given."""
    folder: Path = ROOT / "runs" / "chaos"
    """Where results are kept, by case."""
    page: bool = True
    """Whether to write docs/reliability.md."""


def content(run: Path) -> Iterator[tuple[str, str]]:
    """Yield what a run found, piece by piece: a name, and a digest of what does not depend on the clock."""
    # What is done again after a kill is logged again, with the same figures.
    logged: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted(run.rglob("*")):
        name, above = path.relative_to(run), str(path.parent.relative_to(run))
        if path.is_symlink() or not path.is_file() or "unfinished" in name.parts or "tensorboard" in name.parts:
            continue
        if path.suffix == ".parquet":
            for index, row in enumerate(pq.ParquetFile(path).read().to_pylist()):
                yield f"{above}/{row.get('item_key', f'{path.name} {index}')}", digest(row)
        elif path.name == "events.jsonl":
            for event in events(path):
                if event["kind"] in PROGRESS and "number" in event:
                    logged[f"{above}/{event['kind']} {event['number']}"].add(digest({**event, "time": None}))
        elif path.name == "summary.json":
            for metric, estimate in json.loads(path.read_text())["metrics"].items():
                if not metric.endswith(CLOCKED) and "seconds" not in metric:
                    yield f"{above}/{metric}", digest(estimate)
        elif path.name not in ASIDE and not path.name.startswith(".") and path.suffix != ".corrupt":
            yield str(name), hashlib.sha256(path.read_bytes().replace(str(run).encode(), b"RUN")).hexdigest()
    for piece, versions in logged.items():
        yield piece, " ".join(versions)


def digest(value: Any) -> str:
    """Return a text that is equal for equal values, times left out."""
    return json.dumps(timeless(value), sort_keys=True, default=str)


def timeless(value: Any) -> Any:
    """Return a value without entries whose names are those of times."""
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if not (key.endswith(CLOCKED) or "seconds" in key)}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a log; a line that a kill cut short is none."""
    found = []
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError):
            found.append(json.loads(line))
    return [event for event in found if isinstance(event, dict) and "kind" in event]


class Harness:
    """Runs commands of a case in a folder of its own.

    Args:
        name: name of the case.
        options: of the command line.
        folder: where runs and files lie; its path is short, because Ray's sockets lie below it.
    """

    def __init__(self, name: str, options: Options, folder: Path) -> None:
        self.name, self.case, self.options, self.folder = name, CASES[name], options, folder
        self.number = 0
        self.patience_s = 5.0

    def start(self, run: Path, log: Path, **plan: Any) -> tuple[int, str, float, float]:
        """Run the command to its end; its status, its words, its seconds and the moment of its start."""
        words = [word.replace("FOLDER", str(self.folder)) for word in self.case.words.split()]
        command = [sys.executable, "-m", "parley", *words, "--run", str(run)]
        plan = {"run": str(run), "log": str(log), "parent": os.getpid(), "seconds": BACK_S, **plan}
        if plan.get("act") == "second":
            plan["second"] = command
        paths = os.pathsep.join((str(SHIM), str(ROOT)))
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHONDONT"))}
        variables |= {
            "PARLEY_CHAOS": json.dumps(plan),
            "PYTHONPATH": paths,
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "PARLEY_CACHE": str(self.folder / "cache"),
            "RAY_TMPDIR": str(self.folder / "r"),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        began = time.time()
        with (self.folder / "said.txt").open("w+") as said:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            try:
                status = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
                said.write(f"\nno end within {LIMIT_S:.0f} s")
            said.seek(0)
            text = said.read()
        return status, text, time.time() - began, began

    def whole(self) -> tuple[Path, list[dict[str, Any]]]:
        """Return the run that nothing disturbed, and its log; it is made once."""
        run, log = self.folder / self.name, self.folder / f"{self.name}.log"
        if not log.exists():
            status, text, _, _ = self.start(run, log, list=True)
            if status != self.case.status:
                log.unlink(missing_ok=True)
                raise RuntimeError(f"{self.name} fails undisturbed, status {status}:\n{text}")
        return run, events(log)

    def disturb(self, disturbance: str, draw: random.Random) -> Outcome:
        """Disturb a run, go on with it, and compare."""
        whole, lines = self.whole()
        self.number += 1
        run, log = self.folder / f"{self.name}-{disturbance}-{self.number}", self.folder / f"{self.name}-{self.number}.log"
        outcome = Outcome(disturbance)
        act, step = self.plan(disturbance, [line for line in lines if line["kind"] == "step"], draw)
        status, text, _, _ = self.start(run, log, act=act, step=step)
        acts = [line for line in events(log) if line["kind"] == "act"]
        if not acts:
            return Outcome(disturbance, problem=f"missed: ended with {status} before step {step}")
        outcome.at = acts[0]["file"]
        outcome.left = self.sweep(acts[0]["below"])
        if act == "driver" and status != -signal.SIGKILL:
            outcome.problem = f"status {status} after kill -9"
        if "Traceback (most recent call last)" in text:
            outcome.problem = "a traceback: " + text.strip().splitlines()[-1]
        if disturbance == "second" and not (acts[0]["rc"] and "another process is writing this run" in acts[0]["said"]):
            outcome.problem = f"the second writer was let in: status {acts[0]['rc']}"
        outcome.resumed = status != self.case.status
        if outcome.resumed:
            if disturbance in ("copied", "moved"):
                other = run.with_name(f"{run.name}-there")
                shutil.copytree(run, other) if disturbance == "copied" else run.rename(other)
                run = other
            status, text, _, began = self.start(run, log, act="before" if disturbance == "clock back" else "")
            outcome.seconds = self.back(run, began, BACK_S if disturbance == "clock back" else 0.0)
            if status != self.case.status:
                outcome.problem = f"status {status} at the second start: " + " ".join(text.split())[-300:]
            self.sweep([])
        self.compare(outcome, content(whole), content(run))
        outcome.again = self.count(events(log)) - self.count(lines)
        if not outcome.problem:
            shutil.rmtree(run)
        return outcome

    def plan(self, disturbance: str, steps: Sequence[dict[str, Any]], draw: random.Random) -> tuple[str, int]:
        """Return what to do and at which step."""
        num = len(steps)
        early, late = max(1, num // 5), max(2, num * 9 // 10)
        if disturbance == "early":
            return "driver", draw.randint(1, early)
        if disturbance == "writing":
            written = [step["step"] for step in steps[early:] if step["what"] in ("rename", "write")]
            return "driver", draw.choice(written)
        if disturbance in RAY:
            # Later on few processes have work left.
            late = max(2, num * 6 // 10)
        acts = dict.fromkeys(("middle", "copied", "moved", "clock back"), "driver")
        return acts.get(disturbance, disturbance), draw.randint(early, late)

    def sweep(self, below: Sequence[int]) -> int:
        """End what the disturbed command left behind; return the number of processes that were left after five seconds."""

        def up() -> list[int]:
            found = []
            for number in below:
                with suppress(OSError):
                    stat = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
                    variables = Path(f"/proc/{number}/environ").read_bytes()
                    if stat[0] != "Z" and str(self.folder).encode() in variables:
                        found.append(number)
            return found

        deadline = time.monotonic() + self.patience_s
        while up() and time.monotonic() < deadline:
            time.sleep(0.2)
        left = up()
        for number in left:
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)
        return len(left)

    def back(self, run: Path, began: float, behind_s: float) -> float:
        """Return the seconds from the second start of a command to the first event behind those of its start.

        Args:
            run: its run.
            began: moment of the second start.
            behind_s: seconds by which the clock of the command is behind.
        """
        moments = []
        for path in run.rglob("events.jsonl"):
            for event in events(path):
                moment = datetime.fromisoformat(event["time"]).timestamp() + behind_s
                if moment >= began and event["kind"] not in ("started", "resumed"):
                    moments.append(moment - began)
        return min(moments, default=0.0)

    def compare(self, outcome: Outcome, wanted: Iterator[tuple[str, str]], found: Iterator[tuple[str, str]]) -> None:
        """Fill in what differs."""
        whole, pieces = dict(wanted), list(found)
        counts = Counter(name for name, _ in pieces)
        outcome.items = len(whole)
        lost = sorted(whole.keys() - counts.keys())
        more = sorted(counts.keys() - whole.keys())
        different = sorted({name for name, value in pieces if name in whole and whole[name] != value})
        twice = [name for name, number in counts.items() if number > 1]
        outcome.lost, outcome.twice, outcome.different = len(lost), len(twice), len(different) + len(more)
        outcome.names = [*(f"lost {name}" for name in lost[:5]), *(f"differs {name}" for name in different[:5])]
        outcome.names += [f"new {name}" for name in more[:5]] + [f"twice {name}" for name in twice[:5]]

    def count(self, lines: Sequence[dict[str, Any]]) -> int:
        """Return how much work was begun, in the unit of the case."""
        if self.case.unit == "items":
            return sum(len(line["keys"]) for line in lines if line["kind"] == "items")
        return sum(line["kind"] == self.case.unit.removesuffix("s") for line in lines)


def order(names: Sequence[str]) -> list[str]:
    """Return cases with those that they read, which come first."""
    found: list[str] = []
    for name in names:
        found += [other for other in (*order(CASES[name].needs), name) if other not in found]
    return found


def main(options: Options) -> int:
    """Disturb all cases; the exit status is 1 if anything was lost."""
    options.folder.mkdir(parents=True, exist_ok=True)
    names = options.cases or tuple(CASES)
    problems = 0
    with tempfile.TemporaryDirectory(prefix="chaos-") as made:
        folder = Path(made)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        (folder / "r").mkdir()
        for name in order(names):
            harness = Harness(name, options, folder)
            started = os.times()
            try:
                harness.whole()
            except RuntimeError as error:
                print(error, flush=True)
                problems += 1
                continue
            if name not in names:
                continue
            outcomes = []
            for disturbance in CASES[name].disturbances:
                if options.only and disturbance not in options.only:
                    continue
                draw = random.Random(f"{options.seed} {name} {disturbance}")
                outcome = harness.disturb(disturbance, draw)
                outcomes.append(outcome)
                problems += bool(outcome.problem or outcome.lost or outcome.twice or outcome.different)
                print(name, *(f"{key}={value}" for key, value in asdict(outcome).items() if value), flush=True)
            ended = os.times()
            spent = ended.children_user + ended.children_system - started.children_user - started.children_system
            document = {"cpu_s": spent, "processor": machine()["processor"], "outcomes": [asdict(each) for each in outcomes]}
            (options.folder / f"{name}.json").write_text(json.dumps(document, indent=1))
            print(f"{name}: {len(outcomes)} disturbances, {spent:.0f} processor seconds", flush=True)
    if options.page:
        write_cases(options.folder)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, prog="python -m benchmarks.chaos", description=Options.__doc__)))
