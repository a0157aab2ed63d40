"""The table of attacks: what its rows are, what is trained for them, and that nothing measured is measured again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.trainings import over_trainings
from parley.engine.core.tables.table import EstimateTable, figure
from parley.engine.core.verbs import composite as background_stages
from parley.engine.core.verbs.job import TABLE_FILE, Result, Silent
from parley.engine.negotiation.attacks.settings import ReinforceConfig, SearchConfig
from parley.engine.negotiation.attacks.tactics import PAPER_SENTENCE
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs import whitebox
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.table import ADVERSARY, ATTACK_TABLE, ROWS, TABLE_2, TURNS, TableConfig
from parley.engine.negotiation.verbs.whitebox import TransferSettings
from parley.envs.core.errors import CheckpointError, ConfigError, RunError
from tests.engine.core.page.pages import tables_on
from tests.engine.core.verbs.made_up import CORPUS, REINFORCE, Listening, Notes, rows, save_negotiator

run, stages = ATTACK_TABLE.run, ATTACK_TABLE.stages

SENTENCE = "i want the ball ."
SEARCH = SearchConfig(proposals="random", candidates=4, max_replacements=1, replies=2, screening_replies=1, finalists=2)


def table(target: Path, **changes: Any) -> TableConfig:
    """A table of three dialogues a row, its adversary another random network."""
    settings: dict[str, Any] = {"dialogues": 3, "search": SEARCH, "transfer": TransferSettings(sentence=SENTENCE, turn=1)}
    return TableConfig(target=str(target), **{**settings, **changes})


def figures(result: Result) -> list[tuple[str, ...]]:
    """The cells of a result's table but for the seconds, which are no two times the same."""
    (shown,) = result.tables.values()
    place = shown.columns.index("seconds")
    return [(*row[:place], *row[place + 1 :]) for row in shown.rows]


