"""Adversaries that learn against a defended target: in trainings, as best responses, and in the table of attacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.tables.table import with_interval
from parley.engine.core.verbs.job import Result, Silent
from parley.engine.core.verbs.recipe import read_recipe
from parley.engine.negotiation.attacks.settings import DefenceConfig
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs.defended import FilterLimit
from parley.engine.negotiation.verbs.exploitability import ATTACK, EVALUATE_EXPLOITABILITY, ExploitabilityConfig
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, AttackPlan, TableConfig
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TRAIN_RL
from parley.engine.negotiation.verbs.whitebox import TransferSettings
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.policies.negotiator.speaker import provenance
from tests.engine.core.cli.test_flags import understood
from tests.engine.core.verbs.made_up import CORPUS, REINFORCE, Notes, corpus_vocabulary, rows, save_negotiator, training

BOTH = DefenceConfig(max_perplexity=9.5, own_demand=True)


def table(target: Path, root: Path, **changes: Any) -> TableConfig:
    """A table of three dialogues a row."""
    settings: dict[str, Any] = {"dialogues": 3, "corpus": CORPUS, "data_root": root, "defences": "filter,own-demand"}
    settings |= {"transfer": TransferSettings(min_advantage=-10, turn=1), "reinforce": replace(REINFORCE, dialogues=6)}
    return TableConfig(target=str(target), **{**settings, **changes})


def test_a_training_prepares_who_is_met_behind_what(tmp_path: Path, root: Path, trainee: Path) -> None:
    config = training(root, trainee, defence=BOTH)
    prepared = TRAIN_ADVERSARY.prepare(config, tmp_path, Silent())
    (met,) = prepared.roster.opponents
    assert (met.defence, met.judge) == (BOTH, str(trainee.resolve())), "the target judges where nobody is named"
    assert prepared.title.endswith(f"{trainee}, defended")
    assert prepared.provenance["defence"] == {"max_perplexity": 9.5, "own_demand": True}
    (plain,) = TRAIN_ADVERSARY.prepare(training(root, trainee), tmp_path, Silent()).roster.opponents
    assert (plain.defence.wanted, plain.judge) == (False, "")
    other = save_negotiator(tmp_path / "other" / "checkpoint", seed=4, vocabulary=corpus_vocabulary(root))
    named = TRAIN_ADVERSARY.prepare(replace(config, judge=str(other)), tmp_path, Silent())
    assert named.roster.opponents[0].judge == str(other.resolve())


def test_the_attack_that_is_proposed_meets_the_same_target(root: Path, trainee: Path) -> None:
    config = training(root, trainee, defence=BOTH, judge=str(trainee))
    (command,) = TRAIN_ADVERSARY.next_commands(config, Path("runs/adversary"))
    attack = understood(command).config
    assert (attack.target, attack.defence, attack.judge) == (str(trainee), BOTH, str(trainee))


def test_of_several_targets_the_newest_is_proposed(root: Path, trainee: Path) -> None:
    config = replace(training(root, trainee), target=f"{trainee}, scripted")
    for job in (TRAIN_RL, TRAIN_ADVERSARY):
        (command,) = job.next_commands(config, Path("runs/adversary"))
        assert understood(command).config.target == "scripted"


def test_what_cannot_be_defended_is_told_before_anything_is_trained(
    tmp_path: Path, root: Path, trainee: Path, target: Path
) -> None:
    strange = training(root, trainee, defence=BOTH, judge=str(target))
    with pytest.raises(ConfigError, match=r"reads another vocabulary(.|\n)*--judge"):
        TRAIN_ADVERSARY.run(strange, tmp_path / "run", Silent())
    with pytest.raises(CheckpointError, match="--judge needs a checkpoint"):
        TRAIN_ADVERSARY.run(replace(strange, judge=str(tmp_path / "nobody")), tmp_path / "run", Silent())
    asked = ExploitabilityConfig(target=str(trainee), corpus=CORPUS, data_root=root, defence=BOTH, judge=str(target))
    with pytest.raises(ConfigError, match=r"reads another vocabulary(.|\n)*--judge"):
        EVALUATE_EXPLOITABILITY.run(asked, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_a_best_response_learns_from_and_plays_the_defended_target(tmp_path: Path, root: Path, trainee: Path) -> None:
    asked = ExploitabilityConfig(
        target=str(trainee),
        corpus=CORPUS,
        data_root=root,
        dialogues=6,
        defence=BOTH,
        reinforce=replace(REINFORCE, dialogues=12),
    )
    result = EVALUATE_EXPLOITABILITY.run(asked, tmp_path / "run", Silent())
    assert result.title.endswith(f"{trainee}, defended")
    assert set(result.metrics) <= set(result.legend)
    assert result.metrics["refused_share"].n == 6
    assert "stopped_share" in result.metrics
    assert provenance(tmp_path / "run" / "adversary" / "checkpoint")["defence"]["own_demand"]
    plain = EVALUATE_EXPLOITABILITY.run(replace(asked, defence=DefenceConfig()), tmp_path / "plain", Silent())
    assert "stopped_share" not in plain.metrics
    matches = [[row["turns"] for row in rows(tmp_path / name / ATTACK)] for name in ("run", "plain")]
    assert matches[0] != matches[1]


def test_each_defence_has_an_adversary_that_learned_against_it(root: Path, trainee: Path) -> None:
    path = Path("runs/t")
    config = table(trainee, root, rows="none,rl,transfer", adversary="runs/adversary", seeds=1)
    given = AttackPlan(config, path, FilterLimit(9.5, {})).given()
    recipe = read_recipe(ATTACK_TABLE.file, given=given, shared=ATTACK_TABLE.shared(config))
    planned, needs = recipe.planned(path, {}), recipe.needs()
    assert [name for name in planned if name.startswith("adversary")] == ["adversary+filter", "adversary+own-demand"]
    around = {"filter": DefenceConfig(max_perplexity=9.5), "own-demand": DefenceConfig(own_demand=True)}
    for name, defence in around.items():
        names = [f"adversary+{name}", f"rl+{name}-known", f"transfer+{name}-known"]
        trained, played, plugged = (planned[stage][1] for stage in names)
        assert (trained.target, trained.learner) == (str(trainee), str(trainee)), "as adversaries of all targets begin"
        assert {each.defence for each in (trained, played, plugged)} == {defence}
        assert {each.judge for each in (trained, played, plugged)} == {str(trainee)}, "who chose the filter's limit"
        assert played.speaker == f"{path}/adversary+{name}"
        assert plugged.transfer.source == f"{path}/rl+{name}-known"
        assert needs[f"transfer+{name}-known"] == [f"rl+{name}-known"]
    assert not AttackPlan(replace(config, rows="none,reactive")).trainings


def test_the_table_has_the_attack_that_was_made_for_each_defence(
    tmp_path: Path, root: Path, trainee: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary, learned = corpus_vocabulary(root), {}

    def train(config: reinforce.TrainReinforceConfig, path: Path, reporter: Any) -> Result:
        if path.name not in learned:
            learned[path.name] = config.defence
            save_negotiator(path / "checkpoint", seed=len(learned), vocabulary=vocabulary)
        return Result(path, "", {})

    monkeypatch.setattr(reinforce.TRAIN_ADVERSARY, "run", train)
    config = table(trainee, root, rows="none,rl,transfer", false_alarms=0.3)
    notes, path = Notes(), tmp_path / "run"
    result = ATTACK_TABLE.run(config, path, notes)
    assert any("a defended one too, so 3 are trained first" in line for line in notes.said)
    limit = RunFolder.load(path / "rl+filter").config["defence"]["max_perplexity"]
    assert learned == {
        "adversary": DefenceConfig(), "adversary+filter": DefenceConfig(max_perplexity=limit),
        "adversary+own-demand": DefenceConfig(own_demand=True),
    }  # fmt: skip
    assert RunFolder.load(path / "rl+filter").config["speaker"] == str(path / "adversary"), "the transferred attack stays"
    beside = {row[0]: row[1:] for row in result.tables["By target"].rows}
    assert list(beside)[2:] == ["no attack", "RL attack", "RL attack, adaptive", "transfer", "transfer, adaptive", "strongest"]
    for row, title in (("rl", "RL attack, adaptive"), ("transfer", "transfer, adaptive")):
        own = [RunFolder.load(path / f"{row}+{name}-known").metrics()["advantage"] for name in ("filter", "own-demand")]
        assert [cell.replace("\n", " ") for cell in beside[title][1:-1]] == [with_interval(each) for each in own]
    titles = [row[0] for row in result.tables["All attacks"].rows]
    assert {"RL attack, filter known to the attack", "RL attack, own demand known to the attack"} <= set(titles)
    assert "an adversary learned from the defended target" in result.tables["All attacks"].note
    assert set(result.metrics) <= set(result.legend)
    assert "RL attack, own demand known to the attack" in [match.heading for match in collect_run(path).found["negotiation"]]
    again = ATTACK_TABLE.run(config, path, Silent())
    assert again.tables == result.tables
