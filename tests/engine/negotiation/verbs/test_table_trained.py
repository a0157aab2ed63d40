"""Trained counterparts of a target in its table of attacks: what is made for whom, what is shown, and that all is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.trainings import over_trainings
from parley.engine.core.tables.table import with_interval
from parley.engine.core.verbs.job import TABLE_FILE, Result, Silent
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs import whitebox as attack
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, TableConfig
from parley.engine.negotiation.verbs.whitebox import (
    ATTACK_RL,
    ATTACK_TRANSFER,
    AttackConfig,
    TransferConfig,
    TransferSettings,
)
from parley.envs.core.errors import CheckpointError, ConfigError
from tests.engine.core.page.pages import tables_on
from tests.engine.core.verbs.made_up import CORPUS, REINFORCE, Notes, corpus_vocabulary, rows, save_negotiator
from tests.engine.negotiation.verbs.test_tactic import config as tactic_config

SEARCH = SearchConfig(proposals="random", candidates=4, max_replacements=1, replies=2, screening_replies=1, finalists=2)
RULE = replace(REINFORCE, dialogues=6)


def table(target: Path, *trained: Path | str, **changes: Any) -> TableConfig:
    """A table of three dialogues a row."""
    settings: dict[str, Any] = {"dialogues": 3, "search": SEARCH, "trained": ",".join(map(str, trained))}
    settings |= {"transfer": TransferSettings(min_advantage=-10, turn=1), "reinforce": replace(RULE, supervised_weight=0)}
    return TableConfig(target=str(target), **{**settings, **changes})


def settings_of(config: TableConfig, path: Path) -> Mapping[str, Any]:
    return {name: settings for name, (_, settings) in ATTACK_TABLE.stages(config, path).items()}


def test_every_attack_is_made_for_the_target_and_for_its_trained_counterpart(target: Path, speaker: Path) -> None:
    path = Path("runs/t")
    planned = settings_of(table(target, speaker, rows="none,rl,transfer,reactive,ra-pa-ta"), path)
    alone = settings_of(table(target, rows="none,rl,transfer,reactive,ra-pa-ta"), path)
    assert {name: planned[name] for name in alone} == alone, "what was measured without it stays as it is"
    new = {name: settings for name, settings in planned.items() if name not in alone}
    assert sorted(new) == sorted(
        [
            "plain", "plain+trained1", "none+trained1", "adversary+trained1",
            *(f"{row}+trained1{end}" for row in ("rl", "transfer", "reactive", "ra-pa-ta") for end in ("", "-adaptive")),
        ]
    )  # fmt: skip
    assert not planned["plain"].complementary
    assert {settings.target for name, settings in new.items() if name != "plain"} == {str(speaker)}
    assert {name: settings.surrogate for name, settings in new.items() if hasattr(settings, "surrogate")} == {
        "reactive+trained1": str(target), "reactive+trained1-adaptive": "",
        "ra-pa-ta+trained1": str(target), "ra-pa-ta+trained1-adaptive": "",
    }  # fmt: skip
    assert (planned["rl+trained1"].speaker, planned["rl+trained1-adaptive"].speaker) == (
        "runs/t/adversary", "runs/t/adversary+trained1",
    )  # fmt: skip
    assert (planned["transfer+trained1"].transfer.source, planned["transfer+trained1-adaptive"].transfer.source) == (
        "runs/t/rl", "runs/t/rl+trained1-adaptive",
    )  # fmt: skip
    assert {settings.judge for name, settings in new.items() if "trained" in name and name != "adversary+trained1"} == {
        str(target)
    }
    assert planned["adversary+trained1"].learner == str(target), "as the target's own adversary begins"
    assert {planned[name].speaker for name in new if name.startswith(("transfer", "reactive"))} == {str(target)}


def test_a_named_adversary_is_the_targets_and_counterparts_have_their_own(target: Path, speaker: Path) -> None:
    planned = settings_of(table(target, speaker, rows="rl", adversary="runs/adversary"), Path("runs/t"))
    assert [name for name in planned if name.startswith("adversary")] == ["adversary+trained1"]
    assert planned["rl+trained1"].speaker == "runs/adversary"


def test_a_table_shows_the_target_its_defences_and_its_counterpart(
    tmp_path: Path, trainee: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = corpus_vocabulary(root)
    learned: dict[str, tuple[str, int, bool]] = {}

    def train(config: reinforce.TrainReinforceConfig, path: Path, reporter: Any) -> Result:
        if path.name not in learned:
            learned[path.name] = (config.target, config.seed, config.defence.wanted)
            save_negotiator(path / "checkpoint", seed=len(learned), vocabulary=vocabulary)
        return Result(path, "", {})

    monkeypatch.setattr(reinforce.TRAIN_ADVERSARY, "run", train)
    hardened = save_negotiator(tmp_path / "hardened" / "checkpoint", seed=9, vocabulary=vocabulary)
    config = table(
        trainee, hardened, rows="none,rl,reactive", defences="filter,own-demand", false_alarms=0.3, seeds=2,
        corpus=CORPUS, data_root=root,
    )  # fmt: skip
    notes, path = Notes(), tmp_path / "run"
    plain = ATTACK_TABLE.run(replace(config, trained="", defences=""), path, Silent())
    assert list(plain.tables) == ["All attacks"]
    measured = {name: rows(path / name) for name in ("none", "rl", "rl-2", "reactive")}
    result = ATTACK_TABLE.run(config, path, notes)
    assert any(line.startswith("each target is met by adversaries of its own, a defended") for line in notes.said)
    assert any("so 6 are trained first" in line for line in notes.said)
    assert {name: rows(path / name) for name in measured} == measured, "what was there is not measured again"
    second = learned["adversary-2"][1]
    assert learned == {
        "adversary": (str(trainee), 1, False), "adversary-2": (str(trainee), second, False),
        "adversary+filter": (str(trainee), 1, True), "adversary+filter-2": (str(trainee), second, True),
        "adversary+own-demand": (str(trainee), 1, True), "adversary+own-demand-2": (str(trainee), second, True),
        "adversary+trained1": (str(hardened), 1, False), "adversary+trained1-2": (str(hardened), second, False),
    }  # fmt: skip
    assert list(result.tables) == ["By target", "All attacks"]
    beside = result.tables["By target"]
    assert beside.columns == ("attack", "target", "each training", "perplexity filter", "own demand", str(hardened), "n")
    assert [row[0] for row in beside.rows] == [
        "plain play: target's points", "plain play: agreement", "no attack", "RL attack", "RL attack, adaptive", "reactive",
        "reactive, adaptive", "strongest",
    ]  # fmt: skip
    each = [RunFolder.load(path / f"rl+trained1-adaptive{end}").metrics()["advantage"] for end in ("", "-2")]
    (adaptive,) = (row for row in beside.rows if row[0] == "RL attack, adaptive")
    assert adaptive[5].replace("\n", " ") == with_interval(over_trainings(each))
    assert "–" not in adaptive[1:]
    plain_score = RunFolder.load(path / "plain+trained1").metrics()["score_target"]
    assert beside.rows[0][5].replace("\n", " ") == with_interval(plain_score)
    scenarios = {str([(row["seed"], row["counts"]) for row in rows(folder.parent)]) for folder in path.glob("*/rows")}
    assert len(scenarios) == 1, "all are played on the same scenarios"
    assert "attacks.reactive+trained1-adaptive.forced_advantage" in result.metrics
    assert "attacks.reactive+trained1.forced_advantage" not in result.metrics, "nobody is forced to what was found on another"
    assert set(result.metrics) <= set(result.legend)
    assert set(result.metrics) <= set(ATTACK_TABLE.metrics_of(config))
    text = (path / TABLE_FILE).read_text()
    page = dict(tables_on(collect_run(path), "negotiation"))
    assert list(page) == ["By target", "All attacks"]
    assert all(each.to_markdown() in text for each in page.values())
    shown = [match.heading for match in collect_run(path).found["negotiation"]]
    assert f"reactive, {hardened}, adaptive" in shown
    again = ATTACK_TABLE.run(config, path, Silent())
    assert again.tables == result.tables


def test_rows_that_read_weights_are_left_out_where_there_are_none(tmp_path: Path, target: Path, speaker: Path) -> None:
    config = table(target, "scripted", rows="none,reactive", adversary=str(speaker))
    notes = Notes()
    result = ATTACK_TABLE.run(config, tmp_path, notes)
    assert notes.said[0] == "left out against scripted: reactive; they read weights that scripted has not"
    measured = {name.split(".")[1] for name in result.metrics if name.startswith("attacks.")}
    assert measured == {"plain", "plain+trained1", "none", "none+trained1", "reactive"}
    assert "targets.strongest.target" in result.metrics
    planned = settings_of(replace(config, target="scripted", trained=str(target), speaker=str(speaker)), tmp_path / "other")
    assert sorted(planned) == sorted(["plain", "none", "plain+trained1", "none+trained1", "reactive+trained1-adaptive"])


def no_training(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Random networks in the place of adversaries that learn."""

    def train(config: reinforce.TrainReinforceConfig, path: Path, reporter: Any) -> Result:
        save_negotiator(path / "checkpoint", seed=config.seed % 97, vocabulary=corpus_vocabulary(root))
        return Result(path, "", {})

    monkeypatch.setattr(reinforce.TRAIN_ADVERSARY, "run", train)


