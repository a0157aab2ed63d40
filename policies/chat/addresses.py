"""Chat models by name: `hf:FOLDER`, `gguf:FILE`, `openai:URL#MODEL`, or `path/file.py:Name` of one's own."""

from __future__ import annotations

from envs.storage.places import HUGGING_FACE

GGUF = "gguf:"
"""Begins the name of a file of weights as llama.cpp reads them."""
OPENAI = "openai:"
"""Begins the address of a server that speaks OpenAI's protocol: `openai:URL#MODEL`."""
CHAT = (HUGGING_FACE, GGUF, OPENAI)
"""What the address of a chat model begins with, if it is none of a user's own."""


def is_chat_address(name: str) -> bool:
    """Whether a name stands for a chat model by the way it begins."""
    return name.startswith(CHAT)
