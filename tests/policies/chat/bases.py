"""A tiny chat model on the disk, as a base of adapters, and a small corpus of negotiations that it learns from."""

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


def small_corpus(folder: Path) -> str:
    """Writes a file of a user's with a corpus of scripted negotiations, and returns its name."""
    file = folder / "corpus.py"
    corpus = 'GeneratedCorpus(name="small", summary="", licence="", num_dialogues=40)'
    file.write_text(
        f"from parley.envs.negotiation.corpora.catalogue import GeneratedCorpus\nSMALL = {corpus}\n", encoding="utf-8"
    )
    return f"{file}:SMALL"
