"""What notebooks are given: the public names of the rooms, and the example scripts."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parley
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.verbs.job import Result
from parley.envs.core.errors import ConfigError
from parley.envs.negotiation.domain import domain_of

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
NAMES = dir(parley)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(parley, name)
    if callable(found):
        assert inspect.getdoc(found)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: parley.make_agent(3), "spec has the wrong type"),
        (lambda: parley.make_agent("scripted", nosuch=1), "unexpected keyword argument 'nosuch'"),
        (lambda: parley.run_verb("selfplay", run=5), "run has the wrong type"),
        (lambda: parley.reply_actions([]), "missing a required argument: 'max_words'"),
        (lambda: parley.rate(3.5, 10), "successes has the wrong type"),
        (lambda: parley.negotiation_metrics([{}]), "the rows lack 'status'"),
        (lambda: parley.negotiation_metrics([3]), "each row is a mapping"),
        (lambda: parley.negotiation_metrics(iter([])), "rows has the wrong type"),
        (lambda: parley.RankGoal("nosuch"), "kind is out of range"),
        (lambda: parley.RankGoal(rank=0), "rank is out of range"),
        (lambda: parley.Thresholds(t_out=float("nan")), "t_out has the wrong type"),
        (lambda: parley.Thresholds(t_out=1.0), "t_out is out of range"),
        (lambda: parley.EditBeam(beams=0), "beams is out of range"),
        (lambda: parley.rate(11, 10), "11 successes in 10 trials"),
        (lambda: parley.mean([1.0, float("nan")]), "every number must be finite"),
        (lambda: parley.mean(value for value in (1, 2)), "values has the wrong type"),
        (lambda: parley.mean(["a", "b"]), "could not convert string to float"),
        (lambda: parley.mean([1, [2]]), "values has the wrong type"),
        (lambda: parley.mean([1, 2], [1, None]), "clusters has the wrong type"),
        (lambda: parley.paired_difference([1, 2], [1]), "pairs need equal lengths"),
        (lambda: parley.clustered_rate([2, 0]), "successes are from 0 to the number of trials"),
        (lambda: parley.TriggerObjective(t_out="x"), "t_out has the wrong type"),
        (lambda: parley.TriggerObjective(kind="nosuch"), "kind is out of range"),
        (lambda: parley.ReplyPool([]), "split has the wrong type"),
        (lambda: parley.SlopeGreedy(width=0), "width is out of range"),
        *((lambda name=name: getattr(parley, name)(None), "has the wrong type") for name in NAMES if name.startswith("load_")),
    ],
)
def test_wrong_arguments_of_public_functions_are_errors_that_say_what_to_give(call: Callable[[], Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        call()
    assert caught.value.fix


def test_public_functions_are_sent_to_other_processes_by_their_names() -> None:
    functions = [part for part in map(partial(getattr, parley), NAMES) if inspect.isfunction(part)]
    assert len(functions) > 20
    assert [getattr(sys.modules[function.__module__], function.__qualname__) for function in functions] == functions


def test_checked_functions_are_as_they_were_otherwise() -> None:
    assert str(inspect.signature(parley.rate)) == "(successes: 'int', n: 'int') -> 'Estimate'"
    assert parley.rate(np.int64(1), 2) == parley.rate(1, n=2)
    with pytest.raises(TypeError, match="not iterable"):
        parley.negotiation_metrics([{"status": "ok", "turns": None}])


def test_every_name_is_public_in_one_room() -> None:
    assert len(NAMES) == len(set(NAMES))
    for module in ("parley", "parley.engine.triggers"):
        assert not hasattr(importlib.import_module(module), "nothing")


def test_the_door_is_light() -> None:
    code = "import sys, parley; dir(parley); print(*sorted({'torch', 'ray', 'pyarrow', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_no_folder_hides_a_function_of_its_name() -> None:
    hidden = [name for room in parley._ROOMS for name in NAMES if (ROOT / room.replace(".", "/") / name).is_dir()]
    assert hidden == []


def test_the_door_makes_the_environments_known() -> None:
    for first, second in (("gymnasium", "parley"), ("parley", "gymnasium")):
        made = "print(gymnasium.make('parley/NegotiationText-v1', partner='scripted').reset(seed=1)[0])"
        code = f"import {first}, {second}; {made}"
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        assert "book" in done.stdout


def test_folders_of_ones_own_beside_a_script_do_not_hide_ours(tmp_path: Path) -> None:
    """As in a notebook, whose folder comes first on the path."""
    for name in ("envs", "engine", "policies", "tune", "utils"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"MINE = {name!r}\n")
    lines = (
        "import sys; sys.path.insert(0, '')",
        "import engine, envs, gymnasium, parley, policies, tune, utils",
        "import parley.tune.plan",
        "print(parley.perturb_texts(['can you help me ?'], 'random-swap'))",
        "print(gymnasium.make('parley/NegotiationText-v1', partner='scripted').reset(seed=1)[0])",
        "print(envs.MINE, engine.MINE, policies.MINE, tune.MINE, utils.MINE)",
    )
    (tmp_path / "mine.py").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "envs engine policies tune utils"


def test_an_agent_is_made_of_its_name_alone() -> None:
    rows = parley.play_dialogues(parley.make_agent("scripted-tough"), parley.make_agent("scripted"), dialogues=3)
    assert len(rows) == 3
    with pytest.raises(ConfigError, match="did you mean 'scripted'"):
        parley.make_agent("scriptd")


class Silent:
    """An agent of a notebook's, with a seat and nothing else."""

    def join(self, view: Any) -> Any:
        return self

    def speak(self, rows: Any) -> list[str]:
        return [""] * len(rows)

    def choose(self, rows: Any) -> Any:
        return rows * 0


