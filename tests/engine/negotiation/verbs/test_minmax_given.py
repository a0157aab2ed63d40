"""Campaigns of one round against an adversary that is there already; when a campaign ends; mistakes and presets."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.page.page import collect_run, report_from_run
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import LanguageWatch
from parley.engine.core.verbs.campaign import STOPPED, rounds_of
from parley.engine.core.verbs.export import tables_of_run
from parley.engine.core.verbs.job import Result, Silent
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.verbs import exploitability
from parley.engine.negotiation.verbs.campaign import Campaign, MinMaxConfig
from parley.engine.negotiation.verbs.minmax import DROP, MINMAX
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.settings import KIND
from tests.engine.core.page.pages import tables_on
from tests.engine.core.verbs.made_up import (
    Notes,
    asked_of,
    assert_equal_weights,
    campaign,
    corpus_vocabulary,
    given,
    metrics,
    phases,
    save_negotiator,
    weights,
)

run = MINMAX.run

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def adversary(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A random negotiator that passes for a trained adversary."""
    return save_negotiator(tmp_path_factory.mktemp("adversary") / "checkpoint", seed=4, vocabulary=corpus_vocabulary(root))


@pytest.fixture(scope="module")
def short(
    tmp_path_factory: pytest.TempPathFactory, root: Path, trainee: Path, adversary: Path, ray_session: RaySession
) -> Result:
    return run(given(root, trainee, adversary), tmp_path_factory.mktemp("given") / "run", Silent())


def test_all_tables_of_the_screen_are_tables_of_the_run(short: Result) -> None:
    assert [*tables_of_run(str(short.run))] == [short.title, *short.more] == [short.title, "Known adversaries", "Rounds"]


def test_an_adversary_that_is_there_is_not_trained_again(short: Result, adversary: Path, trainee: Path) -> None:
    path = short.run
    assert "01-adversary" not in phases(path)
    response = path / "00-exploitability" / exploitability.ADVERSARY
    assert asked_of(path / "01-target", "adversaries") == {"adversaries": f"{adversary},{response}"}
    assert asked_of(path / "01-before", "speaker") == {"speaker": str(adversary)}
    measured = [asked_of(path / name, "seed", "speaker") for name in ("00-exploitability", "final-exploitability")]
    assert measured[0] == measured[1], "it measures nothing: adversaries of the same seeds do, before and after"


def test_an_adversary_that_is_there_joins_the_fresh_ones(tmp_path: Path, root: Path, trainee: Path, adversary: Path) -> None:
    asked = campaign(root, trainee, adversary=str(adversary), adversaries="fresh", num_adversaries=2)
    asked = replace(asked, num_final_adversaries=3)
    with RunFolder.open(tmp_path / "run", asked, job=MINMAX.name) as folder:
        planned = Campaign(asked, folder, Silent())
        measured = tmp_path / "run" / "00-exploitability" / exploitability.ADVERSARY
        assert planned.adversaries(1) == [str(adversary), str(measured), f"{measured}-2", f"{measured}-3"]
        assert len(planned.adversaries(2)) == 2


def test_an_adversary_that_is_there_is_trained_on_in_the_second_round(
    tmp_path: Path, root: Path, trainee: Path, adversary: Path
) -> None:
    asked = campaign(root, trainee, adversary=str(adversary))
    with RunFolder.open(tmp_path / "run", asked, job=MINMAX.name) as folder:
        planned = Campaign(asked, folder, Silent())
        assert planned.adversaries(1) == [str(adversary)]
        assert planned.adversaries(2) == [str(tmp_path / "run" / "02-adversary")]
        _, settings = planned._adversary_phase(2, asked.attack)
    assert (settings.learner, settings.target) == (str(adversary), str(tmp_path / "run" / "01-target"))


@pytest.mark.slow
def test_a_target_that_plays_no_longer_is_no_result(
    tmp_path: Path, root: Path, trainee: Path, adversary: Path, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LanguageWatch, "still_playing", lambda watch, rounds, plain_loss: rounds[:1])
    monkeypatch.setattr(LanguageWatch, "has_lost_language", lambda watch, metrics, usual=0.0: True)
    notes = Notes()
    result = run(given(root, trainee, adversary), tmp_path / "run", notes)
    assert any(line.endswith("the result is the start") for line in notes.said)
    told = (RunFolder.load(result.run).summary() or {})["description"]
    assert told.endswith("The target of round 1 may not be it: it repeats itself and has lost its language.")
    assert Checkpoint.load(result.run / "checkpoint", KIND, Vocabulary).provenance["round"] == 0
    assert result.metrics[DROP].value == 0
    started = Checkpoint.load(trainee, KIND, Vocabulary).weights
    assert all(value.equal(started[name]) for name, value in weights(result.run).items())


def test_a_finished_campaign_does_nothing(short: Result, root: Path, trainee: Path, adversary: Path) -> None:
    notes = Notes()
    again = run(given(root, trainee, adversary, env_runners=2, retries=9), short.run, notes)
    assert notes.said == [f"{short.run} is finished: nothing is left to do"]
    assert metrics(again) == metrics(short)


@pytest.mark.slow
def test_the_seed_is_all_that_decides(tmp_path: Path, short: Result, root: Path, trainee: Path, adversary: Path) -> None:
    again = run(given(root, trainee, adversary), tmp_path / "again", Silent())
    assert metrics(again) == metrics(short)
    assert_equal_weights(again.run / "01-target", short.run / "01-target")
    other = run(given(root, trainee, adversary, seed=2), tmp_path / "other", Silent())
    assert metrics(other) != metrics(short)


