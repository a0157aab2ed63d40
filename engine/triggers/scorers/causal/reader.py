"""What a causal Hugging Face model has read, kept as keys and values, so that no token is read twice.

A text is read in parts: the prompt before the searched words once for all searches, the words before a changed one once a
visit, and only what follows for each candidate. A reader hands the model the keys and values of the earlier parts; the first of
them are shared by all rows, and are laid out for each row in one layer at a time.

Layers that keep fewer than all positions (sliding windows, recurrent states) cannot be cut at any position. Whether a model's
can is asked of the model's own cache, and then tried: `reads_in_parts`.

    B rows, L tokens of a part, P tokens read before it, K last positions whose words are predicted, H heads, D width of a head
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from parley.engine.triggers.scorers.causal.kept_keys import (
    TOLERANCE,
    TOLERANCE_HALF,
    KeysValues,
    in_line,
    one_below_the_other,
    own_layers,
)
from parley.policies.core.products import Weight, dense, is_mkl_whole


class CausalReader:
    """Reads parts of texts by a model.

    Args:
        model: a causal Hugging Face model.
        rough: products in bfloat16, but for those of the head; the rest, keys and values too, in the model's own precision.
    """

    def __init__(self, model: Any, *, rough: bool = False) -> None:
        self.model, self.rough = model, rough
        # Of exactly this class: others, adapters for example, do more than multiply; so do those that a device map has spread.
        dense = [module for module in model.modules() if type(module) is nn.Linear and "forward" not in vars(module)]
        self._forwards = dict[nn.Linear, Callable[[Tensor], Tensor]]()
        if not is_mkl_whole():
            self._forwards |= {module: partial(_forward, module) for module in dense}
        if rough:
            products = [module for module in dense if module is not model.get_output_embeddings()]
            self._forwards |= {module: _Rough(module) for module in products}

    def read(self, embedded_BLE: Tensor, before: Sequence[KeysValues], keep: int) -> tuple[Tensor, KeysValues]:
        """Reads a part.

        Args:
            embedded_BLE: the tokens.
            before: what was read before, part by part; parts of one row are shared by all.
            keep: K.

        Returns:
            Logits (B, K, V) after the last K tokens, and what the layers keep of the part. Differentiable in the embeddings.
        """
        shared = [part for part in before if part.length and part.keys[0].shape[0] == 1]
        own = [part for part in before if part.length and part.keys[0].shape[0] != 1]
        past = _cache(in_line(shared) if shared else None, in_line(own) if own else None, len(self._layers))
        with self.fast_products():
            read = self.model(inputs_embeds=embedded_BLE, past_key_values=past, use_cache=True, logits_to_keep=keep)
        new = [layer.new for layer in past.layers]
        return read.logits, KeysValues(tuple(keys for keys, _ in new), tuple(values for _, values in new))

    @property
    def _layers(self) -> Sequence[Any]:
        return own_layers(self.model)

    @contextmanager
    def fast_products(self) -> Iterator[None]:
        """Lets the model's layers multiply by the fastest kernels; the model is as it was afterwards."""
        if not self._forwards or (not self.rough and next(iter(self._forwards)).weight.device.type != "cpu"):
            yield
            return
        for module, forward in self._forwards.items():
            setattr(module, "forward", forward)  # noqa: B010  # types know methods as fixed
        try:
            yield
        finally:
            for module in self._forwards:
                del module.forward


def _forward(module: nn.Linear, rows: Tensor) -> Tensor:
    return dense(rows, module.weight, module.bias)


class _Rough:
    """A layer that multiplies in bfloat16; not differentiable."""

    def __init__(self, module: nn.Linear) -> None:
        self._weight, self._bias = Weight(module.weight, torch.bfloat16), module.bias

    def __call__(self, rows: Tensor) -> Tensor:
        product = self._weight(rows).to(rows.dtype)
        return product if self._bias is None else product + self._bias


def _cache(shared: KeysValues | None, own: KeysValues | None, num_layers: int) -> Any:
    """A cache as transformers' models take it."""
    from transformers.cache_utils import Cache

    layers = []
    for i in range(num_layers):
        known = [None if part is None else (part.keys[i], part.values[i]) for part in (shared, own)]
        layers.append(_layer_class()(*known))
    return Cache(layers=layers)


@cache
def _layer_class() -> Any:
    """The kind of layer of such a cache; made when it is first asked for, because it derives from one of transformers."""
    from transformers.cache_utils import DynamicLayer

    class PartLayer(DynamicLayer):
        """Keys and values of what was read before, and of the part that is read; keeps no copy of the former."""

        def __init__(self, shared: tuple[Tensor, Tensor] | None, own: tuple[Tensor, Tensor] | None) -> None:
            super().__init__()
            self.before = [known for known in (shared, own) if known is not None]
            self.new: tuple[Tensor, Tensor] | None = None
            self.is_initialized = True

        def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            """All keys and values (B, H, P + L, D)."""
            self.new = (keys, values)
            num = len(keys)
            parts = [*((k.expand(num, -1, -1, -1), v.expand(num, -1, -1, -1)) for k, v in self.before), self.new]
            if len(parts) == 1:
                return keys, values
            return torch.cat([k for k, _ in parts], dim=2), torch.cat([v for _, v in parts], dim=2)

        def get_seq_length(self) -> int:
            """P."""
            return sum(k.shape[2] for k, _ in self.before)

    return PartLayer


@torch.no_grad()
def said(logits_BTV: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]:
    """Nats of a reply's words (B, T), and how far their logits are above all others (B, T).

    The logits are written over, so that there are never more than (B, V) numbers beside them.
    """
    at_BT1 = target_T[None, :, None].expand(len(logits_BTV), -1, 1)
    said_BT = logits_BTV.gather(-1, at_BT1)[..., 0].float()
    whole_BT = torch.stack([logits_BV.float().logsumexp(-1) for logits_BV in logits_BTV.unbind(1)], dim=1)
    others_BT = logits_BTV.scatter_(-1, at_BT1, -torch.inf).amax(-1).float()
    return (whole_BT - said_BT).clamp_min(0), said_BT - others_BT


def reads_in_parts(model: Any, embedded_LE: Tensor) -> bool:
    """Whether a model gives the same logits for a text read in parts.

    Args:
        model: a causal Hugging Face model.
        embedded_LE: a text of at least three tokens to try it with.
    """
    from transformers.cache_utils import DynamicLayer

    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        return False
    layers = own_layers(model)
    if not layers or any(type(layer) is not DynamicLayer for layer in layers):
        return False
    reader, half = CausalReader(model), len(embedded_LE) // 2
    both_2LE = torch.stack([embedded_LE, embedded_LE.flip(0)])
    with torch.no_grad():
        whole = model(inputs_embeds=both_2LE, use_cache=False).logits[:, half:].float()
        try:
            known = [reader.read(both_2LE[row : row + 1, :half], (), 1)[1] for row in range(2)]
            alone, _ = reader.read(both_2LE[:1, half:], [known[0]], len(embedded_LE) - half)
            together, _ = reader.read(both_2LE[:, half:], [one_below_the_other(known)], len(embedded_LE) - half)
        except torch.OutOfMemoryError:
            raise
        except (TypeError, ValueError, AttributeError, RuntimeError, IndexError):
            # Some models have layers of their own behind the name of a plain one.
            return False
    bound = TOLERANCE.get(both_2LE.dtype, TOLERANCE_HALF) * float(whole.std())
    found = torch.cat([alone, together]).float()
    return found.shape[1:] == whole.shape[1:] and float((found - whole[[0, 0, 1]]).abs().max()) <= bound
