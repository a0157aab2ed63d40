"""Commands run in this process, in a folder of their own, as a plain terminal of a fixed width shows them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from parley.engine.core.cli import screen
from parley.engine.core.cli.main import main
from parley.envs.corpora.arrow import CACHE_VARIABLE, DATA_VARIABLE
from tests.engine.core.verbs.made_up import data_root, save_negotiator


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    status: int
    out: str
    err: str


Parley = Callable[..., Outcome]
Typed = Callable[..., None]


@pytest.fixture(scope="package", autouse=True)
def _small_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.getbasetemp() / "cache"))
        for name in (DATA_VARIABLE, "PARLEY_DEBUG", "FORCE_COLOR", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "140")
        # What is recorded has no line that depends on how long anything takes.
        patch.setattr(screen, "FIRST_S", 3600.0)
        yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def parley(capsys: pytest.CaptureFixture[str]) -> Parley:
    """Runs a command given as its words, one string that is split at blanks or several arguments."""

    def run(first: str, *more: str) -> Outcome:
        capsys.readouterr()
        status = main([*first.split(), *more])
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Types lines at the commands that come."""

    def type_lines(*lines: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    return type_lines


@pytest.fixture(scope="package")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the made-up corpus."""
    return data_root(tmp_path_factory.mktemp("data"))


@pytest.fixture
def checkpoints(tmp_path: Path) -> tuple[str, str]:
    """Two random negotiators below `runs`, as relative paths; they speak with scripted bargainers."""
    names = ("runs/target", "runs/adversary")
    for seed, name in enumerate(names):
        save_negotiator(tmp_path / name / "checkpoint", seed=seed)
    return names
