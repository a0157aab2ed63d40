"""A search that was killed goes on inside its targets, and rows are there as targets end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray import pool
from parley.engine.core.ray.session import RaySession
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.methods.gibbs_enum import RandomSearch
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.searches.batch import SearchState
from parley.engine.triggers.verbs import turns as turns_module
from parley.engine.triggers.verbs.config import ObjectiveSettings, TriggerConfig, TriggerEngineSettings
from parley.engine.triggers.verbs.models import choose_targets, open_models
from parley.engine.triggers.verbs.search import SEARCH, SearchTask, SearchWorker
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from tests.engine.core.verbs.made_up import Notes, kill_at, rows
from tests.engine.triggers.verbs.searches import IN_THE_MIDDLE, SMALL, STEP_BY_STEP, save_seq2seq, search, write_targets

LONG = SearchSettings(candidates=2, max_sweeps=40, restarts=2)
NEVER = ObjectiveSettings(t_out=-1e-6)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, corpus: Path, vocabulary: PairVocabulary) -> str:
    return save_seq2seq(tmp_path_factory.mktemp("model") / "checkpoint", vocabulary, corpus=str(corpus))


@pytest.fixture
def asked(tmp_path: Path, model: str) -> TriggerConfig:
    """A search that no hit ends, and whose restarts are all of one length."""
    return search(model, write_targets(tmp_path), method="random", search=LONG, objective=NEVER, shard_size=None)


def kept(path: Path) -> dict[str, Any]:
    """What targets are gone on from."""
    found = [json.loads(file.read_text()) for file in (path / "unfinished").glob("*.json")]
    return {key: each for shard in found for key, each in shard.items()}


def killed(config: TriggerConfig, folder: Path) -> dict[str, Any]:
    """Kills a run of it when a restart has ended and others are under way; what it has kept."""
    words = ["search", "--model", config.model, "--targets", config.targets, "--run", str(folder / "run")]
    for key in ("candidates", "max_sweeps", "restarts"):
        words += ["--set", f"search.{key}={getattr(LONG, key)}"]
    words += ["--set", "objective.t_out=-1e-6", "--set", "engine.batch_size=4", "--method", config.method]
    kill_at(IN_THE_MIDDLE, *words, "--workers", str(config.workers), folder=folder, before=STEP_BY_STEP)
    return kept(folder / "run")


def test_a_killed_search_goes_on_inside_its_targets(
    tmp_path: Path, asked: TriggerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = killed(asked, tmp_path)
    ended = [restart for row in rows(tmp_path / "run") for restart in row["restarts"]]
    ended += [each for target in found.values() for each in target["outcomes"]]
    visits_before = sum(each["visits"] for each in ended)
    visits_before += sum(saved["visits"] for target in found.values() for saved in target["saved"].values())
    step, visits = RandomSearch.step, []

    def counted(self: RandomSearch, states: Sequence[SearchState]) -> None:
        visits.append(len(states))
        step(self, states)

    monkeypatch.setattr(RandomSearch, "step", counted)
    SEARCH.run(asked, tmp_path / "run", Silent())
    visits_after = sum(visits)
    SEARCH.run(asked, tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert visits_before > 0
    assert visits_after == sum(visits) - visits_after - visits_before, "nothing that was kept is done again"
    assert not kept(tmp_path / "run"), "what is saved as rows is not kept"


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_search_of_two_workers_goes_on_inside_its_targets(
    tmp_path: Path, asked: TriggerConfig, ray_session: RaySession
) -> None:
    killed(replace(asked, workers=2), tmp_path)
    SEARCH.run(replace(asked, workers=2), tmp_path / "run", Silent())
    SEARCH.run(asked, tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


class Interrupts(Notes):
    """Is interrupted when there are rows."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run = run

    def advance(self, done: float, note: str = "") -> None:
        super().advance(done, note)
        if [*self.run.glob("rows/*.parquet")]:
            raise KeyboardInterrupt


