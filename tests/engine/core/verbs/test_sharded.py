"""Sharded work: one thread wherever it is done, shards by items and workers, and a run that keeps its shards."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.ray.record import WORK
from parley.engine.core.ray.session import RaySession
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.parts import OK, SCHEMA_VERSION, error_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import count
from parley.engine.core.verbs.job import Silent
from parley.engine.core.verbs.sharded import Sharded, ShardedConfig, run_items, spread
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig, Roster, seconds_per_dialogue
from parley.engine.negotiation.verbs.whitebox import ATTACK_REACTIVE, SearchRoster
from tests.engine.core.ray.workers import NUMBERS, seed_of
from tests.engine.core.verbs.made_up import Listening, Notes, rows
from tests.test_house import ROOT, SOURCES, parsed


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    assert torch.get_num_threads() == 4, "as it was found"
    torch.set_num_threads(before)


def watched(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    """The threads that a method computes with, call by call."""
    method, found = getattr(owner, name), []

    def watch(*arguments: Any) -> Any:
        found.append(torch.get_num_threads())
        return method(*arguments)

    monkeypatch.setattr(owner, name, watch)
    return found


@pytest.mark.usefixtures("four_threads")
def test_matches_here_compute_with_one_thread(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched(monkeypatch, Roster, "worker")
    SELFPLAY.run(MatchConfig(adversary="scripted", target=str(target), dialogues=2, max_turns=3), tmp_path, Silent())
    assert found == [1]


@pytest.mark.usefixtures("four_threads")
def test_white_box_attacks_here_compute_with_one_thread(
    tmp_path: Path, target: Path, speaker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = watched(monkeypatch, SearchRoster, "worker")
    preset = ATTACK_REACTIVE.presets["cheng2019"]()
    few = replace(preset.search, replies=2, finalists=2)
    config = replace(preset, target=str(target), speaker=str(speaker), dialogues=1, max_turns=3, search=few)
    ATTACK_REACTIVE.run(config, tmp_path, Silent())
    assert found == [1]


@pytest.mark.ray
@pytest.mark.usefixtures("four_threads")
def test_rows_are_those_of_workers_whatever_this_process_computes_with(
    tmp_path: Path, target: Path, speaker: Path, ray_session: RaySession
) -> None:
    config = MatchConfig(adversary=str(speaker), target=str(target), dialogues=40, max_turns=6, shard_size=10)
    SELFPLAY.run(config, tmp_path / "here", Silent())
    SELFPLAY.run(replace(config, workers=1), tmp_path / "there", Silent())
    assert rows(tmp_path / "here") == rows(tmp_path / "there")


def test_shards_are_many_enough_for_the_workers_and_no_larger_than_a_batch() -> None:
    assert spread(500, 0, 16) == 16
    assert spread(500, 2, 16) == 16
    assert spread(500, 20, 16) == 6
    assert spread(500, 160, 16) == 1
    assert spread(3, 0, 16) == 1


@pytest.mark.parametrize(("dialogues", "shards", "workers"), [(500, 32, 15), (2000, 65, 32), (100_000, 400, 200), (10, 1, 1)])
def test_a_match_is_cut_alike_for_any_number_of_workers_that_find_two_shards_each(
    dialogues: int, shards: int, workers: int
) -> None:
    roster = Roster(MatchConfig(adversary="scripted", target="scripted-tough", dialogues=dialogues))
    (size,) = {roster.shard_size(dialogues, number) for number in range(workers + 1)}
    assert -(-dialogues // size) == shards
    assert roster.shard_size(dialogues, workers + 1) < size


@pytest.mark.parametrize("workers", [16, 32, 100, 160])
def test_a_match_keeps_every_worker_of_a_cluster_busy(target: Path, speaker: Path, workers: int) -> None:
    match = Roster(MatchConfig(adversary="scripted", target="scripted-tough", dialogues=500))
    preset = ATTACK_REACTIVE.presets["cheng2019"]()
    attack = ATTACK_REACTIVE.roster(replace(preset, target=str(target), speaker=str(speaker), dialogues=500), Silent())
    assert all(500 // roster.shard_size(500, workers) >= 2 * workers for roster in (match, attack))


def test_a_person_plays_one_dialogue_at_a_time() -> None:
    assert Roster(MatchConfig(adversary="human", target="scripted", dialogues=500)).shard_size(500, 0) == 1


class Worker:
    def __init__(self, done: list[str]) -> None:
        self.done = done

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        self.done.append(shard.name)
        base = {"status": OK, "error": None, "seed": 7, "schema_version": SCHEMA_VERSION}
        return [{**base, "item_key": key, "number": float(item)} for key, item in zip(shard.keys, shard.items, strict=True)]


class Failing(Worker):
    """The last item of a shard fails while a file is there."""

    def __init__(self, done: list[str], broken: Path) -> None:
        super().__init__(done)
        self._broken = broken

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        rows = super().run(shard)
        return [*rows[:-1], error_row(shard.keys[-1], 7, "it broke")] if self._broken.exists() else rows


@dataclass(frozen=True)
class Numbers(Sharded[int]):
    """Work of this file: numbers that are their own rows."""

    unit = "numbers"
    event = "numbered"

    done: list[str]

    def seed(self, key: str) -> int:
        return seed_of(key)

    def worker(self) -> Worker:
        return Worker(self.done)

    def digest(self, rows: Any) -> Counter[str]:
        return Counter(numbers=len(rows))

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, 4)

    def describe(self, tally: Any) -> str:
        return f"{tally.total['numbers']} of all, {tally.session['numbers']} now"


ITEMS = {f"item {number:02d}": number for number in range(20)}


class Stops(Notes):
    def advance(self, done: float, note: str = "") -> None:
        super().advance(done, note)
        if done >= 8:
            raise KeyboardInterrupt


def test_a_resumed_run_keeps_its_shards_whatever_the_settings_say(tmp_path: Path) -> None:
    work = Numbers([])
    asked = {"job": "test", "schema": NUMBERS, "resume_safe": ["workers", "shard_size"]}
    with RunFolder.open(tmp_path, ShardedConfig(), **asked) as run, pytest.raises(KeyboardInterrupt):
        run_items(run, work, ITEMS, ShardedConfig(), Stops(), "numbers")
    assert work.done == ["00000", "00001"]
    notes = Notes()
    config = ShardedConfig(shard_size=1)
    with RunFolder.open(tmp_path, config, **asked) as run:
        run_items(run, work, ITEMS, config, notes, "numbers")
        assert run.done_keys() == set(ITEMS)
        events = run.events()
    assert work.done == ["00000", "00001", "00002", "00003", "00004"]
    assert notes.said == ["the run goes on in shards of 4 numbers, as it began"]
    assert (notes.steps[0], notes.steps[-1]) == (8, 20)
    assert [event["shard_size"] for event in events if event["kind"] == WORK] == [4, 4]
    (ended,) = [event for event in events if event["kind"] == "numbered"]
    assert (ended["numbers"], ended["workers"]) == (12, 1)
    assert 0 < ended["busy_s"] <= ended["seconds"]


@dataclass(frozen=True)
class Fragile(Numbers):
    """Numbers of which some fail."""

    broken: Path

    def worker(self) -> Failing:
        return Failing(self.done, self.broken)


def test_what_is_done_again_is_counted_once(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    work, asked = Fragile([], broken), {"job": "test", "schema": NUMBERS}
    broken.touch()
    with RunFolder.open(tmp_path / "run", ShardedConfig(), **asked) as run:
        run_items(run, work, ITEMS, ShardedConfig(), Silent(), "numbers")
        assert run.num_done == 15
    broken.unlink()
    told: list[tuple[float, str]] = []

    class Heard(Silent):
        def advance(self, done: float, note: str = "") -> None:
            told.append((done, note))

    with RunFolder.open(tmp_path / "run", ShardedConfig(), **asked) as run:
        run_items(run, work, ITEMS, ShardedConfig(), Heard(), "numbers")
    assert (told[0], told[-1]) == ((0, "0 of all, 0 now"), (20, "20 of all, 20 now"))


def test_the_seconds_of_a_dialogue_are_those_that_workers_worked(tmp_path: Path) -> None:
    """Beside others in one pool a run lasts longer than its workers work for it."""
    with RunFolder.open(tmp_path, ShardedConfig(), job="test", schema=NUMBERS) as run:
        run.event(Roster.event, seconds=100.0, busy_s=6.0, workers=2, dialogues=3)
        assert seconds_per_dialogue(run) == count(2.0, 3)
        run.event(Roster.event, seconds=5.0, workers=2, dialogues=2)
        run.event(Roster.event, seconds=5.0, busy_s=0.0, workers=2, dialogues=0)
        assert seconds_per_dialogue(run) == count(3.2, 5), "an earlier version knew the seconds of the session"


@dataclass(frozen=True)
class Uneven(Numbers):
    """Numbers, each as much work as it says."""

    is_uneven = True

    def effort(self, item: int) -> float:
        return item


def test_of_items_of_unequal_work_the_share_of_the_work_is_shown(tmp_path: Path) -> None:
    notes = Listening()
    with RunFolder.open(tmp_path, ShardedConfig(), job="test", schema=NUMBERS) as run:
        run_items(run, Uneven([]), {key: ITEMS[key] for key in list(ITEMS)[:8]}, ShardedConfig(shard_size=4), notes, "numbers")
    assert notes.stages == [("numbers", 100, "%")]
    assert notes.steps == pytest.approx([0, 100 * (0 + 1 + 2 + 3) / 28, 100])
    assert [note.split(",")[0] for note in notes.said] == ["0 of 8 numbers", "4 of 8 numbers", "8 of 8 numbers"]


CONTRACTS = {
    "AuditTask": "perturb/verbs/test_audit.py",
    "EnumerationTask": "triggers/verbs/test_enumeration.py",
    "JudgingTask": "generation/verbs/test_adversarial.py",
    "PlayedChats": "mutual_friends/verbs/test_evaluate.py",
    "Population": "negotiation/verbs/test_population.py",
    "QueryTask": "perturb/verbs/test_robustness.py",
    "RankingAttacks": "ranking/verbs/test_attack.py",
    "RankingTask": "ranking/verbs/test_ranking_faults.py",
    "ReplyTask": "responders/test_reply.py",
    "Roster": "negotiation/verbs/test_chat.py",
    "ScanTask": "scan/test_scan.py",
    "SearchRoster": "negotiation/verbs/test_whitebox.py",
    "SearchTask": "triggers/verbs/test_search.py",
    "SecretMatches": "secret/test_evaluate.py",
    "TacticTrials": "negotiation/verbs/test_tactic.py",
    "TalkTriggerRoster": "negotiation/verbs/test_trigger.py",
    "TextSearchTask": "triggers/verbs/test_text_search.py",
    "TransferTask": "triggers/verbs/test_transfer.py",
    "UniversalSearchTask": "triggers/verbs/test_universal.py",
}
"""The work of every verb, with the tests in which hostile workers do it."""
BASES = {"Sharded", "Roster", "RankerQueries"}
OTHERS = {
    "RankerQueries": "a base",
    "TransferRoster": "a match with sentences that are given",
    "_PairRoster": "a pair of a population",
}


def test_the_work_of_every_verb_is_done_by_hostile_workers() -> None:
    found = {
        node.name
        for path in SOURCES
        if any(base in path.read_text(encoding="utf-8") for base in BASES)
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
        and {ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases} & BASES
    }
    assert found == CONTRACTS.keys() | OTHERS.keys()
    folder = ROOT / "tests" / "engine"
    assert [name for name in CONTRACTS.values() if '"workers_here"' not in (folder / name).read_text(encoding="utf-8")] == []
