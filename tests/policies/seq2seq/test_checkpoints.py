"""Models on disk: what comes back, thresholds, and folders that hold something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from envs.core.errors import CheckpointError
from policies.seq2seq.checkpoints import LANGUAGE_MODEL, SEQ2SEQ, load_language_model, load_seq2seq, save_model, threshold
from policies.seq2seq.settings import Attention
from tests.policies.seq2seq.made_up import ATTENTIONS, language_model, seq2seq


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_run_folder_or_its_checkpoint_gives_the_model_back(tmp_path: Path, attention: Attention) -> None:
    model = seq2seq(attention)
    save_model(model, tmp_path / "checkpoint", {})
    for folder in (tmp_path, tmp_path / "checkpoint"):
        found = load_seq2seq(folder)
        assert (found.vocabulary, found.sizes, found.training) == (model.vocabulary, model.sizes, False)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.state_dict().items())


def test_a_model_from_before_contexts_had_turns_reads_one(tmp_path: Path) -> None:
    save_model(seq2seq(), tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text())
    del config["sizes"]["turns"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_seq2seq(tmp_path).sizes.turns == 1


def test_a_language_model_comes_back(tmp_path: Path) -> None:
    model = language_model()
    save_model(model, tmp_path / "any-name", {})
    words = torch.tensor([[1, 5, 6]])
    assert torch.equal(load_language_model(tmp_path / "any-name")(words), model(words))


def test_the_test_loss_sets_the_threshold(tmp_path: Path) -> None:
    save_model(seq2seq(), tmp_path / "model", {"test_nll": 3.93})
    save_model(language_model(), tmp_path / "lm", {"test_nll": 4.12})
    assert (threshold(tmp_path / "model", SEQ2SEQ), threshold(tmp_path / "lm", LANGUAGE_MODEL)) == (-3.93, -4.12)
    save_model(seq2seq(), tmp_path / "model", {})
    with pytest.raises(CheckpointError, match="names no test loss"):
        threshold(tmp_path / "model", SEQ2SEQ)


def test_the_other_kind_of_model_is_named(tmp_path: Path) -> None:
    save_model(seq2seq(), tmp_path / "model", {})
    with pytest.raises(CheckpointError, match=r"another kind(.|\n)*'seq2seq'(.|\n)*'language-model'"):
        load_language_model(tmp_path / "model")
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        load_seq2seq(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(tmp_path: Path, value: float) -> None:
    model = seq2seq()
    model.decoder.weight_hh.data[3, 4] = value
    save_model(model, tmp_path, {})
    with pytest.raises(CheckpointError, match=r"not all finite(.|\n)*NaN or infinity in decoder\.weight_hh\n"):
        load_seq2seq(tmp_path)


@pytest.mark.parametrize("sizes", [{"hidden": 9}, {"hidden": 0}, {"heads": 2}], ids=str)
def test_weights_that_do_not_fit_the_sizes_are_named(tmp_path: Path, sizes: dict[str, int]) -> None:
    save_model(language_model(), tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text())
    config["sizes"] |= sizes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="do not fit its sizes"):
        load_language_model(tmp_path)
