"""Batches of examples: their order in an epoch, the loss of the output layer, the protocol of predictors, and evaluation.

`OutputLoss` computes negative log-likelihoods of targets and their gradients in one pass. The logits of a batch (targets x
vocabulary) are by far the largest thing in training. They exist once, in memory that is kept from step to step: the softmax
overwrites them in the forward pass, and the gradient of the loss overwrites the softmax; the backward pass only scales it.

`evaluate` scores recorded replies or sentences in nats per word, `</s>` counted. The negative of the test figure is the
threshold that trigger search calls T_out (a sequence-to-sequence model) or T_in (a language model): He & Glass 2018, section
4.

Shapes: B rows, T reply words, M targets of a batch, H hidden, V words.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from parley.envs.corpora.pairs.vocabulary import EOS_ID, UNK_ID, PairVocabulary
from parley.policies.core.layers import product_dtype

BLOCK = 2048
"""Targets scored at a time; bounds the memory for logits to `BLOCK` x V numbers."""


class _NLL(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        states_MH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        targets_M: Tensor,
        shares_M: Tensor | None,
        low_VH: Tensor,
        kept_MV: Tensor,
    ) -> Tensor:
        dtype = kept_MV.dtype
        low_VH.copy_(weight_VH)
        states, bias = states_MH.to(dtype), bias_V.to(dtype)
        total = torch.zeros((), device=states_MH.device)
        states_grad = torch.empty_like(states_MH)
        weight_grads, bias_grads = [], []
        for start in range(0, len(targets_M), BLOCK):
            block = slice(start, start + BLOCK)
            targets = targets_M[block]
            share_MV = kept_MV[: len(targets)]
            torch.addmm(bias, states[block], low_VH.t(), out=share_MV)
            torch.softmax(share_MV, 1, out=share_MV)
            places = torch.arange(len(targets), device=targets.device), targets
            chosen = share_MV[places]
            nats = chosen.float().log()
            share_MV[places] = chosen - 1
            if shares_M is not None:
                nats = nats * shares_M[block]
                share_MV *= shares_M[block].to(dtype).unsqueeze(1)
            total -= nats.sum()
            states_grad[block] = share_MV @ low_VH
            weight_grads.append((share_MV.t() @ states[block]).to(weight_VH.dtype))
            # A product with ones sums the columns at matrix speed.
            bias_grads.append((share_MV.new_ones(1, len(targets)) @ share_MV).squeeze(0).to(bias_V.dtype))
        ctx.save_for_backward(
            states_grad, functools.reduce(Tensor.add_, weight_grads), functools.reduce(Tensor.add_, bias_grads)
        )
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        states_grad, weight_grad, bias_grad = ctx.saved_tensors
        return states_grad.mul_(grad), weight_grad.mul_(grad), bias_grad.mul_(grad), None, None, None, None


class OutputLoss:
    """The loss of one output layer.

    Args:
        output: from states to logits.
    """

    def __init__(self, output: nn.Linear) -> None:
        self.output = output
        self._kept: tuple[Tensor, Tensor] | None = None

    def __call__(self, states_MH: Tensor, targets_M: Tensor, shares_M: Tensor | None = None) -> Tensor:
        """Return the sum of the targets' negative log-likelihoods in nats; its gradient can be taken once.

        Args:
            states_MH: inputs of the layer.
            targets_M: ids, int64.
            shares_M: factor of each target in the sum, without a gradient; 1 when not given.

        Returns:
            A scalar. Under autocast the products are formed in its lower precision.
        """
        weight_VH, dtype = self.output.weight, product_dtype(self.output.weight)
        if self._kept is None or self._kept[0].dtype != dtype:
            # New memory is slow: the system clears it page by page.
            kept_MV = weight_VH.new_empty((BLOCK, len(weight_VH)), dtype=dtype)
            self._kept = torch.empty_like(weight_VH, dtype=dtype), kept_MV
        with torch.autocast(states_MH.device.type, enabled=False):
            return _NLL.apply(states_MH, weight_VH, self.output.bias, targets_M, shares_M, *self._kept)


class Tensors:
    """A dataclass of tensors, or of other such dataclasses."""

    def to(self, device: torch.device) -> Self:
        """Return the same on a device."""
        return type(self)(**{name: part.to(device) for name, part in vars(self).items()})


class Batch(Protocol):
    """The inputs of a model, and the targets to predict."""

    @property
    def targets_BT(self) -> Tensor:
        """Ids to predict, int64; padding included."""

    @property
    def real_BT(self) -> Tensor:
        """True at real targets; M positions in all."""

    def to(self, device: torch.device, /) -> Self:
        """Return the same batch on a device."""


@dataclass(frozen=True)
class ExtendedBatch:
    """A batch of a model's own, with further inputs of an objective.

    Args:
        learned: contexts and recorded replies.
    """

    learned: Any

    @property
    def targets_BT(self) -> Tensor:
        """Ids to predict; padding included."""
        targets_BT: Tensor = self.learned.targets_BT
        return targets_BT

    @property
    def real_BT(self) -> Tensor:
        """True at real targets."""
        real_BT: Tensor = self.learned.real_BT
        return real_BT

    def to(self, device: torch.device) -> Self:
        """Return the same batch on a device."""
        return replace(self, learned=self.learned.to(device))


BatchT_co = TypeVar("BatchT_co", bound=Batch, covariant=True)


class Examples(Protocol[BatchT_co]):
    """The examples that a model is fitted to or measured on."""

    def __len__(self) -> int: ...

    @property
    def num_targets(self) -> np.ndarray:
        """(len,) words to predict in each example."""

    def batch(self, indices: np.ndarray) -> BatchT_co:
        """Return the examples at `indices` (B,)."""


def measured_order(examples: Examples[Any]) -> np.ndarray:
    """Return the indices of all examples (n,), those of like length together."""
    return np.argsort(examples.num_targets, kind="stable")


def in_order(examples: Examples[BatchT_co], batch_size: int) -> Iterator[BatchT_co]:
    """Yield all examples as batches for measuring."""
    order = measured_order(examples)
    for start in range(0, len(order), batch_size):
        yield examples.batch(order[start : start + batch_size])


def epoch_order(
    examples: Examples[Any], batch_size: int, generator: np.random.Generator, bucketed: bool
) -> Sequence[np.ndarray]:
    """Return the indices of the batches of one epoch: every example once, the last drawn batch may be smaller.

    Args:
        examples: the examples.
        batch_size: examples in a batch.
        generator: generator of the order.
        bucketed: whether a batch holds examples of like length; batches still change from epoch to epoch.
    """
    order = generator.permutation(len(examples))
    if bucketed:
        order = order[np.argsort(examples.num_targets[order], kind="stable")]
    groups = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    return [groups[index] for index in generator.permutation(len(groups))]


EMBEDDING_RANGE = 0.1
"""Embeddings start uniform in plus or minus this; the layers start in torch's own range."""
BatchT = TypeVar("BatchT", bound=Batch)


