"""The recipe of the paper: which agents its stages attack, whose figures its rows have, and what its page shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.page.page import collect_run, load_chapters, render
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import TABLE_FILE, Silent
from parley.engine.core.verbs.recipe_job import REPRODUCE_CHENG2019, RecipeConfig
from parley.engine.negotiation.metrics.attack import ATTACKS
from parley.engine.negotiation.verbs import minmax
from parley.engine.negotiation.verbs.negotiator import TRAIN_NEGOTIATOR, TrainNegotiatorConfig
from parley.envs.core.errors import ConfigError
from tests.engine.core.verbs.made_up import FIT, asked_of, rows

CAMPAIGN = "minmax"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, ray_session: RaySession) -> Path:
    """The least of everything: one epoch of a tiny agent, one update of each training, three dialogues a row, one round."""
    path = tmp_path_factory.mktemp("reproduction") / "run"
    least = "goal=6,attack=6,phase=6,perplexity_limit=0,dialogues=3"
    with pytest.MonkeyPatch.context() as patch:
        tiny = TrainNegotiatorConfig(fit=replace(FIT, max_epochs=1, batch_size=64))
        patch.setitem(TRAIN_NEGOTIATOR.presets, "demo", lambda: tiny)  # type: ignore[arg-type]  # a mutable mapping
        result = REPRODUCE_CHENG2019.run(RecipeConfig(preset="demo", override=least), path, Silent())
    assert not result.failure
    return path


@pytest.mark.slow
def test_one_command_makes_all_tables_beside_the_published_figures(whole: Path) -> None:
    summary = json.loads((whole / SUMMARY).read_text())
    titles = [table["title"] for table in summary["tables"]]
    assert [line.removeprefix("## ") for line in (whole / TABLE_FILE).read_text().splitlines() if line[:3] == "## "] == titles
    assert [title.partition(":")[0] for title in titles[:5]] == ["Table 2", "Table 2", "Table 7", "Table 6", "Control"]
    shown = {table["key"]: {row["label"]: row["published"] for row in table["rows"]} for table in summary["tables"]}
    for name, attacks in {"supervised": ATTACKS["sv"], **{key: ATTACKS[key] for key in ("rl", "turns", "hardened")}}.items():
        # The rates without an attack count wins among deals.
        columns = ("advantage", "par", "par_strict_agreed", "score_adversary", "score_target", "agreement")
        names = [key if key == "par_strict_agreed" else f"forced_{key}" for key in columns]
        known = {tuple(attack[key] for key in names if key in attack) for attack in attacks.values()}
        assert name == "turns" or shown[name]["RL agent, no attack, both choose"].keys() == {"advantage", "par_strict_agreed"}
        # The RL attack of table 6 stands beside the best adversary and beside that of training.
        points = shown[f"points-{name}"]
        assert {(*gains.values(), *points[row].values()) for row, gains in shown[name].items() if gains} == known
    page = render(collect_run(whole), load_chapters())
    assert all(title in page for title in (*titles, "Rounds"))


@pytest.mark.slow
def test_rows_are_figures_of_the_forced_end_where_an_attack_searches(whole: Path) -> None:
    metrics, table = RunFolder.load(whole).metrics(), RunFolder.load(whole / "table-rl").metrics()
    assert metrics["rl.reactive.advantage"] == table["attacks.reactive.forced_advantage"]
    assert metrics["rl.reactive.live"] == table["attacks.reactive.advantage"]
    assert metrics["rl.rl.advantage"] == metrics["rl.rl.live"] == table["attacks.rl.advantage"]
    assert metrics["language.rl.repetition"] == RunFolder.load(whole / "plain-rl").metrics()["repetition_target"]
    less = metrics["rl.rl.advantage"].value - metrics["hardened.rl.advantage"].value
    assert metrics["differences.rl-hardened.advantage"].value == less


@pytest.mark.slow
def test_what_is_attacked_after_training_is_the_last_target_and_the_control(whole: Path) -> None:
    campaign = whole / CAMPAIGN
    for table, target in (("table-hardened", f"{campaign}/01-target"), ("table-control", f"{campaign}/control-target")):
        settings = asked_of(whole / table, "target", "adversary", "speaker")
        assert (settings["target"], settings["speaker"]) == (target, str(whole / "rl"))
        gains: dict[str, int] = {}
        for row in (row for name in ("crossplay-rounds", "crossplay") for row in rows(campaign / name)):
            if row["target"] == target and "adversary" in row["adversary"].rpartition("/")[2]:
                gain = row["points_adversary"] - row["points_target"]
                gains[row["adversary"]] = gains.get(row["adversary"], 0) + gain
        assert len(gains) > 3
        assert gains[settings["adversary"]] == max(gains.values()), "the best of all, whomever it was trained against"
    # The adversary of one round is the one that was given.
    assert asked_of(whole / "known-hardened", "speaker", "target") == {
        "speaker": str(whole / "adversary-rl"),
        "target": f"{campaign}/01-target",
    }
    assert asked_of(campaign, "adversary", "control") == {"adversary": str(whole / "adversary-rl"), "control": True}


def test_each_training_has_a_seed_of_its_own_and_all_the_same_scenarios(tmp_path: Path) -> None:
    stages = REPRODUCE_CHENG2019.stages(RecipeConfig(preset="small", override="seeds=[1,7]"), tmp_path)
    assert len(stages) == 2 * 15
    assert (stages["rl"][1].seed, stages["rl-2"][1].seed) == (1, 7)
    assert stages["rl-2"][1].target == str(tmp_path / "negotiator-2")
    measured = [config.seed for name, (_, config) in stages.items() if name.startswith(("plain", "known", "table"))]
    assert {*measured} == {1}


def test_several_campaigns_in_one_run_offer_no_agent(tmp_path: Path) -> None:
    with (
        RunFolder.open(tmp_path / "run", minmax.MinMaxConfig(seeds=2), job="minmax") as run,
        pytest.raises(ConfigError, match="several"),
    ):
        minmax.MINMAX.offers["last_target"](run)
