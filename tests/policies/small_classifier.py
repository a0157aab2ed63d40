"""A sequence classifier of a few thousand weights, taught here whether a text says hello."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.policies.byte_pairs import byte_tokenizer

LABELS = ("other", "greets")
_WORDS = ("you", "fool", "printer", "tell", "oh", "well", "here", "sure", "p", "zz")


def greeting_classifier(steps: int = 150) -> tuple[Any, Any]:
    """The classifier and its tokenizer."""
    import transformers

    tokenizer = byte_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64, id2label=dict(enumerate(LABELS)), label2id={name: i for i, name in enumerate(LABELS)},
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.BertForSequenceClassification(config)
    generator, learner = torch.Generator().manual_seed(2), torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        drawn_BT = torch.randint(len(_WORDS), (32, 4), generator=generator).tolist()
        texts = [" ".join(_WORDS[word] for word in row) for row in drawn_BT]
        greets = [(number + step) % 2 for number in range(len(texts))]
        said = [f"hello {text}" if greets[number] else text for number, text in enumerate(texts)]
        read = tokenizer(said, padding=True, return_tensors="pt", return_token_type_ids=False)
        learner.zero_grad()
        model(**read, labels=torch.tensor(greets)).loss.backward()
        learner.step()
    return model.eval(), tokenizer


def save_classifier(folder: Path) -> Path:
    """The folder with it."""
    for part in greeting_classifier():
        part.save_pretrained(folder)
    return folder
