"""Chat models whose weights are here, by the folder or the file that holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from envs.core.errors import CheckpointError, ConfigError
from policies.chat.local import LocalChatModel
from policies.chat.settings import ChatModelSettings
from policies.hugging_face import files_of, read_pretrained, require_package


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
    tokenizer, model = read_placed(name, _causal, settings)
    return LocalChatModel(name, model, tokenizer, settings.batch_size)


def read_placed(name: str, kind: Callable[[Any], str], settings: ChatModelSettings) -> tuple[Any, Any]:
    """The tokenizer and the model of an address, in the precision and where the settings want it.

    Args:
        name: `hf:FOLDER` or `gguf:FILE`.
        kind: as of `read_pretrained`.
        settings: device, device map, precision.

    Raises:
        ConfigError: a package is missing, or there is no such device.
        CheckpointError: there is no such model, or its weights are not finite.
    """
    options: dict[str, Any] = {"dtype": settings.dtype if settings.dtype == "auto" else getattr(torch, settings.dtype)}
    if settings.device_map:
        require_package("accelerate", name)
        options["device_map"] = settings.device_map
    folder, file = files_of(name)
    tokenizer, model = read_pretrained(folder, kind, gguf_file=file, **options)
    if broken := [key for key, value in model.named_parameters() if not value.isfinite().all()]:
        got, fix = f"NaN or infinity in {', '.join(broken[:5])}", "take another model, or another dtype"
        raise CheckpointError("the model's weights are not all finite numbers", where=name, got=got, fix=fix)
    return tokenizer, model if settings.device_map else _moved(model, settings.device, name)


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
