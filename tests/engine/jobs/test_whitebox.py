"""White-box attacks as runs: what their rows hold, on what they depend, faults, and mistakes named before a run is made."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.attacks import choices, replacement
from engine.attacks.settings import AttackKind, SearchConfig
from engine.attacks.transfer import PAPER_SENTENCE
from engine.jobs.attack import TransferSettings
from engine.jobs.job import Silent
from engine.jobs.whitebox import JOBS, AttackWorker, FixedTurnConfig, WhiteBoxAttackConfig
from engine.metrics.attack import ATTACK_METRICS
from engine.runtime.session import Session
from engine.runtime.sharding import Shard
from engine.store.run_folder import RunFolder
from engine.store.schemas import ATTACKS
from envs.core.config import from_dict
from envs.core.errors import CheckpointError, ConfigError
from envs.data.vocabulary import EOS_ID, SELECTION, SELECTION_ID, SPECIALS
from envs.negotiation.game import NegotiationGame
from envs.negotiation.scenario import MAX_SELECTIONS, NO_AGREEMENT_ID, Scenario
from envs.negotiation.wording import bargainer_vocabulary
from policies.checkpoint import Checkpoint
from policies.negotiator import inference
from policies.negotiator.model import NUM_HEADS
from policies.negotiator.speaker import KIND
from tests.engine.attacks.speakers import leaning
from tests.engine.jobs.made_up import TINY, rows, start_parley
from tests.engine.runtime.metered import watch

KINDS = list(JOBS)
COMBINED: tuple[AttackKind, ...] = ("ra-pa-da", "ra-pa-ta")
CHANGES: dict[str, Any] = {"goal": 2.0, "preemptive_goal": 1.0, "replies": 3, "finalists": 3}


def save_leaning(folder: Path, seed: int, ending: float, refusing: float = 0.0) -> Path:
    """Stores a random negotiator that speaks briefly and leans towards `<selection>`, and refusals, by so many logits."""
    words = bargainer_vocabulary()
    model = leaning(words, TINY, seed, {EOS_ID: 3.0, SELECTION_ID: ending})
    model.selection_heads.bias.data.view(NUM_HEADS, -1)[:, NO_AGREEMENT_ID] += refusing
    Checkpoint(KIND, asdict(TINY), {"role": "made up"}, words, model.state_dict()).save(folder)
    return folder


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ends the talk after some sentences and not after others."""
    return save_leaning(tmp_path_factory.mktemp("target") / "checkpoint", seed=5, ending=3.5)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ends the talk after many sentences, so that a search by chance finds some."""
    return save_leaning(tmp_path_factory.mktemp("hasty") / "checkpoint", seed=5, ending=6.0)


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_leaning(tmp_path_factory.mktemp("speaker") / "checkpoint", seed=2, ending=1.0)


def asked(kind: AttackKind, target: Path, speaker: Path, preset: str = "cheng2019", **changes: Any) -> WhiteBoxAttackConfig:
    """A small attack of that kind; changes to the search or to the rest of a preset by their names."""
    config = JOBS[kind].presets[preset]()
    search = {name: changes.pop(name) for name in list(changes) if name in SearchConfig.__dataclass_fields__}
    few: dict[str, Any] = {"dialogues": 8, "shard_size": 4, "max_turns": 5, "temperature": 1.0}
    who = {"target": str(target), "speaker": str(speaker)}
    return replace(config, **{**who, **few, **changes}, search=replace(config.search, **{**CHANGES, **search}))


def attack(kind: AttackKind, config: WhiteBoxAttackConfig, path: Path) -> list[dict[str, Any]]:
    JOBS[kind].run(config, path, Silent())
    return rows(path)


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
    required = [name for name in ATTACKS.names if name != "error"]
    assert {name: table[name].null_count for name in required} == dict.fromkeys(required, 0)
    summary = run.summary()
    assert summary is not None
    assert list(summary["metrics"]) == list(ATTACK_METRICS)
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


@pytest.mark.ray
def test_rows_are_equal_for_no_workers_and_for_two(
    tmp_path: Path,
    target: Path,
    speaker: Path,
    runs: Mapping[AttackKind, Path],
    ray_session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = watch(monkeypatch)
    there = attack("ra-pa-ta", asked("ra-pa-ta", target, speaker, workers=2), tmp_path / "there")
    assert there == rows(runs["ra-pa-ta"])
    meters = heard.of(str(tmp_path / "there"), "attack-ra-pa-ta")
    assert (meters["parley_dialogues"], meters["parley_candidates"]) == (8, sum(row["reads"] for row in there))
    (played,) = [event for event in RunFolder.load(tmp_path / "there").events() if event["kind"] == "played"]
    assert (played["dialogues"], played["workers"]) == (8, 2)


def test_a_killed_attack_loses_no_finished_shard(
    tmp_path: Path, target: Path, speaker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked("reactive", target, speaker, dialogues=40, shard_size=2, **vars(SearchConfig()))
    flags = ["--target", str(target), "--speaker", str(speaker), "--dialogues", "40", "--run", "run"]
    few = [word for name in ("shard_size=2", "temperature=1.0", "max_turns=5") for word in ("--set", name)]
    with start_parley("attack", "reactive", *flags, *few, folder=tmp_path) as process:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "run" / "rows").glob("*.parquet"))) < 2:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "the attack saved nothing"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    parts = {path: path.read_bytes() for path in (tmp_path / "run" / "rows").glob("*.parquet")}
    saved = rows(tmp_path / "run")
    assert 4 <= len(saved) < 40
    assert from_dict(FixedTurnConfig, RunFolder.load(tmp_path / "run").config) == config

    played: list[str] = []
    deal = AttackWorker.deal

    def watched(worker: AttackWorker, shard: Shard[Scenario]) -> NegotiationGame:
        played.extend(shard.keys)
        return deal(worker, shard)

    monkeypatch.setattr(AttackWorker, "deal", watched)
    resumed = attack("reactive", config, tmp_path / "run")
    assert sorted(played) == [row["item_key"] for row in resumed if row not in saved]
    assert {path: path.read_bytes() for path in parts} == parts
    assert resumed == attack("reactive", config, tmp_path / "straight")


def scrambled(scores: Tensor) -> Tensor:
    """Scores with the same best selection and all others shuffled and shrunk."""
    generator = torch.Generator().manual_seed(len(scores))
    other = scores.clone()
    for row, chosen in enumerate(scores.argmax(1).tolist()):
        legal = scores[row].isfinite()
        legal[chosen] = False
        rest = scores[row, legal]
        other[row, legal] = scores[row, chosen] - 0.01 * (1 + torch.rand(len(rest), generator=generator))
    return other


@pytest.fixture
def clouded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search sees of the target no more than its choice and whether it ends the talk; no gradient at all."""
    scores, gaps, generator = choices.selection_scores, replacement.end_gaps, torch.Generator().manual_seed(0)

    def clouded_gaps(logits: Tensor) -> Tensor:
        return gaps(logits).sign() * (1 + torch.rand(len(logits), generator=generator))

    monkeypatch.setattr(choices, "selection_scores", lambda logits, contexts: scrambled(scores(logits, contexts)))
    monkeypatch.setattr(replacement, "end_gaps", clouded_gaps)
    monkeypatch.setattr(replacement, "word_changes", lambda *_: pytest.fail("a gradient was asked for"))
    # Which choices are plain is told from all scores, so nothing is decided roughly first.
    monkeypatch.setattr(inference, "multiplies_bfloat16", lambda device: False)


