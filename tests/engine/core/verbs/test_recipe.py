"""Recipes: mistakes with their lines before anything runs, tables, failed stages, and the recipes of the papers."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.core.cli.main import main
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import best_of
from parley.engine.core.stats.statistics import Estimate, Metric, mean
from parley.engine.core.stats.trainings import independent_difference, over_trainings
from parley.engine.core.verbs import recipe_job
from parley.engine.core.verbs.compare import item_difference
from parley.engine.core.verbs.job import Result, Silent
from parley.engine.core.verbs.recipe import RecipePlan, read_recipe
from parley.engine.core.verbs.recipe_job import (
    COMPARE_RECIPE,
    RecipeConfig,
    RecipeFileConfig,
    RecipeJob,
    claim_outcome,
    plan_table,
)
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.envs.core.errors import ConfigError, DataError, ParleyError, RunError
from tests.engine.core.verbs.made_up import ROOT, kill_when, start_parley

PAPERS = ("cheng2019", "he2018", "niu2018", "li2019", "li2017")
RECIPE = """\
title: Who gains more
settings: {dialogues: 20, opponents: [scripted, scripted-tough]}
stages:
  "{who}":
    for: {who: "${opponents}"}
    verb: selfplay
    settings: {adversary: "{who}", target: scripted, dialogues: "${dialogues}"}
    seeds: [1, 2]
    minutes: 3
  again:
    verb: selfplay
    settings: {adversary: scripted, target: scripted, dialogues: "${dialogues}", seed: 7}
tables:
  gains:
    title: Gains
    corner: adversary
    published: {source: nobody}
    columns:
      points: {metric: advantage}
      agreed: {metric: agreement, heading: agreement, form: share}
    rows:
      "{who}": {for: {who: "${opponents}"}, stage: "{who}", published: {points: 1.5}}
      again: {stage: again, columns: [points], control: true}
claims:
  "{who}-agrees":
    for: {who: "${opponents}"}
    table: table 1
    says: "{who} comes to a deal more often than not"
    holds: gains.{who}.agreed.low > 0.5
    fails: gains.{who}.agreed.high < 0.5
    why: nobody knows
presets:
  small: {}
  large: {settings: {dialogues: 40}, stages: {again: null}, tables: {gains: {rows: {again: null}}}}
