"""The payoff matrix as a run: who is in it, what is played, and that nothing is played twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run, load_chapters, render
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import EXPLOITABILITY, MEAN_FRESH
from parley.engine.core.verbs.job import Job, Silent
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.metrics.campaign import LEGEND
from parley.engine.negotiation.verbs.campaign import MinMaxConfig
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.minmax import MINMAX
from parley.engine.negotiation.verbs.population import (
    AGENTS,
    EVALUATE_POPULATION,
    SHARES,
    Population,
    PopulationConfig,
    members,
)
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TRAIN_TARGET, TrainReinforceConfig, TrainTargetConfig
from parley.envs.core.errors import CheckpointError, ConfigError, RunError
from tests.engine.core.verbs.made_up import asked_of, campaign, rows, save_negotiator

run = EVALUATE_POPULATION.run
SCRIPTED = "scripted,scripted-tough"
LEARNERS = {"adversary": ("target", "learner", "opponents"), "target": ("adversaries", "opponents")}
"""What is asked of the training of each side."""


def matrix(**changes: Any) -> PopulationConfig:
    return PopulationConfig(**{"targets": SCRIPTED, "dialogues": 6, **changes})


def played(path: Path, target: str, adversary: str) -> list[list[Any]]:
    """What came of a pair, dialogue by dialogue."""
    found = [row for row in rows(path) if row["target"] == target and row["adversary"] == adversary]
    return [[row[name] for name in ("seed", "turns", "points_adversary", "points_target")] for row in found]


def test_agents_of_a_list_play_each_other_on_both_sides(tmp_path: Path) -> None:
    result = run(matrix(), tmp_path / "run", Silent())
    assert len(rows(tmp_path / "run")) == 2 * 2 * 6
    assert set(result.metrics) == set(LEGEND) - {EXPLOITABILITY, MEAN_FRESH}
    text = (tmp_path / "run" / "table.md").read_text()
    assert "| adversary | scripted | scripted-tough |" in text
    assert "| target | Elo | uniform | prioritised | nash |" in text


@pytest.mark.usefixtures("workers_here")
def test_two_workers_write_the_rows_of_none(tmp_path: Path) -> None:
    for workers in (0, 2):
        run(matrix(shard_size=5, workers=workers), tmp_path / str(workers), Silent())
    assert rows(tmp_path / "2") == rows(tmp_path / "0")


def test_of_several_equilibria_it_is_said_that_this_is_one(tmp_path: Path) -> None:
    folders = [save_negotiator(tmp_path / name, seed=3) for name in ("one", "same")]
    asked = matrix(targets="scripted", adversaries=",".join(map(str, folders)))
    run(asked, tmp_path / "run", Silent())
    summary = RunFolder.load(tmp_path / "run").summary()
    assert summary is not None
    assert summary[SHARES]["nash"]["adversaries"] == pytest.approx([0.5, 0.5])
    told = "The equilibrium (nash) is one of several"
    assert told in summary["description"]
    assert told in (tmp_path / "run" / "table.md").read_text()
    assert told in render(collect_run(tmp_path / "run"), load_chapters())
    run(matrix(targets="scripted", adversaries="scripted-tough"), tmp_path / "alone", Silent())
    assert told not in (tmp_path / "alone" / "table.md").read_text()


def test_dialogues_of_a_pair_are_those_of_its_match(tmp_path: Path) -> None:
    run(matrix(), tmp_path / "run", Silent())
    match = MatchConfig(adversary="scripted-tough", target="scripted", complementary=True, dialogues=6)
    SELFPLAY.run(match, tmp_path / "match", Silent())
    alone = [[row[name] for name in ("seed", "turns", "points_adversary", "points_target")] for row in rows(tmp_path / "match")]
    assert played(tmp_path / "run", "scripted", "scripted-tough") == alone


def test_shards_change_no_row_and_known_pairs_are_not_played_again(tmp_path: Path) -> None:
    whole = run(matrix(shard_size=5), tmp_path / "whole", Silent())
    run(matrix(targets="scripted", adversaries=SCRIPTED), tmp_path / "part", Silent())
    joined = run(matrix(known=str(tmp_path / "part")), tmp_path / "joined", Silent())
    assert {row["target"] for row in rows(tmp_path / "joined")} == {"scripted-tough"}
    assert joined.metrics == whole.metrics
    assert run(matrix(known=str(tmp_path / "part")), tmp_path / "joined", Silent()).metrics == whole.metrics
    with pytest.raises(RunError, match="the same dialogues"):
        run(matrix(known=str(tmp_path / "part"), dialogues=7), tmp_path / "other", Silent())


def test_known_pairs_were_played_by_the_weights_of_now(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_negotiator(model)
    asked = matrix(targets=str(model), adversaries="scripted")
    run(asked, tmp_path / "part", Silent())
    known = replace(asked, adversaries=SCRIPTED, known=str(tmp_path / "part"))
    run(known, tmp_path / "same", Silent())
    save_negotiator(model, seed=2)
    with pytest.raises(RunError, match="whose weights are others now"):
        run(known, tmp_path / "other", Silent())
    run(replace(known, targets="scripted"), tmp_path / "without", Silent())


def test_checkpoints_go_with_the_work_and_chat_models_do_not() -> None:
    population = Population(matrix(), ("runs/t", "hf:model"), ("runs/a", "runs/t"))
    assert population.checkpoints() == ("runs/t", "runs/a")


def stage(path: Path, job: Job[Any, Any, Any], config: Any) -> str:
    """A finished run of a job that has a checkpoint, as far as its folder tells; returns its name."""
    with RunFolder.open(path, config, job=job.name) as folder:
        save_negotiator(path / "checkpoint")
        folder.write_summary({})
    return str(path)


def test_members_of_a_campaign_are_its_start_and_what_it_trained(tmp_path: Path) -> None:
    path = tmp_path / "minmax"
    with RunFolder.open(path, MinMaxConfig(target="runs/t", adversary="runs/a"), job=MINMAX.name) as folder:
        folder.event("started")
    hardened = [stage(path / f"0{k}-target", TRAIN_TARGET, TrainTargetConfig(target="runs/t")) for k in (1, 2)]
    fresh = stage(path / "00-exploitability" / "adversary", TRAIN_ADVERSARY, TrainReinforceConfig(target="runs/t"))
    with RunFolder.open(path / "03-target", TrainTargetConfig(target="runs/t"), job=TRAIN_TARGET.name) as unfinished:
        unfinished.event("started")
    found = members(PopulationConfig(campaign=str(path)))
    assert found == (("runs/t", *hardened), ("runs/a", fresh))
    more = members(PopulationConfig(campaign=str(path), targets="scripted", adversaries="runs/a,human"))
    assert more == ((*found[0], "scripted"), (*found[1], "human"))


def test_the_newest_target_of_a_campaign_with_a_control_is_that_of_its_last_round(tmp_path: Path) -> None:
    path = tmp_path / "minmax"
    with RunFolder.open(path, MinMaxConfig(target="runs/t", control=True), job=MINMAX.name) as folder:
        folder.event("started")
    rounds, control = (
        [stage(path / name, TRAIN_TARGET, TrainTargetConfig(target="runs/t")) for name in names]
        for names in (("01-target", "02-target"), ("control-target",))
    )
    attacks = ("control-exploitability", "00-exploitability", "final-exploitability")
    fresh = [stage(path / name / "adversary", TRAIN_ADVERSARY, TrainReinforceConfig(target="runs/t")) for name in attacks]
    assert members(PopulationConfig(campaign=str(path))) == (("runs/t", *control, *rounds), tuple(fresh))


def test_fresh_adversaries_of_a_campaign_start_where_its_own_do(
    tmp_path: Path, target: Path, speaker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def train(config: TrainReinforceConfig, path: Path, reporter: Any) -> None:
        asked.append(config.learner)
        save_negotiator(path / "checkpoint", seed=len(asked))

    monkeypatch.setattr(TRAIN_ADVERSARY, "run", train)
    for name, own in (("named", str(speaker)), ("start", "")):
        campaigns = MinMaxConfig(target=str(target), adversary="scripted", speaker=own)
        with RunFolder.open(tmp_path / name, campaigns, job=MINMAX.name) as folder:
            folder.event("started")
        fresh = matrix(campaign=str(tmp_path / name), targets="", num_fresh=1, reinforce=ReinforceConfig(supervised_weight=0))
        run(fresh, tmp_path / f"{name}-matrix", Silent())
    run(replace(fresh, speaker=str(speaker)), tmp_path / "other", Silent())
    assert asked == [str(speaker), str(target), str(speaker)]


def test_members_of_a_campaign_of_several_seeds_are_those_of_all(tmp_path: Path) -> None:
    path, settings = tmp_path / "minmax", MinMaxConfig(target="runs/t", adversaries="fresh", seeds=2)
    with RunFolder.open(path, settings, job=MINMAX.name) as folder:
        folder.event("started")
    hardened, fresh = [], []
    for number in (1, 2):
        of_one = path / f"training-{number}"
        with RunFolder.open(of_one, MinMaxConfig(target="runs/t", adversaries="fresh"), job=MINMAX.name) as folder:
            folder.write_summary({})
        fresh.append(stage(of_one / "00-exploitability" / "adversary", TRAIN_ADVERSARY, TrainReinforceConfig(target="runs/t")))
        hardened.append(stage(of_one / "01-target", TRAIN_TARGET, TrainTargetConfig(target="runs/t")))
    assert members(PopulationConfig(campaign=str(path))) == (("runs/t", *hardened), tuple(fresh))


def test_what_is_no_campaign_and_a_population_of_nobody_are_errors(tmp_path: Path) -> None:
    run(matrix(), tmp_path / "run", Silent())
    with pytest.raises(RunError, match="no campaign"):
        members(PopulationConfig(campaign=str(tmp_path / "run")))
    with pytest.raises(ConfigError, match="needs a target"):
        members(PopulationConfig())
    with pytest.raises(ConfigError, match="no agent is called"):
        run(matrix(targets="scripted,scriptd"), tmp_path / "wrong", Silent())
    with pytest.raises(ConfigError, match="a person"):
        run(matrix(adversaries="human"), tmp_path / "wrong", Silent())
    assert not (tmp_path / "wrong").exists()


def test_an_agent_that_always_fails_is_named(tmp_path: Path) -> None:
    text = "class Mine:\n    def join(self, view): return self\n    speak = choose = lambda self, rows: 1 // 0\n"
    (tmp_path / "mine.py").write_text(text)
    asked = matrix(targets=f"scripted,{tmp_path}/mine.py:Mine", adversaries="scripted-tough", dialogues=2)
    with pytest.raises(RunError, match=r"none of scripted-tough against \S+mine.py:Mine\n"):
        run(asked, tmp_path / "run", Silent())


def test_fresh_adversaries_learn_from_the_mixture_and_play_it(
    tmp_path: Path, target: Path, speaker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def train(config: TrainReinforceConfig, path: Path, reporter: Any) -> None:
        asked.append(config)
        save_negotiator(path / "checkpoint", seed=len(asked))

    monkeypatch.setattr(TRAIN_ADVERSARY, "run", train)
    rule = ReinforceConfig(supervised_weight=0)
    config = matrix(targets=f"{target},{speaker}", num_fresh=2, reinforce=rule, learner_gpus=0.5)
    result = run(config, tmp_path / "run", Silent())
    assert [one.target for one in asked] == [f"{target},{speaker}"] * 2
    assert asked[0].seed != asked[1].seed
    assert asked[0].learner_gpus == 0.5
    summary = RunFolder.load(tmp_path / "run").summary()
    assert summary is not None
    assert asked[0].opponents.sampling == "weighted"
    assert asked[0].opponents.weights == pytest.approx(summary[SHARES]["nash"]["targets"], abs=1e-6)
    assert summary[AGENTS] == {"targets": [str(target), str(speaker)], "adversaries": [str(target), str(speaker)]}
    assert result.metrics[MEAN_FRESH].n == 6
    met = rows(tmp_path / "run" / "fresh-payoffs")
    assert len(met) == 2 * 3 * 6, "both, and the best of the matrix"
    again = rows(tmp_path / "run" / "fresh-best")
    assert len(again) == 2 * 6, "one adversary"
    dealt = [{(row["seed"], *row["counts"]) for row in part} for part in (rows(tmp_path / "run"), met, again)]
    assert len(set.union(*dealt)) == sum(map(len, dealt)), "each chose nothing of what follows"
    shares = dict(zip((str(target), str(speaker)), summary[SHARES]["nash"]["targets"], strict=True))
    gained = sum(shares[row["target"]] * (row["points_adversary"] - row["points_target"]) for row in again) / 6
    assert result.metrics[EXPLOITABILITY].value == pytest.approx(gained)
    with pytest.raises(CheckpointError, match="no weights"):
        run(matrix(num_fresh=1), tmp_path / "scripted", Silent())


def test_page_shows_the_matrix_and_the_ratings(tmp_path: Path) -> None:
    run(matrix(), tmp_path / "run", Silent())
    page = render(collect_run(tmp_path / "run"), load_chapters())
    for words in (
        "Payoff matrix",
        "Elo ratings",
        "Targets, rated",
        "At the equilibrium of the matrix",
        "in the dialogues that chose it",
        "scripted (target)",
    ):
        assert words in page


@pytest.mark.ray
def test_each_side_of_a_round_learns_against_the_others_mixture(
    tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession
) -> None:
    path = tmp_path / "psro"
    MINMAX.run(campaign(root, trainee, adversaries="mixture"), path, Silent())
    start, first = str(trainee), path / "00-exploitability" / "adversary"
    shares = {k: RunFolder.load(path / f"0{k}-payoffs").summary()[SHARES]["nash"] for k in (1, 2)}  # type: ignore[index]
    adversary, target = (asked_of(path / f"02-{role}", *names) for role, names in LEARNERS.items())
    assert adversary["target"] == f"{start},{path / '01-target'}"
    assert adversary["learner"] == start
    assert adversary["opponents"]["weights"] == pytest.approx(shares[2]["targets"], abs=1e-6)
    measured = path / "01-exploitability" / "adversary"
    assert target["adversaries"] == f"{first},{path / '01-adversary'},{measured}", "all that are known before the round"
    assert target["opponents"]["weights"] == pytest.approx(shares[2]["adversaries"], abs=1e-6)
    assert shares[1] == {"targets": [1.0], "adversaries": [1.0]}
    # One pair is known from the first round.
    assert len(rows(path / "02-payoffs")) == 5 * len(rows(path / "01-payoffs"))
