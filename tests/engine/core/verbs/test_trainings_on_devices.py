"""Trainings on a device that is no CPU: from the same weights, and with the same figures, as on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parley.engine.core.cli.main import main
from tests.imitated_devices import imitated_devices

TRAININGS = {
    "matcher dam": ("--limit=20", "--set=fit.precision=float32"),
    "matcher mrfn": ("--limit=20", "--set=fit.precision=float32"),
    "matcher smn": ("--limit=20", "--set=fit.precision=float32"),
    "negotiator demo": ("--limit=20",),
    "seq2seq demo": ("--limit=60",),
    "vhred demo": ("--limit=20",),
}


def figures(command: str, folder: Path, device: str) -> dict[str, float]:
    """What an epoch of training came to."""
    chosen = (f"--device={device}", "--set=fit.max_epochs=1", f"--run={folder}")
    assert main(["train", *command.split(), *TRAININGS[command], *chosen]) == 0
    (epoch,) = (event for line in (folder / "events.jsonl").open() if (event := json.loads(line))["kind"] == "epoch")
    return {name: value for name, value in epoch.items() if isinstance(value, float) and name != "seconds"}


@pytest.mark.parametrize("command", TRAININGS)
def test_a_gpu_trains_as_the_cpu_does(command: str, tmp_path: Path) -> None:
    here = figures(command, tmp_path / "here", "cpu")
    with imitated_devices():
        assert figures(command, tmp_path / "there", "cuda:0") == pytest.approx(here, rel=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("command", TRAININGS)
def test_a_real_gpu_trains(command: str, tmp_path: Path) -> None:
    # Dropout is drawn on the device, so that losses are alike, not the same.
    there, here = figures(command, tmp_path / "there", "cuda"), figures(command, tmp_path / "here", "cpu")
    losses = [name for name in here if name.startswith("train_")]
    assert [there[name] for name in losses] == pytest.approx([here[name] for name in losses], rel=0.1)