"""


def write(folder: Path, text: str = RECIPE) -> Path:
    file = folder / "recipe.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def carry_out(file: Path, **settings: object) -> Result:
    config = RecipeFileConfig(recipe=str(file), **settings)  # type: ignore[arg-type]  # by name
    return COMPARE_RECIPE.run(config, file.parent / "run", Silent())


def mistake(folder: Path, old: str, new: str) -> ParleyError:
    """The error of the recipe with one text in the place of another."""
    assert RECIPE.count(old) == 1, old
    file = write(folder, RECIPE.replace(old, new))
    with pytest.raises((ConfigError, DataError)) as caught:
        read_recipe(file)
    assert not (folder / "run").exists()
    return caught.value


def line_of(error: ParleyError) -> int:
    return int(str(error.where).rpartition(":")[2].partition(",")[0])


@pytest.mark.parametrize(
    ("old", "new", "what", "line"),
    [
        ("verb: selfplay\n    settings: {adversary: \"{", "verb: selfpaly\n    settings: {adversary: \"{", "'selfplay'", 6),
        ("    minutes: 3", "    minuets: 3", "unknown key 'minuets', did you mean 'minutes'", 9),
        ("    minutes: 3", "    minutes: soon", "minutes is no number", 9),
        ("    minutes: 3", "    preset: small", "selfplay has no preset 'small'", 9),
        ("seeds: [1, 2]", "seeds: [1, 1]", "seeds are whole numbers", 8),
        ("adversary: scripted, target", "adversray: scripted, target", "unknown key 'adversray', did you mean 'adversary'", 12),
        ("adversary: scripted, target", 'adversary: "${agian.run}", target', "called 'agian', did you mean 'again'", 12),
        ("adversary: scripted, target", 'adversary: "${scripted.path}", target', "a stage has no 'path'", 12),
        ("adversary: scripted, target", 'adversary: "${scripted.last_target}", target', "a stage has no 'last_target'", 12),
        ("adversary: scripted, target", 'adversary: "${again.run}", target', "use each other in a circle", 10),
        ("adversary: scripted, target", 'adversary: "${dialogue}", target', "did you mean 'dialogues'", 12),
        ("seed: 7", "seed: seven", "seed has the wrong type", 12),
        ("{metric: advantage}", "{metric: advantages}", "selfplay measures no 'advantages', did you mean 'advantage'", 22),
        ("{metric: advantage}", '{metric: "{what}"}', "no field 'what'", 22),
        ("form: share", "form: shares", "no form is called 'shares'", 20),
        ('stage: "{who}", published', 'stage: "{whom}", published', "no stage is called '{whom}'", 22),
        ("published: {points: 1.5}", "published: {point: 1.5}", "unknown key 'point', did you mean 'points'", 22),
        ("published: {points: 1.5}", "published: scripted", "the published table has no row 'scripted'", 22),
        ("columns: [points]", "columns: [point]", "columns are unknown", 23),
        ("  again: {stage: again,", "  scripted: {stage: again,", "two rows have one name", 23),
        ("  again:\n", "  scripted-2:\n", "two runs would have one folder", 10),
        ("heading: agreement", "heading: points", "two have one heading", 18),
        ("holds: gains", "hold: gains", "unknown key 'hold', did you mean 'holds'", 29),
        ("says: ", "says: '' #", "has no says", 28),
        ("{who}.agreed.low", "{who}.agree.low", "no metric 'gains.scripted.agree', did you mean 'gains.scripted.agreed'", 29),
        ("agreed.high < 0.5", "agreed.high <", "this is no condition", 30),
        ('"{who}-agrees"', '"agrees"', "two claims have one name", 25),
        ("title: Who gains more\n", "title: Who gains more\ntitle: again\n", "the key 'title' stands twice", 2),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_before_anything_runs(
    tmp_path: Path, old: str, new: str, what: str, line: int
) -> None:
    error = mistake(tmp_path, old, new)
    assert what in error.what
    assert line_of(error) == line
    assert error.fix


def test_mistakes_without_a_line_say_what_to_do(tmp_path: Path) -> None:
    file = write(tmp_path)
    for text, what in (("[1", "not YAML"), ("- a", "a recipe is a mapping"), ("title: x", "no stages")):
        with pytest.raises(ConfigError, match=what):
            read_recipe(write(tmp_path, text))
    with pytest.raises(ConfigError, match="unknown key 'name'") as caught:
        read_recipe(ROOT / "examples" / "attackers.yaml")
    assert str(caught.value.fix).endswith("a policy is not a recipe: parley scan FILE.yaml")
    file = write(tmp_path)
    with pytest.raises(ConfigError, match="no preset 'lrage', did you mean 'large'"):
        read_recipe(file, "lrage")
    for override, what in (("limit=3", "no setting 'limit'"), ("dialogues", "needs a value"), ("dialogues=[1", "not YAML")):
        with pytest.raises(ConfigError, match=what):
            read_recipe(file, override=override)
    with pytest.raises(DataError, match="the recipe cannot be read"):
        read_recipe(tmp_path / "none.yaml")


def test_published_figures_come_from_a_file_beside_the_recipe(tmp_path: Path) -> None:
    table = "table,row,column,value\nours,scripted,points,150\nours,scripted,agreement,.9\n"
    (tmp_path / "figures.csv").write_text(table, encoding="utf-8")
    text = RECIPE.replace("{source: nobody}", "{file: figures.csv, table: ours}").replace(
        "{metric: advantage}", "{metric: advantage, scale: 0.01}"
    )
    text = text.replace("[scripted, scripted-tough]", "[scripted]").replace("published: {points: 1.5}", "published: scripted")
    (row, _) = read_recipe(write(tmp_path, text)).tables[0].rows
    assert row.published == {"points": 1.5}
    with pytest.raises(ConfigError, match="no table 'theirs'"):
        read_recipe(write(tmp_path, text.replace("table: ours", "table: theirs")))
    with pytest.raises(DataError, match="published figures cannot be read") as caught:
        read_recipe(write(tmp_path, text.replace("figures.csv", "none.csv")))
    assert str(caught.value.where).endswith("recipe.yaml:17")
    (tmp_path / "figures.csv").write_text(table.replace("150", "much"), encoding="utf-8")
    with pytest.raises(DataError, match="no published figure") as caught:
        read_recipe(write(tmp_path, text))
    assert str(caught.value.where).endswith("figures.csv:2")


DIFFERENCES = """
  more:
    columns: {points: {heading: difference}}
    rows:
      tough: {difference: [gains.scripted-tough, gains.scripted]}
      "{who}-again": {for: {who: "${opponents}"}, label: less itself, difference: ["gains.{who}", gains.again]}
