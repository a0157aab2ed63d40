"""`parley compare` and `--fail-if` on real runs of small corpora: tables, JSON, exit status, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.cli.main import main
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import paired_difference
from parley.engine.core.verbs.compare import compare_runs
from parley.engine.core.verbs.job import Silent
from tests.engine.core.verbs.items import require_figures_of

Made = Callable[[str], str]
COMMANDS = {
    "fair": "selfplay --adversary scripted --target scripted --dialogues 40",
    "tough": "selfplay --adversary scripted-tough --target scripted --dialogues 40",
    "fewer": "selfplay --adversary scripted-tough --target scripted --dialogues 30",
    "other-seed": "selfplay --adversary scripted --target scripted --dialogues 40 --seed 2",
    "tfidf": "evaluate ranking --limit 12 --model tfidf --no-controls --rules iiw",
    "bm25": "evaluate ranking --limit 12 --model bm25 --no-controls --rules iiw",
    "attack-tfidf": "attack ranking --limit 12 --model tfidf --budget 50 --method greedy",
    "attack-bm25": "attack ranking --limit 12 --model bm25 --budget 50 --method greedy",
    "friends": "evaluate collaboration demo --scenarios 12",
    "hearing": "evaluate collaboration demo --scenarios 12 --set remembers=heard",
    "naive": "evaluate secret --defenders naive --dialogues 20",
    "filter": "evaluate secret --defenders input-filter --dialogues 20",
    "audit": "perturb audit demo --limit 3",
}
"""Runs by name."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("runs")

    def make(name: str) -> str:
        path = folder / name
        if not path.exists():
            assert main([*COMMANDS[name].split(), "--run", str(path)]) == 0
        return str(path)

    return make


def output(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], status: int = 0) -> tuple[dict[str, Any], str]:
    capsys.readouterr()
    assert main(["compare", *arguments, "--json"]) == status
    shown = capsys.readouterr()
    return (json.loads(shown.out) if shown.out else {}), shown.err


