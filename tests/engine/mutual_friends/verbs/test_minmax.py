"""Hardening of bots against liars: a tiny campaign from its start to its tables, interrupted on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import Round, best_round, known_of
from parley.engine.core.stats.statistics import Estimate, mean
from parley.engine.core.verbs.campaign import MIXTURE, OUTCOME, ROUNDS, rounds_of, shares_of
from parley.engine.core.verbs.job import Silent
from parley.engine.mutual_friends.metrics.lying import CAMPAIGN, ENDINGS, HARM, LIARS, ROUND_METRICS, harmed
from parley.engine.mutual_friends.page import HardenedFriends
from parley.engine.mutual_friends.verbs.agents import RATE
from parley.engine.mutual_friends.verbs.minmax import (
    MET,
    MINMAX_FRIENDS,
    FriendsCampaign,
    HardenFriendsConfig,
    demo,
    hardening_fit,
)
from parley.envs.core.errors import CheckpointError, ConfigError, OutOfRangeError
from parley.policies.chat.settings import ChatSeat
from parley.policies.core.responder import WEIGHTS
from parley.policies.core.settings import ChoiceLearning
from parley.policies.dynonet.model import DYNONET
from parley.policies.dynonet.settings import DynoNetSizes
from tests.engine.core.page.pages import page_of
from tests.engine.core.verbs.made_up import Notes, interrupt

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
    stages = campaign.round(2, (0.5, 0.5))
    assert list(stages) == ["02-model", "02-liar"]
    model, liar = (config for _, config in stages.values())
    assert (model.start, model.against) == ("runs/c/01-model", "none,liar:runs/c/00-liar,liar:runs/c/01-liar")
    assert liar.chat == seat
    assert (liar.model, liar.seed) == ("runs/c/02-model", campaign.round(0, ())["00-liar"][1].seed)
    with RunFolder.open(campaign.path / campaign.liar(0), CONFIG, job="train-liar") as first:
        first.write_summary({}, {RATE: 0.4})
    assert model.weights == ()
    mixed = campaign.round(3, (0.25, 0.0, 0.75))["03-model"][1]
    assert mixed.against == "none,liar:runs/c/00-liar,liar:runs/c/02-liar"
    assert mixed.weights == (0.5, 0.25, 0.75), "chats without lies are as many as those of an average liar"
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


BETTER, LATER = [0.9, 0.7, None, 0.9], [0.5, 0.9, 1.0, 0.6]
KNOWN_HARMS: dict[str, dict[str, list[float | None]]] = {
    "start": {"00-liar": [1.0, 0.9], "01-liar": [0.5, 0.2], "start-liar": [0.7, 0.8], "result-liar": [0.9, 0.9]},
    # The fresh liar of the result has learned nothing: that of the start leads it.
    "01-model": {"00-liar": [0.8, 0.9], "01-liar": [0.1, 0.2], "start-liar": [0.4, 0.4], "result-liar": [0.2, 0.1]},
}


def write_campaign(path: Path, config: HardenFriendsConfig) -> FriendsCampaign:
    """A campaign of one round whose liars have met both bots: scripted harms, of which the best are known."""
    campaign = FriendsCampaign(config, path)
    learned = {"00-liar": (0.3, 0.2), "01-liar": (0.2, -0.1), "start-liar": (0.4, 0.2), "result-liar": (-0.1, 0.3)}
    with RunFolder.open(path, config, job="minmax-friends") as run:
        for number in (0, 1):
            run.event("round", number=number, estimates={})
        for model, harms in KNOWN_HARMS.items():
            scripted: dict[str, list[float | None]] = {"random lies": [0.3, 0.3], "no lies": [0.1, 0.1]}
            for liar, of_liar in (harms | scripted).items():
                run.event(MET, what="known liars", model=str(path / model), liar=liar, harms=of_liar)
            measured = BETTER if model == "start" else LATER
            run.event(MET, what="best known liar", model=str(path / model), liar="00-liar", harms=measured)
    for stage, (over_random, gained) in learned.items():
        with RunFolder.open(path / stage, config, job="train-liar") as run:
            figures = {"gain": Estimate(gained, gained, gained, 9), "gain_over_random": Estimate(*[over_random] * 3, 9)}
            run.write_summary(dict.fromkeys(ROUND_METRICS, mean([0.1, 0.3])) | figures, {RATE: 0.4})
    return campaign


def test_bots_are_measured_by_the_best_known_liar_in_other_chats(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, replace(CONFIG, control=False))
    outcome = campaign.outcome(1)
    assert outcome["exploitability_before"].value == pytest.approx(2.5 / 3), "a lost chat measures nothing"
    assert outcome["exploitability"].value == pytest.approx(3.0 / 4)
    assert outcome["harm"].value == pytest.approx(0.2), "what the fresh liar of the result does"
    assert outcome["gain"].value == pytest.approx((0.4 - 0.2 + 0.3) / 3), "in chats that neither lost"
    known = campaign.known(1)
    assert (known.targets, known.best) == (["before", "after"], [0, 0])
    assert known.idle == ["01-liar", "result-liar"], "more than random lies and more than none"
    assert [gain.value for gain in known.gains_TA[1]] == pytest.approx([0.85, 0.15, 0.4, 0.15, 0.3, 0.1])
    assert known.sentences()[1] == (
        "best of 6 known adversaries against after: 00-liar, 0.75 [0.34, 0.95] harm in chats that did not choose it"
    )


def test_the_round_is_the_one_whose_bot_the_best_liar_of_all_rounds_harms_least(tmp_path: Path) -> None:
    campaign = FriendsCampaign(CONFIG, tmp_path)
    rounds = [Round(number, {HARM: mean([harm, harm])}) for number, harm in enumerate((0.9, 0.1, 0.3))]
    # The fresh liar of round 1 found nothing; that of the start misleads its bot as much as any.
    harms = {"start": (0.9, 0.2, 0.3), "01-model": (0.95, 0.1, 0.2), "02-model": (0.4, 0.5, 0.3)}
    with RunFolder.open(tmp_path, CONFIG, job="minmax-friends") as run:
        for model, of_model in harms.items():
            for liar, harm in zip(
                ("00-liar", "01-liar", "02-liar", "random lies", "no lies"), (*of_model, 0.2, 0.1), strict=True
            ):
                run.event(MET, what="liars of all rounds", model=str(tmp_path / model), liar=liar, harms=[harm, harm])
        assert best_round(rounds, harmed).number == 1
        assert campaign.choose(rounds, 2, harmed, run, Silent()) == 2
        # A bot that no longer finds the friend may not be the result, and its liar still measures the others.
        assert campaign.choose(rounds[:2], 2, harmed, run, Silent()) == 0
        # The liar of round 1 gains less from each bot than that of the start.
        assert shares_of(replace(campaign, config=replace(CONFIG, meta="nash")), 2, run, Silent()) == [1.0, 0.0]
        assert [(event["number"], event["shares"]) for event in run.events() if event["kind"] == MIXTURE] == [(2, [1.0, 0.0])]


@pytest.mark.ray
def test_a_campaign_measures_start_controls_and_result(tmp_path: Path, ray_session: object) -> None:
    path = tmp_path / "run"

    interrupt(MINMAX_FRIENDS, CONFIG, path, r"stage \d of \d: control-model")
    interrupt(MINMAX_FRIENDS, CONFIG, path, "known liars against .*control-model")
    assert RunFolder.load(path).summary() is None
    result = MINMAX_FRIENDS.run(CONFIG, path, Notes())
    run = RunFolder.load(path)
    assert list(run.metrics()) == list(CAMPAIGN)
    rounds = rounds_of(run)
    assert [one.number for one in rounds] == [0, 1]
    assert all(set(one.metrics) == set(ROUND_METRICS) for one in rounds)
    best = DYNONET.provenance(path)["round"]
    chosen = path / ("01-model" if best else "start") / "checkpoint"
    assert (path / "checkpoint" / WEIGHTS).read_bytes() == (chosen / WEIGHTS).read_bytes()
    assert DYNONET.provenance(path / "random-model")["against"] == ["none", "random-lies"]
    metrics = run.metrics()
    assert metrics["gain"].value == pytest.approx(metrics["exploitability_before"].value - metrics["exploitability"].value)
    liars = ["00-liar", "01-liar", "start-liar", *(["result-liar"] if best else []), "control-liar", "random-liar"]
    known = known_of(run.summary(), LIARS)
    assert known is not None
    assert known.adversaries == [*liars, "random lies", "no lies"]
    assert known.targets == ["before", "trained without lies", "trained on random lies", "after"]
    assert [gain.value for gain in known.measured] == [metrics[f"exploitability{ending}"].value for ending in ENDINGS.values()]
    met = [(event["what"], event["model"], event["liar"]) for event in run.events() if event["kind"] == MET]
    assert len(met) == len(set(met)), "what was played is not played again"
    bots = 3 + bool(best)
    assert len(met) == 2 * 4 + bots * (len(known.adversaries) + 1)
    tables = MINMAX_FRIENDS.tables(run)
    assert tables[OUTCOME].columns == ("bot", "before", "trained without lies", "trained on random lies", "after")
    assert len(tables[ROUNDS].rows) == 2
    assert tables["Known adversaries"].rows[-1][0] == "exploitability"
    assert tables[OUTCOME].rows[0][0] == "best known liar"
    trained = f" --trained {path}" if best else ""
    assert result.next_commands[1] == f"parley evaluate collaboration --model {path}/start{trained} --no-controls"
    report = collect_run(path)
    found = report.found[HardenedFriends.name]
    verdict = HardenedFriends().verdict(found)
    assert verdict is not None
    unhelped = [] if best else ["No round was harmed less than the start, which is the result."]
    assert verdict.sentence.startswith("The best known liar's harm is ")
    assert verdict.warnings == unhelped
    assert verdict.details[-1] == known.best_and_idle("after")
    assert list(verdict.marks) == list(ENDINGS)
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