claims:
"""


def test_a_difference_is_taken_within_each_training(tmp_path: Path) -> None:
    result = carry_out(
        write(tmp_path, RECIPE.replace("claims:\n", DIFFERENCES.lstrip("\n")).replace("dialogues: 20", "dialogues: 5"))
    )
    runs = {
        name: RunFolder.load(tmp_path / "run" / name)
        for name in ("scripted", "scripted-2", "scripted-tough", "scripted-tough-2", "again")
    }
    gains = {
        name: {row["item_key"]: row["points_adversary"] - row["points_target"] for row in run.rows()}
        for name, run in runs.items()
    }

    def by_dialogue(first: str, second: str) -> Estimate:
        return mean([gain - gains[second][key] for key, gain in gains[first].items()])

    pairs = [("scripted-tough", "scripted"), ("scripted-tough-2", "scripted-2")]
    assert all(by_dialogue(*pair).low < by_dialogue(*pair).high for pair in pairs), "an interval of width 0 shows nothing"
    assert result.metrics["more.tough.points"] == over_trainings([by_dialogue(*pair) for pair in pairs])
    # A figure of a stage's own stage is found there; one that was not measured is none.
    whole, alone = (tmp_path / "run", "scripted-tough.advantage"), (tmp_path / "run" / "scripted", "advantage")
    assert item_difference(whole, alone) == by_dialogue("scripted-tough", "scripted")
    assert item_difference(whole, (alone[0], "fluency_ppl_target")) is None
    # A stage without trainings is subtracted from each; it has dialogues of its own, under the same numbers.
    assert gains["scripted"].keys() == gains["again"].keys()
    parts = [[runs[name].metrics()["advantage"] for name in (first, "again")] for first in ("scripted", "scripted-2")]
    assert result.metrics["more.scripted-again.points"] == over_trainings([independent_difference(*part) for part in parts])
    rows = result.tables["more"].rows
    assert [row[0] for row in rows] == ["gains.scripted-tough less gains.scripted", "less itself", "less itself"]
    assert [row[3] for row in rows] == ["0.00", "–", "–"], "1.5 is published of both"


def test_the_interval_of_a_difference_comes_from_both_intervals() -> None:
    less = independent_difference(Estimate(0.9, 0.6, 1.0, 40), Estimate(0.5, 0.4, 0.9, 30))
    assert (less.value, less.n) == (pytest.approx(0.4), 30)
    assert (less.low, less.high) == (pytest.approx(0.4 - math.hypot(0.3, 0.4)), pytest.approx(0.4 + math.hypot(0.1, 0.1)))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("[gains.scripted-tough, gains.scripted]", "gains.scripted", "a difference is of two rows"),
        ("gains.scripted-tough,", "gains.tough,", "no row above is called 'gains.tough'"),
        ("gains.scripted-tough,", "more.tough,", "no row above is called 'more.tough'"),
        ("points: {heading: difference}", "agreed: {heading: difference}", "a row of the difference has no column 'agreed'"),
        ("tough: {diff", "tough: {stage: again, diff", "unknown key 'stage'"),
        ("tough: {difference: [gains.scripted-tough, gains.scripted]}", "tough: {stage: again}", "column points has no metric"),
    ],
)
def test_a_mistake_in_a_difference_is_named(tmp_path: Path, old: str, new: str, what: str) -> None:
    assert DIFFERENCES.count(old) == 1
    text = RECIPE.replace("claims:\n", DIFFERENCES.replace(old, new).lstrip("\n"))
    with pytest.raises(ConfigError, match=re.escape(what)) as caught:
        read_recipe(write(tmp_path, text))
    assert caught.value.fix
    assert str(caught.value.where).partition("recipe.yaml:")[2]


def test_stages_are_repeated_with_the_trainings_that_they_use(tmp_path: Path) -> None:
    recipe = read_recipe(
        write(
            tmp_path,
            """
stages:
  later: {verb: selfplay, settings: {adversary: "${early.run}", target: "${early.name}", dialogues: 5}}
  both: {verb: selfplay, settings: {adversary: "${early.runs}", dialogues: 5}}
  early: {verb: selfplay, settings: {dialogues: 5}, seeds: [3, 4]}