class Loss(NamedTuple):
    """The loss of one training step."""

    total: Tensor
    """A scalar in nats, summed over the batch; its gradient can be taken once."""
    nll: Tensor
    """The part of the targets' negative log-likelihoods."""


class Predictor(nn.Module, Generic[BatchT]):
    """A model that predicts words from states, as fitting and measuring need it."""

    output: nn.Linear
    """Layer from states to logits."""

    def initialise(self, generator: torch.Generator) -> None:
        """Draw initial weights: uniform in plus or minus H^-1/2 as torch does, embeddings in `EMBEDDING_RANGE`."""
        draw_weights(self, self.output.in_features, generator)

    def target_states(self, batch: BatchT) -> Tensor:
        """Return the states that `output` reads to predict the batch's real targets (M, H), in the order of the rows."""
        raise NotImplementedError

    def nll(self, batch: BatchT) -> Tensor:
        """Return negative log-likelihoods of the batch's real targets (M,) in nats, in the order of the rows, with gradients.

        A model with more than the softmax of `output` overrides this for measuring, and `loss` for training.
        """
        targets_M = batch.targets_BT[batch.real_BT]
        blocks = zip(self.target_states(batch).split(BLOCK), targets_M.split(BLOCK), strict=True)
        return torch.cat([F.cross_entropy(self.output(states), targets, reduction="none") for states, targets in blocks])

    def loss(self, batch: BatchT, output_loss: OutputLoss) -> Loss:
        """Return the training loss of a batch.

        Args:
            batch: examples.
            output_loss: the loss of this model's output layer.
        """
        nll = output_loss(self.target_states(batch), batch.targets_BT[batch.real_BT])
        return Loss(nll, nll)