def on_page(path: Path) -> EstimateTable:
    """The table as the report shows it."""
    ((heading, shown),) = tables_on(collect_run(path), "negotiation")
    assert heading == "All attacks"
    return shown


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Puts a random network in the place of training, and notes whose adversary was wanted."""
    wanted = []

    def train(config: reinforce.TrainReinforceConfig, path: Path, reporter: Any) -> Result:
        wanted.append(config.target)
        save_negotiator(path / "checkpoint", seed=5)
        return Result(path, "", {})

    monkeypatch.setattr(reinforce.TRAIN_ADVERSARY, "run", train)
    return wanted


def test_every_row_is_a_run_and_a_line(tmp_path: Path, target: Path, speaker: Path) -> None:
    config = table(target, adversary=str(speaker), published="sv")
    result = run(config, tmp_path / "table", Silent())
    (shown,) = result.tables.values()
    assert [row[0] for row in shown.rows] == list(TABLE_2.values())
    assert sorted(folder.parent.name for folder in (tmp_path / "table").glob("*/config.json")) == sorted(TABLE_2)
    measured = {tuple(name.split(".")[1:]): estimate for name, estimate in result.metrics.items()}
    columns = {metric for row, metric in measured if row == "transfer"}
    rates = {"par", "par_strict", "par_strict_agreed", "agreement"}
    assert columns == {"advantage", "score_adversary", "score_target", *rates, "fluency", "seconds"}
    forced = {f"forced_{name}" for name in ("advantage", "score_adversary", "score_target", "par", "par_strict", "agreement")}
    assert {metric for row, metric in measured if row == "reactive"} == {*columns, *forced, "unusual_share"}
    for row in TABLE_2:
        summary = RunFolder.load(tmp_path / "table" / row).summary()
        assert summary is not None
        assert measured[row, "advantage"].to_json() == summary["metrics"]["advantage"]
        assert measured[row, "seconds"].value > 0
    scenarios = {str([(row["counts"], row["values_target"]) for row in rows(tmp_path / "table" / name)]) for name in TABLE_2}
    assert len(scenarios) == 1, "every row is played on the same scenarios"
    text = (tmp_path / "table" / TABLE_FILE).read_text()
    assert text.startswith(f"# Attacks on {target}\n\n3 dialogues a row on the same random scenarios, seed 1")
    assert on_page(tmp_path / "table").to_markdown() in text
    assert "parley attack table" in text
    assert all(path.exists() for path in result.files)


def test_the_same_again_measures_nothing(tmp_path: Path, target: Path, speaker: Path) -> None:
    config, notes = table(target, adversary=str(speaker), rows="none,rl"), Notes()
    first = run(config, tmp_path, Silent())
    again = run(config, tmp_path, notes)
    assert again.tables == first.tables
    assert "2 of 2 stages are finished" in notes.said


def test_a_table_that_was_interrupted_goes_on(
    tmp_path: Path, target: Path, speaker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = table(target, adversary=str(speaker), rows="none,rl,reactive")
    whole = run(config, tmp_path / "whole", Silent())

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(whitebox.JOBS["reactive"], "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "half", Silent())
    assert "RL attack" in (tmp_path / "half" / TABLE_FILE).read_text(), "what is measured is shown"
    before = rows(tmp_path / "half" / "rl")
    notes = Notes()
    result = run(config, tmp_path / "half", notes)
    assert "2 of 3 stages are finished" in notes.said
    assert figures(result) == figures(whole)
    assert rows(tmp_path / "half" / "rl") == before
    assert rows(tmp_path / "half" / "reactive") == rows(tmp_path / "whole" / "reactive")


def test_rows_may_be_added_and_stay(tmp_path: Path, target: Path, speaker: Path) -> None:
    config = table(target, adversary=str(speaker))
    few = run(dataclasses.replace(config, rows="transfer"), tmp_path, Silent())
    more = run(dataclasses.replace(config, rows="none"), tmp_path, Silent())
    assert [row[0] for row in figures(more)] == ["no attack", "transfer"]
    assert figures(more)[1:] == figures(few)
    with pytest.raises(RunError, match="dialogues: 3 -> 4"):
        run(dataclasses.replace(config, dialogues=4), tmp_path, Silent())


def test_an_adversary_is_trained_first_and_said_so(tmp_path: Path, target: Path, trained: list[str]) -> None:
    notes = Notes()
    config = table(target, rows="none,rl")
    config = dataclasses.replace(config, reinforce=dataclasses.replace(config.reinforce, supervised_weight=0))
    run(config, tmp_path, notes)
    assert notes.said[0] == (
        "no --adversary is named, so one is trained first: 1,000 updates of 64 dialogues, about 24 minutes of one core"
    )
    assert "stage 1 of 3: adversary" in notes.said
    assert ("adversary", 0, "") in notes.stages, "the stage before it is shown no longer while models are being read"
    assert trained == [str(target)]
    assert {row["seed"] for row in rows(tmp_path / "rl")} == {row["seed"] for row in rows(tmp_path / "none")}
    again = Notes()
    run(config, tmp_path, again)
    assert "trained first" not in again.said[0]
    one = dataclasses.replace(config, reinforce=dataclasses.replace(config.reinforce, dialogues=64))
    run(one, tmp_path / "one", notes := Notes())
    assert notes.said[0].endswith("trained first: 1 update of 64 dialogues, about 1 minute of one core")


def test_several_adversaries_make_a_row_of_their_mean(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(config: reinforce.TrainReinforceConfig, path: Path, reporter: Any) -> Result:
        save_negotiator(path / "checkpoint", seed=config.seed % 1000)
        return Result(path, "", {})

    monkeypatch.setattr(reinforce.TRAIN_ADVERSARY, "run", train)
    config = table(target, rows="none,rl,transfer", seeds=3, transfer=TransferSettings())
    config = dataclasses.replace(config, reinforce=dataclasses.replace(config.reinforce, supervised_weight=0))
    names = [f"{name}-{number}" for number in (2, 3) for name in (ADVERSARY, "rl", "transfer")]
    planned = stages(config, tmp_path)
    assert set(planned) == {ADVERSARY, "none", "rl", "transfer", *names}
    once = stages(dataclasses.replace(config, seeds=1), tmp_path)
    assert {name: planned[name] for name in (ADVERSARY, "none", "rl", "transfer")} == once
    assert len({planned[name][1].seed for name in (ADVERSARY, f"{ADVERSARY}-2", f"{ADVERSARY}-3")}) == 3
    assert planned["transfer-3"][1].transfer.source == str(tmp_path / "rl-3")
    result = run(dataclasses.replace(config, rows="none,rl"), tmp_path, Silent())
    runs = [tmp_path / name for name in ("rl", "rl-2", "rl-3")]
    assert len({str([(row["seed"], row["counts"]) for row in rows(run)]) for run in runs}) == 1, "in the same dialogues"
    each = [RunFolder.load(run).metrics()["advantage"] for run in runs]
    assert result.metrics["attacks.rl.advantage"].to_json() == pytest.approx(over_trainings(each).to_json())
    assert column(result, "each training") == ["–", " ".join(figure(one.value) for one in each)]
    assert [row[2] for row in on_page(tmp_path).rows] == column(result, "each training")
    with pytest.raises(ConfigError, match="several seeds train several adversaries, and one is named"):
        dataclasses.replace(config, adversary="runs/adversary")


def test_a_corpus_that_cannot_guard_the_adversary_leaves_no_folder(tmp_path: Path, target: Path, root: Path) -> None:
    config = table(target, rows="none,rl", corpus=CORPUS, data_root=root)
    with pytest.raises(ConfigError, match=r"another vocabulary(.|\n)*--corpus, or a trained adversary with --adversary"):
        run(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_rows_take_the_temperature_and_trainings_the_gpus(tmp_path: Path, target: Path) -> None:
    asked = table(target, rows="none,rl,reactive", temperature=0.1, workers=1, runner_gpus=0.25, learner_gpus=0.5, seeds=2)
    planned = {name: config for name, (_, config) in stages(asked, tmp_path).items()}
    trained = [planned.pop(name) for name in (ADVERSARY, f"{ADVERSARY}-2")]
    assert [(one.runner_gpus, one.learner_gpus) for one in trained] == [(0.25, 0.5)] * 2
    assert {config.temperature for config in planned.values()} == {0.1}
    with pytest.raises(ConfigError, match="runner_gpus"):
        stages(dataclasses.replace(asked, workers=0), tmp_path)


def test_nobody_is_trained_who_is_not_needed(tmp_path: Path, target: Path) -> None:
    for changes in ({"rows": "none,reactive,ra-pa-ta"}, {"adversary": "runs/adversary"}, {"rows": "transfer"}):
        assert ADVERSARY not in stages(table(target, **changes), tmp_path)
    assert ADVERSARY in stages(table(target, rows="rl"), tmp_path)


def test_an_adversary_that_no_row_needs_may_be_missing(tmp_path: Path, target: Path) -> None:
    missing = str(tmp_path / "missing")
    ATTACK_TABLE.prepare(table(target, adversary=missing, rows="none,reactive"), tmp_path / "run", Silent())
    with pytest.raises(CheckpointError, match="missing"):
        ATTACK_TABLE.prepare(table(target, adversary=missing, rows="none,rl"), tmp_path / "run", Silent())


def test_sentences_come_from_the_row_rl_unless_they_are_named(target: Path) -> None:
    path = Path("runs/attack-table")
    planned = stages(TableConfig(target=str(target), rows="transfer,ra-pa-ta"), path)
    assert list(planned) == [ADVERSARY, "rl", "transfer", "ra-pa-ta"]
    settings = {name: config for name, (_, config) in planned.items()}
    assert settings["rl"].speaker == "runs/attack-table/adversary"
    assert settings["transfer"].transfer == TransferSettings(source="runs/attack-table/rl")
    assert settings["ra-pa-ta"].transfer == TransferSettings(sentence=PAPER_SENTENCE)
    named = stages(table(target, rows="transfer,ra-pa-ta"), path)
    assert list(named) == ["transfer", "ra-pa-ta"]
    assert {config.transfer.sentence for _, config in named.values()} == {SENTENCE}


def test_rows_are_their_verbs_presets_with_the_tables_settings(target: Path) -> None:
    config = TableConfig(target=str(target), judge="runs/negotiator", dialogues=9, seed=7, scenarios="embedded", workers=2)
    planned = {name: settings for name, (_, settings) in stages(config, Path("runs/t")).items()}
    assert list(planned) == [ADVERSARY, *TABLE_2]
    rule = planned[ADVERSARY]
    assert (rule.reinforce, rule.seed, rule.corpus) == (reinforce.cheng2019().reinforce, 7, "dealornodeal")
    for name in TABLE_2:
        settings = planned[name]
        assert (settings.target, settings.judge) == (str(target), "runs/negotiator")
        assert (settings.dialogues, settings.seed, settings.scenarios, settings.workers) == (9, 7, "embedded", 2)
    assert planned["none"].adversary == planned["transfer"].speaker == planned["reactive"].speaker == str(target)
    assert planned["none"].complementary, "the rule of the attacks, so that like is compared with like"
    for name, job in whitebox.JOBS.items():
        preset = job.presets["cheng2019"]()
        assert (planned[name].max_turns, planned[name].search) == (preset.max_turns, preset.search)


def test_published_play_without_an_attack_stands_beside_plain_play(tmp_path: Path, target: Path) -> None:
    """The paper's RL agent plays and both sides choose: its agreement is 76.36 %, and that of every attack 100 %."""
    run(table(target, rows="plain,none", published="rl"), tmp_path, Silent())
    shown = on_page(tmp_path)
    plain, none = (dict(zip(shown.columns, row, strict=True)) for row in shown.rows)
    printed = {name: cell for name, cell in plain.items() if name.endswith(", published")}
    assert printed["advantage, forced, published"] == "0.05"
    assert printed["wins, agreed, published"] == "44.7 %", "of all dialogues it would leave 31.66 % at most to its losses"
    assert "PAR, forced, published" not in printed
    assert {none[name] for name in printed} == {"–"}


