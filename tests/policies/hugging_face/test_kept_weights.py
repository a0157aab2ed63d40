"""Weights that are stored in another precision than they are read in: kept once in the cache, the same numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.envs.core.errors import StorageError
from parley.policies.chat.settings import Precision, WeightSettings
from parley.policies.hugging_face.models import read_model, read_pretrained
from tests.policies.chat.tiny import saved, tiny_chat

CAUSAL = "AutoModelForCausalLM"
UNWRITABLE = '{"do_sample": false, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]}'
"""A `generation_config` that transformers reads, and refuses to write."""


@pytest.fixture(autouse=True)
def cache(own_cache: Path) -> Path:
    return own_cache / "weights"


def half(folder: Path) -> Path:
    saved(folder)
    tiny_chat()[0].bfloat16().save_pretrained(folder)
    return folder


def numbers(model: Any) -> dict[str, Any]:
    return dict(model.state_dict())


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*") if path.is_dir())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "auto"])
def test_what_is_kept_holds_the_numbers_that_reading_gives(tmp_path: Path, cache: Path, dtype: Precision) -> None:
    folder = half(tmp_path / "half")
    asked = dtype if dtype == "auto" else getattr(torch, dtype)
    _, wanted = read_pretrained(folder, lambda config: CAUSAL, dtype=asked)
    (tokenizer, model), _ = (read_model(f"hf:{folder}", WeightSettings(dtype=dtype)) for _ in range(2))
    assert numbers(model).keys() == numbers(wanted).keys()
    for name, values in numbers(wanted).items():
        assert values.dtype == numbers(model)[name].dtype
        assert torch.equal(values, numbers(model)[name])
    assert len(kept(cache)) == (dtype in ("float32", "float16")), "what is stored so is read where it is"
    assert tokenizer.chat_template == tiny_chat()[1].chat_template
    assert model.generation_config.eos_token_id == wanted.generation_config.eos_token_id


def test_what_is_kept_belongs_to_the_weights_that_it_was_made_of(tmp_path: Path, cache: Path) -> None:
    folder = half(tmp_path / "half")
    _, before = read_model(folder)
    model, _ = tiny_chat()
    for values in model.parameters():
        values.data.fill_(0.5)
    model.bfloat16().save_pretrained(folder)
    os.utime(folder / "model.safetensors", ns=(1, 1))
    _, after = read_model(folder)
    assert len(kept(cache)) == 2
    assert all(bool((values == 0.5).all()) for values in after.parameters())
    assert not all(bool((values == 0.5).all()) for values in before.parameters())


def test_a_generation_config_that_transformers_would_not_write_is_kept_as_it_is(tmp_path: Path, cache: Path) -> None:
    folder = half(tmp_path / "half")
    (folder / "generation_config.json").write_text(UNWRITABLE)
    _, model = read_model(folder)
    assert len(kept(cache)) == 1
    assert model.generation_config.eos_token_id == [1, 2]


def test_a_cache_without_room_is_an_error_that_says_what_to_do(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = half(tmp_path / "half")

    def full(self: object, folder: Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    with pytest.raises(StorageError, match=r"No space left(.|\n)*PARLEY_CACHE(.|\n)*dtype auto"):
        read_model(folder)
    assert not kept(cache)