""",
        )
    )
    assert list(recipe.stages) == ["early", "later", "both"]
    stages = recipe.planned(Path("here"), {"data_root": "there"})
    assert list(stages) == ["early", "early-2", "later", "later-2", "both"]
    assert [config.seed for _, config in stages.values()] == [3, 4, 1, 1, 1]
    assert stages["later-2"][1].adversary == "here/early-2"
    assert stages["later-2"][1].target == "early-2"
    assert stages["both"][1].adversary == "here/early,here/early-2"
    needs = recipe.needs()
    assert needs == {
        "early": [],
        "early-2": [],
        "later": ["early"],
        "later-2": ["early-2"],
        "both": ["early", "early-2"],
    }


def test_a_stage_whose_name_has_a_dot_can_be_used(tmp_path: Path) -> None:
    recipe = read_recipe(
        write(
            tmp_path,
            """
stages:
  warm-0.5: {verb: selfplay, settings: {dialogues: 5}}
  later: {verb: selfplay, settings: {adversary: "${warm-0.5.run}", dialogues: 5}}
tables:
  gains: {columns: {points: advantage}, rows: {later: {stage: later}}}
""",
        )
    )
    assert recipe.needs() == {"warm-0.5": [], "later": ["warm-0.5"]}
    assert recipe.planned(Path("here"), {})["later"][1].adversary == "here/warm-0.5"


def test_a_verb_offers_agents_that_have_no_name_before_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def chosen(run: RunFolder) -> str:
        read.append(run.path.name)
        return f"{run.path.name}/chosen"

    monkeypatch.setattr(SELFPLAY, "offers", {"last_target": chosen})
    text = RECIPE.replace("adversary: scripted, target", 'adversary: "${scripted.last_target}", target')
    monkeypatch.chdir(tmp_path)
    SELFPLAY.run(MatchConfig(dialogues=2, adversary="scripted", target="scripted"), Path("run/scripted"), Silent())
    recipe = read_recipe(write(tmp_path, text))
    assert read == [], "a folder of that name is another recipe's"
    assert recipe.needs()["again-2"] == ["scripted-2"]
    assert recipe.planned(tmp_path, {})["again-2"][1].adversary == ""
    (tmp_path / "scripted-2").mkdir()
    job, config = recipe.planned(tmp_path, {})["scripted-2"]
    job.run(replace(config, dialogues=2), tmp_path / "scripted-2", Silent())
    assert recipe.planned(tmp_path, {})["again-2"][1].adversary == "scripted-2/chosen"
    assert recipe.planned(tmp_path, {})["again"][1].adversary == ""
    assert read == ["scripted-2"], "a finished run is read once: that of a campaign has tens of thousands of rows"


FOR_EACH = """
settings: {pairs: [{who: scripted, label: fair}, {who: scripted-tough, label: tough}]}
stages:
  "{label}": {for: "${pairs}", verb: selfplay, settings: {adversary: "{who}", target: scripted, dialogues: 4}}
tables:
  "{label}":
    for: "${pairs}"
    title: "Of {label}"
    columns:
      "{side}": {for: {side: [adversary, target]}, metric: "score_{side}"}
      chats: {metric: calls_adversary, optional: true}
      talk: {metric: words, optional: true}
      advantage: {metric: advantage, optional: true}
    rows:
      own: {stage: "{label}"}
      "{kind}": {for: {kind: [chats, talk]}, columns: ["{kind}"], stage: "{label}", optional: true}
"""


def test_tables_and_columns_are_repeated_by_lists_of_mappings_and_optional_columns_need_no_figure(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, FOR_EACH))
    assert list(recipe.stages) == ["fair", "tough"]
    assert [(table.key, table.title) for table in recipe.tables] == [("fair", "Of fair"), ("tough", "Of tough")]
    result = carry_out(tmp_path / "recipe.yaml")
    assert not result.failure
    for label in ("fair", "tough"):
        table = result.tables[f"Of {label}"]
        assert table.columns == ("", "adversary", "target", "advantage", "n")
        assert [row[0] for row in table.rows] == ["own"], "the verb measures nothing of the others"
        assert "not measured" not in table.note
        points = RunFolder.load(tmp_path / "run" / label).metrics()
        assert result.metrics[f"{label}.own.target"] == points["score_target"]
    with pytest.raises(ConfigError, match="optional is true or false"):
        read_recipe(write(tmp_path, FOR_EACH.replace("optional: true", "optional: often")))
    with pytest.raises(ConfigError, match="measures no 'calls_adversary'"):
        read_recipe(write(tmp_path, FOR_EACH.replace(", optional: true", "")))


MATRIX = """
stages:
  "{attack}+{target}":
    for: {attack: [scripted, scripted-tough], target: [scripted, scripted-tough]}
    verb: selfplay
    settings: {adversary: "{attack}", target: "{target}", dialogues: 20}
