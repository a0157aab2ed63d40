"""Loads a chat model by its address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE, has_chat_prefix, is_uri
from parley.policies.chat.addresses import CHAT, DEFENDED, ENDPOINT, GGUF, OPENAI, PROGRAM, SOCKET, chat_models, chat_wrappers
from parley.policies.chat.answers import kept_answers, load_own
from parley.policies.chat.model import ChatModel
from parley.policies.chat.settings import DEFAULT, ChatModelSettings

CHAT_MODEL_KINDS = {
    f"{HUGGING_FACE}FOLDER": "a causal model of Hugging Face, as save_pretrained wrote it",
    f"{GGUF}FILE": "weights of llama.cpp, read by transformers",
    f"{OPENAI}URL#MODEL": "a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ray Serve",
    f"{ENDPOINT}FILE.yaml": "any bot behind HTTP, described by a file: url, headers, body, path of the reply",
    f"{SOCKET}FILE.yaml": "the same behind a WebSocket",
    f"{PROGRAM}PROGRAM ARGS": "a program that reads and writes JSON lines",
    f"{DEFENDED}FILE.yaml": "one of these behind a defence: model, defence",
    "path/file.py:Name": "a class or function of your own",
    "RUN": "a response model that Parley trained, or a run of parley train hardened; a folder or a URI",
}
"""Forms of addresses, with what each stands for."""


def load_chat_model(name: str, settings: ChatModelSettings = DEFAULT, *, answers: Path | None = None) -> ChatModel:
    """Return the chat model of an address.

    Args:
        name: an address as above, or the name of one that an installed package brings.
        settings: settings of loading or asking it.
        answers: folder of a run in which answers are kept, so that nothing is asked twice; None keeps none.

    Returns:
        The model; its attribute `usage` (`ChatUsage`) counts what it is asked, and one whose access is `GRADIENTS` has the
        network as `model` and its `tokenizer` (where answers are kept, behind `inner`).

    Raises:
        ConfigError: no chat model is called so, the address is malformed, a package is missing, or the model's tokenizer cannot
            carry a conversation.
        CheckpointError: no model is there, or none that can be read without running its code.
        RunError: the folder of answers cannot be written.
    """
    if name.startswith(DEFENDED):
        model: ChatModel = chat_wrappers.get("defended")(name, settings, answers)
        return model
    return kept_answers(_model_of(name, settings), answers)


def _model_of(name: str, settings: ChatModelSettings) -> ChatModel:
    if name.startswith(OPENAI):
        from parley.policies.chat.server import ServedChatModel

        return ServedChatModel(name, settings)
    if name.startswith((ENDPOINT, SOCKET)) and has_chat_prefix(name):
        from parley.policies.chat.endpoint import EndpointChatModel, SocketChatModel

        return (SocketChatModel if name.startswith(SOCKET) else EndpointChatModel)(name, settings)
    if name.startswith(PROGRAM):
        from parley.policies.chat.program import ProgramChatModel

        return ProgramChatModel(name, settings)
    if name.startswith((HUGGING_FACE, GGUF)):
        from parley.policies.chat.local import load_local

        return load_local(name, settings)
    if ".py:" in name or name in chat_models:
        return load_own(name, settings)
    if is_uri(name) or Path(name).expanduser().is_dir():
        return _model_of_run(name, settings)
    fix = f"one of {', '.join(CHAT_MODEL_KINDS)}"
    got = "an address that begins otherwise" if any(kind.rstrip(":") in name for kind in CHAT) else None
    raise ConfigError("no chat model is called so", where=name, got=got, fix=fix)


def _model_of_run(name: str, settings: ChatModelSettings) -> ChatModel:
    from parley.policies.chat.local import RespondingChatModel, load_local
    from parley.policies.core.responder import is_pretrained, load_trained

    if is_pretrained(fetched_model(name)):
        return load_local(f"{HUGGING_FACE}{name}", settings)
    responder: Any = load_trained(name)
    responder.model.to(settings.device)
    return RespondingChatModel(name, responder)