def test_an_agent_without_name_and_vocabulary_plays() -> None:
    interviewer = parley.make_agent("scripted", domain_of("interview").vocabulary())
    rows = parley.play_dialogues(Silent, interviewer, scenarios="random:interview", dialogues=3)
    assert rows == parley.play_dialogues(Silent(), interviewer, scenarios="random:interview", dialogues=3)
    assert len(rows) == 3
    with pytest.raises(ConfigError, match="no method join"):
        parley.play_dialogues(3, interviewer)


def test_the_examples_are_listed() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    assert [path.name for path in (*EXAMPLES, *NOTEBOOKS) if f"`{path.name}`" not in listed] == []


def carry_out(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a script in this process, in a folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_example_runs_from_an_empty_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cells run one after another in this process."""
    cells = json.loads(path.read_text())["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "cells.py").write_text(code)
    carry_out(tmp_path / "cells.py", tmp_path, monkeypatch)
    assert capsys.readouterr().out.strip()
    assert all(not cell.get("outputs") for cell in cells)


def test_a_result_is_a_table_in_a_notebook() -> None:
    legend = {"advantage": Metric("<b>lead</b>", "higher: adversary", "points")}
    shown = Result(Path("runs/a"), "a match", {"advantage": Estimate(1.5, 1.0, 2.0, 50)}, legend)._repr_html_()
    assert "<td>&lt;b&gt;lead&lt;/b&gt;</td><td>higher: adversary</td><td>1.5 [1, 2] (n=50)</td>" in shown


@pytest.mark.parametrize("path", [path for path in EXAMPLES if "ray.init(" not in path.read_text()], ids=lambda path: path.stem)
def test_an_example_runs_from_an_empty_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(path, tmp_path, monkeypatch)
    assert capsys.readouterr().out.strip()


@pytest.mark.ray
@pytest.mark.parametrize("path", [path for path in EXAMPLES if "ray.init(" in path.read_text()], ids=lambda path: path.stem)
def test_an_example_with_a_ray_of_its_own_runs_from_an_empty_folder(path: Path, tmp_path: Path) -> None:
    """Slow, for each is a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=550
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_environment_is_stepped_through_as_its_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text()
    (stepped,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "gymnasium.make" in block]
    found: dict[str, Any] = {}
    exec(stepped, found)  # our own page
    assert "YOU: i need the books <eos> THEM:" in capsys.readouterr().out
    assert found["terminated"]
