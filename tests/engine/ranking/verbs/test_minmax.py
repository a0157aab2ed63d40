"""Hardening of rankers by rounds: a tiny campaign from its start to its page, interrupted on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.documents import EVENTS, SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import best_round, known_of
from parley.engine.core.verbs.campaign import OUTCOME, ROUNDS, START, rounds_of
from parley.engine.core.verbs.job import TABLE_FILE, UNCHANGED, Silent
from parley.engine.ranking.metrics.campaign import ATTACKS, CAMPAIGN, FIRST, GAIN, HELD, ROUND_METRICS, UnderAttack, lost
from parley.engine.ranking.metrics.searched import REACHED_REASON
from parley.engine.ranking.page import HardenedRankers
from parley.engine.ranking.verbs.minmax import MINMAX_RANKING, HardenRankingConfig, RankingCampaign
from parley.engine.ranking.verbs.prepared import UNREAD
from parley.envs.core.errors import CheckpointError
from parley.envs.ranking.edit_game import EditRules
from parley.envs.ranking.groups import CandidateOptions
from parley.policies.core.responder import WEIGHTS, read_header
from parley.policies.core.settings import ChoiceLearning
from parley.policies.ranking.matching.settings import MatcherFitConfig, SmnSizes
from tests.engine.core.page.pages import curves_on, page_of
from tests.engine.core.verbs.made_up import Notes, interrupt

NOUNS = ("disk", "cable", "screen", "mouse", "printer", "battery", "router")
TOLD = "SMN is made for shorter texts: it did not read all of 0 contexts and 122 replies."
FIT = MatcherFitConfig(learning_rate=0.02, batch_size=16, max_epochs=1, fresh_negatives=True)
CONFIG = HardenRankingConfig(
    rounds=1,
    limit=12,
    budget=20,
    adversary_share=0.4,
    lexicon="built-in",
    candidates=CandidateOptions(size=3),
    game=EditRules(edits=1, num_places=8, num_proposals=3),
    learning=ChoiceLearning(updates=2, examples_per_update=8),
    smn=SmnSizes(embed=8, turns=2, words=6, gru=6, maps=3, match=5, session=4),
    fit=FIT,
    hardening=FIT,
)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> HardenRankingConfig:
    folder = tmp_path_factory.mktemp("corpus")
    lines = [f"my {one} and the {two} hum\tthe {one} of the box is slow" for one in NOUNS for two in NOUNS]
    lines = [lines[place * 5 % len(lines)] for place in range(len(lines))]
    for split, part in (("train", lines[:25]), ("val", lines[25:37]), ("test", lines[37:])):
        (folder / f"{split}.tsv").write_text("\n".join(part) + "\n")
    return replace(CONFIG, corpus=str(folder))


@pytest.fixture(scope="module")
def campaign(config: HardenRankingConfig, tmp_path_factory: pytest.TempPathFactory, ray_session: object) -> Path:
    """A campaign that was interrupted before its last stages."""
    path = tmp_path_factory.mktemp("minmax") / "run"

    interrupt(MINMAX_RANKING, config, path, r"stage \d of \d: control-ranker")
    assert RunFolder.load(path).summary() is None
    notes = Notes()
    MINMAX_RANKING.run(config, path, notes)
    # The start and the result's policy; rounds that are noted are not looked at again.
    is_changed = (path / "result-attack").is_dir()
    assert sum("finished: nothing is left to do" in said for said in notes.said) == (2 if is_changed else 1)
    return path


@pytest.mark.ray
def test_a_campaign_measures_start_result_and_control(campaign: Path, config: HardenRankingConfig) -> None:
    run = RunFolder.load(campaign)
    assert list(run.metrics()) == list(CAMPAIGN)
    rounds = rounds_of(run)
    assert [one.number for one in rounds] == [0, 1]
    assert set(rounds[1].metrics) == set(ROUND_METRICS)
    assert set(ROUND_METRICS) - set(rounds[0].metrics) == {"policy_before", "policy_after"}
    assert rounds[1].metrics["policy_before"] == rounds[0].metrics["exploitability"]
    assert rounds[1].metrics[FIRST].n == 12
    metrics = run.metrics()
    assert metrics[HELD].value <= 1 - metrics["search_success"].value
    rows = RunFolder.load(campaign / "start-attack").read_rows().to_pylist()
    methods = {each["method"] for row in rows for each in row["searches"]}
    assert {"greedy", "random", "00-editor", "01-editor", "control-editor"} <= methods
    assert metrics[f"{HELD}_before"].value == UnderAttack(rows, list(methods)).held().value, "by the best of all for a context"
    assert metrics[GAIN].value == pytest.approx(metrics[HELD].value - metrics[f"{HELD}_before"].value)
    known = known_of(run.summary(), ATTACKS)
    assert known is not None
    assert (known.targets, set(known.adversaries)) == (["before", "control", "after"], methods)
    for lost_to, lost_A, index in zip(known.measured, known.gains_TA, known.best, strict=True):
        assert lost_to.value >= lost_A[index].value == max(gain.value for gain in lost_A)
    assert known.measured[-1].value == pytest.approx(1 - metrics[HELD].value)
    assert all(alone.value <= lost_to.value for alone, lost_to in zip(known.single, known.measured, strict=True))
    editors = {name for name in methods if name.endswith("-editor")}
    assert set(known.learned) == editors
    gains = {name: RunFolder.load(campaign / name).metrics() for name in editors}
    idle = {name for name, of in gains.items() if of["gain_over_random"].low <= 0 or of["success"].low <= 0}
    assert set(known.idle) == idle
    assert MINMAX_RANKING.tables(run)["Known adversaries"].rows[-1][0] == "exploitability"
    assert metrics[f"{FIRST}_before"].n == 12
    tables = MINMAX_RANKING.tables(run)
    assert tables[OUTCOME].columns == ("ranker", "before", "control", "after")
    assert len(tables[ROUNDS].rows) == 2
    # A turn has six words, a reply seven; two replies of each context are trained on, three are measured on.
    assert (run.summary() or {})[UNREAD] == {"SMN": [0, 25 * 2 + (12 + 12) * 3]}
    assert TOLD in (campaign / "table.md").read_text()
    stages = ("01-ranker", "control-ranker", "")
    hardened, alone, result = (read_header(campaign / stage / "checkpoint", "smn")["provenance"] for stage in stages)
    assert hardened["against"] == [f"editor:{campaign}/00-editor"]
    assert alone["role"] == "control"
    best = best_round(rounds, lost).number
    assert result["round"] == best
    chosen = campaign / ("01-ranker" if best else START) / "checkpoint"
    assert (campaign / "checkpoint" / WEIGHTS).read_bytes() == (chosen / WEIGHTS).read_bytes()
    after, before = metrics[f"{FIRST}"], metrics[f"{FIRST}_before"]
    assert (after == before) >= (best == 0)


@pytest.mark.ray
def test_a_finished_campaign_is_left_alone_and_may_go_on_from_a_ranker(campaign: Path, config: HardenRankingConfig) -> None:
    notes = Notes()
    result = MINMAX_RANKING.run(config, campaign, notes)
    assert len(notes.said) == 1
    assert TOLD in result.tables[ROUNDS].note
    summary = RunFolder.load(campaign).summary() or {}
    both = f"{campaign}/start,{campaign}"
    wanted = f"{campaign}/start" if summary["result"] == "start" else both
    assert result.next_commands[1].startswith(f"parley evaluate ranking --model {wanted} ")
    for name, models in (("start", f"{campaign}/start"), ("round-1", both)):
        (campaign / "summary.json").write_text(json.dumps(summary | {"result": name}))
        assert f" --model {models} " in MINMAX_RANKING.next_commands(config, campaign)[1]
    (campaign / "summary.json").write_text(json.dumps(summary))
    given = RankingCampaign(replace(config, model=str(campaign / "start"), control=False), campaign)
    assert not given.begin()
    stages = given.round(1, (1.0,))
    assert list(stages) == ["01-ranker", "01-editor", "01-attack"]
    assert stages["01-ranker"][1].start == given.config.model
    assert stages["01-ranker"][1].held_out == config.limit, "a limit is one of what trainings attack and measure, too"
    with pytest.raises(CheckpointError):
        MINMAX_RANKING.run(replace(config, model="nothing/here"), campaign.with_name("other"), Silent())


@pytest.mark.ray
def test_rankers_meet_later_policies_before_a_mixture_is_solved(campaign: Path, config: HardenRankingConfig) -> None:
    plan = RankingCampaign(replace(config, meta="nash"), campaign)
    run = RunFolder.load(campaign)
    gains_GTA = plan.payoffs(2, run, Silent())
    assert gains_GTA.shape[1:] == (2, 2)
    # The diagonal and what lies below it are the attacks of the rounds; the first ranker meets the later policy anew.
    assert (campaign / "01-meets-00").is_dir()
    assert len(gains_GTA)
    assert set(np.unique(gains_GTA).tolist()) <= {0.0, 1.0}


@pytest.mark.ray
def test_the_page_says_what_a_campaign_came_to(campaign: Path) -> None:
    report = collect_run(campaign)
    found = report.found[HardenedRankers.name]
    verdict = HardenedRankers().verdict(found)
    assert verdict is not None
    assert "Under attack the right reply stays first in " in verdict.sentence
    known = known_of(RunFolder.load(campaign).summary(), ATTACKS)
    assert known is not None
    assert verdict.details[-1] == known.best_and_idle("after")
    assert " known adversaries by itself: " in verdict.details[-1] or "None of " in verdict.details[-1]
    assert list(verdict.marks) == ["before", "control", "after"]
    assert curves_on(report, HardenedRankers.name) == ["what adversaries reach", "right replies first"]
    page = page_of(report)
    assert TOLD in page
    assert "Before and after" in page
    assert "R@1 under attack: after, less this" in page


@pytest.mark.ray
def test_a_control_that_kept_the_start_is_named(campaign: Path, config: HardenRankingConfig) -> None:
    logs = campaign / "control-ranker" / EVENTS
    logs.write_text(f'{logs.read_text()}{{"time": "2026-01-01T00:00:00+00:00", "kind": "{UNCHANGED}", "epochs": "epoch"}}\n')
    (campaign / SUMMARY).unlink()
    notes = Notes()
    MINMAX_RANKING.run(config, campaign, notes)
    sentence = "No epoch of control-ranker was better than the model that it began with, which is kept."
    assert sentence in notes.said
    assert sentence in (campaign / TABLE_FILE).read_text()
    verdict = HardenedRankers().verdict(collect_run(campaign).found[HardenedRankers.name])
    assert verdict is not None
    assert sentence in verdict.warnings


def test_rounds_are_chosen_on_the_validation_split_and_measured_on_the_test_split(tmp_path: Path) -> None:
    plan = RankingCampaign(replace(CONFIG, rounds=4, hardening=replace(FIT, max_epochs=3)), tmp_path)
    begun, third, last, at_start = plan.round(0, ()), plan.round(3, (1 / 3, 1 / 3, 1 / 3)), plan.last(2), plan.last(0)
    assert list(begun) == ["00-editor", "00-attack"]
    trained, attacked = (
        ["result-editor", "control-ranker", "control-editor"],
        ["start-attack", "result-attack", "control-attack"],
    )
    assert list(last) == [*trained, *attacked]
    assert (third["03-ranker"][1].weights, third["03-ranker"][1].against.count("editor:")) == ((), 3)
    mixed = plan.round(3, (0.25, 0.0, 0.75))["03-ranker"][1]
    assert mixed.against == f"editor:{tmp_path}/00-editor,editor:{tmp_path}/02-editor"
    assert mixed.weights == (0.25, 0.75)
    assert plan.round(3, (0.0, 0.0, 1.0))["03-ranker"][1].against == f"editor:{tmp_path}/02-editor", "the latest alone"
    assert list(at_start) == [*trained[1:], attacked[0], attacked[2]]
    asked = [config for planned in (begun, third, last) for _, config in planned.values() if hasattr(config, "split")]
    assert [config.split for config in asked] == ["val", "val", "test", "test", "test"]

    def by(*names: str) -> str:
        return ",".join(("greedy", "random", *(f"editor:{tmp_path}/{name}-editor" for name in names)))

    assert third["03-attack"][1].method == by("00", "01", "02", "03"), "all that are known by then"
    for name in attacked:
        assert last[name][1].method == by("00", "01", "02", "result", "control"), "all of them meet all policies"
    assert at_start["start-attack"][1].method == by("00", "control")
    (tmp_path / "03-editor").mkdir()
    assert plan.last(2)["start-attack"][1].method == by("00", "01", "02", "03", "result", "control"), "of a later round too"
    # Policies that chose a round do not measure the result.
    fresh = begun["00-editor"], last["result-editor"], last["control-editor"]
    assert [config.seed for _, config in fresh] == [CONFIG.seed] * 3
    assert third["03-editor"][1].seed == plan.round(1, (1.0,))["01-editor"][1].seed != CONFIG.seed
    assert (last["control-ranker"][1].fit.max_epochs, at_start["control-ranker"][1].fit.max_epochs) == (6, 3)
    assert last["result-editor"][1].model == plan.model(2)


def test_what_attacks_leave_counts_contexts_that_were_lost_before_it() -> None:
    def row(key: str, status: str, reason: str = "", scores: tuple[float, ...] = (1.0, 0.0)) -> dict[str, Any]:
        searched = {"model": "smn", "method": "greedy", "status": status, "reason": reason}
        before = [{"model": "smn", "scores": list(scores)}]
        shown = {"item_key": key, "status": "ok", "dialogue": int(key), "context": [key], "labels": [True, False]}
        policy = searched | {"method": "policy", "status": "success" if key == "1" else status}
        return shown | {"before": before, "searches": [searched, policy]}

    gone = row("3", "skipped", REACHED_REASON, (0.0, 1.0))
    rows = [row("1", "failure"), row("2", "success"), gone, row("4", "skipped", "other")]
    first = UnderAttack(rows, ["greedy"])
    assert (first.held().value, first.held().n) == (pytest.approx(1 / 3), 3)
    assert first.first().value == pytest.approx(3 / 4)
    assert UnderAttack(rows, ["greedy", "policy"]).held().value == 0.0
    other = UnderAttack([row("1", "success"), row("2", "success"), row("4", "failure")], ["greedy"])
    assert (first.more_than(other).value, first.more_than(other).n) == (0.5, 2)
    same = first.more_than(first)
    assert same.low < same.value == 0.0 < same.high, "three contexts prove no equality"


def test_presets_train_their_own_start() -> None:
    for preset in MINMAX_RANKING.presets.values():
        assert list(RankingCampaign(preset(), Path("runs/x")).begin()) == [START]
