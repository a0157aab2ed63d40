"""Hardening of rankers by rounds: a tiny campaign from its start to its page, interrupted on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.jobs.job import Silent
from engine.jobs.retrieval import minmax
from engine.jobs.retrieval.minmax import MINMAX_RANKING, OUTCOME, ROUNDS, HardenRankingConfig, rounds_of
from engine.metrics.retrieval.campaign import CAMPAIGN, FIRST, GAIN, HELD, ROUND_METRICS, UnderSearch
from engine.metrics.retrieval.searched import REACHED_REASON
from engine.report.collect import collect_run
from engine.report.retrieval.hardened import HardenedRankers
from engine.store.run_folder import RunFolder
from envs.candidates.edit_game import EditRules
from envs.candidates.options import CandidateOptions
from envs.core.errors import CheckpointError
from policies.editor_settings import EditorLearning
from policies.matching.settings import MatcherFitConfig, SmnSizes
from policies.stored import read_header
from tests.engine.jobs.made_up import Notes
from tests.engine.report.negotiation.dialogues import page_of

NOUNS = ("disk", "cable", "screen", "mouse", "printer", "battery", "router")
FIT = MatcherFitConfig(learning_rate=0.02, batch_size=16, max_epochs=1, fresh_negatives=True)
CONFIG = HardenRankingConfig(
    rounds=1,
    limit=12,
    budget=20,
    pool_size=10,
    lexicon="built-in",
    candidates=CandidateOptions(size=3),
    game=EditRules(edits=1, num_places=8, num_proposals=3),
    learning=EditorLearning(updates=2, examples_per_update=8),
    smn=SmnSizes(embed=8, turns=2, words=8, gru=6, maps=3, match=5, session=4),
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

    class Interrupted(Notes):
        def say(self, text: str) -> None:
            super().say(text)
            if text.endswith("control-ranker"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MINMAX_RANKING.run(config, path, Interrupted())
    assert RunFolder.load(path).summary() is None
    notes = Notes()
    MINMAX_RANKING.run(config, path, notes)
    assert sum("finished: nothing is left to do" in said for said in notes.said) == 6
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
    metrics = run.metrics()
    assert metrics[GAIN].value == pytest.approx(metrics[HELD].value - metrics[f"{HELD}_before"].value)
    assert metrics[f"{FIRST}_before"].n == 12
    tables = MINMAX_RANKING.tables(run)
    assert tables[OUTCOME].columns == ("ranker", "before", "control", "after")
    assert len(tables[ROUNDS].rows) == 2
    hardened, alone = (read_header(campaign / stage / "checkpoint", "smn") for stage in ("01-ranker", "control-ranker"))
    assert hardened["provenance"]["against"] == [f"editor:{campaign}/00-editor"]
    assert alone["provenance"]["role"] == "control"


@pytest.mark.ray
def test_a_finished_campaign_is_left_alone_and_may_go_on_from_a_ranker(campaign: Path, config: HardenRankingConfig) -> None:
    notes = Notes()
    result = MINMAX_RANKING.run(config, campaign, notes)
    assert len(notes.said) == 1
    assert result.next_commands[1].startswith(f"parley evaluate ranking --model {campaign}/start,{campaign}/01-ranker")
    given = replace(config, model=str(campaign / "start"), control=False)
    stages = MINMAX_RANKING.stages(given, campaign)
    assert list(stages) == ["00-editor", "00-attack", "01-ranker", "01-editor", "result-attack"]
    assert stages["01-ranker"][1].start == given.model
    with pytest.raises(CheckpointError):
        MINMAX_RANKING.run(replace(config, model="nothing/here"), campaign.with_name("other"), Silent())


@pytest.mark.ray
def test_the_page_says_what_a_campaign_came_to(campaign: Path) -> None:
    report = collect_run(campaign)
    found = report.found[HardenedRankers.name]
    verdict = HardenedRankers().verdict(found)
    assert verdict is not None
    assert verdict.sentence.startswith("Under the search the right reply stays first in ")
    assert list(verdict.marks) == ["before", "control", "after"]
    assert [curve.title.split(": ")[1] for curve in found[0].curves] == ["what adversaries reach", "right replies first"]
    page = page_of(report)
    assert "Before and after" in page
    assert "R@1 under search: after, less this" in page


def test_what_a_search_leaves_counts_contexts_that_were_lost_before_it() -> None:
    def row(key: str, status: str, reason: str = "", scores: tuple[float, ...] = (1.0, 0.0)) -> dict[str, Any]:
        searched = {"model": "smn", "method": "greedy", "status": status, "reason": reason}
        before = [{"model": "smn", "scores": list(scores)}]
        shown = {"item_key": key, "status": "ok", "dialogue": int(key), "labels": [True, False]}
        return shown | {"before": before, "searches": [searched]}

    lost = row("3", "skipped", REACHED_REASON, (0.0, 1.0))
    first = UnderSearch([row("1", "failure"), row("2", "success"), lost, row("4", "skipped", "other")], "greedy")
    assert (first.held().value, first.held().n) == (pytest.approx(1 / 3), 3)
    assert first.first().value == pytest.approx(3 / 4)
    other = UnderSearch([row("1", "success"), row("2", "success"), row("4", "failure")], "greedy")
    assert (first.more_than(other).value, first.more_than(other).n) == (0.5, 2)


def test_presets_train_their_own_start() -> None:
    for preset in MINMAX_RANKING.presets.values():
        assert next(iter(MINMAX_RANKING.stages(preset(), Path("runs/x")))) == minmax.START