def test_an_attack_that_won_nothing_is_a_row_that_says_so(
    tmp_path: Path, trainee: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_training(monkeypatch, root)
    hardened = save_negotiator(tmp_path / "hardened" / "checkpoint", seed=9, vocabulary=corpus_vocabulary(root))
    # Nobody is ahead of a target that takes all.
    monkeypatch.setattr(attack, "last_sentences", lambda rows, least, limit: [])
    config = table(trainee, hardened, rows="none,transfer,reactive", corpus=CORPUS, data_root=root)
    path = tmp_path / "run"
    result = ATTACK_TABLE.run(config, path, Silent())
    beside = {row[0]: row[1:] for row in result.tables["By target"].rows}
    assert beside["transfer"][:2] == beside["transfer, adaptive"][:2] == ("–", "–")
    assert "–" not in beside["strongest"], "others are measured"
    whole = result.tables["All attacks"]
    (line,) = (row for row in whole.rows if row[0] == f"transfer, {hardened}, adaptive")
    assert set(line[1:]) == {"–"}
    source = path / "rl+trained1-adaptive"
    assert f"transfer, {hardened}, adaptive: no dialogue of {source} was won by -10 points or more" in whole.note
    assert not result.failure, "it is a result of the attack that it takes sentences from"
    assert not any(name.startswith("attacks.transfer") for name in result.metrics)
    assert not (path / "transfer").exists()
    page = dict(tables_on(collect_run(path), "negotiation"))
    assert all(page[name].to_markdown() in (path / TABLE_FILE).read_text() for name in page)
    assert ATTACK_TABLE.run(config, path, Silent()).tables == result.tables


def test_of_several_trainings_those_that_won_are_shown_and_the_others_told(
    tmp_path: Path, trainee: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_training(monkeypatch, root)
    found = iter([["two hats please"], []])
    monkeypatch.setattr(attack, "last_sentences", lambda rows, least, limit: next(found))
    config = table(trainee, rows="transfer", corpus=CORPUS, data_root=root, seeds=2)
    result = ATTACK_TABLE.run(config, tmp_path, Silent())
    (shown,) = result.tables.values()
    line = next(row for row in shown.rows if row[0] == "transfer")
    first = RunFolder.load(tmp_path / "transfer").metrics()["advantage"]
    assert line[shown.columns.index("advantage, live")].replace("\n", " ") == with_interval(first)
    assert line[shown.columns.index("each training")] == "–"
    assert "transfer: 1 of 2 trainings failed: no dialogue of" in shown.note


def test_a_transfer_attack_alone_is_an_error_where_nothing_was_won(tmp_path: Path, target: Path, speaker: Path) -> None:
    match = AttackConfig(speaker=str(speaker), target=str(target), dialogues=3)
    ATTACK_RL.run(match, tmp_path / "rl", Silent())
    plugs = TransferSettings(source=str(tmp_path / "rl"), min_advantage=99)
    asked = TransferConfig(speaker=str(speaker), target=str(target), transfer=plugs, dialogues=3)
    with pytest.raises(ConfigError, match="was won by 99 points or more"):
        ATTACK_TRANSFER.run(asked, tmp_path / "transfer", Silent())
    assert not (tmp_path / "transfer").exists()


def test_tactics_meet_the_trained_counterpart(tmp_path: Path) -> None:
    tactic = tactic_config(tmp_path)
    mine = (tmp_path / "mine.py").read_text()
    # One that gives all to who says another word, in a talk in which it says that word.
    other = mine.replace('"want", "book"', '"want", "hat"').replace("i want book", "i want hat")
    (tmp_path / "other.py").write_text(other)
    trained = f"{tmp_path}/other.py:Giver"
    config = TableConfig(
        target=tactic.target, trained=trained, attacker=tactic.attacker, rows="none,tactic", speaker="scripted",
        dialogues=6, development=4, tactics=replace(tactic.search, streams=6),
    )  # fmt: skip
    path = tmp_path / "run"
    planned = settings_of(config, path)
    assert (planned["tactic+trained1"].source, planned["tactic+trained1"].target) == (str(path / "tactic"), trained)
    assert (planned["tactic+trained1-adaptive"].source, planned["tactic+trained1-adaptive"].target) == ("", trained)
    # Here the attacker plays too, and is told no tactic but by its question.
    result = ATTACK_TABLE.run(config, path, Silent())
    beside = {row[0]: row[1:] for row in result.tables["By target"].rows}
    assert {"refined tactic", "refined tactic, adaptive", "chat player, no tactic"} <= set(beside)
    titles = [row[0] for row in result.tables["All attacks"].rows]
    for title in ("refined tactic", "tactics by gains", "tactics drawn blind"):
        assert {title, f"{title}, {trained}", f"{title}, {trained}, adaptive"} <= set(titles)
    assert f"chat player, no tactic, {trained}, adaptive" not in titles, "nothing is made for anybody"
    moved, own = (
        {(row["dialogue"], row["seed"], str(row["counts"])) for row in rows(path / name) if row["held_out"]}
        for name in ("tactic+trained1", "tactic")
    )
    assert moved == own, "the dialogues in which the tactics were measured"
    assert all(row["held_out"] for row in rows(path / "tactic+trained1")), "and no other"
    assert result.metrics["attacks.tactic+trained1.answers_before"] == result.metrics["attacks.tactic.answers_before"]
    assert set(result.metrics) <= set(result.legend)
    assert ATTACK_TABLE.run(config, path, Silent()).tables == result.tables


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ConfigError, match=r"twice(.|\n)*--trained"):
        table(target, target)
    with pytest.raises(ConfigError, match=r"twice(.|\n)*runs/a"):
        table(target, "runs/a", "runs/a")
    with pytest.raises(CheckpointError, match="--trained needs a checkpoint"):
        ATTACK_TABLE.run(table(target, tmp_path / "nothing", rows="none"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


# Of a table without counterparts test_table.py holds it.
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_rows_are_the_same_whoever_makes_them_and_trainings_lie_side_by_side(tmp_path: Path, trainee: Path, root: Path) -> None:
    hardened = save_negotiator(tmp_path / "hardened" / "checkpoint", seed=9, vocabulary=corpus_vocabulary(root))
    config = table(trainee, hardened, rows="none,rl,transfer,reactive", corpus=CORPUS, data_root=root, dialogues=4)
    alone = ATTACK_TABLE.run(config, tmp_path / "alone", Silent())
    beside = ATTACK_TABLE.run(replace(config, workers=1, trainers=1), tmp_path / "beside", Silent())
    assert beside.tables["By target"] == alone.tables["By target"]
    for name in ("rl+trained1", "rl+trained1-adaptive", "transfer+trained1", "transfer+trained1-adaptive", "reactive+trained1"):
        assert rows(tmp_path / "beside" / name) == rows(tmp_path / "alone" / name)
