"""Networks on disk: what comes back, and folders that hold something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from envs.core.errors import CheckpointError
from policies.pointer_generator.checkpoints import load_pointer_generator, save_pointer_generator
from tests.policies.pointer_generator.made_up import network


def test_a_run_folder_or_its_checkpoint_gives_the_network_back(tmp_path: Path) -> None:
    model = network(covers=True)
    save_pointer_generator(model, tmp_path / "checkpoint", {})
    for folder in (tmp_path, tmp_path / "checkpoint"):
        found = load_pointer_generator(folder)
        assert (found.vocabulary, found.sizes, found.training) == (model.vocabulary, model.sizes, False)
        assert bool(found.covers), "what attention counts belongs to the network"
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.state_dict().items())


def test_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        load_pointer_generator(tmp_path)
    model = network()
    model.score.weight.data[0, 0] = float("nan")
    save_pointer_generator(model, tmp_path, {})
    with pytest.raises(CheckpointError, match=r"not all finite(.|\n)*score\.weight"):
        load_pointer_generator(tmp_path)


@pytest.mark.parametrize("sizes", [{"hidden": 9}, {"hidden": 0}, {"heads": 2}], ids=str)
def test_weights_that_do_not_fit_the_sizes_are_named(tmp_path: Path, sizes: dict[str, int]) -> None:
    save_pointer_generator(network(), tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text())
    config["sizes"] |= sizes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="do not fit its sizes"):
        load_pointer_generator(tmp_path)
