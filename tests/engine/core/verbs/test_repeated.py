"""Several trainings as one run, by a job that draws one number: stages, figures, the best, going on, mistakes."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Metric, count
from parley.engine.core.stats.trainings import TRAININGS, over_runs
from parley.engine.core.verbs.job import Reporter, Silent, Summary
from parley.engine.core.verbs.repeated import RepeatedConfig, RepeatedJob, nth_seed
from parley.envs.core.config import NonNegativeInt
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.envs.core.seeds import stream
from tests.engine.core.verbs.made_up import Notes

LEARNT = "learnt.txt"


@dataclass(frozen=True, kw_only=True)
class DrawnConfig(RepeatedConfig):
    """A training that is a number drawn from a seed."""

    seed: NonNegativeInt = 7
    env_runners: int = 0
    address: str = ""


class Drawing(RepeatedJob[DrawnConfig, DrawnConfig, Summary]):
    """Draws a number, which it writes down as what it learnt."""

    words = ("train", "drawing")
    run_name = "drawing"
    config = DrawnConfig
    presets = {"default": DrawnConfig}
    files = (LEARNT, SUMMARY)
    legend = {"drawn": Metric("a number", "higher: better", "drawn"), "size": Metric("size", "neither", "constant", "count")}
    resume_safe = ("trainers", "address")

    def __init__(self) -> None:
        self.prepared: list[int] = []

    def prepare(self, config: DrawnConfig, path: Path, reporter: Reporter) -> DrawnConfig:
        """Notes whose turn it is."""
        if config.address:
            raise ConfigError("nothing is at this address")
        self.prepared.append(config.seed)
        return config

    def work(self, run: RunFolder, prepared: DrawnConfig, reporter: Reporter) -> Summary:
        """Draws."""
        drawn = float(stream(prepared.seed, "drawn").normal())
        (run.path / LEARNT).write_text(str(drawn))
        return Summary("drawing", f"seed {prepared.seed}", {"drawn": count(drawn, 1), "size": count(3, 1)})

    def loss(self, run: RunFolder) -> float:
        """Minus what was drawn."""
        return -run.metrics()["drawn"].value

    def keep(self, best: Path, run: RunFolder) -> None:
        """Copies what was learnt."""
        (run.path / LEARNT).write_text((best / LEARNT).read_text())


def drawn(path: Path) -> float:
    return float((path / LEARNT).read_text())


def test_one_seed_is_the_run_itself(tmp_path: Path) -> None:
    result = Drawing().run(DrawnConfig(), tmp_path / "run", Silent())
    assert result.metrics["drawn"].value == drawn(tmp_path / "run")
    assert not result.tables
    assert not [*tmp_path.glob("run/training-*")]


def test_several_are_runs_of_their_own_with_figures_over_them(tmp_path: Path) -> None:
    path = tmp_path / "run"
    result = Drawing().run(DrawnConfig(seeds=3), path, Silent())
    runs = [path / f"training-{number}" for number in (1, 2, 3)]
    assert [RunFolder.load(run).config["seed"] for run in runs] == [7, nth_seed(7, 2), nth_seed(7, 3)]
    values = [drawn(run) for run in runs]
    assert values[0] == Drawing().run(DrawnConfig(), tmp_path / "one", Silent()).metrics["drawn"].value, "as one seed makes it"
    assert len(set(values)) == 3
    assert result.metrics["drawn"].to_json() == pytest.approx(over_runs(values).to_json())
    assert result.metrics["size"].to_json() == count(3, 3).to_json(), "what is counted has no interval"
    assert drawn(path) == max(values), "the best is kept"
    summary = RunFolder.load(path).summary()
    assert summary is not None
    assert summary[TRAININGS]["drawn"] == values
    assert summary["description"].startswith("3 trainings, each from a seed of its own; the checkpoint is that of training-")
    (table,) = result.tables.values()
    assert table.columns == ("figure", "over 3 trainings", "training 1", "training 2", "training 3")
    assert [row[0] for row in table.rows] == ["a number", "size"]
    assert result.next_commands[0] == f"parley report {path}"


def test_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    config, path = DrawnConfig(seeds=3), tmp_path / "run"
    first, job, notes = Drawing().run(config, path, Silent()), Drawing(), Notes()
    assert str(job.run(config, path, notes)) == str(first)
    assert (job.prepared, notes.said) == ([], [f"{path} is finished: nothing is left to do"])
    (path / SUMMARY).unlink()
    (path / "training-2" / SUMMARY).unlink()
    again = job.run(config, path, Silent())
    assert job.prepared == [7, nth_seed(7, 2)], "what is needed is checked, then one training is made"
    assert again.metrics == first.metrics
    with pytest.raises(RunError, match="seeds: 3 -> 4"):
        job.run(replace(config, seeds=4), path, Silent())


def test_mistakes_leave_no_folder(tmp_path: Path) -> None:
    for seeds in (0, -1, 1001):
        with pytest.raises(ConfigError, match=r"seeds(.|\n)*at least 1 and at most 1,000"):
            DrawnConfig(seeds=seeds)
    with pytest.raises(ConfigError, match="trainers"):
        DrawnConfig(trainers=-1)
    with pytest.raises(ConfigError, match="nothing is at this address"):
        Drawing().run(DrawnConfig(seeds=2, address="there"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True, kw_only=True)
class LosingConfig(DrawnConfig):
    """A training that loses itself from some seeds."""

    lost: tuple[int, ...] = ()


class Losing(Drawing):
    """Draws nothing from those."""

    config = LosingConfig
    presets = {"default": LosingConfig}

    def work(self, run: RunFolder, prepared: DrawnConfig, reporter: Reporter) -> Summary:
        """Draws, or fails."""
        assert isinstance(prepared, LosingConfig)
        if prepared.seed in prepared.lost:
            raise DataError("the training lost itself", where="update 3", got="nan", fix="another rate")
        return super().work(run, prepared, reporter)


def require_named(error: DataError, path: Path, said: Sequence[str]) -> None:
    """That the training is named, and that the others are finished."""
    assert (error.what, error.where, error.got) == ("the training lost itself", "training-2: update 3", "nan")
    assert error.fix == "another rate"
    assert [(path / f"training-{number}" / SUMMARY).exists() for number in (1, 2, 3)] == [True, False, True]
    assert "training-2 ends with an error: the training lost itself" in said


def test_one_that_fails_is_named_and_the_others_are_finished(tmp_path: Path) -> None:
    notes, config = Notes(), LosingConfig(seeds=3, lost=(nth_seed(7, 2),))
    with pytest.raises(DataError) as raised:
        Losing().run(config, tmp_path, notes)
    require_named(raised.value, tmp_path, notes.said)


class Dying(Drawing):
    """Is killed at its first try, as if from outside; it leaves a file for each process."""

    def work(self, run: RunFolder, prepared: DrawnConfig, reporter: Reporter) -> Summary:
        """Dies, or draws."""
        tries = [*run.path.glob("try-*")]
        (run.path / f"try-{os.getpid()}").touch()
        if prepared.seed == 7 and not tries:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().work(run, prepared, reporter)


@pytest.mark.ray
def test_a_training_whose_process_is_killed_is_tried_again_by_ray(ray_session: RaySession, tmp_path: Path) -> None:
    wanted = Drawing().run(DrawnConfig(seeds=3), tmp_path / "alone", Silent())
    notes = Notes()
    result = Dying().run(DrawnConfig(seeds=3, trainers=2), tmp_path / "run", notes)
    assert result.metrics == wanted.metrics
    tries = [{path.name for path in tmp_path.glob(f"run/training-{number}/try-*")} for number in (1, 2, 3)]
    assert [len(processes) for processes in tries] == [2, 1, 1]
    assert f"try-{os.getpid()}" not in set().union(*tries), "none was left for this process"
    assert notes.said == []
