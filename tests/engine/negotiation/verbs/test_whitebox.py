"""White-box attacks as runs: what their rows hold, on what they depend, and faults."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.attacks.settings import AttackKind, SearchConfig
from parley.engine.negotiation.attacks.tactics import PAPER_SENTENCE
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS
from parley.engine.negotiation.verbs.match import ATTACKS, OF_DEFENCES
from parley.engine.negotiation.verbs.whitebox import JOBS, AttackWorker, FixedTurnConfig, TransferSettings
from parley.envs.core.config import from_dict
from parley.envs.core.errors import CheckpointError
from parley.envs.negotiation.domain import SELECTION, SPECIALS, Scenario
from parley.envs.negotiation.game import NegotiationGame
from tests.engine.core.verbs.items import require_figures_of
from tests.engine.core.verbs.made_up import interrupt, rows
from tests.engine.negotiation.verbs.whitebox import KINDS, asked, attack, save_hasty, save_leaning, save_speaker, save_target

COMBINED: tuple[AttackKind, ...] = ("ra-pa-da", "ra-pa-ta")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_speaker(tmp_path_factory.mktemp("speaker"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, target: Path, speaker: Path) -> Mapping[AttackKind, Path]:
    """A finished run of each kind."""
    folders = {}
    for kind in KINDS:
        folders[kind] = tmp_path_factory.mktemp(kind) / "run"
        JOBS[kind].run(asked(kind, target, speaker), folders[kind], Silent())
    return folders


@pytest.mark.parametrize("kind", KINDS)
def test_an_attack_leaves_rows_of_its_schema_and_all_its_metrics(runs: Mapping[AttackKind, Path], kind: AttackKind) -> None:
    run = RunFolder.load(runs[kind])
    table = run.read_rows()
    assert table.schema.equals(ATTACKS)
    assert table["status"].to_pylist() == ["ok"] * 8
    required = [name for name in ATTACKS.names if name not in ("error", "chat_adversary", "chat_target", *OF_DEFENCES)]
    assert {name: table[name].null_count for name in required} == dict.fromkeys(required, 0)
    summary = run.summary()
    assert summary is not None
    assert list(summary["metrics"]) == list(ATTACK_METRICS)
    require_figures_of(runs[kind])
    assert summary["metrics"]["forced_advantage"]["n"] == summary["metrics"]["seconds"]["n"] == 8
    assert summary["metrics"]["seconds"]["value"] > 0
    (played,) = [event for event in run.events() if event["kind"] == "played"]
    assert (played["dialogues"], played["workers"]) == (8, 1)
    assert summary["title"].startswith(f"{kind} attack on ")


def test_every_kind_of_attempt_is_in_those_rows(runs: Mapping[AttackKind, Path]) -> None:
    """What the tests of rows below rely on."""
    attempts = {kind: [attempt for row in rows(path) for attempt in row["attempts"]] for kind, path in runs.items()}
    found = {kind: {(attempt["kind"], attempt["accepted"]) for attempt in listed} for kind, listed in attempts.items()}
    assert found == {
        "reactive": {("reactive", True), ("reactive", False)},
        "preemptive": {("preemptive", True), ("preemptive", False)},
        "ra-pa-da": {("reactive", True), ("preemptive", True)},
        "ra-pa-ta": {("reactive", True), ("preemptive", True), ("transfer", False)},
    }
    assert {attempt["ended"] for attempt in attempts["ra-pa-da"] if attempt["kind"] == "reactive"} == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_attempts_tell_what_was_said_and_what_would_have_been(runs: Mapping[AttackKind, Path], kind: AttackKind) -> None:
    for row in rows(runs[kind]):
        for attempt in row["attempts"]:
            turn, base = row["turns"][attempt["turn"]], attempt["base"].split()
            words = turn["words"].split()
            assert turn["side"] == 0
            assert (attempt["num_words"], attempt["num_words_base"]) == (len(words) + 1, len(base) + 1)
            if attempt["kind"] == "transfer":
                assert (attempt["replaced"], turn["words"]) == ([], PAPER_SENTENCE)
            else:
                differing = [i for i, pair in enumerate(zip(base, words, strict=True)) if pair[0] != pair[1]]
                assert attempt["replaced"] == differing
            assert attempt["special"] == 0
            assert not set(words) & set(SPECIALS)
            assert len(attempt["replaced"]) <= 2
            answers = row["turns"][attempt["turn"] + 1 :][:1]
            assert attempt["ended"] == (answers == [{"side": 1, "words": SELECTION}] and not row["forced"])
            assert (attempt["end_probability"] is not None) == (attempt["kind"] == "reactive")
            assert (attempt["steps"] != []) == (attempt["kind"] == "reactive")


@pytest.mark.parametrize("kind", KINDS)
def test_attempts_are_scored_by_the_judge(runs: Mapping[AttackKind, Path], kind: AttackKind) -> None:
    for row in rows(runs[kind]):
        for attempt in row["attempts"]:
            assert attempt["nll"] > 0
            assert np.exp(-attempt["nll"]) <= attempt["lowest_probability"] <= np.exp(-attempt["nll"] / attempt["num_words"])
            said = row["turns"][attempt["turn"]]["words"]
            assert (attempt["nll"] == attempt["nll_base"]) == (said == attempt["base"])
        # One who writes nothing but attack sentences and `<selection>` is as unlikely as they are.
        own = [turn["words"] for turn in row["turns"] if turn["side"] == 0]
        if kind == "preemptive" and len(row["attempts"]) == 1 and len(own) == 1:
            assert row["attempts"][0]["nll"] == pytest.approx(row["nll_adversary"], rel=1e-5)


@pytest.mark.parametrize("kind", ["reactive", *COMBINED])
def test_the_forced_outcome_is_that_of_the_first_reactive_sentence_that_keeps_the_constraint(
    runs: Mapping[AttackKind, Path], kind: AttackKind
) -> None:
    sources = Counter[str]()
    for row in rows(runs[kind]):
        ends = [a["steps"][-1] for a in row["attempts"] if a["kind"] == "reactive" and a["steps"][-1]["feasible"]]
        wanted = ends[0] if ends else row
        forced = row["forced_points_adversary"], row["forced_points_target"]
        assert forced == (wanted["points_adversary"], wanted["points_target"])
        assert row["forced_agreed"] == (sum(forced) > 0)
        sources["forced" if ends else "live"] += 1
    assert len(sources) == 2


def test_a_refusal_is_no_agreement_under_either_protocol(tmp_path: Path, speaker: Path) -> None:
    stubborn = save_leaning(tmp_path / "checkpoint", seed=5, ending=6.0, refusing=50.0)
    played = attack("reactive", asked("reactive", stubborn, speaker, proposals="random", candidates=3), tmp_path / "run")
    assert {attempt["steps"][-1]["feasible"] for row in played for attempt in row["attempts"]} == {True, False}
    for row in played:
        assert (row["agreed"], row["forced_agreed"]) == (False, False)
        assert row["forced_points_adversary"] == row["forced_points_target"] == 0


@pytest.mark.parametrize("kind", ["reactive", *COMBINED])
def test_steps_tell_what_was_gained_for_how_many_queries(runs: Mapping[AttackKind, Path], kind: AttackKind) -> None:
    for row in rows(runs[kind]):
        for attempt in row["attempts"]:
            steps = attempt["steps"]
            assert [step["replaced"] for step in steps] == list(range(len(steps)))
            for early, late in itertools.pairwise(steps):
                assert early["reads"] < late["reads"] <= row["reads"]
                assert early["decisions"] <= late["decisions"] <= row["decisions"]
            for step in steps:
                assert step["feasible"] or (step["points_adversary"], step["points_target"]) == (0, 0)


@pytest.mark.parametrize(("kind", "turn"), [("reactive", 1), ("reactive", 2), ("preemptive", 3)])
def test_a_fixed_attack_speaks_at_its_turn_because_of_who_begins(
    tmp_path: Path, target: Path, speaker: Path, kind: AttackKind, turn: int
) -> None:
    played = attack(kind, asked(kind, target, speaker, turn=turn), tmp_path / "run")
    assert {row["first_speaker"] for row in played} == {turn % 2}
    assert {attempt["turn"] for row in played for attempt in row["attempts"]} == {turn}


def test_who_begins_a_combined_attack_is_drawn(runs: Mapping[AttackKind, Path]) -> None:
    for kind in COMBINED:
        assert {row["first_speaker"] for row in rows(runs[kind])} == {0, 1}


def close(ours: Any, theirs: Any) -> bool:
    """Equal, fractions nearly."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(close(value, theirs[name]) for name, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    return bool(ours == (pytest.approx(theirs, rel=1e-3, abs=1e-5) if isinstance(theirs, float) else theirs))


