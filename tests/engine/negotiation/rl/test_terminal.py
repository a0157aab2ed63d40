"""What a training with Ray actors writes on the terminal: its own lines, what its workers raise and say, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.core.ray.own_cluster import survives
from tests.engine.core.verbs.made_up import CORPUS, corpus_vocabulary, data_root, save_negotiator, start_parley

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SMALL = ("dialogues=12", "dialogues_per_update=6", "supervised_batch=4", "max_turns=4")
FAILS = """
import sys, traceback
from pathlib import Path
from parley.engine.core.ray.session import connect
from tests.engine.negotiation.rl.trainings import Failing, World
with connect(num_cpus=2):
    settings = World(Path(sys.argv[1])).settings(env_runners=1)
    settings.env_runners(env_runner_cls=Failing)
    algorithm = settings.build_algo()
    try:
        algorithm.train()
    except RuntimeError:
        traceback.print_exc()
    algorithm.stop()
print("survived")
"""


def test_a_training_in_actors_is_as_quiet_as_one_without(tmp_path: Path) -> None:
    root = data_root(tmp_path / "data")
    save_negotiator(tmp_path / "agent", vocabulary=corpus_vocabulary(root))
    asked = ["train", "rl", "--target", "agent", "--corpus", CORPUS, "--data-root", str(root), "--run", "run", "--json"]
    asked += [word for setting in SMALL for word in ("--set", f"reinforce.{setting}")]
    with start_parley(*asked, "--env-runners", "1", "--remote-learner", "--log", "json", folder=tmp_path) as process:
        out, err = process.communicate(timeout=550)
    assert process.returncode == 0, err
    assert json.loads(out)["run"] == "run"
    for line in err.splitlines():
        assert json.loads(line)["logger"].startswith("parley."), line


def test_what_a_runner_raises_and_says_reaches_the_terminal(tmp_path: Path) -> None:
    told = survives(FAILS, tmp_path, timeout_s=550)
    assert 'raise RuntimeError("no voice")' in told, "the line in the worker"
    assert "RuntimeError: no voice" in told
    assert "the runner has no voice" in told, "what the worker logged"