@pytest.mark.usefixtures("clouded")
@pytest.mark.parametrize("preset", ["black-box", "cheng2019"])
def test_only_the_black_box_does_without_scores(
    tmp_path: Path, hasty: Path, speaker: Path, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked("reactive", hasty, speaker, preset, dialogues=16, candidates=300)
    less = attack("reactive", config, tmp_path / "clouded")
    monkeypatch.undo()
    clear = attack("reactive", config, tmp_path / "clear")
    assert (less == clear) == (preset == "black-box")
    assert sum(len(attempt["replaced"]) for row in clear for attempt in row["attempts"]) >= 3, "what it saw made a difference"


def test_the_scrambled_scores_keep_the_choice_alone() -> None:
    scores = torch.randn(6, MAX_SELECTIONS, generator=torch.Generator().manual_seed(0))
    scores[:, 30:] = -torch.inf
    other = scrambled(scores)
    assert torch.equal(other.argmax(1), scores.argmax(1))
    assert torch.equal(other.isfinite(), scores.isfinite())
    assert not torch.equal(other.argsort(1), scores.argsort(1))


def test_the_released_search_may_say_what_is_no_word(tmp_path: Path, hasty: Path, speaker: Path) -> None:
    config = asked("reactive", hasty, speaker, "released", dialogues=2, max_replacements=3, goal=8.0)
    played = attack("reactive", config, tmp_path / "run")
    attempts = [attempt for row in played for attempt in row["attempts"]]
    assert max(attempt["special"] for attempt in attempts) > 0
    assert all(step["feasible"] for attempt in attempts for step in attempt["steps"]), "a soft constraint is never broken"
    said = {word for row in played for turn in row["turns"] for word in turn["words"].split()}
    assert not said & {"YOU:", "THEM:", "<pad>"}, "the game lets nobody forge a transcript"


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
        assert JOBS[kind].finished(asked(kind, target, speaker, workers=3), path, Silent())
        assert JOBS[kind].finished(asked(kind, target, speaker, goal=4.0), path, Silent()) is None


MISTAKES: dict[str, tuple[AttackKind, dict[str, Any], type[Exception], str]] = {
    "a scripted target": ("reactive", {"target": "scripted"}, CheckpointError, "--target needs a checkpoint"),
    "a scripted speaker": ("preemptive", {"speaker": "scripted"}, CheckpointError, "--speaker needs a checkpoint"),
    "no judge": ("reactive", {"judge": "scripted"}, CheckpointError, "--judge needs a checkpoint"),
    "no sentence": ("ra-pa-ta", {"transfer": TransferSettings()}, ConfigError, "one source of sentences"),
    "two sources": (
        "ra-pa-ta",
        {"transfer": TransferSettings(sentence="deal .", source="runs/attack-rl")},
        ConfigError,
        "one source of sentences",
    ),
    "an unknown word": ("ra-pa-ta", {"transfer": TransferSettings(sentence="flibber")}, ConfigError, "does not know"),
    "no such scenarios": ("ra-pa-da", {"scenarios": "embeded"}, ConfigError, "did you mean 'embedded'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_no_run_is_made(tmp_path: Path, target: Path, speaker: Path, mistake: str) -> None:
    kind, changes, error, message = MISTAKES[mistake]
    config = replace(asked(kind, target, speaker), **changes)
    with pytest.raises(error, match=message):
        JOBS[kind].run(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_both_sides_need_one_vocabulary(tmp_path: Path, target: Path, trainee: Path) -> None:
    with pytest.raises(CheckpointError, match=r"speak different vocabularies(.|\n)*words"):
        JOBS["reactive"].run(asked("reactive", target, trainee), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_an_attack_outside_the_dialogue_is_refused() -> None:
    for turn in (-1, 20):
        with pytest.raises(ConfigError, match="at least 0, below max_turns"):
            FixedTurnConfig(turn=turn)
    with pytest.raises(ConfigError, match="below max_turns"):
        replace(JOBS["ra-pa-ta"].presets["cheng2019"](), max_turns=3)