tables:
  gains:
    screen: [scripted]
    columns:
      "{target}": {for: {target: [scripted, scripted-tough]}, metric: "{of}", note: "Beside {target}."}
    rows:
      "{attack}":
        for: {attack: [scripted, scripted-tough]}
        fields: {of: advantage}
        stages: {scripted: "{attack}+scripted", scripted-tough: "{attack}+scripted-tough"}
      best: {best: [gains.scripted, gains.scripted-tough], label: the best}
      less: {difference: [gains.scripted-tough, gains.scripted]}
"""


def test_a_row_may_be_of_several_stages_and_the_best_of_rows_is_measured_where_it_was_not_chosen(tmp_path: Path) -> None:
    result = carry_out(write(tmp_path, MATRIX))
    for attack, target in itertools.product(("scripted", "scripted-tough"), repeat=2):
        measured = RunFolder.load(tmp_path / "run" / f"{attack}+{target}").metrics()["advantage"]
        assert result.metrics[f"gains.{attack}.{target}"] == measured
    for target in ("scripted", "scripted-tough"):
        folders = [tmp_path / "run" / f"{attack}+{target}" for attack in ("scripted", "scripted-tough")]
        items = [{row["item_key"]: row for row in RunFolder.load(folder).rows()} for folder in folders]
        gains = [[side[key]["points_adversary"] - side[key]["points_target"] for side in items] for key in sorted(items[0])]
        assert result.metrics[f"gains.best.{target}"] == pytest.approx(best_of(np.array(gains)))
    (tmp_path / "agreed").mkdir()
    agreed = carry_out(write(tmp_path / "agreed", MATRIX.replace("of: advantage", "of: advantage_agreed")))
    assert "gains.best.scripted" not in agreed.metrics, "the rows agree in other dialogues"
    assert agreed.metrics["gains.less.scripted"].n > 0
    run, rows = tmp_path / "run", ("gains.scripted-tough.scripted", "gains.scripted.scripted")
    less = item_difference((run, rows[0]), (run, rows[1]))
    assert less is not None, "items of a stage are found by the name of the recipe's figure"
    assert less.value == pytest.approx(result.metrics[rows[0]].value - result.metrics[rows[1]].value)
    tough = [result.metrics[f"gains.{row}.scripted-tough"].value for row in ("less", "scripted-tough", "scripted")]
    assert tough[0] == pytest.approx(tough[1] - tough[2]), "each column is of its own stages"
    screen, whole = result.tables["gains"], recipe_job.COMPARE_RECIPE.tables(RunFolder.load(tmp_path / "run"))["gains"]
    assert (screen.columns, whole.columns) == (("", "scripted", "n"), ("", "scripted", "scripted-tough", "n"))
    assert ("Beside scripted-tough." in screen.note, "Beside scripted-tough." in whole.note) == (False, True)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('scripted-tough: "{attack}+scripted-tough"', 'tough: "{attack}+scripted-tough"', "columns are unknown"),
        ('scripted-tough: "{attack}+scripted-tough"', 'scripted-tough: "{attack}"', "no stage is called 'scripted'"),
        ("screen: [scripted]", "screen: [tough]", "columns are unknown"),
        ("{best: [gains.scripted, gains.scripted-tough]", "{best: []", "best has no rows"),
        ("{best: [gains.scripted, gains.scripted-tough]", "{best: [gains.tough]", "no row above is called 'gains.tough'"),
        ("of: advantage", "of: advantages", "measures no 'advantages', did you mean 'advantage'"),
    ],
)
def test_a_mistake_in_rows_of_several_stages_is_named(tmp_path: Path, old: str, new: str, what: str) -> None:
    assert MATRIX.count(old) == 1
    with pytest.raises(ConfigError, match=re.escape(what)):
        read_recipe(write(tmp_path, MATRIX.replace(old, new)))


def test_a_stage_that_has_nothing_to_measure_is_no_failure(tmp_path: Path) -> None:
    text = """
stages:
  met: {verb: attack rl, settings: {speaker: scripted, target: scripted, dialogues: 2}}
  again:
    verb: attack transfer
    settings: {speaker: scripted, target: scripted, transfer.source: "${met.run}", transfer.min_advantage: 99}
tables:
  gains: {columns: {points: advantage}, rows: {met: {stage: met}, again: {stage: again}}}
