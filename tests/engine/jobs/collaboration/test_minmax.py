"""Hardening of bots against liars: a tiny campaign from its start to its tables, interrupted on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.jobs.collaboration.campaign import FriendsCampaign, HardenFriendsConfig, hardening_fit
from engine.jobs.collaboration.liar import MEASURED, RATE
from engine.jobs.collaboration.minmax import MINMAX_FRIENDS, demo
from engine.jobs.hardening import OUTCOME, ROUNDS
from engine.jobs.job import Silent
from engine.jobs.rounds import rounds_of
from engine.metrics.collaboration.hardening import CAMPAIGN, ROUND_METRICS, harmed
from engine.metrics.rounds import best_round
from engine.metrics.statistics import mean
from engine.report.collaboration.hardened import HardenedFriends
from engine.report.collect import collect_run
from engine.store.run_folder import RunFolder
from envs.core.errors import CheckpointError, ConfigError, OutOfRangeError
from policies.chat.seat import ChatSeat
from policies.choosing_settings import ChoiceLearning
from policies.dynonet.checkpoints import DYNONET
from policies.dynonet.settings import DynoNetSizes
from policies.stored import WEIGHTS
from tests.engine.jobs.made_up import Notes, interrupt
from tests.engine.report.negotiation.dialogues import page_of

CONFIG = replace(
    demo(),
    limit=8,
    scenarios=4,
    max_events=6,
    sizes=DynoNetSizes(embed=6, hidden=6, message=4, edge=2),
    learning=ChoiceLearning(updates=1, examples_per_update=4),
)


def test_stages_name_each_other_and_controls_train_as_long_as_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seat = ChatSeat(max_tokens=9)
    campaign = FriendsCampaign(replace(CONFIG, model="runs/given", rounds=2, chat=seat), Path("runs/c"))
    assert not campaign.begin()
    stages = campaign.round(2)
    assert list(stages) == ["02-model", "02-liar"]
    model, liar = (config for _, config in stages.values())
    assert (model.start, model.against) == ("runs/c/01-model", "none,liar:runs/c/00-liar,liar:runs/c/01-liar")
    assert liar.chat == seat
    assert (liar.model, liar.seed) == ("runs/c/02-model", campaign.round(0)["00-liar"][1].seed)
    with RunFolder.open(campaign.path / campaign.liar(0), CONFIG, job="train-liar") as first:
        first.write_summary({}, {RATE: 0.4})
    last = campaign.last(2)
    assert list(last) == ["start-liar", "result-liar", "control-model", "control-liar", "random-model", "random-liar"]
    assert {last[name][1].seed for name in last if name.endswith("liar")} == {1}
    assert liar.seed != 1, "other scenarios than those that choose the round"
    for name, against in (("control", "none"), ("random", "none,random-lies")):
        control = last[f"{name}-model"][1]
        assert (control.start, control.against, control.fit.max_epochs) == ("runs/given", against, 2)
    assert last["random-model"][1].lies == replace(CONFIG.game, rate=0.4)
    assert list(FriendsCampaign(replace(CONFIG, control=False), Path("x")).last(0)) == ["start-liar"]
    with pytest.raises(OutOfRangeError, match="keep"):
        HardenFriendsConfig(hardening=replace(hardening_fit(), keep="best"))


def test_a_liar_that_was_killed_after_it_had_measured_counts_once(tmp_path: Path) -> None:
    campaign = FriendsCampaign(replace(CONFIG, control=False), tmp_path)
    for stage, sessions in (("start-liar", 2), ("result-liar", 1)):
        harms = [1.0, 0.5] if sessions == 2 else [0.5, 0.5]
        with RunFolder.open(tmp_path / stage, CONFIG, job="train-liar") as run:
            for _ in range(sessions):
                run.event(MEASURED, harm=harms)
            run.write_summary(dict.fromkeys(ROUND_METRICS, mean(harms)))
    assert campaign.outcome(1)["gain"].value == pytest.approx(0.25)


@pytest.mark.ray
def test_a_campaign_measures_start_controls_and_result(tmp_path: Path, ray_session: object) -> None:
    path = tmp_path / "run"

    interrupt(MINMAX_FRIENDS, CONFIG, path, r"stage \d of \d: control-model")
    assert RunFolder.load(path).summary() is None
    result = MINMAX_FRIENDS.run(CONFIG, path, Notes())
    run = RunFolder.load(path)
    assert list(run.metrics()) == list(CAMPAIGN)
    rounds = rounds_of(run)
    assert [one.number for one in rounds] == [0, 1]
    assert all(set(one.metrics) == set(ROUND_METRICS) for one in rounds)
    best = best_round(rounds, harmed).number
    chosen = path / ("01-model" if best else "start") / "checkpoint"
    assert (path / "checkpoint" / WEIGHTS).read_bytes() == (chosen / WEIGHTS).read_bytes()
    assert DYNONET.provenance(path)["round"] == best
    assert DYNONET.provenance(path / "random-model")["against"] == ["none", "random-lies"]
    metrics = run.metrics()
    assert metrics["gain"].value == pytest.approx(metrics["harm_before"].value - metrics["harm"].value)
    tables = MINMAX_FRIENDS.tables(run)
    assert tables[OUTCOME].columns == ("bot", "before", "no lies", "random lies", "after")
    assert len(tables[ROUNDS].rows) == 2
    assert result.next_commands[1] == f"parley evaluate collaboration --model {path}/start --trained {path} --no-controls"
    report = collect_run(path)
    found = report.found[HardenedFriends.name]
    verdict = HardenedFriends().verdict(found)
    assert verdict is not None
    assert verdict.sentence.startswith("A fresh liar's harm is ")
    assert list(verdict.marks) == ["before", "no lies", "random lies", "after"]
    assert "Before and after" in page_of(report)
    notes = Notes()
    MINMAX_FRIENDS.run(CONFIG, path, notes)
    assert len(notes.said) == 1
    with pytest.raises(CheckpointError):
        MINMAX_FRIENDS.run(replace(CONFIG, model="nothing/here"), tmp_path / "other", Silent())


@pytest.mark.parametrize("model", ["hf:models/chat", "gguf:a.gguf", "openai:http://here/v1#model", "own.py:Bot", "scripted"])
def test_who_cannot_learn_is_told_where_it_may_play(model: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"may play the liars' side") as raised:
        MINMAX_FRIENDS.run(replace(CONFIG, model=model), tmp_path / "run", Silent())
    assert "--body" in str(raised.value)
    assert not (tmp_path / "run").exists()
