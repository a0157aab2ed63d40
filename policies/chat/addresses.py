"""Chat models by name: `hf:FOLDER`, `gguf:FILE`, `openai:URL#MODEL`, or `path/file.py:Name` of one's own."""

from __future__ import annotations

from envs.storage.places import CHAT_MODELS

CHAT = CHAT_MODELS
"""What the address of a chat model begins with, if it is none of a user's own."""
_, GGUF, OPENAI = CHAT
"""Begin the name of a file of weights as llama.cpp reads them, and the address of a server that speaks OpenAI's protocol."""


def is_chat_address(name: str) -> bool:
    """Whether a name stands for a chat model by the way it begins."""
    return name.startswith(CHAT)
