"""Stages side by side over one pool: the same runs as one after another, and none waits but for those that it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.verbs import composite
from parley.engine.core.verbs.composite import Stage, run_stages
from parley.engine.core.verbs.stage_progress import JointProgress, StageReporter
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.whitebox import ATTACK_TRANSFER, TransferConfig, TransferSettings
from parley.envs.core.errors import ClusterError, ConfigError
from tests.engine.core.verbs.made_up import Listening, Notes, rows


def stages(path: Path, workers: int, source: str = "first") -> dict[str, Stage]:
    """Two matches of scripted agents, and one that plugs in what was said in the first."""
    how = {"target": "scripted", "dialogues": 12, "shard_size": 3, "workers": workers, "judge": ""}
    plugs = TransferSettings(source=str(path / source), min_advantage=-10)
    return {
        "late": (ATTACK_TRANSFER, TransferConfig(speaker="scripted", transfer=plugs, **how)),
        "first": (SELFPLAY, MatchConfig(adversary="scripted-tough", complementary=True, **how)),
        "other": (SELFPLAY, MatchConfig(adversary="scripted", **how)),
    }


@pytest.mark.ray
def test_stages_side_by_side_have_the_rows_of_stages_one_after_another(
    ray_session: RaySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, pooled = Notes(), stages(tmp_path / "pool", 2)
    monkeypatch.setattr(type(SELFPLAY), "present", lambda job, result, run: replace(result, warnings=["few scenarios"]))
    run_stages(pooled, tmp_path / "pool", notes, needs={"late": ["first"]}, pooled=pooled)
    alone = stages(tmp_path / "alone", 0)
    for name in ("first", "other", "late"):
        job, config = alone[name]
        job.run(config, tmp_path / "alone" / name, Notes())
        assert rows(tmp_path / "pool" / name) == rows(tmp_path / "alone" / name)
    assert notes.steps[-1] == 3, "all stages are done"
    assert any(line.startswith("late: to plug in") for line in notes.said)
    assert notes.said.count("first: few scenarios") == notes.said.count("other: few scenarios") == 1


def test_a_stage_counts_once_it_is_finished_whatever_length_of_its_work_is_done() -> None:
    notes, reports = Notes(), list[str]()
    told, stage = JointProgress(notes, ["decoded", "fitted"]), StageReporter(reports.append)
    stage.stage("dialogues", 4, "dialogues")
    stage.advance(4)
    told.take("decoded", reports[-1])
    told.take("fitted", reports[-1], is_done=True)
    assert notes.steps[-1] == pytest.approx(1.99)


def test_messages_of_a_stage_are_told_once_and_those_of_the_process_that_replaces_it_anew() -> None:
    notes, reports = Notes(), list[str]()
    told = JointProgress(notes, ["fitted"])
    for messages in (("one", "two"), ("one",)):
        stage = StageReporter(reports.append, 3600.0)
        for message in messages:
            stage.say(message)
            stage.advance(0)
    assert len(reports) == 3, "progress waits for its time, messages do not"
    for report in (reports[1], reports[1], "", reports[2]):
        told.take("fitted", report)
    assert notes.said == ["fitted: one", "fitted: two", "fitted: one"]


def test_of_a_stage_of_several_lengths_it_is_shown_which_one_is_under_way_and_none_is_counted() -> None:
    notes = Listening()
    told = JointProgress(notes, ["campaign", "match", "table", "other", "last"])
    assert notes.stages == [("5 stages side by side", 5, "stages")]
    campaign, match = told.of("campaign"), told.of("match")
    campaign.stage("learning", 4, "updates")
    campaign.advance(3)
    campaign.stage("dialogues", 8, "dialogues")
    campaign.advance(2)
    match.stage("dialogues", 8, "dialogues")
    match.advance(4)
    match.stage("computing metrics", 0, "")
    assert notes.steps[-1] == 0.5
    assert notes.said[-1] == "campaign dialogues 25%, match 50%"


@pytest.mark.ray
def test_a_stage_that_fails_is_told_of_when_the_others_have_ended(ray_session: RaySession, tmp_path: Path) -> None:
    planned = stages(tmp_path, 2)
    planned["first"] = (SELFPLAY, MatchConfig(adversary="nobody", target="scripted", dialogues=3, workers=2))
    with pytest.raises(ConfigError, match="no agent is called 'nobody'"):
        run_stages(planned, tmp_path, Notes(), needs={"late": ["first"]}, pooled=planned)
    assert len(rows(tmp_path / "other")) == 12
    assert not (tmp_path / "late").exists()


@pytest.mark.ray
def test_whole_stages_are_done_ahead_as_soon_as_what_they_need_is_finished(ray_session: RaySession, tmp_path: Path) -> None:
    notes, done, needs = Notes(), [], {"late": ["first"]}
    planned = stages(tmp_path, 0)
    planned = {name: planned[name] for name in ("first", "late", "other")}
    asked: list[tuple[str, ...]] = []

    def now() -> dict[str, Stage]:
        asked.append(tuple(sorted(path.parent.name for path in tmp_path.glob("*/summary.json"))))
        return planned

    count_done = lambda: done.append(len(list(tmp_path.glob("*/summary.json"))))  # noqa: E731
    run_stages(now, tmp_path, notes, needs=needs, most=2, after=count_done)
    assert len(done) == 3, "told after each"
    assert sum("is done" in line for line in notes.said) == 3, "all of it ahead"
    assert any("first" in finished and "late" not in finished for finished in asked), "what it is like is asked then"
    assert rows(tmp_path / "late")
    again = Notes()
    run_stages(now, tmp_path, again, needs=needs, most=2, after=count_done)
    assert again.said == ["3 of 3 stages are finished"]
    assert len(done) == 3


@pytest.mark.ray
def test_a_whole_stage_that_fails_ahead_is_told_of_here(
    ray_session: RaySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks how far they are before all have ended.
    monkeypatch.setattr(composite, "LOOK_S", 3600.0)
    planned, notes = stages(tmp_path, 0), Notes()
    planned["first"] = (SELFPLAY, MatchConfig(adversary="nobody", target="scripted", dialogues=3))
    planned = {name: planned[name] for name in ("first", "late", "other")}
    with pytest.raises(ConfigError, match="no agent is called 'nobody'"):
        run_stages(planned, tmp_path, notes, needs={"late": ["first"]}, most=2)
    assert "first: it ends with an error: no agent is called 'nobody'" in notes.said, "told by its actor"
    assert len(rows(tmp_path / "other")) == 12
    assert not (tmp_path / "late").exists()


def test_stages_are_done_here_where_no_actor_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ClusterError("no worker could start within 120 s")

    monkeypatch.setattr(composite, "connect", refuse)
    planned, notes = stages(tmp_path, 0), Notes()
    planned = {name: planned[name] for name in ("first", "late", "other")}
    run_stages(planned, tmp_path, notes, needs={"late": ["first"]}, most=2)
    assert notes.said[0] == "no worker could start within 120 s; what is left is done in this process"
    assert [len(rows(tmp_path / name)) for name in planned] == [12, 12, 12]