def test_the_fixed_turns_are_rows_like_the_others(tmp_path: Path, target: Path) -> None:
    preset = ATTACK_TABLE.presets["cheng2019-turns"]()
    assert (preset.row_names(), preset.published) == (list(TURNS), "turns")
    assert (preset.target, preset.judge) == ("runs/rl", "runs/negotiator"), "the paper's table 7 is against the RL model"
    planned = {name: settings for name, (_, settings) in stages(preset, Path("runs/t")).items()}
    assert {name: settings.turn for name, settings in planned.items()} == TURNS, "nobody is trained for them"
    (reactive,) = (settings for _, settings in stages(table(target, rows="reactive"), Path("runs/t")).values())
    (second,) = (settings for _, settings in stages(table(target, rows="reactive-2"), Path("runs/t")).values())
    assert second == reactive, "the released code's turn is the row of table 2"
    config = table(target, rows=",".join(TURNS), published="turns")
    result = run(config, tmp_path, Silent())
    assert column(result, "attack") == [ROWS[name] for name in TURNS]
    assert column(result, "advantage, forced, published") == ["5.52", "4.95", "5.19", "4.84"]
    for name, n in TURNS.items():
        for row in rows(tmp_path / name):
            assert row["first_speaker"] == n % 2
            assert {attempt["turn"] for attempt in row["attempts"]} <= {n}
    assert {name.split(".")[1] for name in result.metrics} == {*TURNS}
    assert set(result.metrics) <= set(result.legend)
    more = run(dataclasses.replace(config, rows="none"), tmp_path, Silent())
    assert column(more, "attack") == [ROWS["none"], *column(result, "attack")]
    shown = [run for run in collect_run(tmp_path).found["negotiation"] if run.shown]
    assert [match.heading for match in shown] == [*column(result, "attack"), ROWS["none"]]


