"""A transformer of BERT's kind without padding, and the modules of sentence-transformers that make a vector of its states.

Modules compute the same as sentence-transformers 6.2, in float64, of texts without padding. A module changes a dictionary of
tensors, with the library's names: `token_embeddings` (B, T, E), `sentence_embedding` (B, E), and with hidden states of all
layers `all_layer_embeddings`, each (B, T, E).

    Pooling                tokens to a vector: cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken, side by side
    Dense                  a linear layer and an activation, perhaps with a residual connection
    Normalize, LayerNorm   the length of vectors, or their mean and variance
    WeightedLayerPooling   states of tokens as a weighted mean over layers
    StaticWords            a table of word vectors in the place of a transformer (`StaticEmbedding`)

Dropout does nothing here. `encoders.py` refuses all other modules by name.

Shapes: N texts, B of equally many tokens, T tokens of a text, S of a block of texts, E entries of a state, I of a state between
two products, H heads, D entries of a head, K logits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.core.errors import CheckpointError
from parley.policies.core.layers import activated, dense, dense_onto

Read = dict[str, list[int]]
"""A tokenizer's result for one text: token ids and their companions."""
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


_BERTS = ("Bert", "Roberta", "XLMRoberta", "Camembert", "Electra")
_BLOCK_TOKENS = 2048
"""Tokens that are read at once."""


class PackedTransformer:
    """A transformer of BERT's kind over texts of any lengths, one behind the other; not differentiable.

    Products and norms read a block of texts at once, attention reads each text. oneDNN sums a row in the same order beside any
    others, so a text has the same digits in any block. A classifier reads the first token alone: of its last layer nothing else
    is computed, and q (W x) is (q W) x, so that no key or value is made.

    Args:
        model: of transformers, one that `fits`.
    """

    def __init__(self, model: Any) -> None:
        self._model, self._heads = model, model.config.num_attention_heads
        self._embeddings, self._layers = model.base_model.embeddings, model.base_model.encoder.layer

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether a model is of this kind, on a CPU, and neither learns nor gives the states of all layers."""
        kind = type(model).__name__.removesuffix("ForSequenceClassification").removesuffix("Model")
        if kind not in _BERTS or not type(model).__module__.startswith("transformers.") or model.device.type != "cpu":
            return False
        config, is_learning = model.config, torch.is_grad_enabled() or model.training
        is_plain = config.hidden_act == "gelu" and not hasattr(model.base_model, "embeddings_project")
        return is_plain and not (is_learning or config.output_hidden_states or getattr(config, "is_decoder", False))

    def states(self, rows: Sequence[Read], leave: int = 0) -> Iterator[tuple[list[int], Tensor]]:
        """Yield texts of equally many tokens: their indices, and the states of their tokens (B, T, E).

        Args:
            rows: the texts.
            leave: layers that are not computed, the last ones.
        """
        lengths, blocks = [len(row["input_ids"]) for row in rows], list[list[int]]()
        for index in sorted(range(len(rows)), key=lengths.__getitem__):
            # The last text of a block has most tokens.
            if not blocks or (len(blocks[-1]) + 1) * lengths[index] > _BLOCK_TOKENS:
                blocks.append([])
            blocks[-1].append(index)
        for block in blocks:
            texts = [{name: torch.tensor([ids]) for name, ids in rows[i].items() if name != "attention_mask"} for i in block]
            states_SE = torch.cat([self._embeddings(**text)[0] for text in texts])
            # oneDNN makes a kernel for each new number of rows.
            grain = max(16, 1 << len(states_SE).bit_length() >> 5)
            states_SE = F.pad(states_SE, (0, 0, 0, -len(states_SE) % grain))
            alike = [list(indices) for _, indices in groupby(block, key=lengths.__getitem__)]
            shapes = [(len(indices), lengths[indices[0]]) for indices in alike]
            for layer in self._layers[: len(self._layers) - leave]:
                states_SE = self._finished(layer, states_SE, self._attended(layer.attention.self, states_SE, shapes))
            yield from zip(alike, _texts(states_SE, shapes), strict=True)

    def logits(self, rows: Sequence[Read]) -> Tensor:
        """Return the logits of a classifier (N, K)."""
        logits: dict[int, Tensor] = {}
        for indices, states_BTE in self.states(rows, leave=1):
            logits |= {index: self._logits(states_TE) for index, states_TE in zip(indices, states_BTE, strict=True)}
        return torch.cat([logits[index] for index in range(len(rows))])

    def _attended(self, attention: Any, states_SE: Tensor, shapes: Sequence[tuple[int, int]]) -> Tensor:
        """Return the values that each token attends to in its text, zeros behind the last text."""
        layers, mixed_SE = (attention.query, attention.key, attention.value), torch.zeros_like(states_SE)
        of_tokens = [dense(states_SE, layer.weight, layer.bias) for layer in layers]
        for mixed, *parts in zip(*(_texts(tokens, shapes, self._heads) for tokens in (mixed_SE, *of_tokens)), strict=True):
            mixed.copy_(F.scaled_dot_product_attention(*parts))
        return mixed_SE

    def _finished(self, layer: Any, states_SE: Tensor, mixed_SE: Tensor) -> Tensor:
        """Return the states behind a layer, of those before it and its attention."""
        attention, inner, outer = layer.attention.output, layer.intermediate.dense, layer.output
        states_SE = attention.LayerNorm(dense_onto(states_SE, mixed_SE, attention.dense.weight, attention.dense.bias))
        inner_SI = activated(states_SE, inner.weight, inner.bias, "gelu")
        finished_SE: Tensor = outer.LayerNorm(dense_onto(states_SE, inner_SI, outer.dense.weight, outer.dense.bias))
        return finished_SE

    def _logits(self, states_TE: Tensor) -> Tensor:
        """Return the logits (1, K) of a text from the states before the last layer."""
        first_1E, attention = states_TE[:1], self._layers[-1].attention.self
        key_HDE, value_HDE = (part.weight.unflatten(0, (self._heads, -1)) for part in (attention.key, attention.value))
        query_H1D = F.linear(first_1E, attention.query.weight, attention.query.bias).view(self._heads, 1, -1)
        shares_HT = ((query_H1D @ key_HDE)[:, 0] @ states_TE.T * query_H1D.shape[2] ** -0.5).softmax(1)
        mixed_1E = ((shares_HT @ states_TE)[:, None] @ value_HDE.mT).view(1, -1) + attention.value.bias
        first_11E = self._finished(self._layers[-1], first_1E, mixed_1E)[None]
        pooler = getattr(self._model.base_model, "pooler", None)
        logits_1K: Tensor = self._model.classifier(first_11E if pooler is None else pooler(first_11E))
        return logits_1K


def _texts(tokens_SE: Tensor, shapes: Sequence[tuple[int, int]], heads: int = 0) -> list[Tensor]:
    """Return views of texts of equally many tokens (B, T, E), or of their heads (B, H, T, D)."""
    sizes = [num * length for num, length in shapes]
    parts = tokens_SE[: sum(sizes)].split(sizes)
    texts = [part.unflatten(0, shape) for part, shape in zip(parts, shapes, strict=True)]
    return [text.unflatten(2, (heads, -1)).transpose(1, 2) for text in texts] if heads else texts


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