@pytest.mark.slow
def test_campaigns_of_several_seeds_are_one_run(
    tmp_path: Path, short: Result, root: Path, trainee: Path, adversary: Path
) -> None:
    result = run(given(root, trainee, adversary, seeds=2), tmp_path / "run", Silent())
    first, second = (RunFolder.load(result.run / f"training-{number}") for number in (1, 2))
    assert {name: estimate.to_json() for name, estimate in first.metrics().items()} == metrics(short), "the first is as alone"
    assert result.metrics[DROP].value == pytest.approx((first.metrics()[DROP].value + second.metrics()[DROP].value) / 2)
    chosen = min((first, second), key=MINMAX.loss)
    assert_equal_weights(result.run, chosen.path)
    assert tables_of_run(str(result.run)) == {result.title: result.tables[""]}, "each training beside their mean"
    titles = [title for title, _ in tables_on(collect_run(result.run), "hardened-negotiators")]
    assert titles == ["Before and after", "Each training"]
    assert Path(result.run, "report.html") == report_from_run(result.run)


def test_the_control_is_done_beside_the_rounds_and_comes_out_the_same(
    tmp_path: Path, root: Path, trainee: Path, adversary: Path, ray_session: RaySession
) -> None:
    asked, path, notes = given(root, trainee, adversary, control=True, trainers=1), tmp_path / "run", Notes()
    result = run(asked, path, notes)
    control = ("control-target", "control-exploitability", "control-plain")
    assert {f"{path / name} is finished: nothing is left to do" for name in control} <= set(notes.said)
    for name in control:
        shutil.rmtree(path / name)
    (path / "summary.json").unlink()
    assert metrics(run(replace(asked, trainers=0), path, Silent())) == metrics(result)


def test_a_campaign_that_gains_nothing_ends_early(
    tmp_path: Path, root: Path, trainee: Path, adversary: Path, ray_session: RaySession
) -> None:
    asked, notes = given(root, trainee, adversary, rounds=3, patience=1, least_gain=100.0), Notes()
    result = run(asked, tmp_path / "run", notes)
    assert [one.number for one in rounds_of(RunFolder.load(result.run))] == [0, 1]
    reason = "exploitability has not fallen by 100 in 1 round"
    assert f"stopped after round 1: {reason}" in notes.said
    (result.run / "summary.json").unlink()
    run(asked, result.run, Silent())
    stops = [event for event in RunFolder.load(result.run).events() if event["kind"] == STOPPED]
    assert [(event["number"], event["reason"]) for event in stops] == [(1, reason)]


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, root: Path, trainee: Path, target: Path) -> None:
    def fails(kind: type[Exception], message: str, asked: MinMaxConfig) -> None:
        with pytest.raises(kind, match=message):
            run(asked, tmp_path / "run", Silent())

    fails(CheckpointError, "--target needs a checkpoint", campaign(root, tmp_path / "nothing"))
    told = r"cannot be hardened(.|\n)*evaluate exploitability --target scripted"
    fails(CheckpointError, told, campaign(root, Path("scripted")))
    for option in ("speaker", "judge"):
        fails(CheckpointError, f"--{option} needs a checkpoint", campaign(root, trainee, **{option: "scripted"}))
    for option in ("adversary", "partner"):
        fails(CheckpointError, f"--{option} needs a checkpoint", campaign(root, trainee, **{option: "nothing"}))
        fails(ConfigError, f"a person cannot be met(.|\n)*--{option}", campaign(root, trainee, **{option: "human"}))
    other = campaign(root, trainee, speaker=str(target))
    fails(CheckpointError, "--target and --speaker speak different vocabularies", other)
    fails(ConfigError, "supervised guard has another vocabulary", campaign(root, target))
    fails(DataError, "parley data get", campaign(tmp_path, trainee, corpus="dealornodeal"))
    assert not (tmp_path / "run").exists()
    for option in ("rounds", "patience", "num_adversaries", "num_final_adversaries", "budget", "dialogues", "save_every"):
        with pytest.raises(ConfigError, match=rf"{option}(.|\n)*at least 1"):
            campaign(root, trainee, **{option: 0})
    with pytest.raises(ConfigError, match=r"perplexity_limit(.|\n)*above 1"):
        campaign(root, trainee, perplexity_limit=0.9)


def test_another_campaign_in_the_same_folder_is_an_error(short: Result, root: Path, trainee: Path, adversary: Path) -> None:
    with pytest.raises(RunError, match="rounds: 1 -> 2"):
        run(given(root, trainee, adversary, rounds=2), short.run, Silent())


def test_presets_are_what_they_say() -> None:
    paper, population, demo = (MINMAX.presets[name]() for name in ("cheng2019", "population", "demo"))
    assert (paper.adversaries, paper.opponents) == ("continued", OpponentConfig(sampling="latest", partner_share=0.0))
    for config in (paper, population, demo):
        assert config.attack.reward == config.defence.reward == "advantage", "-(S_adv - S_ori), eq. 9"
        assert config.attack.complementary
        assert config.defence.complementary
        assert config.perplexity_limit > 1
    assert (population.adversaries, population.opponents.sampling) == ("fresh", "prioritised")
    assert population.opponents.partner_share > 0
    assert (demo.target, demo.adversary, demo.rounds) == ("runs/demo/target", "runs/demo/adversary", 2)
    assert demo.corpus == "embedded"
