"""Modules of sentence-transformers behind a transformer: from the states of tokens to one vector, as their folders define them.

They compute the same as sentence-transformers 6.2, in float64, of texts without padding. A module changes a dictionary of
tensors, with the library's names: `token_embeddings` (B, T, E), `sentence_embedding` (B, E), and with hidden states of all
layers `all_layer_embeddings`, each (B, T, E).

    Pooling                tokens to a vector: cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken, side by side
    Dense                  a linear layer and an activation, perhaps with a residual connection
    Normalize, LayerNorm   the length of vectors, or their mean and variance
    WeightedLayerPooling   states of tokens as a weighted mean over layers
    StaticWords            a table of word vectors in the place of a transformer (`StaticEmbedding`)

Dropout does nothing here. `encoders.py` refuses all other modules by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.core.errors import CheckpointError

TOKENS, VECTOR, LAYERS = "token_embeddings", "sentence_embedding", "all_layer_embeddings"
Features = dict[str, Any]
SentenceModule = Callable[[Features, int], None]
"""A function that changes the tensors of some texts; the first tokens, so many, are a prompt."""
_TORCH = "torch."
_TANH = "torch.nn.modules.activation.Tanh"
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Switches of older versions, in the library's order."""


def _weighted_mean(states_BTE: Tensor, num_before: int) -> Tensor:
    weights_T = torch.arange(
        num_before + 1, num_before + states_BTE.shape[1] + 1, dtype=torch.float64, device=states_BTE.device
    )
    return (states_BTE * weights_T[:, None]).sum(1) / weights_T.sum()


POOLING: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cls": lambda states_BTE, num_before: states_BTE[:, 0],
    "max": lambda states_BTE, num_before: states_BTE.amax(1),
    "mean": lambda states_BTE, num_before: states_BTE.mean(1),
    "mean_sqrt_len_tokens": lambda states_BTE, num_before: states_BTE.sum(1) / states_BTE.shape[1] ** 0.5,
    "weightedmean": _weighted_mean,
    "lasttoken": lambda states_BTE, num_before: states_BTE[:, -1],
}
"""Poolings from token states (B, T, E), without padding and after some left-out tokens, to vectors (B, E)."""


class Pooling:
    """Make a vector of the states of tokens.

    Args:
        modes: names in `POOLING`; of several, one vector behind the other.
        include_prompt: whether the tokens of a prompt count.
    """

    def __init__(self, modes: Sequence[str] = ("mean",), include_prompt: bool = True) -> None:
        self._modes, self._include_prompt = tuple(modes), include_prompt

    def __call__(self, features: Features, num_prompt: int) -> None:
        """Pool the tokens that count; a text without any gets zeros."""
        num_before = 0 if self._include_prompt else num_prompt
        states_BTE = features[TOKENS][:, num_before:]
        if states_BTE.shape[1]:
            vectors = [POOLING[mode](states_BTE, num_before) for mode in self._modes]
        else:
            vectors = [states_BTE.new_zeros(states_BTE.shape[0], states_BTE.shape[2]) for _ in self._modes]
        features[VECTOR] = torch.cat(vectors, dim=1)


class Normalize:
    """Bring vectors to length 1."""

    def __init__(self, source: str = VECTOR, target: str | None = None) -> None:
        self._source, self._target = source, target or source

    def __call__(self, features: Features, num_prompt: int) -> None:
        """Divide each vector by its length."""
        features[self._target] = F.normalize(features[self._source], dim=-1)


class Dense:
    """Apply a linear layer and an activation."""

    def __init__(self, weights: Mapping[str, Tensor], activation: nn.Module, config: Mapping[str, Any]) -> None:
        self._weights, self._activation = {name: value.double() for name, value in weights.items()}, activation
        self._residual = bool(config.get("use_residual"))
        self._source = config.get("module_input_name") or VECTOR
        self._target = config.get("module_output_name") or self._source

    def __call__(self, features: Features, num_prompt: int) -> None:
        """Compute activation(W x + b), plus x or its projection with a residual connection."""
        x = features[self._source]
        weights = {name: value.to(x.device) for name, value in self._weights.items()}
        out = self._activation(F.linear(x, weights["linear.weight"], weights.get("linear.bias")))
        if self._residual:
            out = out + (F.linear(x, weights["residual.weight"]) if "residual.weight" in weights else x)
        features[self._target] = out