def test_rows_do_not_depend_on_how_dialogues_are_sharded(
    tmp_path: Path, target: Path, speaker: Path, runs: Mapping[AttackKind, Path]
) -> None:
    """But for rounding in probabilities."""
    alone = attack("preemptive", asked("preemptive", target, speaker, shard_size=1), tmp_path / "run")
    assert close(alone, rows(runs["preemptive"]))
    assert not close(alone, rows(runs["ra-pa-da"]))


def test_another_judge_changes_what_is_scored_and_nothing_else(
    tmp_path: Path, target: Path, speaker: Path, runs: Mapping[AttackKind, Path]
) -> None:
    other = attack("reactive", asked("reactive", target, speaker, judge=str(speaker)), tmp_path / "run")
    for ours, theirs in zip(other, rows(runs["reactive"]), strict=True):
        assert ours["turns"] == theirs["turns"]
        for mine, their in zip(ours["attempts"], theirs["attempts"], strict=True):
            assert mine["nll"] != their["nll"]
            assert mine["nll_base"] != their["nll_base"]


@pytest.mark.usefixtures("workers_here")
def test_rows_are_equal_for_no_workers_and_for_two(
    tmp_path: Path, target: Path, speaker: Path, runs: Mapping[AttackKind, Path]
) -> None:
    there = attack("ra-pa-ta", asked("ra-pa-ta", target, speaker, workers=2), tmp_path / "there")
    assert there == rows(runs["ra-pa-ta"])
    (played,) = [event for event in RunFolder.load(tmp_path / "there").events() if event["kind"] == "played"]
    assert (played["dialogues"], played["workers"]) == (8, 2)
    assert played["candidates"] == sum(row["reads"] for row in there)


