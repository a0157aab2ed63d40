"""Verbs that run jobs, from the words typed to what is printed and left behind."""

from __future__ import annotations

import io
import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.cli.flags import JobCommand
from parley.engine.core.cli.runs import carry_out
from parley.engine.core.cli.screen import interval, number, show_result
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, count
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import Comparison, Job, Reporter, Result
from parley.engine.negotiation.verbs.agents import NO_JUDGE
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.verbs.made_up import CORPUS, TINY, corpus_vocabulary, rows, save_negotiator

ASKED = MatchConfig(adversary="scripted", target="scripted")
FEW = "selfplay --dialogues 12 --shard-size 6"
MANY = "selfplay --dialogues 40"


def only_object(text: str) -> dict[str, Any]:
    """The one JSON object that standard output holds."""
    (line,) = text.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_json_is_one_object_and_the_same_as_the_summary(parley: Parley) -> None:
    outcome = parley(f"{FEW} --json")
    assert outcome.status == 0
    printed = only_object(outcome.out)
    assert set(printed) == {"metrics", "run"}
    assert printed["run"] == "runs/selfplay"
    assert all(set(parts) == {"value", "low", "high", "n"} for parts in printed["metrics"].values())
    summary = RunFolder.load(Path("runs/selfplay")).summary()
    assert summary is not None
    assert {key: summary[key] for key in printed} == printed
    assert summary["command"] == "parley selfplay --shard-size 6 --dialogues 12"
    assert "positive advantage rate" in outcome.err, "people's table is on standard error"


def test_without_json_standard_output_is_left_alone(parley: Parley) -> None:
    outcome = parley(FEW)
    assert outcome.out == ""
    assert "next:\n  parley report runs/selfplay" in outcome.err


def test_few_dialogues_are_flagged_and_many_are_not(parley: Parley) -> None:
    assert "12 few" in parley(FEW).err
    assert "few" not in parley(f"{MANY} --run runs/many").err


def test_the_same_command_again_prints_the_same_table_at_once(parley: Parley) -> None:
    first, again = parley(f"{FEW} --json"), parley(f"{FEW} --json")
    assert again.status == 0
    assert again.out == first.out
    told, _, table = first.err.partition("\n")
    assert told == NO_JUDGE
    assert again.err == f"runs/selfplay is finished: nothing is left to do\n{table}"


def test_another_command_in_the_same_folder_is_an_error_that_shows_the_difference(parley: Parley) -> None:
    parley(FEW)
    outcome = parley(f"{FEW} --seed 2")
    assert outcome.status == 2
    assert outcome.err.startswith("error: "), "nothing is said of a run that is not made"
    assert "seed: 1 -> 2" in outcome.err


def test_resume_needs_the_folder_alone(parley: Parley) -> None:
    first = parley(f"{FEW} --json --run runs/here")
    before = rows(Path("runs/here"))
    min(Path("runs/here/rows").glob("*.parquet")).unlink()
    outcome = parley("resume runs/here --json")
    assert outcome.status == 0
    assert rows(Path("runs/here")) == before
    assert outcome.out == first.out


def test_resume_of_a_run_of_another_version_is_an_error(parley: Parley) -> None:
    parley(FEW)
    path = Path("runs/selfplay/config.json")
    head = json.loads(path.read_text())
    path.write_text(json.dumps({**head, "config": {**head["config"], "dialogus": 3}}))
    assert "did you mean 'dialogues'" in parley("resume runs/selfplay").err
    path.write_text(json.dumps({**head, "job": "train-ranker"}))
    outcome = parley("resume runs/selfplay")
    assert outcome.status == 2
    assert "train-ranker" in outcome.err