class LayerNorm:
    """Normalise the entries of a vector."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weight, self._bias = weights["norm.weight"].double(), weights["norm.bias"].double()

    def __call__(self, features: Features, num_prompt: int) -> None:
        """Subtract the mean, divide by the deviation, scale and shift."""
        x = features[VECTOR]
        features[VECTOR] = F.layer_norm(x, x.shape[-1:], self._weight.to(x.device), self._bias.to(x.device))


class WeightedLayerPooling:
    """Mix the layers of a transformer."""

    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self._weights, self._start = weights["layer_weights"].double(), int(config.get("layer_start", 4))

    def __call__(self, features: Features, num_prompt: int) -> None:
        """Compute the weighted mean over layers; without all layers nothing changes."""
        if LAYERS in features:
            layers_HBTE = torch.stack([layer.double() for layer in features[LAYERS]])[self._start :]
            weights_H = self._weights.to(layers_HBTE.device)
            features[TOKENS] = (weights_H[:, None, None, None] * layers_HBTE).sum(0) / weights_H.sum()


class StaticWords(nn.Module):
    """A table of word vectors that takes the place of a transformer.

    Args:
        weights: as `StaticEmbedding` or model2vec saves them.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        table_VE = weights["embedding.weight"] if "embedding.weight" in weights else _model2vec_table(weights)
        self.table = nn.Embedding.from_pretrained(table_VE.float())
        self.config = SimpleNamespace(max_position_embeddings=None)

    @property
    def device(self) -> torch.device:
        """The device of the table."""
        return self.table.weight.device

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table."""
        return self.table

    def forward(self, input_ids: Tensor, **_: Tensor) -> SimpleNamespace:
        """Look the words up."""
        return SimpleNamespace(last_hidden_state=self.table(input_ids))


def read_module(kind: str, folder: Path) -> SentenceModule | None:
    """Return the module of a folder; None for one without effect when a model is used.

    Raises:
        CheckpointError: it does something that is not known here, or its weights are missing.
    """
    config = read_settings(folder / "config.json")
    if kind == "Pooling":
        return Pooling(_modes(config, folder), config.get("include_prompt", True))
    if kind == "Normalize":
        return Normalize(config.get("module_input_name") or VECTOR, config.get("module_output_name"))
    if kind == "Dense":
        return Dense(read_weights(folder), activation_named(config.get("activation_function", _TANH), folder), config)
    if kind == "LayerNorm":
        return LayerNorm(read_weights(folder))
    if kind == "WeightedLayerPooling":
        return WeightedLayerPooling(read_weights(folder), config)
    assert kind == "Dropout", f"no module {kind}"
    return None


def activation_named(name: str, folder: Path) -> nn.Module:
    """Return an activation by its name in a configuration, such as "torch.nn.modules.activation.Tanh".

    Raises:
        CheckpointError: it is none of torch.nn, or takes arguments; the library takes another in its place.
    """
    kind = getattr(nn, name.rpartition(".")[2], None) if name.startswith(_TORCH) else None
    try:
        if isinstance(kind, type) and issubclass(kind, nn.Module):
            return kind().double()
    except TypeError:
        pass
    fix = "name a model whose activation is a class of torch.nn that takes no arguments"
    raise CheckpointError("an activation is not known here", where=folder, got=name, fix=fix)


def read_settings(path: Path) -> dict[str, Any]:
    """Return a JSON object; an empty one without the file."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read a module's weights.

    Raises:
        CheckpointError: there are none as safetensors.
    """
    from safetensors.torch import load_file

    path = folder / "model.safetensors"
    if not path.is_file():
        got = ", ".join(sorted(file.name for file in folder.glob("*.bin"))) or "none"
        fix = "save the model again with sentence-transformers, which writes safetensors"
        raise CheckpointError("a module has no weights as safetensors", where=folder, got=got, fix=fix)
    weights: dict[str, Tensor] = load_file(path)
    return weights


def _modes(config: Mapping[str, Any], folder: Path) -> list[str]:
    """Return how a pooling pools; older versions have one switch for each way, newer ones name them."""
    named = config.get("pooling_mode")
    if named is None:
        named = [mode for switch, mode in _OLD_MODES.items() if config.get(switch)] or ["mean"]
    modes = [named] if isinstance(named, str) else list(named)
    strange = {name for name, value in config.items() if name.startswith("pooling_mode_") and value} - {*_OLD_MODES}
    if unknown := sorted({*modes} - {*POOLING} | strange):
        fix = f"name one that pools by {', '.join(POOLING)}"
        raise CheckpointError("a pooling is not known here", where=folder, got=", ".join(unknown), fix=fix)
    return modes


def _model2vec_table(weights: Mapping[str, Tensor]) -> Tensor:
    """Return one row for each token of model2vec, whose tokens may share rows and have weights."""
    table_VE = weights["embeddings"].float()
    if "mapping" in weights:
        table_VE = table_VE[weights["mapping"].long()]
    return table_VE * weights["weights"].float()[:, None] if "weights" in weights else table_VE
