"""Chat models by name: `hf:FOLDER`, `gguf:FILE`, `openai:URL#MODEL`, or `path/file.py:Name` of one's own."""

from __future__ import annotations

from pathlib import Path

from envs.core.registry import Registry
from envs.storage.places import CHAT_MODELS, HUGGING_FACE, is_uri

chat_models = Registry("chat model", "parley.chat_models")
"""Chat models that installed packages bring; each as a user's own (`own.py`)."""
CHAT = CHAT_MODELS
"""What the address of a chat model begins with, if it is none of a user's own."""
_, GGUF, OPENAI = CHAT
"""Begin the name of a file of weights as llama.cpp reads them, and the address of a server that speaks OpenAI's protocol."""


def is_chat_address(name: str) -> bool:
    """Whether a name stands for a chat model by the way it begins."""
    return name.startswith(CHAT)


def is_local(name: str) -> bool:
    """Whether a name stands for a model whose weights are here."""
    return name.startswith((HUGGING_FACE, GGUF))


def weights_of(name: str) -> str:
    """What a name stands for on a disk or in storage: what is behind `hf:` or `gguf:`, nothing of a server, else the name."""
    return "" if name.startswith(OPENAI) else name.removeprefix(HUGGING_FACE).removeprefix(GGUF)


def absolute_address(name: str) -> str:
    """The address of a chat model for workers, which may stand in other folders; the name of an installed one is none."""
    weights = weights_of(name)
    if not weights or is_uri(weights) or name in chat_models:
        return name
    return f"{name.removesuffix(weights)}{Path(weights).expanduser().absolute()}"


def short_address(name: str) -> str:
    """The last part of an address, for labels: of a server its model, of weights their folder or file."""
    whole = name.rpartition("#")[2] if name.startswith(OPENAI) else weights_of(name)
    parts = [part for part in whole.split("/") if part]
    return parts[-1].removesuffix(".gguf").replace(".", "_") if parts else "model"
