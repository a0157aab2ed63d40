"""A campaign that was copied, its original deleted: it is evaluated, judged and gone on with where it lies."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.agents import judge_of
from parley.engine.negotiation.verbs.campaign import MinMaxConfig
from parley.engine.negotiation.verbs.minmax import MINMAX
from parley.engine.negotiation.verbs.population import AGENTS, EVALUATE_POPULATION, PopulationConfig, played_in
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TRAIN_TARGET, TrainReinforceConfig, TrainTargetConfig
from tests.engine.core.verbs.made_up import Notes, save_negotiator

TARGET, CAMPAIGN = Path("runs/demo/target"), Path("runs/demo/minmax")
HARDENED, FRESH = CAMPAIGN / "01-target", CAMPAIGN / "00-exploitability" / "adversary"


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One under relative names, with a matrix that it has played."""
    monkeypatch.chdir(tmp_path)
    save_negotiator(TARGET / "checkpoint")
    with RunFolder.open(CAMPAIGN, MinMaxConfig(target=str(TARGET)), job=MINMAX.name) as folder:
        folder.event("started")
    trained = {
        HARDENED: (TRAIN_TARGET, TrainTargetConfig(target=str(TARGET), adversaries=str(FRESH))),
        FRESH: (TRAIN_ADVERSARY, TrainReinforceConfig(target=str(TARGET))),
    }
    for seed, (path, (job, config)) in enumerate(trained.items(), start=1):
        with RunFolder.open(path, config, job=job.name) as folder:
            origin = {"role": "target", "target": str(TARGET)} if path == HARDENED else {"role": "adversary"}
            save_negotiator(path / "checkpoint", seed=seed, **origin)
            folder.write_summary({})
    return CAMPAIGN


def matrix(path: Path) -> PopulationConfig:
    return PopulationConfig(campaign=str(path), dialogues=4)


def test_it_is_evaluated_from_where_it_lies(campaign: Path) -> None:
    before = EVALUATE_POPULATION.run(matrix(campaign), Path("before"), Silent())
    shutil.copytree("runs/demo", "X")
    shutil.rmtree("runs")
    result = EVALUATE_POPULATION.run(matrix(Path("X/minmax")), Path("after"), Silent())
    assert result.metrics == before.metrics, "the same agents"
    summary = RunFolder.load(Path("after")).summary()
    assert summary is not None
    assert summary[AGENTS] == {"targets": ["X/target", "01-target"], "adversaries": ["00-exploitability/adversary"]}


def test_a_copy_is_evaluated_itself_where_the_original_is_still_there(campaign: Path) -> None:
    shutil.copytree("runs/demo", "X")
    save_negotiator(Path("X/target/checkpoint"), seed=7)
    EVALUATE_POPULATION.run(matrix(Path("X/minmax")), Path("after"), Silent())
    played = {row["target"] for row in RunFolder.load(Path("after")).read_rows().to_pylist()}
    assert played == {"X/target", "X/minmax/01-target"}


def test_a_matrix_that_was_moved_with_its_agents_is_finished_and_known(campaign: Path) -> None:
    named = PopulationConfig(targets=f"{TARGET},{HARDENED}", adversaries=str(FRESH), dialogues=4)
    before = EVALUATE_POPULATION.run(named, CAMPAIGN / "crossplay", Silent())
    shutil.move("runs/demo", "X")
    moved = replace(named, targets="X/target,X/minmax/01-target", adversaries="X/minmax/00-exploitability/adversary")
    notes = Notes()
    assert EVALUATE_POPULATION.run(moved, Path("X/minmax/crossplay"), notes).metrics == before.metrics
    assert notes.said == ["X/minmax/crossplay is finished: nothing is left to do"]
    assert played_in(Path("X/minmax/crossplay")).gains_GTA.shape == (4, 2, 1)
    (Path("X/minmax/crossplay/summary.json")).unlink()
    assert EVALUATE_POPULATION.run(moved, Path("X/minmax/crossplay"), Silent()).metrics == before.metrics
    known = replace(moved, known="X/minmax/crossplay", adversaries=f"{moved.adversaries},scripted")
    EVALUATE_POPULATION.run(known, Path("more"), Silent())
    assert {row["adversary"] for row in RunFolder.load(Path("more")).read_rows().to_pylist()} == {"scripted"}


def test_the_judge_is_found_by_what_a_checkpoint_says_of_its_origin(campaign: Path) -> None:
    assert judge_of("", [str(HARDENED)]) == str(TARGET)
    shutil.move("runs/demo", "X")
    assert judge_of("", ["X/minmax/01-target"]) == "X/target"
