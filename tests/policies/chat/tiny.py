"""A causal model of some thousand weights that answers chats; it is made here and its template has a place for everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.policies.small_hugging_face import EOS_ID, gpt2

TEMPLATE = "{% for m in messages %}<s> {{ m['content'] }} </s> {% endfor %}{% if add_generation_prompt %}well{% endif %}"
transformers = pytest.importorskip("transformers", reason="the extra hugging-face is not installed")


def tiny_chat(template: str | None = TEMPLATE, positions: int = 32) -> tuple[Any, Any]:
    """A model and its tokenizer, which knows the words of `tests.policies.small_hugging_face`."""
    victim = gpt2(positions=positions)
    victim.tokenizer.chat_template = template
    victim.model.generation_config.eos_token_id = EOS_ID
    return victim.model, victim.tokenizer


def saved(folder: Path, template: str | None = TEMPLATE, positions: int = 32) -> Path:
    """A folder as `save_pretrained` writes it."""
    model, tokenizer = tiny_chat(template, positions)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