def column(result: Result, name: str) -> list[str]:
    (shown,) = result.tables.values()
    place = shown.columns.index(name)
    return [row[place] for row in shown.rows]


def test_another_table_stands_beside(tmp_path: Path, target: Path, speaker: Path) -> None:
    before, path = tmp_path / "before", tmp_path / "after"
    other = run(table(speaker, adversary=str(speaker), rows="none,reactive"), before, Silent())
    config = table(target, adversary=str(speaker), rows="none,rl,reactive")
    shown = run(dataclasses.replace(config, baseline=str(before)), path, Silent())
    none, reactive = column(other, "advantage, live")
    assert column(shown, "before, live") == [none, "–", reactive]
    assert column(shown, "before, forced") == ["–", "–", column(other, "advantage, forced")[1]]
    whole = on_page(path)
    assert whole.to_markdown() in (path / TABLE_FILE).read_text()
    place = whole.columns.index("before, live")
    assert [row[place] for row in whole.rows] == column(shown, "before, live")
    # What stands beside it is no part of what is measured.
    alone = run(config, path, Silent())
    assert alone.metrics == {name: value for name, value in shown.metrics.items() if "before" not in name}
    (lone,) = alone.tables.values()
    assert "before, live" not in lone.columns
    assert "before, live" not in on_page(path).columns


