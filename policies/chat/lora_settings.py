"""Settings of low-rank adapters; how they are put into a model is in `lora.py`."""

from __future__ import annotations

from dataclasses import dataclass

from parley.envs.core.ranges import Configuration, PositiveFloat, PositiveInt, ShareBelowOne


@dataclass(frozen=True, kw_only=True)
class LoraSettings(Configuration):
    """Which low-rank matrices are learned beside a model's own weights (Hu et al. 2021, arXiv 2106.09685)."""

    rank: PositiveInt = 16
    """r: columns of one matrix and rows of the other."""
    alpha: PositiveFloat = 32.0
    """Their product is added times this over the rank."""
    dropout: ShareBelowOne = 0.0
    """Share of what they read that is left out in training."""
    modules: str = "all-linear"
    """Names of the layers that get them, separated by commas; all-linear stands for every linear layer but the output."""
