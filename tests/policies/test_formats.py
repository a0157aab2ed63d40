"""Models of every kind on disk: what comes back, and folders that hold something else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from parley.envs.core.errors import CheckpointError
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.core.settings import ChoiceSizes
from parley.policies.dynonet.agent import LIAR, new_liar
from parley.policies.dynonet.model import DYNONET
from parley.policies.generation.discriminator.batches import DISCRIMINATOR
from parley.policies.negotiator.speaker import NEGOTIATOR
from parley.policies.paraphraser.model import FORMAT as POINTER_GENERATOR
from parley.policies.ranking.matching.fit import FORMATS
from parley.policies.seq2seq.scoring import LANGUAGE_MODEL, SEQ2SEQ
from parley.policies.vhred.decoding import FORMAT as VHRED
from tests.policies.dynonet.chats import tiny
from tests.policies.generation.discriminator.made_up import network as discriminator
from tests.policies.negotiator.made_up import negotiator
from tests.policies.paraphraser.made_up import network as pointer_generator
from tests.policies.ranking.matching.made_up import KINDS, matcher
from tests.policies.seq2seq.made_up import ATTENTIONS, language_model, seq2seq
from tests.policies.vhred.made_up import vhred

Made = tuple[ModelFormat[Any, Any, Any], Callable[[], nn.Module]]
MODELS: Mapping[str, Made] = {
    "discriminator": (DISCRIMINATOR, discriminator),
    "dynonet": (DYNONET, tiny),
    "language-model": (LANGUAGE_MODEL, language_model),
    "liar": (LIAR, lambda: new_liar(ChoiceSizes(), 1)),
    "negotiator": (NEGOTIATOR, negotiator),
    "pointer-generator": (POINTER_GENERATOR, lambda: pointer_generator(covers=True)),
    "vhred": (VHRED, vhred),
    **{kind: (FORMATS[kind], lambda kind=kind: matcher(kind)) for kind in KINDS},
    **{f"seq2seq-{each}": (SEQ2SEQ, lambda each=each: seq2seq(each)) for each in ATTENTIONS},
}


@pytest.fixture(params=MODELS)
def made(request: pytest.FixtureRequest) -> Made:
    return MODELS[request.param]


def test_a_run_folder_or_its_checkpoint_gives_the_model_back(made: Made, tmp_path: Path) -> None:
    form, model = made[0], made[1]()
    form.save(model, tmp_path / "checkpoint", {"role": "made up"})
    for folder in (tmp_path, tmp_path / "checkpoint"):
        found, wanted = form.load(folder), model.state_dict()
        assert (found.vocabulary, found.sizes, found.training) == (model.vocabulary, model.sizes, False)
        assert found.state_dict().keys() == wanted.keys()
        assert all(torch.equal(value, wanted[name]) for name, value in found.state_dict().items())
        assert form.provenance(folder) == {"role": "made up"}


def test_the_other_kind_of_model_is_named(made: Made, tmp_path: Path) -> None:
    form, other = made[0], SEQ2SEQ if made[0] is LANGUAGE_MODEL else LANGUAGE_MODEL
    form.save(made[1](), tmp_path / "model", {})
    with pytest.raises(CheckpointError, match=rf"another kind(.|\n)*'{form.kind}'(.|\n)*'{other.kind}'"):
        other.load(tmp_path / "model")
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        form.load(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(made: Made, tmp_path: Path, value: float) -> None:
    form, model = made[0], made[1]()
    name, weight = list(model.named_parameters())[-1]
    weight.data.view(-1)[0] = value
    form.save(model, tmp_path, {})
    with pytest.raises(CheckpointError, match=rf"not all finite(.|\n)*NaN or infinity in {name}\n"):
        form.load(tmp_path)


@pytest.mark.parametrize("change", ["another", "none", "unknown"])
def test_weights_that_do_not_fit_the_sizes_are_named(made: Made, tmp_path: Path, change: str) -> None:
    form = made[0]
    form.save(made[1](), tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text())
    name, size = next((name, size) for name, size in config["sizes"].items() if type(size) is int)
    config["sizes"] |= {"another": {name: size + 1}, "none": {name: 0}, "unknown": {f"{name}s": size}}[change]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="do not fit its sizes"):
        form.load(tmp_path)


def test_missing_weights_are_named(made: Made, tmp_path: Path) -> None:
    form, model = made[0], made[1]()
    name = list(model.state_dict())[-1]
    weights = {each: value for each, value in model.state_dict().items() if each != name}
    model.state_dict = lambda: weights  # type: ignore[assignment, method-assign]
    form.save(model, tmp_path, {})
    with pytest.raises(CheckpointError, match=rf"do not fit its sizes(.|\n)*{name}"):
        form.load(tmp_path)