def test_only_a_finished_table_stands_beside(tmp_path: Path, target: Path, speaker: Path) -> None:
    RunFolder.open(tmp_path / "begun", table(target), job=ATTACK_TABLE.name).close()
    match = MatchConfig(adversary="scripted", target="scripted", dialogues=1)
    SELFPLAY.run(match, tmp_path / "match", Silent())
    for name, message in {
        "begun": "finished table(.|\n)*attack-table, not finished",
        "match": "finished table(.|\n)*a run of selfplay\n",
        "nothing": "no run here",
    }.items():
        with pytest.raises(RunError, match=message):
            run(table(target, adversary=str(speaker), baseline=str(tmp_path / name)), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_the_hardened_target_stands_beside_what_it_was() -> None:
    hardened, before = (ATTACK_TABLE.presets[name]() for name in ("cheng2019-hardened", "cheng2019-rl"))
    assert (hardened.target, hardened.published, hardened.judge) == ("runs/minmax", "hardened", before.judge)
    assert hardened.baseline == "runs/attack-table-rl"
    same = dataclasses.replace(hardened, target=before.target, published=before.published, baseline="")
    assert same == before, "both are attacked alike"


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ConfigError, match=r"'reactiv', did you mean 'reactive'\?(.|\n)*rows: plain,none,rl"):
        table(target, rows="none,reactiv")
    with pytest.raises(ConfigError, match="dialogues"):
        table(target, dialogues=0)
    for option in ("speaker", "adversary", "judge"):
        with pytest.raises(CheckpointError, match=f"--{option} needs a checkpoint"):
            run(table(target, **{option: str(tmp_path / "nothing")}), tmp_path / "run", Silent())
    with pytest.raises(CheckpointError, match="--target needs a checkpoint"):
        run(table(tmp_path / "nothing"), tmp_path / "run", Silent())
    with pytest.raises(CheckpointError, match=r"no weights(.|\n)*--speaker"):
        run(TableConfig(target="scripted"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_the_demonstrations_agents_have_a_preset() -> None:
    config = ATTACK_TABLE.presets["demo"]()
    assert (config.target, config.adversary, config.published) == ("runs/demo/target", "runs/demo/adversary", "none")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_a_trained_adversary_plays_its_row(tmp_path: Path, trainee: Path, root: Path) -> None:
    rule: ReinforceConfig = dataclasses.replace(REINFORCE, dialogues=6)
    config = table(trainee, rows="rl", corpus=CORPUS, data_root=root, reinforce=rule)
    result = run(config, tmp_path, Silent())
    assert [row[0] for row in figures(result)] == ["RL attack"]
    assert (tmp_path / ADVERSARY / "checkpoint").is_dir()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_rows_that_need_no_adversary_are_measured_while_one_is_trained(
    tmp_path: Path, trainee: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A training of a second or two is looked at while it lasts.
    monkeypatch.setattr(background_stages, "LOOK_S", 0.05)
    rule: ReinforceConfig = dataclasses.replace(REINFORCE, dialogues=150)
    config = table(trainee, rows="none,rl,transfer", corpus=CORPUS, data_root=root, reinforce=rule, dialogues=6, seeds=2)
    config = dataclasses.replace(config, transfer=TransferSettings(min_advantage=-10))
    notes = Listening()
    # That rows are those of one process is held by test_table_trained.py.
    run(dataclasses.replace(config, workers=1, trainers=1), tmp_path / "beside", notes)
    times = {
        name: [event["time"] for event in RunFolder.load(tmp_path / "beside" / name).events()]
        for name in ("none", ADVERSARY, "rl", f"{ADVERSARY}-2")
    }
    assert times["none"][-1] < times[f"{ADVERSARY}-2"][-1], "it did not wait for adversaries"
    assert times[ADVERSARY][-1] < times["rl"][0] < times[f"{ADVERSARY}-2"][-1], "this one for its own alone"
    assert any(line.startswith(f"{ADVERSARY} ") and line.endswith("%") for line in notes.said), "how far which one is"
