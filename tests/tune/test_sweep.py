"""Sweeps from the configuration to rows, best.yaml and what is left after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.core.cli.flags import parse_job
from parley.engine.core.cli.main import find_verb
from parley.engine.core.page.page import collect_run
from parley.engine.core.ray.session import TIMEOUT_VARIABLE, RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.core.verbs.status import INTERRUPTED, run_status
from parley.engine.negotiation.verbs.match import SELFPLAY
from parley.envs.core.errors import CheckpointError, ClusterError, ConfigError, RunError
from parley.tune.config import SweepConfig
from parley.tune.sweep import AGAIN, BEST, SWEEP
from parley.tune.trial import TRIALS
from tests.engine.core.ray.own_cluster import survives

PLANS = Path(__file__).with_name("plans.py")
ROOT = PLANS.parents[2]
pytestmark = pytest.mark.ray


def asked(name: str, **changes: Any) -> SweepConfig:
    return SweepConfig(**{"sweep": f"{PLANS}:{name}", "num_trials": 3, "rungs": 1, **changes})


def rows_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = RunFolder.load(path).read_rows().to_pylist()
    return found


@pytest.mark.slow
def test_rows_best_and_the_verb_that_takes_it(tmp_path: Path, ray_session: RaySession) -> None:
    path = tmp_path / "sweep"
    config = asked("SMALL", repeats=2, rungs=2, base="temperature=0.25")
    result = SWEEP.run(config, path, Silent())
    rows = rows_of(path)
    assert [row["item_key"] for row in rows] == ["00000", "00001", "00002"]
    assert {row["status"] for row in rows} == {"ok"}
    for row in rows:
        runs = path / row["runs"] / str(row["budget"])
        values = [RunFolder.load(runs / repeat).summary()["metrics"]["advantage"]["value"] for repeat in ("0", "1")]
        assert row["value"] == pytest.approx(sum(values) / 2)
        assert row["low"] <= row["value"] <= row["high"]
    best = max((row for row in rows if row["whole"]), key=lambda row: row["value"])
    assert result.metrics["best"].value == best["value"]
    again = [RunFolder.load(path / AGAIN / best["item_key"] / name) for name in "012"]
    assert result.metrics[AGAIN].value == pytest.approx(np.mean([run.metrics()["advantage"].value for run in again]))
    known = {run.parent.name: RunFolder.load(run.parent).config["seed"] for run in (path / TRIALS).rglob("config.json")}
    assert len({run.config["seed"] for run in again} | {*known.values()}) == 5, "three and two seeds"
    assert {name: again[0].config[name] for name in ("adversary", "max_turns")} == json.loads(best["parameters"])
    verb = find_verb(["selfplay"])
    assert verb is not None
    command = parse_job(verb, SELFPLAY, ["scripted", "--config", str(path / BEST)])
    wanted = json.loads(best["parameters"])
    assert (command.config.adversary, command.config.max_turns) == (wanted["adversary"], wanted["max_turns"])
    assert command.config.temperature == 0.25
    before = {part: part.stat().st_mtime_ns for part in (path / TRIALS).rglob("summary.json")}
    assert SWEEP.run(config, path, Silent()).metrics["best"] == result.metrics["best"]
    assert {part: part.stat().st_mtime_ns for part in (path / TRIALS).rglob("summary.json")} == before


@pytest.mark.slow
def test_failed_trials_are_rows_with_their_reason(tmp_path: Path, ray_session: RaySession) -> None:
    SWEEP.run(asked("HALF_FAIL", num_trials=6), tmp_path / "sweep", Silent())
    rows = rows_of(tmp_path / "sweep")
    by_status = {status: [row for row in rows if row["status"] == status] for status in ("ok", "error")}
    assert by_status["ok"]
    assert by_status["error"]
    assert all("nobody" in row["error"] and "nobody" in row["parameters"] for row in by_status["error"])


@pytest.mark.slow
def test_a_sweep_without_any_result_says_why(tmp_path: Path, ray_session: RaySession) -> None:
    with pytest.raises(RunError, match="no agent is called 'n"):
        SWEEP.run(asked("ALL_FAIL", num_trials=2), tmp_path / "sweep", Silent())
    assert [row["status"] for row in rows_of(tmp_path / "sweep")] == ["error"] * 2, "the reasons are kept"


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for name in ("UNMEASURED", "UNKNOWN", "FORBIDDEN"):
        with pytest.raises(ConfigError):
            SWEEP.run(asked(name), tmp_path / "sweep", Silent())
    with pytest.raises(ConfigError, match="did you mean 'gibbs-enum'"):
        SWEEP.run(SweepConfig(sweep="gibs-enum"), tmp_path / "sweep", Silent())
    with pytest.raises(CheckpointError, match="nowhere"):
        SWEEP.run(SweepConfig(sweep="gibbs-enum", base="model=nowhere lm=nowhere"), tmp_path / "sweep", Silent())
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_a_trial_needs_room(tmp_path: Path, ray_session: RaySession) -> None:
    with pytest.raises(ClusterError, match="51 CPUs wanted, 4 there"):
        SWEEP.run(asked("SMALL", trial_workers=50), tmp_path / "sweep", Silent())
    with pytest.raises(ClusterError, match="4 GPUs wanted, 0 there"):
        SWEEP.run(asked("SMALL", trial_workers=2, gpus_per_worker=2), tmp_path / "gpus", Silent())


_TWO_CPUS = """
import sys
from pathlib import Path
from parley.engine.core.verbs.job import Silent
from parley.engine.core.ray.session import connect
from parley.tune.config import SweepConfig
from parley.tune.sweep import SWEEP
with connect(num_cpus=2):
    SWEEP.run(SweepConfig(sweep=sys.argv[1], num_trials=3, rungs=1, trial_workers=1, concurrent=3), Path("sweep"), Silent())
