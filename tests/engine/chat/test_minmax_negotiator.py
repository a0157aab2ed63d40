"""Negotiators that are chat models harden each other: a campaign with its control, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.chat.metrics import to_the_best
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.chat.verbs.negotiator import (
    CAMPAIGN,
    ENDINGS,
    MINMAX_CHAT_NEGOTIATOR,
    PLAYED,
    HardenNegotiatorConfig,
    NegotiatorCampaign,
)
from parley.engine.chat.verbs.train_chat import chat_recipe
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.population import played_in
from parley.envs.core.config import from_dict
from parley.envs.core.errors import CheckpointError, ParleyError
from parley.policies.chat.settings import ChatSeat
from tests.policies.chat.bases import saved_base, small_corpus

pytest.importorskip("peft", reason="the extra lora is not installed")
pytestmark = pytest.mark.ray
RULE = ChatReinforceConfig(updates=1, scenarios=1, tries=2, max_tokens=4, at_once=4, learning_rate=1e-2)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{saved_base(tmp_path_factory.mktemp('base'), std=0.4)}"


@pytest.fixture(scope="module")
def campaign(base: str, tmp_path_factory: pytest.TempPathFactory, ray_session: RaySession) -> Path:
    path = tmp_path_factory.mktemp("campaign") / "run"
    config = HardenNegotiatorConfig(
        base=base,
        rounds=1,
        corpus=small_corpus(path.parent),
        scenarios="random",
        limit=4,
        dialogues=2,
        others="scripted",
        fit=replace(chat_recipe(), max_epochs=1),
        attack=RULE,
        defence=RULE,
        chat=ChatSeat(batch_size=8, max_tokens=4),
    )
    MINMAX_CHAT_NEGOTIATOR.run(config, path, Silent())
    return path


def test_a_campaign_measures_start_control_and_result_against_all_adversaries(campaign: Path) -> None:
    run = RunFolder.load(campaign)
    metrics = run.metrics()
    assert {f"{name}{ending}" for ending in ENDINGS.values() for name in PLAYED} <= set(metrics) <= set(CAMPAIGN)
    stages = {path.name for path in campaign.iterdir() if path.is_dir()}
    assert {"start", "00-adversary", "00-match", "01-target", "01-adversary", "control", "final-match"} <= stages
    played = played_in(campaign / "final-match")
    learned = {Path(name.removeprefix("hf:")).name for name in played.adversaries} - {"scripted", "start"}
    assert {"00-adversary", "01-adversary", "start-adversary", "control-adversary"} <= learned
    known = run.summary()["known"]
    assert set(known["learned"]) == learned
    assert {*known["adversaries"]} == {"scripted", "start", *learned}
    assert known["targets"] == ["before", "plain play", "after"]
    # The control never met an adversary.
    control = RunFolder.load(campaign / "control")
    assert control.config["opponents"] == "none"
    assert "training_advantage" not in control.metrics()
    assert (campaign / "checkpoint" / "adapter_model.safetensors").is_file()
    assert {"Before and after", "Rounds", "Known adversaries"} <= set(MINMAX_CHAT_NEGOTIATOR.tables(run))


def test_the_fall_of_exploitability_is_that_of_the_best_of_each_target(campaign: Path) -> None:
    played, metrics = played_in(campaign / "final-match"), RunFolder.load(campaign).metrics()
    before, control = (to_the_best(played.gains_GTA[:, index]) for index in (0, 1))
    after = to_the_best(played.gains_GTA[:, 2]) if len(played.targets) > 2 else before
    assert metrics["exploitability_before"].value == pytest.approx(before.mean())
    assert metrics["exploitability"].value == pytest.approx(after.mean())
    assert metrics["gain"].value == pytest.approx((before - after).mean())
    assert metrics["gain_over_plain"].value == pytest.approx((control - after).mean())


def test_payoffs_are_shares_of_what_an_adversary_can_be_ahead(campaign: Path) -> None:
    run = RunFolder.load(campaign)
    payoffs_GTA = NegotiatorCampaign(from_dict(HardenNegotiatorConfig, run.config), campaign).payoffs(2, run, Silent())
    played = played_in(campaign / "02-payoffs")
    assert [Path(name).name for name in played.adversaries] == ["00-adversary", "01-adversary"]
    assert [Path(name).name for name in played.targets] == ["start", "01-target"]
    assert payoffs_GTA.tolist() == ((played.gains_GTA + 10) / 20).tolist()


def test_a_model_that_is_no_adapter_and_an_agent_that_is_none_are_refused(base: str, tmp_path: Path) -> None:
    wrong = HardenNegotiatorConfig(base=base, model=str(tmp_path / "none"))
    with pytest.raises(CheckpointError, match="--model needs a run of parley train chat --game negotiation"):
        MINMAX_CHAT_NEGOTIATOR.run(wrong, tmp_path / "run", Silent())
    with pytest.raises(ParleyError, match="--others"):
        MINMAX_CHAT_NEGOTIATOR.run(HardenNegotiatorConfig(base=base, others="nobody"), tmp_path / "run", Silent())
