"""Chat models whose weights are here, by the folder or the file that holds them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from envs.core.errors import CheckpointError, ConfigError
from envs.core.extras import how_to_install
from envs.storage.copies import fetched_file, fetched_model
from envs.storage.places import HUGGING_FACE
from policies.chat.addresses import GGUF
from policies.chat.local import LocalChatModel
from policies.chat.settings import ChatModelSettings
from policies.hugging_face import read_pretrained

EXTRA = "gguf"
"""The optional extra that reads files of llama.cpp and spreads models over GPUs."""
_MAGIC = b"GGUF"


def load_local(name: str, settings: ChatModelSettings) -> LocalChatModel:
    """The chat model of a folder that `save_pretrained` wrote, or of a file of llama.cpp; nothing in it is run.

    Args:
        name: `hf:FOLDER` or `gguf:FILE`; folder and file may be URIs.
        settings: device, precision, batch size.

    Raises:
        ConfigError: a package is missing, the tokenizer has no end, its template no place for the user, or no such device.
        CheckpointError: there is no such model, it wants code of its own to be run, its weights are pickled or not finite, or
            it is none that answers messages.
    """
    options: dict[str, Any] = {"dtype": settings.dtype if settings.dtype == "auto" else getattr(torch, settings.dtype)}
    if settings.device_map:
        _require("accelerate", name)
        options["device_map"] = settings.device_map
    if name.startswith(GGUF):
        file = _gguf_file(name)
        tokenizer, model = read_pretrained(file.parent, _causal, gguf_file=file.name, **options)
    else:
        tokenizer, model = read_pretrained(fetched_model(name.removeprefix(HUGGING_FACE)), _causal, **options)
    if broken := [key for key, value in model.named_parameters() if not value.isfinite().all()]:
        got, fix = f"NaN or infinity in {', '.join(broken[:5])}", "take another model, or another dtype"
        raise CheckpointError("the model's weights are not all finite numbers", where=name, got=got, fix=fix)
    if not settings.device_map:
        model = _moved(model, settings.device, name)
    return LocalChatModel(name, model, tokenizer, settings.batch_size)


def _causal(config: Any) -> str:
    if config.is_encoder_decoder:
        fix = "name a causal model, such as Llama, Qwen or GPT-2"
        raise CheckpointError("a model with an encoder answers no messages", got=f"model_type {config.model_type}", fix=fix)
    return "AutoModelForCausalLM"


def _moved(model: Any, device: str, name: str) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        got, fix = (str(error).splitlines() or [""])[0][:200], "device=cpu, or cuda where there is a GPU with room"
        raise ConfigError("the model cannot be moved to the device", where=f"{name} on {device}", got=got, fix=fix) from None


def _gguf_file(name: str) -> Path:
    file = fetched_file(name.removeprefix(GGUF)).expanduser()
    if not file.is_file():
        raise CheckpointError("there is no such GGUF file", where=file, fix="name a file of weights as llama.cpp reads them")
    with file.open("rb") as opened:
        if (begins := opened.read(len(_MAGIC))) != _MAGIC:
            fix = "name a file that llama.cpp's convert_hf_to_gguf.py wrote, whole"
            raise CheckpointError("this is no GGUF file", where=file, got=f"it begins with {begins!r}", fix=fix)
    _require("gguf", name)
    _require("accelerate", name)
    return file


def _require(package: str, name: str) -> None:
    if find_spec(package) is None:
        fix = how_to_install(EXTRA)
        raise ConfigError(f"this needs the package {package}, which is not installed", where=name, fix=fix)
