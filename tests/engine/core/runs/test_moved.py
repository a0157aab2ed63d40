"""Names in a run that was moved or copied: what was moved along is found where it lies now, everything else stays."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from parley.engine.core.runs.documents import name_now, relocated
from parley.engine.core.runs.run_folder import RunFolder
from parley.envs.core.storage.uris import local_copy


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copy of runs/demo, whose original is gone, seen from the folder that both are in."""
    monkeypatch.chdir(tmp_path)
    for name in ("target", "minmax/01-target", "hf"):
        Path("elsewhere", "copy", name).mkdir(parents=True)
    Path("elsewhere", "copy", "mine.py").touch()
    return Path("elsewhere", "copy", "minmax")


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("runs/demo/target", "elsewhere/copy/target"),
        ("runs/demo/minmax/01-target", "elsewhere/copy/minmax/01-target"),
        ("runs/demo/minmax", "elsewhere/copy/minmax"),
        (
            "runs/demo/target,scripted,runs/demo/minmax/01-target",
            "elsewhere/copy/target,scripted,elsewhere/copy/minmax/01-target",
        ),
        ("hf:runs/demo/hf", "hf:elsewhere/copy/hf"),
        ("greedy,editor:runs/demo/hf", "greedy,editor:elsewhere/copy/hf"),
        ("response-only:seq2seq:runs/demo/hf", "response-only:seq2seq:elsewhere/copy/hf"),
        ("runs/demo/mine.py:Mine", "elsewhere/copy/mine.py:Mine"),
        # Not moved along, no neighbour, no path, or outside.
        ("runs/demo/gone", "runs/demo/gone"),
        ("runs/negotiator", "runs/negotiator"),
        ("runs", "runs"),
        ("embedded", "embedded"),
        ("a, b  c", "a, b  c"),
        ("", ""),
        ("openai:http://127.0.0.1:8/v1#m", "openai:http://127.0.0.1:8/v1#m"),
        ("/data/runs/demo/target", "/data/runs/demo/target"),
        ("s3://bucket/runs/demo/target", "s3://bucket/runs/demo/target"),
    ],
)
def test_what_lay_beside_a_run_is_found_beside_it(copied: Path, name: str, now: str) -> None:
    assert relocated(copied, "runs/demo/minmax", name) == now
    assert relocated(copied, "runs/demo/minmax", {"a": [name, 3, None]}) == {"a": [now, 3, None]}


def test_a_run_that_was_named_by_its_whole_path_finds_relative_neighbours_and_whole_ones(copied: Path) -> None:
    for name in ("runs/demo/target", "/disk/me/runs/demo/target"):
        assert relocated(copied, "/disk/me/runs/demo/minmax", name) == "elsewhere/copy/target"
    assert relocated(copied, "/disk/me/runs/demo/minmax", "/srv/runs/demo/target") == "/srv/runs/demo/target"


def test_names_of_a_run_that_lies_where_it_was_stay(copied: Path) -> None:
    Path("runs/demo/minmax").mkdir(parents=True)
    for before in ("runs/demo/minmax", str(Path("runs/demo/minmax").absolute()), ""):
        assert relocated(Path("runs/demo/minmax"), before, "runs/demo/target") == "runs/demo/target"


def test_runs_at_a_uri_are_found_at_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "new" / "target").mkdir(parents=True)
    (tmp_path / "new" / "target" / "file").touch()
    store = f"file://{tmp_path}/new"
    path = local_copy(f"{store}/minmax")
    assert relocated(path, "s3://bucket/runs/minmax", "s3://bucket/runs/target") == f"{store}/target"
    assert relocated(path, "s3://bucket/runs/minmax", "s3://other/runs/target") == "s3://other/runs/target"
    assert relocated(path, "s3://bucket/runs/minmax", "s3://bucket/runs/gone") == "s3://bucket/runs/gone"
    assert relocated(tmp_path / "new" / "minmax", "s3://bucket/runs/minmax", "s3://bucket/runs/target") == str(
        tmp_path / "new" / "target"
    ), "a copy of it on this machine"


@dataclass(frozen=True)
class Settings:
    """Of a run that names another."""

    target: str


def test_a_moved_run_is_gone_on_with_by_its_names_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/demo/target").mkdir(parents=True)
    with RunFolder.open(Path("runs/demo/match"), Settings("runs/demo/target"), job="match") as run:
        assert name_now(run.path, "runs/demo/target") == "runs/demo/target"
    shutil.move("runs/demo", "moved")
    run = RunFolder.load(Path("moved/match"))
    assert run.config == {"target": "moved/target"}
    assert name_now(run.path, "runs/demo/target") == "moved/target"
    with RunFolder.open(Path("moved/match"), Settings("moved/target"), job="match") as again:
        assert again.events()[-1]["kind"] == "resumed"
        assert name_now(again.path, "runs/demo/target") == "moved/target"