"""
    result = carry_out(write(tmp_path, text))
    assert not result.failure
    assert "again: no dialogue of" in result.tables["gains"].note
    assert [*result.metrics] == ["gains.met.points"]


def test_a_table_of_which_no_run_measures_a_figure_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        recipe_job.RecipeJob, "_measured", lambda *parts: ({}, "", ["again: again has not measured advantage."])
    )
    assert [*carry_out(write(tmp_path)).tables] == ["Claims"]
    summary = RunFolder.load(tmp_path / "run").summary() or {}
    assert "Left out, because its runs measure no figure of it: Gains." in summary["description"]


def test_a_plan_names_stages_runs_and_minutes(tmp_path: Path) -> None:
    file = write(tmp_path)
    result = carry_out(file, dry_run=True, workers=2)
    assert not (tmp_path / "run").exists()
    assert [row[0] for row in result.tables["plan"].rows] == ["scripted", "scripted-tough", "again"]
    assert [row[3] for row in result.tables["plan"].rows] == ["2", "2", "1"]
    assert result.tables["plan"].note == (
        "Plan: 5 runs, 0 finished; 12 minutes of a core, 6 with 2 at a time, and 1 run of unknown time."
    )
    assert len(plan_table(read_recipe(file, "large"), tmp_path / "run", 0).rows) == 2
    with pytest.raises(ConfigError, match="no agent is called 'scripted-tuff', did you mean 'scripted-tough'"):
        carry_out(write(tmp_path, RECIPE.replace("scripted-tough", "scripted-tuff")), dry_run=True)


def test_tables_have_means_over_trainings_beside_published_figures(tmp_path: Path) -> None:
    file = write(tmp_path)
    result = carry_out(file)
    assert not result.failure
    runs = [RunFolder.load(tmp_path / "run" / name).metrics()["advantage"] for name in ("scripted-tough", "scripted-tough-2")]
    assert result.metrics["gains.scripted-tough.points"] == over_trainings(runs, Metric("", "", ""))
    assert result.metrics["gains.again.points"] == RunFolder.load(tmp_path / "run" / "again").metrics()["advantage"]
    assert "gains.again.agreed" not in result.metrics
    assert {*result.metrics} == {*COMPARE_RECIPE.metrics_of(RecipeFileConfig(recipe=str(file)))}
    table, claims = result.tables.values()
    assert table.columns == ("adversary", "points", "each training", "points, published", "agreement", "n")
    assert [row[0] for row in table.rows] == ["scripted", "scripted-tough", "again (control)"]
    assert [row[3] for row in table.rows] == ["1.50", "1.50", "–"]
    inside = sum(
        result.metrics[f"gains.{who}.points"].low <= 1.5 <= result.metrics[f"gains.{who}.points"].high
        for who in ("scripted", "scripted-tough")
    )
    assert f"Of 2 published figures {inside} lie{'s' * (inside == 1)} in the interval measured here." in table.note
    assert table.to_markdown() in (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    agreed = result.metrics["gains.scripted.agreed"]
    assert claims.rows[0][:4] == (
        "table 1",
        "scripted comes to a deal more often than not",
        "reproduced" if agreed.low > 0.5 else "undecided",
        f"gains.scripted.agreed {agreed.value:.3g} [{agreed.low:.3g}, {agreed.high:.3g}]",
    )
    # The same command does nothing again, and the tables of the recipe may change.
    before = (tmp_path / "run" / "again" / SUMMARY).stat().st_mtime_ns
    write(tmp_path, RECIPE.replace("title: Gains", "title: Points"))
    assert [*carry_out(file).tables] == ["Points", "Claims"]
    assert (tmp_path / "run" / "again" / SUMMARY).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("estimate", "outcome"),
    [
        (Estimate(0.6, 0.55, 0.65, 90), "reproduced"),
        (Estimate(0.4, 0.35, 0.45, 90), "not reproduced"),
        (Estimate(0.6, 0.45, 0.75, 9), "undecided"),
        (Estimate(0.6, math.nan, math.nan, 1), "undecided"),
        (None, "not measured"),
    ],
)
def test_a_claim_is_decided_by_the_ends_of_intervals(tmp_path: Path, estimate: Estimate | None, outcome: str) -> None:
    claim = read_recipe(write(tmp_path)).claims[0]
    decided = claim_outcome(claim, {} if estimate is None else {"gains.scripted.agreed": estimate})
    assert decided["outcome"] == outcome
    assert decided["why"] == ("nobody knows" if outcome == "not reproduced" else "")


def test_a_claim_whose_conditions_contradict_each_other_is_called_so(tmp_path: Path) -> None:
    file = write(tmp_path, RECIPE.replace("agreed.high < 0.5", "agreed.low > 0.2"))
    decided = claim_outcome(read_recipe(file).claims[0], {"gains.scripted.agreed": Estimate(0.6, 0.55, 0.65, 90)})
    assert decided["outcome"] == "both conditions are true"


@pytest.mark.ray
def test_workers_change_no_figure(tmp_path: Path) -> None:
    for name in ("alone", "several"):
        (tmp_path / name).mkdir()
    alone, several = carry_out(write(tmp_path / "alone")), carry_out(write(tmp_path / "several"), workers=2)
    assert several.metrics == alone.metrics
    assert several.tables == alone.tables


# That what is finished is not done again is held, without a kill, by the test below.
@pytest.mark.slow
def test_a_killed_recipe_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    file = write(tmp_path / "killed", RECIPE.replace("dialogues: 20,", "dialogues: 300,"))
    run = file.parent / "run"
    process = start_parley("compare", str(file), "--run", str(run), folder=tmp_path)
    kill_when(process, lambda: (run / "scripted-2" / SUMMARY).is_file())
    assert not (run / SUMMARY).exists()
    before = (run / "scripted-2" / SUMMARY).stat().st_mtime_ns
    result = carry_out(file)
    assert (run / "scripted-2" / SUMMARY).stat().st_mtime_ns == before
    assert result.metrics == carry_out(write(tmp_path, file.read_text(encoding="utf-8"))).metrics


def test_a_failed_stage_ends_only_those_that_use_it_and_is_tried_again(tmp_path: Path) -> None:
    broken = """
  broken: {verb: selfplay, settings: {adversary: "AGENT", target: "${again.name}", dialogues: 5}}
  after: {verb: selfplay, settings: {adversary: scripted, target: scripted, judge: "${broken.run}", dialogues: 5}}
