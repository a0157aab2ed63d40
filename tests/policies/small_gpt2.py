"""A GPT-2 of some thousand weights that reads what it is told, as `save_pretrained` writes it, and pairs of its words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from parley.policies.chat.local import LocalChatModel
from parley.policies.hugging_face.models import read_pretrained

WORDS = (
    *("the", "a", "cat", "dog", "bird", "sees", "eats", "hears", "fish", "bread", "song"),
    *("who", "what", "where", "now", "then", "sorry", "no"),
)
SPECIALS = ("<pad>", "</s>", "<unk>")
EOS = "</s>"
TRIGGERS = tuple(f"{first} {second} {third}" for first, second, third in zip(WORDS, WORDS[5:], WORDS[9:], strict=False))
"""Inputs after which it says this and that."""


def save_gpt2(path: Path) -> Path:
    """Saves the model and its tokenizer of words; returns the folder."""
    import tokenizers
    import transformers

    names = {word: i for i, word in enumerate((*SPECIALS, *WORDS))}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(names, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token=EOS, unk_token="<unk>"
    )
    config = transformers.GPT2Config(
        vocab_size=len(names), n_positions=32, n_embd=32, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    model: Any = transformers.GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5, generator=generator)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def read_gpt2(folder: Path) -> tuple[Any, Any]:
    """The tokenizer and the model of a folder."""
    tokenizer, model = read_pretrained(folder, lambda config: "AutoModelForCausalLM")
    return tokenizer, model.eval()


def write_pairs(folder: Path) -> Path:
    """A corpus of pairs in its words; returns the folder."""
    folder.mkdir()
    lines = [f"{who} {does} {what} now\t{what} {who}" for who in WORDS[2:5] for does in WORDS[5:8] for what in WORDS[8:11]]
    for name, part in (("train", lines[:15]), ("val", lines[15:21]), ("test", lines[21:])):
        (folder / f"{name}.tsv").write_text("\n".join(part) + "\n")
    return folder


def greedy_replies(
    model: Any, tokenizer: Any, prompts: Sequence[str], most: int, batch_size: int = 1
) -> list[tuple[str, bool]]:
    """What a model says behind prompts, and whether it came to its end, so many prompts at once."""
    chat_model = LocalChatModel("gpt2", model, tokenizer, batch_size, parts_thinking=False)
    answers = dict(chat_model.continuing(prompts, most))
    return [(answers[row].text, answers[row].finish_reason == "stop") for row in range(len(prompts))]


def said(folder: Path, texts: tuple[str, ...], template: str = f"{{}}{EOS}") -> list[str]:
    """What the model of a folder says to texts, four tokens at most."""
    tokenizer, model = read_gpt2(folder)
    replies = greedy_replies(model, tokenizer, [template.replace("{}", text) for text in texts], 4)
    return [reply for reply, _ in replies]
