"""Low-rank adapters in Hugging Face models, through peft (the extra `lora`).

Source: Hu et al. 2021 (arXiv 2106.09685). The weights of a model stay; beside each chosen layer W a product of two small
matrices is learned, W + (alpha / r) B A. B begins at 0, so that a model begins as it was. `merged` adds the product to W: what
comes out is a model of the same kind and size, which anything reads that read the first.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from envs.core.errors import ConfigError
from envs.core.extras import how_to_install
from envs.core.seeds import derive_seed
from policies.chat.lora_settings import LoraSettings

EXTRA = "lora"
"""The optional extra of this package."""
ALL_LINEAR = "all-linear"
"""Stands for every linear layer but the output."""


def require_peft() -> None:
    """Makes sure that adapters can be made.

    Raises:
        ConfigError: peft is not installed.
    """
    _peft()


def adapted(model: Any, settings: LoraSettings, seed: int) -> Any:
    """The model with fresh adapters, the only weights of it that learn.

    Args:
        model: of transformers, a causal one; its layers are exchanged in place.
        settings: of the adapters.
        seed: of their first weights.

    Raises:
        ConfigError: peft is not installed, or the model has no layer of those names.
    """
    peft = _peft()
    modules = [name.strip() for name in settings.modules.split(",") if name.strip()]
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=ALL_LINEAR if modules == [ALL_LINEAR] else modules,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # It tells of layers that hold their weights transposed, and sets what it tells of.
        warnings.filterwarnings("ignore", message="fan_in_fan_out")
        # It calls what transformers is about to rename.
        warnings.filterwarnings("ignore", category=FutureWarning)
        torch.manual_seed(derive_seed(seed, "adapters"))
        try:
            return peft.get_peft_model(model, config)
        except ValueError as error:
            fix = f"name layers of the model by lora.modules, or {ALL_LINEAR}"
            got = str(error).splitlines()[0][:200]
            raise ConfigError("no adapter fits the model", where=settings.modules, got=got, fix=fix) from None


def merged(model: Any) -> Any:
    """The model alone, with what its adapters learned added to its weights."""
    return model.merge_and_unload()


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        fix = f"{how_to_install(EXTRA)}; or learn all weights with --method full"
        raise ConfigError("adapters need the package peft, which is not installed", fix=fix) from None
    return peft
