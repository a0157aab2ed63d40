"""Read-only arrays that all workers of a machine share, such as a model's weights.

The driver puts them into Ray's object store once; every machine fetches them once, and each worker on it maps the same pages.
So workers need no file of the driver's, and a model costs a machine its size once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.engine.core.ray import ray_internals


@dataclass(frozen=True)
class SharedArrays:
    """A handle that may be given to workers as an argument, of their calls or of actors that may be started again.

    The driver must keep it while they work: a worker's own does not keep the arrays once the driver has let go of them.

    Args:
        reference: of the object store.
    """

    reference: Any

    @classmethod
    def put(cls, arrays: Mapping[str, np.ndarray]) -> SharedArrays:
        """Shares arrays, by name; a `session.connect` block must be around the call and around all use of the handle."""
        import ray

        return cls(ray.put(dict(arrays)))

    def get(self) -> dict[str, np.ndarray]:
        """The arrays, not writable, without a copy."""
        import ray

        arrays: dict[str, np.ndarray] = ray.get(self.reference)
        return arrays

    def __reduce__(self) -> tuple[Callable[..., SharedArrays], tuple[bytes, ...]]:
        return _arrived, ray_internals.address_of(self.reference)


def _arrived(*address: bytes) -> SharedArrays:
    return SharedArrays(ray_internals.reference_at(*address))
