"""A tiny chat model on the disk, as a base of adapters."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.policies.chat.architectures import drawn_model


def saved_base(folder: Path, seed: int = 0, std: float = 0.05) -> Path:
    """Writes a drawn model with its tokenizer, and returns its folder."""
    model, tokenizer = drawn_model("llama")
    torch.manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