def test_selfplay_is_paired_by_dialogue(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = made("fair"), made("tough")
    document, screen = output(capsys, [first, second])
    rows = [RunFolder.load(Path(run)).read_rows().to_pylist() for run in (first, second)]
    before, after = ([row["points_adversary"] - row["points_target"] for row in part] for part in rows)
    (difference,) = document["differences"]["advantage"]
    assert difference["value"] == pytest.approx(paired_difference(after, before).value)
    assert difference["low"] == pytest.approx(paired_difference(after, before).low)
    assert (difference["first"], difference["second"], difference["n"]) == ("A", "B", 40)
    assert 0 < difference["p_alone"] <= difference["p"] <= 1
    assert difference["items_needed"] >= 2
    assert document["metrics"]["advantage"]["A"] == RunFolder.load(Path(first)).metrics()["advantage"].to_json()
    assert document["unit"] == "dialogues"
    assert "B less A" in screen
    assert "dialogues needed" in screen


@pytest.mark.parametrize(
    ("first", "second", "metric"),
    [
        ("tfidf", "bm25", "r@1.model.clean"),
        ("attack-tfidf", "attack-bm25", "success@50.model.greedy"),
        ("friends", "hearing", "completion.model.normal"),
        ("naive", "filter", "score.model"),
    ],
)
def test_other_verbs_are_paired(made: Made, capsys: pytest.CaptureFixture[str], first: str, second: str, metric: str) -> None:
    document, _ = output(capsys, [made(first), made(second)])
    own = metric.replace("model", first.removeprefix("attack-")) if "friends" not in first else metric
    assert document["metrics"][metric]["A"]["value"] == pytest.approx(RunFolder.load(Path(made(first))).metrics()[own].value)
    assert all(entry["missing"] == entry["failed"] == entry["other"] == 0 for entry in document["items"])


@pytest.mark.parametrize("name", ["tough", "tfidf", "attack-tfidf", "friends", "naive"])
def test_figures_of_items_add_up_to_the_metrics(made: Made, name: str) -> None:
    assert len(require_figures_of(Path(made(name)))) > 6


def test_metrics_are_chosen_by_names_and_patterns(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [made("fair"), made("tough")]
    document, _ = output(capsys, [*runs, "--metric", "turns,score_*"])
    assert list(document["metrics"]) == [
        "score_adversary", "score_target", "score_adversary_agreed", "score_target_agreed", "turns"
    ]  # fmt: skip
    everything, _ = output(capsys, [*runs, "--metric", "all"])
    assert {"forced_end", "repetition_target"} <= set(everything["metrics"])
    _, screen = output(capsys, [*runs, "--metric", "advantge"], status=2)
    assert "did you mean 'advantage'" in screen


def test_holm_counts_all_pairs_of_runs_and_metrics(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [made("fair"), made("tough"), made("fewer")]
    document, screen = output(capsys, [*runs, "--metric", "advantage,agreement"])
    assert [(entry["first"], entry["second"]) for entry in document["differences"]["advantage"]] == [
        ("A", "B"),
        ("A", "C"),
        ("B", "C"),
    ]
    assert "by Holm for 6 tests" in screen
    assert [entry["missing"] for entry in document["items"]] == [0, 0, 10]
    assert [entry["common"] for entry in document["items"]] == [30, 30, 30]


def test_a_group_is_several_trainings(made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for number, name in enumerate(("fair", "tough"), start=1):
        shutil.copytree(made(name), tmp_path / f"a-{number}")
    document, screen = output(capsys, [str(tmp_path / "a-*"), made("fewer"), "--metric", "advantage"])
    assert [len(names) for names in document["groups"].values()] == [2, 1]
    assert "intervals over trainings and dialogues" in screen
    assert "a group of one training has no spread" in screen
    alone, _ = output(capsys, [made("tough"), made("fewer"), "--metric", "advantage"])
    wide, narrow = document["metrics"]["advantage"]["A"], alone["metrics"]["advantage"]["A"]
    assert wide["high"] - wide["low"] > narrow["high"] - narrow["low"]


def test_a_copy_of_a_run_is_no_further_training(made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copytree(made("fair"), tmp_path / "copy")
    _, screen = output(capsys, [f"{made('fair')},{tmp_path / 'copy'}", made("tough"), "--metric", "advantage"])
    assert "are equal in every item: one training, which counts twice" in screen
    _, screen = output(capsys, [f"{made('fair')},{made('tough')}", made("fewer"), "--metric", "advantage"])
    assert "counts twice" not in screen


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("advantage.difference.high < 0", 0),
        ("advantage.difference.low > 0 and advantage.value > 1", 1),
        ("advantage.difference.p < 0.05", 1),
        ("distinct_target.difference.low > 0", 2),
        ("score_target.n < 40", 0),
        ("turns.difference.value > 0 or nothing.low < 0", 1),
    ],
)
def test_conditions_decide_the_exit_status(made: Made, capsys: pytest.CaptureFixture[str], condition: str, status: int) -> None:
    document, screen = output(capsys, [made("fair"), made("tough"), "--fail-if", condition], status=status)
    (verdict,) = document["fail_if"]
    assert verdict["holds"] is {0: False, 1: True, 2: None}[status]
    assert condition in screen


def test_conditions_on_a_verb_that_measures(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*COMMANDS["fair"].split(), "--run", made("fair")]
    assert main([*command, "--fail-if", "advantage.low < -10"]) == 0
    assert main([*command, "--fail-if", "advantage.low < -10", "--fail-if", "par.value <= 1"]) == 1
    assert main([*command, "--fail-if", "fluency_ppl.value <= 1"]) == 2
    assert "nothing was measured" in capsys.readouterr().err
    ranking = [*COMMANDS["tfidf"].split(), "--run", made("tfidf")]
    assert main([*ranking, "--fail-if", "r@1.tfid.clean.value <= 1"]) == 2
    assert "did you mean 'r@1.tfidf.clean'" in capsys.readouterr().err
    assert main(["resume", made("fair"), "--json", "--fail-if", "agreement.n == 40"]) == 1
    assert json.loads(capsys.readouterr().out)["fail_if"][0]["holds"] is True


@pytest.mark.parametrize("condition", ["advantage.low <", "advantage < 3", "advantag.low < 3", "advantage.difference.low < 0"])
def test_a_bad_condition_ends_before_any_work(tmp_path: Path, condition: str) -> None:
    assert main(["selfplay", "--dialogues", "5", "--run", str(tmp_path / "run"), "--fail-if", condition]) == 2
    assert not (tmp_path / "run").exists()
    assert main(["compare", "missing", "missing-too", "--fail-if", "advantage.low <"]) == 2


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    document, screen = output(capsys, arguments, status=2)
    assert not document
    assert "fix:" in screen
    return screen


def test_what_cannot_be_compared_is_refused(made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fair = made("fair")
    assert "two runs are needed" in refusal(capsys, fair)
    assert "named twice" in refusal(capsys, fair, fair)
    assert "named twice" in refusal(capsys, fair, f"{made('tough')},{fair}/../fair")
    assert "measure different things" in refusal(capsys, fair, made("tfidf"))
    screen = refusal(capsys, made("audit"), fair)
    assert "cannot be compared item by item" in screen
    assert "evaluate ranking" in screen
    assert "no run matches" in refusal(capsys, fair, f"{tmp_path}/none-*")
    assert "no item in common" in refusal(capsys, fair, made("other-seed"))
    (tmp_path / "empty").mkdir()
    refusal(capsys, fair, str(tmp_path / "empty"))
    damaged = shutil.copytree(made("tough"), tmp_path / "damaged")
    part = next((damaged / "rows").glob("part-*"))
    part.write_bytes(part.read_bytes()[:100])
    assert "damaged" in refusal(capsys, fair, str(damaged))


def test_an_unfinished_run_is_compared_as_far_as_it_is(made: Made, tmp_path: Path) -> None:
    unfinished = shutil.copytree(made("tough"), tmp_path / "unfinished")
    (unfinished / "summary.json").unlink()
    (part, *_), names = sorted((unfinished / "rows").glob("part-*")), []
    part.unlink()
    compared = compare_runs([made("fair"), str(unfinished)], Silent(), names)
    assert [entry.finished for entry in compared.items] == [True, False]
    assert compared.items[1].missing == 40 - compared.items[1].done > 0
    assert any("not finished" in warning for warning in compared.warnings)


def test_a_metric_of_other_items_in_each_run_is_named(made: Made) -> None:
    compared = compare_runs([made("fair"), made("tough")], Silent(), ["*"])
    other = {warning.split(":")[0] for warning in compared.warnings if "not like for like" in warning}
    assert other == {name for name, (first, second) in compared.metrics.items() if first.n != second.n} != set()
