"""Negotiators on disk: what comes back, and folders that hold something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from envs.core.errors import CheckpointError
from policies.checkpoint import Checkpoint
from policies.negotiator.checkpoints import load_model, provenance, save_model
from policies.negotiator.model import Negotiator
from policies.negotiator.settings import KIND
from policies.negotiator.speaker import load_agent
from tests.envs.negotiation.agents import VOCABULARY
from tests.policies.negotiator.made_up import TINY, negotiator


def stored(model: Negotiator, **sizes: int) -> Checkpoint:
    return Checkpoint(KIND, {**vars(TINY), **sizes}, {}, VOCABULARY, dict(model.state_dict()))


def test_a_run_folder_or_its_checkpoint_gives_the_model_back(tmp_path: Path) -> None:
    model = negotiator(1)
    save_model(model, tmp_path / "checkpoint", {"role": "made up"})
    for folder in (tmp_path, tmp_path / "checkpoint"):
        found = load_model(folder)
        assert (found.vocabulary.digest, found.sizes, found.training) == (VOCABULARY.digest, model.sizes, False)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.state_dict().items())
        assert provenance(folder) == {"role": "made up"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(tmp_path: Path, value: float) -> None:
    model = negotiator(1)
    model.decoder.weight.data[2, 1] = value
    save_model(model, tmp_path / "run" / "checkpoint", {})
    with pytest.raises(CheckpointError, match=r"not all finite(.|\n)*NaN or infinity in decoder\.weight\n"):
        load_agent(tmp_path / "run" / "checkpoint")


@pytest.mark.parametrize("sizes", [{"hidden_language": 7}, {"hidden_langage": 6}, {"embed_word": 0}], ids=str)
def test_weights_that_do_not_fit_their_sizes_are_refused(tmp_path: Path, sizes: dict[str, int]) -> None:
    stored(negotiator(1), **sizes).save(tmp_path / "somewhere")
    with pytest.raises(CheckpointError, match=r"do not fit its sizes(.|\n)*somewhere"):
        load_model(tmp_path / "somewhere")


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    whole = stored(negotiator(1))
    weights = {name: value for name, value in whole.weights.items() if name != "decoder.bias"}
    replace(whole, weights=weights).save(tmp_path / "somewhere")
    with pytest.raises(CheckpointError, match=r"do not fit its sizes(.|\n)*decoder.bias"):
        load_model(tmp_path / "somewhere")