def test_an_interrupted_attack_loses_no_finished_shard(
    tmp_path: Path, target: Path, speaker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked("reactive", target, speaker, dialogues=16, shard_size=2, **vars(SearchConfig()))
    interrupt(JOBS["reactive"], config, tmp_path / "run", done=4)
    parts = {path: path.read_bytes() for path in (tmp_path / "run" / "rows").glob("*.parquet")}
    saved = rows(tmp_path / "run")
    assert 4 <= len(saved) < 16
    assert from_dict(FixedTurnConfig, RunFolder.load(tmp_path / "run").config) == config

    played: list[str] = []
    deal = AttackWorker.deal

    def watched(worker: AttackWorker, keys: Sequence[str], scenarios: Sequence[Scenario]) -> NegotiationGame:
        played.extend(keys)
        return deal(worker, keys, scenarios)

    monkeypatch.setattr(AttackWorker, "deal", watched)
    resumed = attack("reactive", config, tmp_path / "run")
    assert sorted(played) == [row["item_key"] for row in resumed if row not in saved]
    assert {path: path.read_bytes() for path in parts} == parts
    assert resumed == attack("reactive", config, tmp_path / "straight")


def test_what_is_plugged_in_is_said_when_both_searches_fail(tmp_path: Path, target: Path, speaker: Path) -> None:
    hopeless: dict[str, Any] = {"goal": 11.0, "preemptive_goal": 11.0, "proposals": "random", "candidates": 2}
    transfer = TransferSettings(sentence="you get the book .", turn=1)
    played = attack("ra-pa-ta", asked("ra-pa-ta", target, speaker, transfer=transfer, **hopeless), tmp_path / "run")
    attempts = [(row["turns"][attempt["turn"]]["words"], attempt) for row in played for attempt in row["attempts"]]
    assert len(attempts) > 3
    for words, attempt in attempts:
        assert words == transfer.sentence
        assert attempt["turn"] >= 1
        assert (attempt["kind"], attempt["accepted"], attempt["replaced"]) == ("transfer", False, [])


def test_a_finished_attack_is_not_made_again(runs: Mapping[AttackKind, Path], target: Path, speaker: Path) -> None:
    for kind, path in runs.items():
        config = asked(kind, target, speaker, workers=3)
        assert JOBS[kind].finished(config, path, JOBS[kind].weights(config))
        assert not JOBS[kind].finished(asked(kind, target, speaker, goal=4.0), path, {})


def test_what_is_found_on_a_surrogate_is_said_to_the_target(tmp_path: Path) -> None:
    read, who = save_hasty(tmp_path / "read"), save_speaker(tmp_path / "who")
    met = save_leaning(tmp_path / "met" / "checkpoint", seed=8, ending=3.0)
    config = replace(asked("reactive", read, who, turn=0, dialogues=6), temperature=0.0)
    alone = attack("reactive", config, tmp_path / "alone")
    moved = attack("reactive", replace(config, target=str(met), surrogate=str(read)), tmp_path / "moved")
    # The first sentence depends on nobody's answer: it is what the search finds on the model that it reads.
    first = [[row["turns"][0]["words"] for row in found] for found in (alone, moved)]
    assert first[0] == first[1]
    own = attack("reactive", replace(config, target=str(met)), tmp_path / "own")
    assert [row["turns"][0]["words"] for row in own] != first[0]
    assert any(attempt["replaced"] for row in moved for attempt in row["attempts"])
    for row in moved:
        assert (row["forced_points_adversary"], row["forced_points_target"]) == (row["points_adversary"], row["points_target"])
    assert "searched on" in RunFolder.load(tmp_path / "moved").summary()["title"]  # type: ignore[index]  # it is finished
    with pytest.raises(CheckpointError, match="--surrogate needs a checkpoint"):
        attack("reactive", replace(config, surrogate="scripted"), tmp_path / "none")