tables:"""
    text = RECIPE.replace("\ntables:", broken.replace("AGENT", str(tmp_path / "none"))).replace(
        "scripted, scripted-tough", "scripted"
    )
    text = text.replace("      again: {", "      broken: {stage: broken}\n      after: {stage: after}\n      again: {")
    text = text.replace('target: "${again.name}"', 'target: scripted, judge: "${again.run}"')
    result = carry_out(write(tmp_path, text))
    assert result.failure.startswith("2 stages failed: broken: no agent is called")
    assert result.failure.endswith("after: not run, because it needs a stage that failed (broken)")
    table, claims = result.tables.values()
    assert [row[2] for row in claims.rows] == ["reproduced"]
    assert table.rows[1][0].startswith("broken\nfailed: no agent is called")
    assert table.rows[2][0].startswith("after\nfailed: not run")
    assert all(row[0].count("\n") <= 1 for row in table.rows), "a reason of several lines is one line of a cell"
    assert table.rows[3][1] != "–"
    again = json.loads((tmp_path / "run" / SUMMARY).read_text(encoding="utf-8"))
    assert {*again["failed"]} == {"broken", "after"}
    # The recipe is mended; what is finished stays.
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob(f"*/{SUMMARY}")}
    assert finished
    text = (
        text.replace(str(tmp_path / "none"), "scripted")
        .replace(', judge: "${again.run}"', "")
        .replace(', judge: "${broken.run}"', "")
    )
    mended = carry_out(write(tmp_path, text))
    assert not mended.failure
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert mended.metrics["gains.again.points"] == result.metrics["gains.again.points"]
    assert mended.tables["Gains"].rows[1][0] == "broken"


def test_other_settings_leave_a_finished_recipe_as_it_is(tmp_path: Path) -> None:
    carry_out(write(tmp_path))
    kept = {path: path.read_bytes() for path in (tmp_path / "run").glob("*.*") if path.suffix in (".json", ".md")}
    assert len(kept) > 2
    with pytest.raises(RunError, match="configuration differs") as caught:
        carry_out(write(tmp_path, RECIPE.replace("dialogues: 20", "dialogues: 21")))
    assert "give this run another name" in str(caught.value.fix)
    assert {path: path.read_bytes() for path in kept} == kept


def test_the_command_line_decides_conditions_and_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, run = str(write(tmp_path)), str(tmp_path / "run")
    settings = ["--override", "dialogues=10", "--override", "opponents=[scripted-tough]"]
    where = ["--run", run, "--json", *settings]
    assert main(["compare", file, *where, "--fail-if", "gains.scripted-tough.points.value < -5"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {*document["metrics"]} == {"gains.scripted-tough.points", "gains.scripted-tough.agreed", "gains.again.points"}
    assert main(["compare", file, *where, "--fail-if", "gains.again.points.value > -5"]) == 1
    assert main(["compare", file, *where, "--fail-if", "gains.none.points.value > -5"]) == 2
    assert (tmp_path / "run" / "report.html").is_file()
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Gains" in page
    assert "again (control)" in page
    assert ">published<" in page, "the column with published figures is drawn beside them"


def test_the_example_of_the_documents_is_a_recipe(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(example.splitlines()) == 15
    recipe = read_recipe(write(tmp_path, example))
    assert [len(spec.folders) for spec in recipe.stages.values()] == [3, 3, 3]
    assert [row.published for row in recipe.tables[0].rows] == [{"points": 1.5}] * 2


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("preset", ["small", "paper", "demo"])
def test_the_recipe_of_a_paper_is_whole(paper: str, preset: str) -> None:
    job: RecipeJob = getattr(recipe_job, f"REPRODUCE_{paper.upper()}")
    config = job.presets[preset]()
    assert isinstance(config, RecipeConfig)
    recipe: RecipePlan = job.recipe(config)
    assert recipe.preset == preset
    stages = job.stages(config, Path("run"))
    assert {*stages} == {*recipe.needs()}
    used = {row.stage for table in recipe.tables for row in table.rows}
    used |= {name for spec in recipe.stages.values() for name in spec.uses}
    assert used == {*recipe.stages}, "every stage is used, or measures a row"
    unpublished = {table.key for table in recipe.tables if not any(row.published for row in table.rows)}
    assert unpublished == ({"control", "points-control", "language"} if paper == "cheng2019" else set())
    if preset != "demo":
        # Each published table that the recipe makes is claimed to say something.
        numbers = {number for table in recipe.tables for number in re.findall(r"Table (\d+)", table.title)}
        assert {claim.table.removeprefix("table ") for claim in recipe.claims} == numbers
    if preset == "demo":
        # Nothing is downloaded.
        corpora = {corpus for _, settings in stages.values() if (corpus := getattr(settings, "corpus", ""))}
        assert corpora <= {"embedded", "helpdesk", "friends"}
        assert all(spec.minutes < 2 for spec in recipe.stages.values())


def test_the_preset_paper_has_the_amounts_of_the_paper() -> None:
    def stages(job: RecipeJob) -> dict[str, Any]:
        return {name: config for name, (_, config) in job.stages(job.presets["paper"](), Path("run")).items()}

    # He & Glass 2018, sections 5.1 and 5.3: 10,000 words and dropout on Switchboard alone.
    he2018 = {name: config for name, config in stages(recipe_job.REPRODUCE_HE2018).items() if hasattr(config, "vocabulary")}
    amounts = {name: (config.vocabulary, config.sizes.dropout, config.sizes.hidden) for name, config in he2018.items()}
    assert amounts == {
        f"{corpus}-{kind}": {"ubuntu": (30_000, 0.0, 600), "switchboard": (10_000, 0.3, 600)}[corpus]
        for corpus in ("ubuntu", "switchboard")
        for kind in ("attention", "last-h", "lm")
    }
    # Li et al. 2019, section 4: the same 100,000 examples of a million for every rule.
    li2019 = [config for config in stages(recipe_job.REPRODUCE_LI2019).values() if getattr(config, "against", "")]
    assert {config.adversary_share for config in li2019} == {0.1}
    assert {config.sizes.embed for config in li2019} == {200}


@pytest.mark.slow
def test_the_smallest_recipe_of_a_paper_runs_to_its_tables(tmp_path: Path) -> None:
    job = recipe_job.REPRODUCE_LI2019
    config = RecipeConfig(preset="demo", override="limit=30,rules=[iiw],kinds=[smn]")
    result = job.run(config, tmp_path / "run", Silent())
    assert not result.failure
    assert {name.partition(".")[0] for name in result.metrics} == {"table3", "table4", "table5", "table6"}
    assert {*result.metrics} == {*job.metrics_of(config)}
    assert not any(
        row["notes"] for table in (RunFolder.load(tmp_path / "run").summary() or {})["tables"] for row in table["rows"]
    )


@pytest.mark.parametrize(
    "name", ["chat_minmax", "hardened_negotiator", "hardened_ranker", "mishearing_bots", "perturbed_chat_model"]
)
def test_the_recipes_among_the_examples_are_read(name: str) -> None:
    plan = read_recipe(ROOT / "examples" / f"{name}.yaml")
    assert plan.stages
    assert plan.tables
