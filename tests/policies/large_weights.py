"""Networks of large random weights, biases too, so that every word read tells."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

ModelT = TypeVar("ModelT", bound=nn.Module)


def with_large_weights(model: ModelT, seed: int, most: float = 1.5) -> ModelT:
    """The model with weights drawn from -`most` to `most`, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.uniform_(-most, most, generator=generator)
    return model.eval()
