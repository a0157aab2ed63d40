"""Chat models whose weights are here, by the folder or the file that holds them."""

from __future__ import annotations

from typing import Any

from parley.envs.core.errors import CheckpointError
from parley.policies.chat.local import LocalChatModel
from parley.policies.chat.settings import ChatModelSettings
from parley.policies.chat.templates import options_of, prints_date
from parley.policies.hugging_face.models import read_placed


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
    tokenizer, model = read_placed(name, _causal, settings, settings.device)
    chat_model = LocalChatModel(name, model, tokenizer, settings.batch_size, parts_thinking=settings.thinking == "part")
    chat_model.answers_depend_on = settings.answers_depend_on
    if prints_date(tokenizer):
        chat_model.answers_depend_on += f" on {options_of(tokenizer).day}"
    return chat_model


def _causal(config: Any) -> str:
    if config.is_encoder_decoder:
        fix = "name a causal model, such as Llama, Qwen or GPT-2"
        got = f"model_type {config.model_type}"
        raise CheckpointError("a model with an encoder answers no messages", where=config.name_or_path, got=got, fix=fix)
    return "AutoModelForCausalLM"
