"""Texts of different lengths that a causal model reads in one pass, none filled up.

All tokens stand behind one another, so that each product of the model's layers is one over all of them. Attention alone is told
apart: a text sees what was read before it, and itself. transformers takes a function of one's own for
that (`AttentionInterface`); whether a model heeds it, and does nothing else in its attention, is tried: `reads_packed`.

For a CPU, block by block: a GPU starts fewer and larger kernels by `packed_grid.py`.

    n texts of a block, L tokens of each, P tokens before them, K last positions whose words are predicted, H heads of queries,
    J of keys, R queries of a head of keys, D width of a head, A all tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from parley.engine.triggers.scorers.causal.kept_keys import KeysValues, own_layers

if TYPE_CHECKING:
    from parley.engine.triggers.scorers.causal.reader import CausalReader

ATTENTION = "parley_packed"
_OTHER_ATTENTION = ("softcap", "s_aux", "sliding_window")
"""What some models do beside: capped scores, sinks, windows."""
Attend = Callable[[int, Tensor, Tensor, Tensor, float | None], Tensor]
"""Attention (A, H, D) of a layer: its number, queries (1, H, A, D), keys and values (1, J, A, D), the scale of products."""


class TextBlock(NamedTuple):
    """Texts of one length.

    Args:
        embedded_nLE: their tokens.
        before: what was read before, part by part, P tokens in all; of one row that all texts share, or of a row for each.
        keep: K.
    """

    embedded_nLE: Tensor
    before: Sequence[KeysValues]
    keep: int


@dataclass(frozen=True)
class _Place:
    """Where a block stands among all tokens, what was read before it, and what each token of a text sees (L, P + L)."""

    start: int
    num: int
    length: int
    before: Sequence[KeysValues]
    mask: Tensor

    def of(self, tokens_1HAD: Tensor) -> Tensor:
        """Its heads (n, H, L, D)."""
        own_HAD = tokens_1HAD[0, :, self.start : self.start + self.num * self.length]
        return own_HAD.unflatten(1, (self.num, self.length)).transpose(0, 1)


_packing: ContextVar[Attend | None] = ContextVar("packing", default=None)


def read_blocks(reader: CausalReader, blocks: Sequence[TextBlock]) -> list[tuple[Tensor, KeysValues]]:
    """Reads blocks.

    Returns:
        Of each block the logits (n, K, V), and what the layers keep of it. Not differentiable.
    """
    device, dtype = blocks[0].embedded_nLE.device, blocks[0].embedded_nLE.dtype
    start = 0
    places, positions, kept = list[_Place](), list[Tensor](), list[Tensor]()
    for embedded_nLE, before, keep in blocks:
        num, length = embedded_nLE.shape[:2]
        num_before = sum(part.length for part in before)
        later_LL = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
        mask_LS = torch.zeros(length, num_before + length, dtype=dtype, device=device)
        mask_LS[:, num_before:].masked_fill_(later_LL, -torch.inf)
        places.append(_Place(start, num, length, before, mask_LS))
        positions.append(torch.arange(num_before, num_before + length, device=device).repeat(num))
        texts_n1 = start + length * torch.arange(num, device=device)[:, None]
        kept.append((texts_n1 + torch.arange(length - keep, length, device=device)).flatten())
        start += num * length
    layers = [_layer_class()() for _ in range(len(own_layers(reader.model)))]
    with reader.fast_products(), packed(reader.model, partial(_attend_blocks, places)):
        read = reader.model(
            inputs_embeds=torch.cat([block.embedded_nLE.flatten(0, 1) for block in blocks])[None],
            position_ids=torch.cat(positions)[None],
            past_key_values=_cache(layers),
            use_cache=True,
            logits_to_keep=torch.cat(kept),
        )
    new = [(layer.new[0], layer.new[1]) for layer in layers]
    own = [KeysValues(tuple(place.of(k) for k, _ in new), tuple(place.of(v) for _, v in new)) for place in places]
    logits = read.logits[0].split([block.embedded_nLE.shape[0] * block.keep for block in blocks])
    return [(each.unflatten(0, (-1, block.keep)), new) for each, block, new in zip(logits, blocks, own, strict=True)]


@contextmanager
def packed(model: Any, attend: Attend) -> Iterator[None]:
    """Lets a model attend as is packed; it is as it was afterwards."""
    _register()
    usual, token = model.config._attn_implementation, _packing.set(attend)
    model.config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        model.config._attn_implementation = usual
        _packing.reset(token)


@cache
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)


def _attend(
    module: Any,
    query_1HAD: Tensor,
    key_1JAD: Tensor,
    value_1JAD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention (1, A, H, D) as transformers asks for it."""
    attend = _packing.get()
    assert attend is not None, "nothing is packed"
    if any(others.get(name) is not None for name in _OTHER_ATTENTION):
        raise TypeError("the model's attention is no plain one")
    return attend(module.layer_idx, query_1HAD, key_1JAD, value_1JAD, scaling)[None], None


def _attend_blocks(
    packing: Sequence[_Place], layer: int, query_1HAD: Tensor, key_1JAD: Tensor, value_1JAD: Tensor, scaling: float | None
) -> Tensor:
    """Attention (A, H, D) of each text to what was read before and to itself."""
    num_heads, width = query_1HAD.shape[1], query_1HAD.shape[3]
    found_AHD = query_1HAD.new_empty(query_1HAD.shape[2], num_heads, width)
    for place in packing:
        known_keys, known_values = ([getattr(part, kind)[layer] for part in place.before] for kind in ("keys", "values"))
        key_nJSD, value_nJSD = (
            torch.cat([*(part.expand(place.num, -1, -1, -1) for part in known), place.of(new)], dim=2)
            for known, new in ((known_keys, key_1JAD), (known_values, value_1JAD))
        )
        # Queries of one head of keys stand below one another, so that keys are not laid out for each.
        query_nJRLD = place.of(query_1HAD).unflatten(1, (key_nJSD.shape[1], -1))
        mask = place.mask.repeat(query_nJRLD.shape[2], 1)
        found = scaled_dot_product_attention(query_nJRLD.flatten(2, 3), key_nJSD, value_nJSD, mask, scale=scaling)
        own_nLHD = found_AHD[place.start : place.start + place.num * place.length].unflatten(0, (place.num, place.length))
        own_nLHD.copy_(found.view_as(query_nJRLD).flatten(1, 2).transpose(1, 2))
    return found_AHD


def _cache(layers: list[Any]) -> Any:
    from transformers.cache_utils import Cache

    return Cache(layers=layers)


@cache
def _layer_class() -> Any:
    from transformers.cache_utils import DynamicLayer

    class PackedLayer(DynamicLayer):
        """Keeps what is read, and gives it back as it is."""

        def __init__(self) -> None:
            super().__init__()
            self.new: tuple[Tensor, Tensor] | None = None
            self.is_initialized = True

        def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            """What is read alone."""
            self.new = (keys, values)
            return self.new

        def get_seq_length(self) -> int:
            """Nothing stands before all texts."""
            return 0

    return PackedLayer