def test_rows_are_there_as_targets_end_and_progress_counts_shares_of_others(
    tmp_path: Path, asked: TriggerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TURN_S", 0.0)
    notes = Interrupts(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        SEARCH.run(replace(asked, search=replace(LONG, restarts=1)), tmp_path / "run", notes)
    assert 1 <= len(rows(tmp_path / "run")) < 5
    assert [stage[1:] for stage in notes.stages] == [(5, "targets")]
    assert notes.steps == sorted(notes.steps)
    assert any(0 < done < 1 for done in notes.steps), "a pace is known before the first target has ended"


def shards(config: TriggerConfig) -> list[Shard[Any]]:
    targets = choose_targets(config, open_models(config)).targets
    return [Shard(f"{number:05d}", (target.key,), (target,)) for number, target in enumerate(targets)]


def all_ended(worker: SearchWorker, todo: Sequence[Shard[Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while len(found) < len(todo):
        found |= worker.turn([] if found else todo, 60.0).ended
    return found


# Of each method searches/test_saved.py holds it; these keep more than words.
@pytest.mark.parametrize("method", ["gcg", "pez"])
def test_a_worker_goes_on_with_what_another_has_kept(
    asked: TriggerConfig, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "SAVED_EVERY_S", 0.0)
    config = replace(asked, method=method, search=replace(LONG, max_sweeps=2))
    models, todo = open_models(config), shards(config)
    expected = all_ended(SearchWorker(config, models), todo)
    for num_turns in (1, 4):
        first, second = SearchWorker(config, models), SearchWorker(config, models)
        turns = [first.turn(todo if number == 0 else [], 0.0) for number in range(num_turns)]
        found = {name: each for turn in turns for name, each in turn.ended.items()}
        last = turns[-1].under_way
        assert last
        joining = [replace(shard, kept=json.loads(json.dumps(last[shard.name].kept))) for shard in todo if shard.name in last]
        assert found | all_ended(second, joining) == expected


def test_a_relaxation_goes_on_with_whole_restarts(asked: TriggerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "SAVED_EVERY_S", 0.0)
    config = replace(asked, method="relaxation", search=replace(LONG, relaxation=SMALL), shard_size=5)
    models, targets = open_models(config), choose_targets(config, open_models(config)).targets
    shard = Shard("00000", tuple(target.key for target in targets), targets)
    whole = SearchWorker(config, models).turn([shard], 60.0).ended
    first = SearchWorker(config, models)
    stands = first.turn([shard], 0.0).under_way
    while not all(len(each["outcomes"]) >= 1 for each in stands[shard.name].kept.values()):
        stands = first.turn([], 0.0).under_way
    assert SearchWorker(config, models).turn([replace(shard, kept=stands[shard.name].kept)], 60.0).ended == whole


def test_a_target_that_fails_fails_alone(tmp_path: Path, asked: TriggerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    step = RandomSearch.step

    def broken(self: RandomSearch, states: Sequence[SearchState]) -> None:
        if any(state.task.key.endswith("3") and state.visits == 2 for state in states):
            raise ArithmeticError("no number")
        step(self, states)

    monkeypatch.setattr(RandomSearch, "step", broken)
    config = replace(asked, search=replace(LONG, max_sweeps=2))
    SEARCH.run(config, tmp_path / "run", Silent())
    found = RunFolder.load(tmp_path / "run").read_rows().to_pylist()
    failed = [(row["item_key"][-1], row["error"]) for row in found if row["status"] == "error"]
    assert failed == [("3", "ArithmeticError: no number")]
    assert len(found) == 5
    monkeypatch.setattr(RandomSearch, "step", step)
    SEARCH.run(config, tmp_path / "run", Silent())
    SEARCH.run(config, tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_parts_are_as_large_as_what_is_searched_for_together(asked: TriggerConfig) -> None:
    config = replace(asked, engine=TriggerEngineSettings())
    work = SearchTask(config, open_models(config))
    assert [work.shard_size(number, 2) for number in (1, 500, 10_000, 50_000)] == [1, 1, 1, 5]
    assert (work.room(1), work.room(5)) == (20, 5)
    together = SearchTask(replace(config, method="relaxation"), work.models)
    assert (together.shard_size(500, 2), together.room(16)) == (16, 1)
    stop_as_one = replace(config, method="gibbs-enum", search=replace(LONG, stop_on_hit=False, stop_on_batch_mean=True))
    for workers in (0, 2, 40):
        assert SearchTask(stop_as_one, work.models).shard_size(500, workers) == 16, "rows do not depend on the workers"