"""


_LOSES_A_MACHINE = """
import sys
from pathlib import Path
from parley.engine.core.ray.session import TIMEOUT_VARIABLE
from parley.envs.core.errors import ClusterError
from tests.engine.core.verbs.made_up import Notes, rows
from tests.engine.core.ray.own_cluster import start_cluster
from tests.tune.test_sweep import asked
from parley.tune.sweep import SWEEP
folder = Path(sys.argv[1])
cluster = start_cluster(HEAD)
doomed = cluster.add_node(num_cpus=1)

class Losing(Notes):
    def advance(self, done, note=""):
        super().advance(done, note)
        if done == 2:
            cluster.remove_node(doomed, allow_graceful=False)

try:
    SWEEP.run(asked("LONG", num_trials=5, concurrent=2, address=cluster.address), folder / "sweep", Losing())
except ClusterError as error:
    assert not HEAD and "no trial has run for 60 s" in str(error), error
    assert len(rows(folder / "sweep")) == 2
else:
    assert HEAD
    assert [row["status"] for row in rows(folder / "sweep")] == ["ok"] * 5
cluster.shutdown()
print("survived")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("head", [1, 0], ids=["one machine is left", "none is left"])
def test_a_trial_on_a_lost_machine_is_tried_again(tmp_path: Path, head: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep whose last machine is lost ends after a set time."""
    monkeypatch.setenv(TIMEOUT_VARIABLE, "60" if head == 0 else "200")
    survives(_LOSES_A_MACHINE.replace("HEAD", str(head)), tmp_path, timeout_s=550)


def start(folder: Path, code: str, *arguments: str) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=folder, env=environment)


@pytest.mark.slow
def test_trials_with_actors_of_their_own_finish_on_two_cpus(tmp_path: Path) -> None:
    # Three at a time are allowed; each needs both CPUs, so without its group one would wait for the actor of another.
    assert start(tmp_path, _TWO_CPUS, f"{PLANS}:SMALL").wait(timeout=400) == 0
    rows = rows_of(tmp_path / "sweep")
    assert [row["status"] for row in rows] == ["ok"] * 3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_sweep_goes_on_and_runs_no_finished_trial_again(tmp_path: Path) -> None:
    driver = start(tmp_path, _TWO_CPUS, f"{PLANS}:SMALL")
    deadline = time.monotonic() + 240
    rows = tmp_path / "sweep" / "rows"
    while not [*rows.glob("*.parquet")] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [*rows.glob("*.parquet")], "no trial ended in time"
    assert driver.poll() is None, "the sweep was over before it was killed"
    # The driver alone: trials that outlive it must not be in the way of the next session.
    driver.kill()
    driver.wait()
    status = run_status(tmp_path / "sweep")
    assert (status.state, status.pace.total) == (INTERRUPTED, 3)
    assert 1 <= status.pace.done < 3
    before = rows_of(tmp_path / "sweep")
    finished = {part: part.stat().st_mtime_ns for part in (tmp_path / "sweep" / TRIALS).rglob("summary.json")}
    assert collect_run(tmp_path / "sweep").found["sweeps"][0].done, "the report shows what is there"
    assert start(tmp_path, _TWO_CPUS.replace("concurrent=3", "concurrent=1"), f"{PLANS}:SMALL").wait(timeout=400) == 0
    after = rows_of(tmp_path / "sweep")
    assert [row["status"] for row in after] == ["ok"] * 3
    assert after[: len(before)] == before
    assert {part: part.stat().st_mtime_ns for part in finished} == finished
    assert len([*(tmp_path / "sweep" / TRIALS).rglob("summary.json")]) == 3, "each trial ran once"
    # Nothing that could run when it is read, such as Ray Tune's own state, is left behind.
    kinds = {part.suffix for part in (tmp_path / "sweep").rglob("*") if part.is_file()}
    assert kinds == {".json", ".jsonl", ".parquet", ".yaml", ""}
    assert {part.name for part in (tmp_path / "sweep").rglob("*") if part.is_file() and not part.suffix} == {"lock"}
