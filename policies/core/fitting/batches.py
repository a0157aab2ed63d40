"""Batches of examples, and the order in which an epoch takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor


class Tensors:
    """A dataclass of tensors, or of other such dataclasses."""

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(**{name: part.to(device) for name, part in vars(self).items()})


class Batch(Protocol):
    """What a model reads at once, and what it should predict."""

    @property
    def targets_BT(self) -> Tensor:
        """Ids to predict, int64; padding included."""

    @property
    def real_BT(self) -> Tensor:
        """True where there is something to predict; M places in all."""

    def to(self, device: torch.device, /) -> Self:
        """The same batch on a device."""


@dataclass(frozen=True)
class ExtendedBatch:
    """A batch of a model's own, with something that an objective reads beside it.

    Args:
        learned: contexts and recorded replies.
    """

    learned: Any

    @property
    def targets_BT(self) -> Tensor:
        """What is predicted; padding included."""
        targets_BT: Tensor = self.learned.targets_BT
        return targets_BT

    @property
    def real_BT(self) -> Tensor:
        """True where there is something to predict."""
        real_BT: Tensor = self.learned.real_BT
        return real_BT

    def to(self, device: torch.device) -> Self:
        """The same batch on a device."""
        return replace(self, learned=self.learned.to(device))


BatchT_co = TypeVar("BatchT_co", bound=Batch, covariant=True)


class Examples(Protocol[BatchT_co]):
    """What a model is fitted to or measured on."""

    def __len__(self) -> int: ...

    @property
    def num_targets(self) -> np.ndarray:
        """(len,) words to predict in each example."""

    def batch(self, indices: np.ndarray) -> BatchT_co:
        """The examples at `indices` (B,)."""


def in_order(examples: Examples[BatchT_co], batch_size: int) -> Iterator[BatchT_co]:
    """All examples, those of like length together, as batches for measuring."""
    order = np.argsort(examples.num_targets, kind="stable")
    for start in range(0, len(order), batch_size):
        yield examples.batch(order[start : start + batch_size])


def epoch_order(
    examples: Examples[Any], batch_size: int, generator: np.random.Generator, bucketed: bool
) -> Sequence[np.ndarray]:
    """Indices of the batches of one epoch: every example once, the last drawn batch may be smaller.

    Args:
        examples: what to draw from.
        batch_size: examples in a batch.
        generator: what decides.
        bucketed: whether a batch holds examples of like length; who meets whom changes from epoch to epoch all the same.
    """
    order = generator.permutation(len(examples))
    if bucketed:
        order = order[np.argsort(examples.num_targets[order], kind="stable")]
    groups = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    return [groups[index] for index in generator.permutation(len(groups))]
