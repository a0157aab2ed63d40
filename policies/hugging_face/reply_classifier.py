"""Classifiers of Hugging Face that read a reply alone: how sure they are of a label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest
from parley.policies.hugging_face.models import read_pretrained
from parley.policies.hugging_face.tokens import longest_input


class ReplyClassifier:
    """A sequence classifier.

    Args:
        model: with a head for sequence classification.
        tokenizer: of the model.
        label: what is looked for; the last one when empty.

    Raises:
        ConfigError: no label is called so.
    """

    def __init__(self, model: Any, tokenizer: Any, label: str = "") -> None:
        self._model, self._tokenizer = model.eval().requires_grad_(False), tokenizer
        labels = {str(name): int(number) for number, name in model.config.id2label.items()}
        if label and label not in labels:
            what = f"the classifier has no label {label!r}{nearest(label, labels)}"
            raise ConfigError(what, fix=f"labels: {', '.join(labels)}")
        self._label = labels[label] if label else max(labels.values())
        self._longest = longest_input(tokenizer, model)

    @torch.inference_mode()
    def scores(self, replies: Sequence[str]) -> list[float]:
        """The probability of the label for each reply, read alone; what is longer than the model reads is cut."""
        found = []
        for reply in replies:
            read = self._tokenizer(reply, truncation=True, max_length=self._longest, return_tensors="pt")
            logits_L = self._model(**read.to(self._model.device)).logits[0].float()
            one = logits_L[0].sigmoid() if len(logits_L) == 1 else logits_L.softmax(-1)[self._label]
            found.append(float(one))
        return found


def load_reply_classifier(folder: Path, label: str = "", device: str = "cpu") -> ReplyClassifier:
    """The classifier of a folder as `save_pretrained` wrote it; nothing is downloaded, no code in it is run.

    Args:
        folder: model and tokenizer, weights as safetensors.
        label: see `ReplyClassifier`.
        device: torch device.

    Raises:
        ConfigError: transformers is not installed, or the classifier has no such label.
        CheckpointError: the folder holds no classifier.
    """
    tokenizer, model = read_pretrained(folder, lambda config: "AutoModelForSequenceClassification")
    return ReplyClassifier(model.to(device), tokenizer, label)