def draw_weights(model: nn.Module, width: int, generator: torch.Generator) -> None:
    """Draw a model's weights as `Predictor.initialise` does; `width` is the input width of its output layer."""
    for name, parameter in model.named_parameters():
        bound = EMBEDDING_RANGE if "embedding" in name else width**-0.5
        parameter.data.uniform_(-bound, bound, generator=generator)


def real_positions(lengths_B: Tensor, length: int) -> Tensor:
    """Return a mask (B, length), true at the first `lengths` positions of each row."""
    return torch.arange(length, device=lengths_B.device) < lengths_B.unsqueeze(1)


_ROWS = 256


@dataclass(frozen=True)
class Fitness:
    """Figures of one model on one split."""

    nll_sums: np.ndarray
    """(n,) negative log-likelihood of each example in nats, shortest examples first."""
    num_targets: np.ndarray
    """(n,) words of each, `</s>` counted."""
    units: np.ndarray | None = None
    """(n,) the independent unit of each, such as its dialogue; None if each example is one."""

    @property
    def nll(self) -> float:
        """Nats per word."""
        return float(self.nll_sums.sum() / self.num_targets.sum())

    @property
    def perplexity(self) -> float:
        """exp(nats per word)."""
        return math.exp(self.nll)


def example_nll(model: Predictor[BatchT], batch: BatchT) -> tuple[Tensor, Tensor]:
    """Return the negative log-likelihoods of a batch's examples.

    Args:
        model: in evaluation mode, or in training with dropout.
        batch: on the model's device.

    Returns:
        Nats of each example (B,) float64, through which gradients flow, and its words (B,) int64, `</s>` counted; in the
        order of the rows.
    """
    nll_M, real_BT = model.nll(batch), batch.real_BT
    nll_BT = nll_M.new_zeros(real_BT.shape).masked_scatter(real_BT, nll_M)
    return nll_BT.double().sum(1), real_BT.sum(1)


@torch.no_grad()
def evaluate(model: Predictor[BatchT], examples: Examples[BatchT]) -> Fitness:
    """Return the figures of a model on a split, in float32 and without dropout."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    sums, counts = zip(*(example_nll(model, batch.to(device)) for batch in in_order(examples, _ROWS)), strict=True)
    model.train(was_training)
    return Fitness(torch.cat(sums).cpu().numpy(), torch.cat(counts).cpu().numpy(), units_of(examples))


def units_of(examples: Examples[Any]) -> np.ndarray | None:
    """Return the `units` of examples that have several, in the order of `Fitness`; None for other ones."""
    units: np.ndarray | None = getattr(examples, "units", None)
    return None if units is None or len(np.unique(units)) == 1 else units[measured_order(examples)]


@dataclass(frozen=True)
class TextSizes:
    """Sizes of the texts of the examples of a split, each (n,) int64, shortest examples first as in `Fitness`."""

    num_words: np.ndarray
    """Words and ends; a word that is cut off counts."""
    num_characters: np.ndarray
    """Characters, the blank or mark behind a word counted."""
    num_unknown: np.ndarray
    """`<unk>` among the words."""


def text_sizes(examples: Examples[BatchT], vocabulary: PairVocabulary) -> TextSizes:
    """Return the sizes of the texts that `evaluate` scores, in whatever units."""
    ends_V, characters_V = torch.from_numpy(vocabulary.ends), torch.from_numpy(vocabulary.num_characters)
    counts = []
    for batch in in_order(examples, _ROWS):
        said_BT, real_BT = batch.targets_BT, batch.real_BT
        ends_BT = ends_V[said_BT]
        cut_B = (~ends_BT[:, :-1] & (said_BT[:, 1:] == EOS_ID)).sum(1)
        counted = (ends_BT & real_BT).sum(1) + cut_B, (characters_V[said_BT] * real_BT).sum(1), (said_BT == UNK_ID).sum(1)
        counts.append(torch.stack(counted))
    return TextSizes(*torch.cat(counts, dim=1).numpy())
