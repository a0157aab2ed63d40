"""Whether a sentence follows from another, as a Hugging Face model of natural language inference has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from parley.envs.core.errors import CheckpointError
from parley.policies.hugging_face.models import read_pretrained
from parley.policies.hugging_face.tokens import longest_input

ENTAILMENT = "entailment"
"""What the label of such a model is called, in any case."""


class Entailment:
    """A model that classifies pairs of premise and hypothesis.

    Args:
        model: with a head for sequence classification, one of whose labels is `ENTAILMENT`.
        tokenizer: of the model.
        batch_size: pairs that are read side by side.

    Raises:
        CheckpointError: no label is called so.
    """

    def __init__(self, model: Any, tokenizer: Any, batch_size: int = 64) -> None:
        self._model, self._tokenizer, self._batch_size = model.eval().requires_grad_(False), tokenizer, batch_size
        labels = {str(label).lower(): int(number) for number, label in model.config.id2label.items()}
        if ENTAILMENT not in labels:
            raise CheckpointError(
                "the model has no label of entailment",
                where=model.config.name_or_path or type(model).__name__,
                got=f"labels {', '.join(labels)}",
                fix="name a model of natural language inference, whose config.json has it in id2label",
            )
        self._label = labels[ENTAILMENT]
        self._longest = longest_input(tokenizer, model)

    @torch.inference_mode()
    def follows(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[bool]:
        """Whether each hypothesis follows from its premise: entailment is the likeliest label.

        Args:
            premises: sentences; what is longer than the model reads is cut.
            hypotheses: as many.
        """
        found: list[bool] = []
        for start in range(0, len(premises), self._batch_size):
            rows = slice(start, start + self._batch_size)
            pairs = list(premises[rows]), list(hypotheses[rows])
            read = self._tokenizer(*pairs, padding=True, truncation=True, max_length=self._longest, return_tensors="pt")
            logits = self._model(**read.to(self._model.device)).logits
            found += (logits.argmax(-1) == self._label).tolist()
        return found


def load_entailment(folder: Path, device: str = "cpu", batch_size: int = 64) -> Entailment:
    """The model of a folder as `save_pretrained` wrote it; nothing is downloaded, no code in it is run.

    Args:
        folder: model and tokenizer, weights as safetensors.
        device: torch device.
        batch_size: pairs that are read side by side.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: the folder holds no such model, or it has no label of entailment.
    """
    tokenizer, model = read_pretrained(folder, lambda config: "AutoModelForSequenceClassification")
    return Entailment(model.to(device), tokenizer, batch_size)
