"""The paper's tables from one command: every step is a run that is kept, and the page is the same however it came about."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.documents import CONFIG, SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import TABLE_FILE, Silent
from parley.engine.core.verbs.repeated import nth_seed
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.engine.negotiation.metrics.attack import ATTACKS
from parley.engine.negotiation.metrics.reproduction import PARTS
from parley.engine.negotiation.verbs import minmax
from parley.engine.negotiation.verbs.reproduction import (
    CAMPAIGN,
    FIGURES,
    REPRODUCE_CHENG2019,
    ReproductionConfig,
    small,
)
from parley.engine.negotiation.verbs.whitebox import TransferSettings
from parley.envs.core.errors import ConfigError
from tests.engine.core.page.pages import tables_on
from tests.engine.core.verbs.made_up import CORPUS, FIT, REINFORCE, Notes, asked_of, phases, rows

run = REPRODUCE_CHENG2019.run
SEARCH = SearchConfig(proposals="random", candidates=4, max_replacements=1, replies=2, screening_replies=1, finalists=2)
RULE = replace(REINFORCE, dialogues=6)
FIRST = ["negotiator", "rl", "adversary", "adversary-rl", "plain-sv", "plain-rl", "table-sv", "table-rl"]
"""The steps before adversarial training."""
STEPS = [
    *FIRST,
    CAMPAIGN,
    "table-turns",
    *(f"{kind}-{part}" for kind in ("plain", "table") for part in ("hardened", "control")),
]


def asked(root: Path, **changes: Any) -> ReproductionConfig:
    """The least of everything: one update of each training, three dialogues a row, one round."""
    settings: dict[str, Any] = {
        "corpus": CORPUS,
        "data_root": root,
        "seeds": 1,
        "dialogues": 3,
        "rounds": 1,
        "phase": 6,
        "perplexity_limit": 0,
        "fit": replace(FIT, max_epochs=1),
        "goal": replace(RULE, reward="points", complementary=False, scenarios="selfplay"),
        "attack": RULE,
        "defence": RULE,
        "search": SEARCH,
        "transfer": TransferSettings(sentence="hats please", turn=1),
    }
    return ReproductionConfig(**settings | changes)


def without_seconds(tables: Mapping[str, EstimateTable]) -> dict[str, list[list[str]]]:
    """The cells of tables but for the seconds, which are no two times the same."""
    return {
        heading: [[cell for name, cell in zip(table.columns, row, strict=True) if name != "seconds"] for row in table.rows]
        for heading, table in tables.items()
    }


def summaries(path: Path) -> dict[str, int]:
    """When each finished step, and each row of a table, was; a table itself is put together anew."""
    steps = [*path.glob(f"*/{SUMMARY}"), *path.glob(f"table-*/*/{SUMMARY}")]
    return {str(file): file.stat().st_mtime_ns for file in steps if not file.parent.name.startswith("table-")}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, root: Path, ray_session: RaySession) -> tuple[Path, str]:
    """A training that was interrupted as adversarial training began, and its page."""
    path = tmp_path_factory.mktemp("reproduction") / "run"

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minmax.MINMAX, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(asked(root), path, Silent())
    assert phases(path) == sorted(FIRST)
    return path, (path / TABLE_FILE).read_text()


@pytest.fixture(scope="module")
def whole(interrupted: tuple[Path, str], root: Path) -> Path:
    """The same, gone on with to its end."""
    path, _ = interrupted
    before = summaries(path)
    run(asked(root), path, Silent())
    after = summaries(path)
    assert {name: after[name] for name in before} == before, "what was finished is kept as it was"
    assert phases(path) == sorted(STEPS)
    return path


def test_the_page_of_an_unfinished_run_has_what_is_finished(interrupted: tuple[Path, str]) -> None:
    _, page = interrupted
    assert "14 runs. 8 of 14 runs are finished." in page
    assert "## Table 2: the RL agent" in page
    assert "Table 6" not in page


def test_one_command_makes_all_tables_beside_what_is_published_in_one_place(whole: Path) -> None:
    page, told = (whole / TABLE_FILE).read_text(), json.loads((whole / FIGURES).read_text())
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    conclusions = ("Published figures", "What the paper concludes", "Whether the agents still speak")
    assert headings == [*conclusions, *(part.heading for part in PARTS.values()), "Adversarial training by rounds"]
    assert "are finished" not in page
    beside = [row for rows in told["tables"].values() for row in rows.values() if row["published"]]
    assert all(set(row["measured"]) >= {"advantage", "par", "score_adversary", "score_target", "agreement"} for row in beside)
    shown = sorted((row["published"]["advantage"], row["published"]["par"]) for row in beside)
    again = ATTACKS["hardened"]["rl"]
    known = [attack for attacks in ATTACKS.values() for attack in attacks.values()]
    # That of table 6 stands beside the adversary of training and beside the best one.
    assert shown == sorted((attack.advantage, attack.par) for attack in [*known, again])
    assert len(told["figures"]) == len(shown)


def gains_of_trained(campaign: Path, target: str) -> dict[str, int]:
    """What the adversaries of a campaign gain from a target in its cross-play, those that were trained."""
    gains: dict[str, int] = {}
    for row in (each for name in ("crossplay-rounds", "crossplay") for each in rows(campaign / name)):
        if row["target"] == target and "adversary" in row["adversary"].rpartition("/")[2]:
            gains[row["adversary"]] = gains.get(row["adversary"], 0) + row["points_adversary"] - row["points_target"]
    return gains


def test_what_is_attacked_after_training_is_the_last_target_and_the_control(whole: Path) -> None:
    campaign, names = whole / CAMPAIGN, ("target", "adversary", "speaker")
    goal = str(whole / "rl")
    for table, target in (("table-hardened", f"{campaign}/01-target"), ("table-control", f"{campaign}/control-target")):
        settings, gains = asked_of(whole / table, *names), gains_of_trained(campaign, target)
        assert (settings["target"], settings["speaker"]) == (target, goal)
        assert len(gains) > 3
        assert gains[settings["adversary"]] == max(gains.values()), "the best of all, whomever it was trained against"
    assert asked_of(campaign, "adversary", "control") == {"adversary": str(whole / "adversary-rl"), "control": True}


def test_a_step_that_is_lost_is_made_again_and_the_page_is_the_same(whole: Path, root: Path, tmp_path: Path) -> None:
    config = asked(root, out=str(tmp_path / "page.md"))
    before = without_seconds(REPRODUCE_CHENG2019.tables(RunFolder.load(whole)))
    shutil.rmtree(whole / "plain-control")
    for left in (whole / "table-turns" / SUMMARY, whole / "table-turns" / "reactive-3" / SUMMARY, whole / SUMMARY):
        left.unlink()
    # Settings of earlier versions have no dry_run.
    head = json.loads((whole / CONFIG).read_text())
    del head["config"]["dry_run"]
    (whole / CONFIG).write_text(json.dumps(head))
    notes = Notes()
    run(config, whole, notes)
    assert "12 of 14 stages are finished" in notes.said
    assert without_seconds(REPRODUCE_CHENG2019.tables(RunFolder.load(whole))) == before
    assert (tmp_path / "page.md").read_text() == (whole / TABLE_FILE).read_text()
    assert json.loads((tmp_path / "page.json").read_text()) == json.loads((whole / FIGURES).read_text())
    assert without_seconds(dict(tables_on(collect_run(whole), "reproduction"))) == before


def test_each_training_has_seeds_of_its_own_and_all_the_same_scenarios(tmp_path: Path, root: Path) -> None:
    stages = REPRODUCE_CHENG2019.stages(asked(root, seeds=2), tmp_path)
    assert len(stages) == 2 * len(STEPS)
    first, second = ({name: stages[f"{name}{end}"][1] for name in (*FIRST, CAMPAIGN)} for end in ("", "-2"))
    assert second["rl"].seed == nth_seed(1, 2) != first["rl"].seed == 1
    assert second["rl"].target == str(tmp_path / "negotiator-2")
    assert {config[name].seed for config in (first, second) for name in FIRST if name.startswith(("plain", "table"))} == {1}


def test_what_cannot_be_written_is_said_before_there_is_a_run(tmp_path: Path, root: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        run(asked(root, out=str(tmp_path / "nowhere" / "page.md")), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"ends in \.md"):
        asked(root, out="page.html")


def test_several_campaigns_in_one_run_offer_no_agent(tmp_path: Path) -> None:
    with (
        RunFolder.open(tmp_path / "run", minmax.MinMaxConfig(seeds=2), job="minmax") as run,
        pytest.raises(ConfigError, match="several"),
    ):
        minmax.last_target(run)


def test_a_dry_run_tells_steps_and_minutes_and_runs_nothing(tmp_path: Path) -> None:
    result = run(replace(small(), workers=2, dry_run=True), tmp_path / "run", Silent())
    table = result.tables["plan"]
    assert [row[:2] for row in table.rows][:2] == [("negotiator", "train negotiator"), ("rl", "train rl")]
    assert {row[0] for row in table.rows} == {*STEPS}
    assert "42 runs, 0 finished" in table.note
    assert "with 2 at a time" in table.note
    # Eight epochs of 64 seconds.
    assert table.rows[0][3:5] == ("3", "8.53")
    assert not (tmp_path / "run").exists()
