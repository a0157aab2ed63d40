"""Matches: rows that depend on nothing but the configuration, faults, and mistakes named before a run is made."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs import match
from parley.engine.negotiation.verbs.agents import words_of
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig, match_scenarios
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.envs.core.seeds import stream
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, Scenario, domain_of
from tests.engine.core.ray.metered import watch
from tests.engine.core.verbs.made_up import Notes, rows, save_negotiator, start_parley

run = SELFPLAY.run

DOMAIN = domain_of(DEAL_OR_NO_DEAL)
SCRIPTED = MatchConfig(adversary="scripted", target="scripted-tough", dialogues=24, shard_size=6)


def test_every_dialogue_is_a_row_with_its_own_seed(tmp_path: Path) -> None:
    result = run(SCRIPTED, tmp_path / "run", Silent())
    played = rows(tmp_path / "run")
    assert [row["item_key"] for row in played] == [f"{number:06d}" for number in range(24)]
    assert {row["status"] for row in played} == {"ok"}
    assert len({row["seed"] for row in played}) == 24
    assert result.metrics["advantage"].n == 24
    summary = RunFolder.load(tmp_path / "run").summary()
    assert summary is not None
    assert summary["metrics"] == {name: estimate.to_json() for name, estimate in result.metrics.items()}


def test_networks_score_what_was_said(tmp_path: Path, target: Path, speaker: Path) -> None:
    config = MatchConfig(adversary=str(speaker), target=str(target), dialogues=3, max_turns=3)
    result = run(config, tmp_path / "run", Silent())
    assert all(row["nll_adversary"] > 0 and row["nll_target"] > 0 for row in rows(tmp_path / "run"))
    other = run(replace(config, judge=str(speaker)), tmp_path / "other", Silent())
    assert other.metrics["fluency_ppl"].value != result.metrics["fluency_ppl"].value
    assert other.metrics["advantage"] == result.metrics["advantage"]


def test_more_dialogues_begin_with_the_same_ones(tmp_path: Path) -> None:
    run(SCRIPTED, tmp_path / "few", Silent())
    run(replace(SCRIPTED, dialogues=30), tmp_path / "many", Silent())
    assert rows(tmp_path / "many")[:24] == rows(tmp_path / "few")


def test_complementary_rule_gives_the_adversary_the_rest(tmp_path: Path) -> None:
    run(replace(SCRIPTED, complementary=True), tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        if row["agreed"]:
            assert row["selection_adversary"] == row["selection_target"][3:] + row["selection_target"][:3]


def test_scenarios_of_a_file_come_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "scenarios.txt"
    file.write_text("1 1 2 3 3 1\n1 4 2 0 3 2\n1 4 2 0 3 2\n1 1 2 3 3 1\n")
    run(replace(SCRIPTED, dialogues=5, scenarios=str(file)), tmp_path / "file", Silent())
    summary = RunFolder.load(tmp_path / "file").summary()
    assert summary is not None
    assert "scenarios.txt scenarios (2 different)" in summary["description"]
    values = [row["values_adversary"] for row in rows(tmp_path / "file")]
    assert values == [[1, 3, 1], [4, 0, 2], [1, 3, 1], [4, 0, 2], [1, 3, 1]]


def test_scenarios_of_a_corpus_come_in_an_order_of_the_seed_because_corpora_sort_them(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {DOMAIN.random_scenario(stream(1, number)) for number in range(400)}
    listed = sorted(drawn, key=lambda scenario: (scenario.counts, scenario.values))
    monkeypatch.setattr(match, "load_corpus", lambda *_: SimpleNamespace(selfplay=listed))

    def played(dialogues: int, **how: int) -> list[Scenario]:
        config = MatchConfig(adversary="scripted", target="scripted", scenarios="made-up", dialogues=dialogues, **how)  # type: ignore[arg-type]
        return list(match_scenarios(config, DOMAIN.name).values())

    few, every = played(40), played(len(listed))
    assert len({scenario.counts for scenario in few}) > 3 * len({scenario.counts for scenario in listed[:40]})
    assert few == every[:40], "more dialogues begin with the same ones"
    assert len({*few} & {*played(40, seed=2)}) < 20, "what chooses and what measures have seeds, and so scenarios, of their own"
    assert few[20:] == played(20, first=20)
    assert sorted(map(listed.index, every)) == list(range(len(listed))), "each is played once before one comes again"


@pytest.mark.ray
def test_rows_are_equal_for_no_workers_and_for_two(
    tmp_path: Path, target: Path, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = watch(monkeypatch)
    config = MatchConfig(adversary="scripted", target=str(target), dialogues=20, shard_size=5, max_turns=6)
    run(config, tmp_path / "here", Silent())
    run(replace(config, workers=2), tmp_path / "there", Silent())
    assert rows(tmp_path / "there") == rows(tmp_path / "here")
    assert heard.of(str(tmp_path / "there"), "selfplay")["parley_dialogues"] == 20


def test_a_finished_run_plays_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, notes = run(SCRIPTED, tmp_path / "run", Silent()), Notes()
    monkeypatch.setattr("parley.engine.negotiation.verbs.match.run_items", lambda *_: pytest.fail("nothing is left to play"))
    again = run(replace(SCRIPTED, workers=3, address="10.0.0.1:6379"), tmp_path / "run", notes)
    # As text, because metrics of nothing are NaN, which differs from itself.
    assert str(again.metrics) == str(first.metrics)
    assert notes.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]


def test_another_configuration_in_the_same_folder_is_an_error(tmp_path: Path) -> None:
    run(SCRIPTED, tmp_path / "run", Silent())
    with pytest.raises(RunError, match="seed: 1 -> 2"):
        run(replace(SCRIPTED, seed=2), tmp_path / "run", Silent())


def test_a_damaged_part_is_played_again(tmp_path: Path) -> None:
    run(SCRIPTED, tmp_path / "run", Silent())
    before = rows(tmp_path / "run")
    part = sorted((tmp_path / "run" / "rows").glob("*.parquet"))[1]
    part.write_bytes(part.read_bytes()[:-9])
    notes = Notes()
    run(SCRIPTED, tmp_path / "run", notes)
    assert rows(tmp_path / "run") == before
    assert notes.steps[0] == 18, "only the damaged shard is left"


def test_a_full_disk_leaves_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(SCRIPTED, tmp_path / "whole", Silent())
    num_written = 0
    sync = os.fsync

    def filling(descriptor: int) -> None:
        nonlocal num_written
        num_written += Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith(".parquet.writing")
        if num_written > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", filling)
        with pytest.raises(RunError, match=r"the disk is full(.|\n)*12 items in 2 parts saved(.|\n)*parley resume"):
            run(SCRIPTED, tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")[:12]
    assert RunFolder.load(tmp_path / "run").summary() is None
    notes = Notes()
    run(SCRIPTED, tmp_path / "run", notes)
    assert notes.steps[0] == 12
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


MISTAKES = {
    "unknown agent": ({"adversary": "scriptd"}, ConfigError, "did you mean 'scripted'"),
    "no such scenarios": ({"scenarios": "embeded"}, ConfigError, "did you mean 'embedded'"),
    "judge without a checkpoint": ({"judge": "scripted"}, CheckpointError, "--judge needs a checkpoint"),
    "a person elsewhere": ({"adversary": "human", "workers": 2}, ConfigError, r"at this terminal(.|\n)*--workers 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_no_run_is_made(tmp_path: Path, mistake: str) -> None:
    changes, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=message):
        run(replace(SCRIPTED, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif("__import__('torch').cuda.is_available()", reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--gpus-per-worker"):
        run(replace(SCRIPTED, gpus_per_worker=0.5), tmp_path / "run", Silent())


def test_broken_scenarios_are_named_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "scenarios.txt"
    file.write_text("1 1 2 3 3 1\n1 4 2 0 3 2\n1 4 2 0 3 2\n1 1 2 3 3 9\n")
    with pytest.raises(DataError, match=r"scenarios\.txt"):
        run(replace(SCRIPTED, scenarios=str(file)), tmp_path / "run", Silent())
    file.write_text("")
    with pytest.raises(ConfigError, match="no scenarios to play"):
        run(replace(SCRIPTED, scenarios=str(file)), tmp_path / "run", Silent())


def test_agents_of_two_vocabularies_meet_in_words(tmp_path: Path, target: Path, trainee: Path) -> None:
    played = run(replace(SCRIPTED, adversary=str(trainee), target=str(target), max_turns=4), tmp_path / "run", Silent())
    assert played.failure == ""
    words = [set(words_of([str(spec)]).words) for spec in (trainee, target)]
    said: list[set[str]] = [set(), set()]
    for row in rows(tmp_path / "run"):
        for turn in row["turns"]:
            said[turn["side"]] |= set(turn["words"].split())
    assert all(said[side] <= words[side] for side in (0, 1)), "each says its own words"
    assert said[1] - words[0], "and the target some that the adversary does not know"


def test_a_checkpoint_of_another_kind_is_named(tmp_path: Path) -> None:
    other = save_negotiator(tmp_path / "other" / "checkpoint", kind="ranker")
    with pytest.raises(CheckpointError, match=r"another kind(.|\n)*'ranker'"):
        run(replace(SCRIPTED, target=str(other)), tmp_path / "run", Silent())


@pytest.mark.parametrize("kind", ["seq2seq", "negotiator"])
def test_a_checkpoint_is_looked_at_before_its_words(tmp_path: Path, kind: str) -> None:
    other = save_negotiator(tmp_path / "other" / "checkpoint", kind=kind)
    (other / "vocabulary.json").write_text("{" if kind == "negotiator" else '["<pad>", "a"]')
    expected = "damaged" if kind == "negotiator" else r"another kind(.|\n)*'seq2seq'"
    with pytest.raises(CheckpointError, match=rf"{expected}(.|\n)*") as caught:
        run(replace(SCRIPTED, target=str(other)), tmp_path / "run", Silent())
    assert str(other) in str(caught.value)


def test_a_checkpoint_without_its_words_is_named(tmp_path: Path) -> None:
    other = save_negotiator(tmp_path / "other" / "checkpoint")
    (other / "vocabulary.json").unlink()
    with pytest.raises(CheckpointError, match=r"missing vocabulary\.json"):
        run(replace(SCRIPTED, target=str(other)), tmp_path / "run", Silent())


def test_a_cluster_without_workers_is_no_silent_run_on_this_machine() -> None:
    with pytest.raises(ConfigError, match=r"--workers N"):
        replace(SCRIPTED, address="10.0.0.1:6379")


def test_a_scripted_bargainer_brings_its_words_where_its_partner_has_too_few(tmp_path: Path, trainee: Path) -> None:
    assert run(replace(SCRIPTED, target=str(trainee), max_turns=4), tmp_path / "run", Silent()).failure == ""
    turns = [turn for row in rows(tmp_path / "run") for turn in row["turns"] if turn["side"] == 0]
    assert {word for turn in turns for word in turn["words"].split()} - set(words_of([str(trainee)]).words)


def test_an_agent_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from parley.envs.negotiation.scripted.bargainers import scripted\n\n\n"
        "def Mine(vocabulary):\n    return scripted(vocabulary)\n"
    )
    run(replace(SCRIPTED, adversary=f"{file}:Mine"), tmp_path / "mine", Silent())
    run(SCRIPTED, tmp_path / "scripted", Silent())
    assert rows(tmp_path / "mine") == rows(tmp_path / "scripted")


def test_a_run_in_which_everything_fails_is_no_success(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Mute:\n    def __init__(self, vocabulary):\n        pass\n\n"
        "    def join(self, view):\n        raise RuntimeError('lost for words')\n"
    )
    result = run(replace(SCRIPTED, adversary=f"{file}:Mute"), tmp_path / "run", Silent())
    assert result.failure.startswith("every item failed")
    assert "lost for words" in result.failure
    assert run(SCRIPTED, tmp_path / "scripted", Silent()).failure == ""


def test_a_cluster_that_does_not_answer_is_named_and_the_run_can_go_on_without(tmp_path: Path) -> None:
    # In a process of its own, because this one may have a session, which `connect` would use.
    flags = ["--dialogues", "24", "--shard-size", "6", "--run", "run"]
    with start_parley("selfplay", *flags, "--workers", "2", "--address", "127.0.0.1:1", folder=tmp_path) as process:
        _, told = process.communicate(timeout=550)
    assert process.returncode == 2
    assert "where: 127.0.0.1:1" in told
    assert "Traceback" not in told
    assert not SELFPLAY.finished(SCRIPTED, tmp_path / "run", {})
    assert run(SCRIPTED, tmp_path / "run", Silent()).metrics["advantage"].n == 24
