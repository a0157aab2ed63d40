"""Keys and values that a causal model keeps of what it has read.

B rows, L tokens of a part, H heads, D width of a head
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
"""How far logits may be off, as a share of their spread: rounding, in the model's own precision."""
TOLERANCE_HALF = 0.2
"""The same of models in half precision."""


@dataclass(frozen=True, eq=False)
class KeysValues:
    """What the layers keep of tokens that were read.

    Args:
        keys: of each layer (B, H, L, D).
        values: of each layer (B, H, L, D).
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def length(self) -> int:
        """L."""
        return self.keys[0].shape[2]

    @property
    def num_rows(self) -> int:
        """B."""
        return self.keys[0].shape[0]

    def cut(self, start: int, stop: int) -> KeysValues:
        """Those of the tokens from `start` to before `stop`; no copy."""
        return KeysValues(*(tuple(each[:, :, start:stop] for each in kind) for kind in (self.keys, self.values)))

    def rows(self, rows_b: Tensor | slice) -> KeysValues:
        """Those of some rows."""
        if isinstance(rows_b, slice):
            return KeysValues(*(tuple(each[rows_b] for each in kind) for kind in (self.keys, self.values)))
        # A device map may have put layers on other devices.
        return KeysValues(*(tuple(each[rows_b.to(each.device)] for each in kind) for kind in (self.keys, self.values)))

    def repeated(self, num: int) -> KeysValues:
        """Those of one row, for so many; no copy."""
        return KeysValues(*(tuple(each.expand(num, -1, -1, -1) for each in kind) for kind in (self.keys, self.values)))

    def detached(self) -> KeysValues:
        """The same without their gradients."""
        return KeysValues(*(tuple(each.detach() for each in kind) for kind in (self.keys, self.values)))


def in_line(parts: Sequence[KeysValues]) -> KeysValues:
    """Parts that follow each other, as one; of one row each is repeated for the others."""
    parts = [part for part in parts if part.length]
    if len(parts) == 1:
        return parts[0]
    num = max(part.keys[0].shape[0] for part in parts)
    kinds = []
    for kind in ("keys", "values"):
        layers = zip(*(getattr(part, kind) for part in parts), strict=True)
        kinds.append(tuple(torch.cat([each.expand(num, -1, -1, -1) for each in layer], dim=2) for layer in layers))
    return KeysValues(*kinds)


def one_below_the_other(groups: Sequence[KeysValues]) -> KeysValues:
    """The rows of groups that have read as many tokens."""
    if len(groups) == 1:
        return groups[0]
    kinds = (
        tuple(map(torch.cat, zip(*(getattr(group, kind) for group in groups), strict=True))) for kind in ("keys", "values")
    )
    return KeysValues(*kinds)


def own_layers(model: Any) -> Sequence[Any]:
    """The layers of the cache that the model would make for itself."""
    from transformers import DynamicCache

    layers: Sequence[Any] = DynamicCache(config=model.config).layers
    return layers
