"""Low-rank adapters in Hugging Face models, through peft (the extra `lora`).

Source: Hu et al. 2021 (arXiv 2106.09685). The weights of a model stay; beside each chosen layer W a product of two small
matrices is learned, W + (alpha / r) B A. B begins at 0, so that a model begins as it was. `merged` adds the product to W: what
comes out is a model of the same kind and size, which anything reads that read the first.

Embeddings that a model uses at its input and at its output are one matrix. peft 0.21.2 adapts one of the two uses and adds the
product to both: the merged model is another one. So adapters on tied embeddings are refused, and the logits of every merged
model are compared with those of the adapted one before anything else is done with it.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.extras import how_to_install
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.lora_settings import LoraSettings
from parley.policies.hugging_face.caches import difference

EXTRA = "lora"
"""The optional extra of this package."""
ALL_LINEAR = "all-linear"
"""Stands for every linear layer but the output."""
_PROBE = 16
"""Tokens whose logits are compared."""
_ROUNDING, _ROUNDING_HALF = 1e-3, 0.2
"""How far logits of a merged model may be off, as a share of their spread, in float32 and in half precision."""


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
        ConfigError: peft is not installed, the model has no layer of those names, or they are embeddings that are tied.
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
        # Refused below.
        warnings.filterwarnings("ignore", message="(?s).*ensure_weight_tying")
        # It calls what transformers is about to rename.
        warnings.filterwarnings("ignore", category=FutureWarning)
        torch.manual_seed(derive_seed(seed, "adapters"))
        try:
            adapted_model = peft.get_peft_model(model, config)
        except ValueError as error:
            fix = f"name layers of the model by lora.modules, or {ALL_LINEAR}"
            got = str(error).splitlines()[0][:200]
            raise ConfigError("no adapter fits the model", where=settings.modules, got=got, fix=fix) from None
    if tied := _adapted_embeddings(adapted_model):
        fix = f"name other layers by lora.modules, such as {ALL_LINEAR}, or learn all weights (--method full)"
        what = "adapters on tied embeddings cannot be added to the weights"
        raise ConfigError(what, where=settings.modules, got=f"adapters on {' and '.join(tied)}", fix=fix)
    return adapted_model


def merged(model: Any, where: str | None = None) -> Any:
    """Return the model alone, with what its adapters learned added to its weights.

    Args:
        model: with adapters; its layers are exchanged in place.
        where: what an error calls it.

    Raises:
        CheckpointError: the adapters are of a kind that cannot be added, or the model says something else without them.
    """
    training = model.training
    model.eval()
    wanted = _probe_logits(model)
    try:
        alone = model.merge_and_unload()
    except (AttributeError, NotImplementedError, ValueError) as error:
        fix = "name an adapter of LoRA's kind, or store the whole model with save_pretrained"
        got = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise CheckpointError("the adapter cannot be added to the weights", where=where, got=got, fix=fix) from None
    off = difference(_probe_logits(alone), wanted)
    if not off <= (_ROUNDING if wanted.dtype in (torch.float32, torch.float64) else _ROUNDING_HALF):
        fix = "adapt other layers: embeddings that are tied, and layers that are used twice, cannot be merged"
        got = f"logits differ by {off:.2g} times their spread"
        raise CheckpointError("the merged model says something else than the adapted one", where=where, got=got, fix=fix)
    return alone.train(training)


@torch.inference_mode()
def _probe_logits(model: Any) -> torch.Tensor:
    """Return the logits of a few tokens of all parts of the vocabulary."""
    layer = model.get_input_embeddings()
    num, device = layer.weight.shape[0], layer.weight.device
    ids = torch.linspace(0, num - 1, _PROBE, device=device).long()[None]
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    logits: torch.Tensor = model(input_ids=ids, use_cache=False, **more).logits
    return logits.clone()


def _adapted_embeddings(model: Any) -> list[str]:
    """Return the adapted layers whose weights another layer shares: embeddings at the input and the output."""
    base = model.get_base_model()
    layers = {"the input embeddings": base.get_input_embeddings(), "the output layer": base.get_output_embeddings()}
    weights = [getattr(getattr(layer, "base_layer", layer), "weight", None) for layer in layers.values()]
    if weights[0] is None or weights[0] is not weights[1]:
        return []
    return [name for name, layer in layers.items() if hasattr(layer, "base_layer")]


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        fix = f"{how_to_install(EXTRA)}; or learn all weights with --method full"
        raise ConfigError("adapters need the package peft, which is not installed", fix=fix) from None
    return peft
