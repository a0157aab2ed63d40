"""A trial that is done again, while what became of its first process is not known yet."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.remote_sync import STALE_S
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import FAILURE, Result, Silent
from parley.envs.core.errors import RunError
from parley.envs.core.storage.files import put
from parley.envs.core.storage.uris import local_copy
from parley.envs.corpora.arrow import CACHE_VARIABLE
from parley.tune.config import SweepConfig
from parley.tune.plan import find_plan
from parley.tune.sweep import AGAIN, Swept, measured_again
from parley.tune.trial import Setup, _measured, measure
from tests.tune.plans import SMALL


def test_what_is_measured_again_shares_no_dialogue_with_what_chose(tmp_path: Path) -> None:
    setup = Setup(plan=SMALL, base=SMALL.base("", 0), budgets=(6,), repeats=2, seed=1, run=str(tmp_path), folder=tmp_path)
    parameters = {"adversary": "scripted", "max_turns": 8}
    chose = measure(parameters, setup, 6, tmp_path / "chose")
    again = measure(parameters, setup, 6, tmp_path / "again", stream=AGAIN)
    runs = [RunFolder.load(tmp_path / kind / repeat) for kind in ("chose", "again") for repeat in "01"]
    dialogues = [{(row["seed"], *row["counts"]) for row in run.read_rows().to_pylist()} for run in runs]
    assert not dialogues[0] & dialogues[2]
    assert not dialogues[1] & dialogues[3]
    for found, two in ((chose, runs[:2]), (again, runs[2:])):
        values = [run.metrics()["advantage"].value for run in two]
        assert found.value == pytest.approx(sum(values) / 2)
        assert (found.low < min(values), found.high > max(values), found.n) == (True, True, 2), "two runs say little"


def test_a_trial_that_is_the_best_only_later_is_measured_again_too(tmp_path: Path) -> None:
    setup = Setup(plan=SMALL, base=SMALL.base("", 0), budgets=(6,), repeats=1, seed=1, run=str(tmp_path), folder=tmp_path)
    swept = Swept(SweepConfig(sweep="small", measured_again=2), setup)
    for number, turns in enumerate((8, 12)):
        best = {"item_key": f"{number:05d}", "parameters": json.dumps({"adversary": "scripted", "max_turns": turns})}
        found = measured_again(best, swept, tmp_path, Silent())
        runs = [RunFolder.load(tmp_path / AGAIN / best["item_key"] / name) for name in "01"]
        assert [run.config["max_turns"] for run in runs] == [turns, turns]
        assert found.value == pytest.approx(sum(run.metrics()["advantage"].value for run in runs) / 2)


def test_attacks_are_swept_by_what_they_gain_in_matches() -> None:
    assert {name: find_plan(name).metrics for name in ("rl-attack", "white-box")} == {
        "rl-attack": ("mean_fresh",),
        "white-box": ("advantage",),
    }
    assert find_plan("rl-attack").job == "evaluate-exploitability", "training updates are no match"


@pytest.mark.ray
def test_it_waits_on_another_machine_until_the_lease_of_a_lost_one_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: RaySession
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    uri = f"file://{tmp_path}/bucket/trial"
    left_s, started = 3.0, time.time()
    lost = {"holder": "process 7 on node-3", "token": "theirs", "under": "elsewhere", "time": started - STALE_S + left_s}
    put(f"{uri}/0/lease.json", json.dumps(lost).encode())
    setup = Setup(plan=SMALL, base=SMALL.base("", 0), budgets=(4,), repeats=1, seed=1, run=uri, folder=tmp_path)
    found = measure({"adversary": "scripted", "max_turns": 8}, setup, 4, local_copy(uri))
    assert found.n == 4
    assert time.time() - started >= left_s


def test_a_trial_of_which_most_answers_are_no_reply_has_failed() -> None:
    failure = "9 of 10 answers of fake are no reply"
    result = Result(Path("runs/x"), "x", {"score": Estimate(1.0, 0.5, 1.5, 9)}, chat_usage={FAILURE: failure})
    with pytest.raises(RunError, match="9 of 10 answers"):
        _measured({"score": 1.0}, result)
    assert _measured({"score": 1.0}, replace(result, chat_usage={FAILURE: ""})).value == 1.0


def test_what_is_to_fall_keeps_its_interval_in_order() -> None:
    result = Result(Path("runs/x"), "x", {"score": Estimate(1.0, 0.5, 2.0, 9)})
    assert _measured({"score": -2.0}, result) == Estimate(-2.0, -4.0, -1.0, 9)