def test_a_report_is_written_where_it_is_said(parley: Parley) -> None:
    parley(FEW)
    outcome = parley("report runs/selfplay --json")
    assert outcome.status == 0
    assert only_object(outcome.out) == {"report": "runs/selfplay/report.html", "run": "runs/selfplay"}
    assert "parley selfplay --shard-size 6 --dialogues 12" in Path("runs/selfplay/report.html").read_text()
    assert parley("report runs/nothing").status == 2
    assert only_object(parley("report runs/selfplay page.html --json").out)["report"] == "page.html"
    assert Path("page.html").read_text() == Path("runs/selfplay/report.html").read_text()
    refused = parley("report runs/selfplay runs/other")
    assert (refused.status, "parley compare runs/selfplay runs/other" in refused.err) == (2, True)


def test_a_picture_that_cannot_be_written_is_an_error(parley: Parley) -> None:
    parley(FEW)
    Path("file").touch()
    Path("folder.png").mkdir()
    wrong = {"cannot be written": ("file/picture.png", "folder.png"), "of that kind cannot be drawn": (".", "picture.jpg")}
    for said, places in wrong.items():
        for place in places:
            outcome = parley(f"report runs/selfplay --picture {place}")
            assert outcome.status == 2
            assert said in outcome.err


def test_an_attack_from_training_to_report(parley: Parley, root: Path) -> None:
    """The README's line of commands with small networks, but for the training by reinforcement."""
    sizes = [word for name, value in vars(TINY).items() for word in ("--set", f"fit.sizes.{name}={value}")]
    few = ["--set", "fit.max_epochs=1", "--set", "fit.batch_size=16"]
    trained = parley("train negotiator --json", "--corpus", CORPUS, "--data-root", str(root), *sizes, *few)
    assert trained.status == 0
    assert only_object(trained.out)["metrics"]["test_ppl"]["value"] > 1
    assert "parley train adversary --target runs/negotiator" in trained.err
    target, speaker = "--target runs/negotiator", "--speaker runs/negotiator"
    attack = parley(f"attack rl {target} {speaker} --dialogues 4 --json --set data_root={root}")
    assert attack.status == 0
    assert only_object(attack.out)["metrics"]["advantage"]["n"] == 4
    words = "hats please"
    sentence = ["--set", f"transfer.sentence={words}", "--set", "transfer.source="]
    transfer = parley(f"attack transfer {target} {speaker} --dialogues 4", *sentence)
    assert transfer.status == 0, transfer.err
    said = [turn["words"] for row in rows(Path("runs/attack-transfer")) for turn in row["turns"]]
    assert words in said
    assert parley("report runs").status == 0
    assert Path("runs/report.html").exists()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_a_campaign_from_its_first_round_to_the_report(parley: Parley, root: Path) -> None:
    for seed, name in enumerate(("rl", "adversary")):
        save_negotiator(Path("runs", name, "checkpoint"), seed=seed, vocabulary=corpus_vocabulary(root))
    few = ["dialogues=6", "dialogues_per_update=6", "max_turns=4"]
    rules = [word for rule in ("attack", "defence") for setting in few for word in ("--set", f"{rule}.{setting}")]
    words = ["minmax population", "--adversary runs/adversary --rounds 1 --budget 6 --dialogues 4 --perplexity-limit 0"]
    asked = " ".join([*words, "--corpus", CORPUS, "--data-root", str(root), *rules, "--json"])
    outcome = parley(asked)
    assert outcome.status == 0, outcome.err
    printed = only_object(outcome.out)
    assert {"exploitability_before", "exploitability", "exploitability_drop"} <= set(printed["metrics"])
    lines = [line.split() for line in outcome.err.splitlines()]
    rounds = [cells for cells in lines if cells and cells[0] in ("round", "0", "1") and "training" not in cells]
    assert [cells[0] for cells in rounds] == 2 * ["round", "0", "1"], "one line as each round ends, and the table of all"
    assert "round 1: training the target" in outcome.err
    assert "runs/minmax/checkpoint" in outcome.err
    attacked = f"parley attack table --data-root {root} --target runs/minmax --published none --corpus {CORPUS}"
    assert f"{attacked} --set reinforce.dialogues=6" in outcome.err, "fresh adversaries learn as long as the campaign's"
    assert "Before and after" in Path("runs/minmax/report.html").read_text()
    again = parley("resume runs/minmax --json")
    assert (again.status, again.out) == (0, outcome.out)
    assert "runs/minmax is finished: nothing is left to do" in again.err


