"""Supervised training as a run: what it leaves, that it goes on exactly, and mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import NEGOTIATOR
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.negotiator import TRAIN_NEGOTIATOR, TrainNegotiatorConfig
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.policies.negotiator.speaker import load_agent
from tests.engine.core.verbs.made_up import (
    CORPUS,
    FIT,
    Notes,
    assert_equal_weights,
    die_before_event,
    interrupt,
    timeless_events,
)

run = TRAIN_NEGOTIATOR.run


def config(root: Path, **changes: object) -> TrainNegotiatorConfig:
    return replace(TrainNegotiatorConfig(corpus=CORPUS, data_root=root, fit=FIT), **changes)  # type: ignore[arg-type]  # settings of any kind, by name


def test_it_leaves_an_agent_and_its_figures(tmp_path: Path, root: Path) -> None:
    notes = Notes()
    result = run(config(root), tmp_path / "run", notes)
    assert list(result.metrics) == list(NEGOTIATOR)
    assert all(estimate.value > 0 for name, estimate in result.metrics.items() if name.endswith("ppl"))
    assert load_agent(tmp_path / "run" / "checkpoint").name == "run"
    epochs = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]
    assert [epoch["number"] for epoch in epochs] == list(range(1, len(epochs) + 1))
    assert notes.stages[0] == ("epoch 1", 5, "batches")
    assert sum("training perplexity" in line for line in notes.said) == len(epochs)
    assert all(path.exists() for path in result.files)


def test_a_limit_trains_on_the_first_dialogues(tmp_path: Path, root: Path) -> None:
    notes = Notes()
    run(config(root, limit=8, fit=replace(FIT, max_epochs=1)), tmp_path / "run", notes)
    assert notes.stages == [("epoch 1", 1, "batches")]


def test_a_finished_training_says_so_and_trains_no_more(tmp_path: Path, root: Path) -> None:
    first = run(config(root), tmp_path / "run", Silent())
    before, notes = (tmp_path / "run" / "events.jsonl").read_bytes(), Notes()
    again = run(config(root), tmp_path / "run", notes)
    assert (again.metrics, again.title, again.files) == (first.metrics, first.title, first.files) or str(again) == str(first)
    assert notes.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]
    assert (tmp_path / "run" / "events.jsonl").read_bytes() == before


def test_a_lost_checkpoint_is_made_again_without_training(tmp_path: Path, root: Path) -> None:
    run(config(root), tmp_path / "run", Silent())
    run(config(root), tmp_path / "other", Silent())
    for part in (tmp_path / "run" / "checkpoint").iterdir():
        part.unlink()
    (tmp_path / "run" / "checkpoint").rmdir()
    notes = Notes()
    run(config(root), tmp_path / "run", notes)
    assert notes.stages == []
    assert_equal_weights(tmp_path / "run", tmp_path / "other")


def test_an_interrupted_training_resumes_to_the_same_weights(tmp_path: Path, root: Path) -> None:
    asked = config(root, fit=replace(FIT, max_epochs=6))
    run(asked, tmp_path / "whole", Silent())
    interrupt(TRAIN_NEGOTIATOR, asked, tmp_path / "stopped", "epoch +4")
    notes = Notes()
    run(asked, tmp_path / "stopped", notes)
    assert notes.said[0].startswith("resumed after epoch ")
    assert_equal_weights(tmp_path / "stopped", tmp_path / "whole")


def test_an_epoch_that_was_saved_and_not_logged_is_logged_once(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = config(root, fit=replace(FIT, max_epochs=3))
    run(asked, tmp_path / "whole", Silent())
    die_before_event(monkeypatch, TRAIN_NEGOTIATOR, asked, tmp_path / "killed", "epoch", 2)
    run(asked, tmp_path / "killed", Silent())
    assert timeless_events(tmp_path / "killed", "epoch") == timeless_events(tmp_path / "whole", "epoch")


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, root: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'embedded'"):
        run(config(root, corpus="embeded"), tmp_path / "run", Silent())
    with pytest.raises(DataError, match="not complete"):
        run(config(tmp_path / "nothing"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match=r"--device(.|\n)*warp"):
        run(config(root, device="warp"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_another_recipe_in_the_same_folder_is_an_error(tmp_path: Path, root: Path) -> None:
    run(config(root), tmp_path / "run", Silent())
    with pytest.raises(RunError, match=r"fit\.learning_rate: 0\.002 -> 0\.1"):
        run(config(root, fit=replace(FIT, learning_rate=0.1)), tmp_path / "run", Silent())


def test_a_damaged_training_state_is_named(tmp_path: Path, root: Path) -> None:
    run(config(root), tmp_path / "run", Silent())
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / "training.safetensors").write_bytes(b"not this")
    with pytest.raises(CheckpointError, match="training state is damaged"):
        run(config(root), tmp_path / "run", Silent())
