"""Python files that a run, a settings file or a sweep names run only if the user typed them or agrees."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import VARIABLE, Trust, require_trust_in, trusting, typed_files, worker_variables
from tests.engine.core.cli.conftest import Parley

PLAY = "selfplay --dialogues 4 --workers 0 --shard-size 2"
AGENT = """
import os
with open({mark!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
from parley.envs.negotiation.scripted.bargainers import scripted as agent
"""
PLAN = """
with open({mark!r}, "a") as file:
    file.write("plan\\n")
from parley.tune.plan import Plan
from parley.tune.plan import Integer
PLAN = Plan(
    job="selfplay",
    preset="scripted",
    space={{"max_turns": Integer(4, 20)}},
    metrics=("advantage",),
    direction="max",
    fidelity="dialogues",
    budget=8,
)
"""


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that appears when code runs."""
    return tmp_path / "code-ran"


@pytest.fixture
def agent(tmp_path: Path, mark: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(AGENT.format(mark=str(mark)))
    return path


def unfinished(run: Path) -> None:
    """What is left of a run whose last part and summary were not written."""
    max((run / "rows").glob("*.parquet")).unlink()
    (run / "summary.json").unlink()


def played(parley: Parley, agent: str, mark: Path) -> Path:
    """A finished match with an agent of one's own, which was typed."""
    outcome = parley(f"{PLAY} --adversary {agent}:agent --run run")
    assert outcome.status == 0, outcome.err
    assert mark.exists()
    mark.unlink()
    return Path("run")


@pytest.mark.parametrize("absolute", [True, False])
def test_a_finished_run_is_resumed_without_running_code(parley: Parley, agent: Path, mark: Path, absolute: bool) -> None:
    run = played(parley, str(agent) if absolute else agent.name, mark)
    for verb in ("resume", "report", "status"):
        outcome = parley(verb, str(run))
        assert outcome.status == 0, outcome.err
    assert not mark.exists()


def test_an_unfinished_run_asks_before_it_runs_code(parley: Parley, agent: Path, mark: Path) -> None:
    run = played(parley, agent.name, mark)
    unfinished(run)
    before = sorted(path.name for path in run.rglob("*"))
    for command in ("status run", "rows run rows.csv"):
        assert parley(command).err.rstrip().endswith("parley resume run --trust-code"), "the next command works as it is"
    outcome = parley("resume", str(run))
    assert outcome.status == 2
    assert outcome.err.startswith("error: a Python file would be imported that was not typed")
    assert "own.py:agent" in outcome.err
    assert "--trust-code" in outcome.err
    assert not mark.exists()
    assert sorted(path.name for path in run.rglob("*")) == before
    outcome = parley("resume", str(run), "--trust-code")
    assert outcome.status == 0, outcome.err
    assert mark.exists()
    assert len(RunFolder.load(run).read_rows()) == 4


@pytest.mark.parametrize(("said", "status"), [("y\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_on_a_terminal_the_user_is_asked_once(
    parley: Parley, agent: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: int
) -> None:
    run = played(parley, agent.name, mark)
    unfinished(run)
    asked = []
    monkeypatch.setattr("parley.engine.core.cli.screen._on_a_terminal", lambda: True)
    monkeypatch.setattr(sys.stdin, "readline", lambda: asked.append(said) or said, raising=False)
    outcome = parley("resume", str(run))
    assert outcome.status == status
    assert asked == [said]
    assert "own.py:agent was not typed here" in outcome.err
    assert mark.exists() == (status == 0)


@pytest.mark.parametrize("flag", ["", "--trust-code"])
@pytest.mark.parametrize("inside", ["own.py", "rows/own.py", "deep/in/own.py"])
def test_a_file_inside_the_run_never_runs(parley: Parley, agent: Path, mark: Path, inside: str, flag: str) -> None:
    run = played(parley, agent.name, mark)
    unfinished(run)
    evil = run / inside
    evil.parent.mkdir(parents=True, exist_ok=True)
    evil.write_text(agent.read_text())
    head = json.loads((run / "config.json").read_text())
    for spelled in (str(evil), str(evil.absolute()), f"{run}/../{run}/{inside}"):
        head["config"]["adversary"] = f"{spelled}:agent"
        (run / "config.json").write_text(json.dumps(head))
        outcome = parley("resume", str(run), *filter(None, [flag]))
        assert outcome.status == 2
        assert outcome.err.startswith("error: a Python file inside a run folder is not imported")
    Path("links").mkdir()
    Path("links/own.py").symlink_to(evil.absolute())
    head["config"]["adversary"] = "links/own.py:agent"
    (run / "config.json").write_text(json.dumps(head))
    assert parley("resume", str(run), *filter(None, [flag])).status == 2
    assert not mark.exists()


def test_a_settings_file_asks_before_it_runs_code(parley: Parley, agent: Path, mark: Path) -> None:
    Path("own.yaml").write_text(f"adversary: {agent}:agent\n")
    outcome = parley(f"{PLAY} --config own.yaml")
    assert outcome.status == 2
    assert "was not typed on this command line" in outcome.err
    assert not mark.exists()
    assert not Path("runs").exists()
    assert parley(f"{PLAY} --config own.yaml --adversary {agent}:agent").status == 0, "typed as well"
    assert parley(f"{PLAY} --config own.yaml --trust-code --run again").status == 0


def test_settings_of_perturbations_ask_too(parley: Parley, agent: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own.yaml").write_text(f"strategies: [random-swap, '{agent}:agent']\n")
    outcome = parley("evaluate robustness quick --workers 0 --model nobody --config own.yaml")
    assert outcome.status == 2
    assert not mark.exists()


def test_another_name_than_the_typed_one_is_asked_for(parley: Parley, agent: Path, mark: Path) -> None:
    """The end of a typed name is no name that was typed."""
    Path("wn.py").write_text(agent.read_text())
    Path("own.yaml").write_text("target: wn.py:agent\n")
    outcome = parley(f"{PLAY} --adversary own.py:agent --config own.yaml")
    assert outcome.status == 2
    assert "wn.py:agent" in outcome.err


@pytest.mark.ray
@pytest.mark.slow
def test_workers_trust_what_their_driver_trusts(parley: Parley, agent: Path, mark: Path) -> None:
    outcome = parley(f"selfplay --dialogues 4 --workers 1 --shard-size 2 --adversary {agent.name}:agent --run run")
    assert outcome.status == 0, outcome.err
    assert {row["status"] for row in RunFolder.load(Path("run")).read_rows().to_pylist()} == {"ok"}
    assert len(set(mark.read_text().split())) >= 2, "driver and worker"


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_asks_unless_it_is_finished(
    parley: Parley, tmp_path: Path, agent: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.py").write_text(PLAN.format(mark=str(mark)))
    first = parley("sweep --sweep plan.py:PLAN --base= --num-trials 2 --rungs 1 --run swept")
    assert first.status == 0, first.err
    assert mark.exists()
    mark.unlink()
    again = parley("resume swept")
    assert again.status == 0
    table = first.err.partition("sweep of selfplay")[2]
    assert table
    assert again.err.endswith(table)
    assert not mark.exists()
    unfinished(Path("swept"))
    outcome = parley("resume swept")
    assert outcome.status == 2
    assert "plan.py:PLAN" in outcome.err
    assert not mark.exists()
    assert parley("resume swept --trust-code").status == 0
    assert mark.exists()

    head = json.loads(Path("swept/config.json").read_text())
    head["config"]["base"] = f"target={agent}:agent"
    Path("swept/config.json").write_text(json.dumps(head))
    unfinished(Path("swept"))
    mark.unlink()
    answers = ["y\n", "n\n"]
    monkeypatch.setattr("parley.engine.core.cli.screen._on_a_terminal", lambda: True)
    monkeypatch.setattr(sys.stdin, "readline", lambda: answers.pop(0), raising=False)
    outcome = parley("resume swept")
    assert outcome.status == 2
    assert "own.py:agent" in outcome.err.partition("error: ")[2]
    assert not answers
    assert mark.read_text() == "plan\n", "the agent has not run"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--adversary", "a/own.py:agent"],
        ["--adversary=a/own.py:agent"],
        ["--set", "perturb.x=a/own.py:agent"],
        ["--set", 'perturb.x="a/own.py:agent"'],
        ["STRATEGY,a/own.py:agent,other"],
        ["--base", "target=a/own.py:agent dialogues=3"],
        ["--strategies", "none,liar:a/own.py:agent"],
    ],
)
def test_what_is_typed_is_found_in_every_spelling(arguments: list[str]) -> None:
    trust = Trust(typed_files(arguments))
    with trusting(trust):
        require_trust_in(
            {"section": [{"adversary": "a/own.py:agent"}, 3, None, "x,a/../a/own.py:other", "liar:a/own.py:agent"]}
        )
    for other in ("b/own.py:agent", "own.py:agent", "a/own.py.py:agent", "x,liar:b/own.py:agent"):
        with trusting(trust), pytest.raises(ValueError, match="was not typed"):
            require_trust_in({"section": (other,)})


@dataclass(frozen=True)
class Named:
    agent: str


def test_a_run_whose_settings_may_not_be_imported_is_not_begun(tmp_path: Path) -> None:
    """Whatever its workers would import: they cannot ask."""
    with trusting(Trust()), pytest.raises(ConfigError, match="was not typed"):
        RunFolder.open(tmp_path / "run", Named("own.py:agent"), job="attack")
    assert not (tmp_path / "run").exists()
    with trusting(Trust(typed_files(["own.py:agent"]))):
        RunFolder.open(tmp_path / "run", Named("own.py:agent"), job="attack").close()


def test_a_name_with_blanks_is_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my own.py").write_text("")
    with trusting(Trust(typed_files(["--adversary", "my own.py:agent"]))):
        require_trust_in({"adversary": "my own.py:agent"})


def test_a_worker_is_told_what_its_driver_trusts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_variables() == {}
    require_trust_in("own.py:agent")
    with trusting(Trust(typed_files(["own.py:agent"]))):
        told = worker_variables()
    with trusting(Trust(every=True)):
        all_told = worker_variables()
    monkeypatch.setenv(VARIABLE, told[VARIABLE])
    require_trust_in("own.py:agent")
    with pytest.raises(ValueError, match="was not typed"):
        require_trust_in("other.py:agent")
    monkeypatch.setenv(VARIABLE, all_told[VARIABLE])
    require_trust_in("other.py:agent")