def test_checkpoints_play_scripted_bargainers(parley: Parley, checkpoints: tuple[str, str]) -> None:
    target, adversary = checkpoints
    outcome = parley(f"selfplay --adversary {adversary} --target {target} --dialogues 3 --max-turns 3 --json")
    assert only_object(outcome.out)["metrics"]["fluency_ppl"]["n"] == 3


def test_a_person_may_play_a_match(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n/deal\nnone\n" * 2))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("parley.engine.core.cli.screen.PLAIN_INTERVAL_S", 0.0)
    outcome = parley("selfplay --adversary human --target scripted --dialogues 2 --json")
    assert only_object(outcome.out)["metrics"]["agreement"]["value"] == 0
    assert outcome.err.count("you chose no agreement") == outcome.err.count("points: you 0, partner 0") == 2
    first, second = (outcome.err.index(f"human against scripted: {done}/2 dialogues") for done in (1, 2))
    assert outcome.err.index("points: you") < first < outcome.err.rindex("you: hello") < second, "one dialogue after the other"
    assert [line for line in outcome.err.splitlines() if "/2 dialogues" in line and not line.startswith("human against")] == []
    assert "\x1b[?25l" not in outcome.err, "no line moves where somebody types"


def test_a_person_may_be_attacked_and_leave_and_go_on(
    parley: Parley, checkpoints: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = f"attack rl --speaker {checkpoints[1]} --target human --dialogues 3 --run runs/attacked --json"
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n/deal\nnone\nhello\n/quit\n"))
    left = parley(attack)
    assert (left.status, left.err.count("you chose no agreement")) == (130, 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO("/deal\nnone\n" * 2))
    outcome = parley(attack)
    assert outcome.err.count("you chose no agreement") == 2, "the first dialogue was saved"
    assert only_object(outcome.out)["metrics"]["agreement"]["n"] == 3
    refused = parley(f"{attack} --workers 2 --run runs/elsewhere")
    assert refused.status == 2
    assert "fix:   --workers 0" in refused.err


def test_one_source_of_sentences_is_left_by_emptying_the_other(parley: Parley) -> None:
    attack = "attack transfer --speaker scripted --target scripted --dialogues 4"
    sentence = ("--set", "transfer.sentence=i want the ball .")
    refused = parley(attack, *sentence)
    assert refused.status == 2
    assert "add --set transfer.source= to keep the sentence, or --set transfer.sentence= to keep the source" in refused.err
    assert parley(attack, *sentence, "--set", "transfer.source=", "--run", "runs/one").status == 0
    assert parley("selfplay --target scripted --dialogues 20 --run runs/source").status == 0
    fixed = "attack transfer fixed --speaker scripted --target scripted --dialogues 4 --set transfer.source=runs/source"
    assert "to keep the source" in parley(fixed).err
    emptied = "--set transfer.sentence= --set transfer.min_advantage=0 --run runs/two"
    assert parley(f"{fixed} {emptied}").status == 0


def fake(result: Result) -> Job:
    """A job that speaks, prints and warns, and then has that result."""

    def run(config: Any, path: Path, reporter: Reporter) -> Result:
        sys.stdout.write("a library that prints\n")
        logging.getLogger("parley.made_up").warning("3 of 12 dialogues failed")
        reporter.say("working")
        return result

    job = type(SELFPLAY)()
    job.run = run  # type: ignore[method-assign]
    return job


@pytest.fixture
def result() -> Result:
    return Result(
        run=Path("runs/x"),
        title="a [bold]hostile[/] title",
        metrics={"gain": Estimate(1.25, 1.0, 1.5, 200), "odd": NOTHING},
        legend={"gain": Metric("points gained", "higher: adversary", "")},
    )


def test_answers_of_chat_models_stand_on_the_last_screen_and_in_the_object(
    result: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = {"told": "Chat models gave 4 answers, 3 no reply (3 filtered).", "kinds": {"reply": 1, "filtered": 3}}
    warned = replace(result, warnings=["1 of 2 items failed"], chat_usage=usage, failure="3 of 4 answers are no reply")
    assert carry_out(find("selfplay"), fake(warned), JobCommand(ASKED, Path("runs/x"), True)) == 1
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    order = ["Chat models gave", "warning: 1 of 2", "failed: 3 of 4"]
    told, warning, failed = (next(i for i, line in enumerate(lines) if line.startswith(begin)) for begin in order)
    assert told < warning < failed
    assert lines[warning] == "warning: 1 of 2 items failed"
    printed = only_object(shown.out)
    assert printed["chat_usage"]["kinds"] == {"reply": 1, "filtered": 3}
    assert printed["warnings"] == ["1 of 2 items failed"]


def test_what_a_job_prints_stays_off_standard_output(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    status = carry_out(find("selfplay"), fake(result), JobCommand(ASKED, Path("runs/x"), True))
    shown = capsys.readouterr()
    assert status == 0
    assert only_object(shown.out) == {
        "metrics": {
            "gain": {"value": 1.25, "low": 1.0, "high": 1.5, "n": 200},
            "odd": {"value": None, "low": None, "high": None, "n": 0},
        },
        "run": "runs/x",
    }
    assert "a library that prints" in shown.err
    assert "warning: 3 of 12 dialogues failed\nworking\n" in shown.err
    assert "a [bold]hostile[/] title" in shown.err


def test_a_promise_not_kept_is_exit_status_1(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    broken = replace(result, failure="the adversary gains nothing")
    assert carry_out(find("selfplay"), fake(broken), JobCommand(ASKED, Path("runs/x"), False)) == 1
    assert capsys.readouterr().err.endswith("failed: the adversary gains nothing\n")


def test_a_comparison_stands_side_by_side(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    before, change = Estimate(0.25, 0.0, 0.5, 200), Estimate(1.0, 0.75, 1.25, 200)
    show_result(replace(result, comparison=Comparison("without", "with", {"gain": before}, {"gain": change})))
    heading, row = [line.split() for line in capsys.readouterr().err.splitlines() if line.startswith(("metric", "points"))]
    assert heading == ["metric", "direction", "without", "with", "difference", "n"]
    assert row[4:] == ["0.250", "[0.000,", "0.500]", "1.250", "[1.000,", "1.500]", "1.000", "[0.750,", "1.250]", "200"]


def test_a_table_stands_in_the_place_of_the_metrics(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    table = EstimateTable(
        ("attack", "advantage, live"), (("reactive [red]", "2.50 [2.25, 2.75]"), ("rl", "-")), "How to read it."
    )
    few = {"reactive.gain": Estimate(1.0, 0.5, 1.5, 3)}
    show_result(replace(result, tables={"": table, "By strategy": table}, metrics=few))
    lines = [line.rstrip() for line in capsys.readouterr().err.splitlines() if line]
    first = [
        "a [bold]hostile[/] title",
        "attack            advantage, live",
        "reactive [red]  2.50 [2.25, 2.75]",
        "rl                              -",
        "How to read it.",
    ]
    assert lines == [*first, f"{first[0]}: By strategy", *first[1:]]


def test_numbers_as_tables_show_them() -> None:
    assert [number(value) for value in (0.12345, -3, 1234.56, float("nan"))] == ["0.123", "-3.000", "1,234.6", "none"]
    assert [number(value, counted=True) for value in (1234, 0.5)] == ["1,234", "0.500"]
    assert interval(count(3, 9)) == ""
