"""Products of rows with a weight, and the hyperbolic tangent, by the fastest kernels that torch brings for a processor.

On a CPU torch hands products in float32 to MKL, which uses only a part of the vectors of other makers' processors. oneDNN,
which torch brings too, uses all: on an AMD EPYC with AVX-512 (family 26), one thread, 100 rows with a weight of 1,200 x 2,400
took 5.7 ms by MKL and 2.5 ms by oneDNN, both in float32 with the same sums up to rounding, and 1.3 ms in bfloat16. On its
maker's processors MKL is the faster one for many rows (`is_mkl_whole`): with it, `python -m benchmarks.chat_triggers --quick`
says 1.7 to 1.8 x on an Intel Xeon with AVX-512 (family 6, model 106), and 1.5 x by oneDNN.

Shapes: n rows, I width of what is multiplied, J width of the product
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

ROWS = 128
"""Rows for which a weight is laid out."""
FEW_OPERATIONS = 800_000
"""Multiplications of a product that are left to MKL, where oneDNN, twice as fast, takes some 10 microseconds more to begin."""
NEW_OPERATIONS = 50_000_000
"""Multiplications from which on oneDNN forms a product of a new size: to make a kernel takes it up to half a millisecond."""
MOST_SIZES = 64
"""Rows up to which each number of them has a kernel of its own."""
FEW_VALUES = 2048
"""Values whose hyperbolic tangent is left to MKL, as one call takes less than three."""
_MINUS_ONE = torch.tensor(-1.0)


@cache
def has_onednn(dtype: torch.dtype = torch.float32) -> bool:
    """Whether this torch can hand a product of this CPU to oneDNN, which forms those in bfloat16 on some processors alone."""
    needed = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    if not torch.backends.mkldnn.is_available() or not all(hasattr(torch.ops.mkldnn, name) for name in needed):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


@cache
def is_mkl_whole() -> bool:
    """Whether MKL uses all vectors of this processor."""
    cpuinfo = Path("/proc/cpuinfo")
    return torch.backends.mkl.is_available() and cpuinfo.is_file() and "GenuineIntel" in cpuinfo.read_text(encoding="utf-8")


class Weight:
    """The right side of many products, laid out once.

    Args:
        weight_JI: as `torch.nn.functional.linear` takes it; not differentiated.
        dtype: in which precision products are formed, float32 or bfloat16.
    """

    def __init__(self, weight_JI: Tensor, dtype: torch.dtype = torch.float32) -> None:
        self.dtype, self._weight_JI = dtype, weight_JI.detach().to(dtype)
        self._packed = weight_JI.device.type == "cpu" and has_onednn(dtype)
        if self._packed:
            self._weight_JI = torch.ops.mkldnn._reorder_linear_weight(self._weight_JI.contiguous(), ROWS)

    def __call__(self, rows_nI: Tensor) -> Tensor:
        """Products (n, J), of the weight's precision; not differentiable."""
        rows_nI = rows_nI.to(self.dtype)
        if self._packed:
            product_nJ: Tensor = torch.ops.mkldnn._linear_pointwise(rows_nI, self._weight_JI, None, "none", [], "")
            return product_nJ
        return linear(rows_nI, self._weight_JI)


def product(rows_nI: Tensor, weight_JI: Tensor, bias_J: Tensor | None = None) -> Tensor:
    """Products (n, J) with a weight that serves a few times only, and a bias added to them; not differentiable."""
    if rows_nI.device.type == "cpu" and has_onednn(rows_nI.dtype):
        product_nJ: Tensor = torch.ops.mkldnn._linear_pointwise(rows_nI, weight_JI, bias_J, "none", [], "")
        return product_nJ
    return linear(rows_nI, weight_JI, bias_J)


class Adder:
    """Adds products of rows with a weight to sums, in place; not differentiable.

    Args:
        weight_JI: as `torch.nn.functional.linear` takes it; its precision is that of the products.
        dtype: of the sums.
    """

    def __init__(self, weight_JI: Tensor, dtype: torch.dtype) -> None:
        self._by_torch = weight_JI.device.type != "cpu" or not has_onednn() or is_mkl_whole() or dtype != torch.float32
        # MKL takes half as long for few rows where a weight lies this way round.
        self._weight_IJ = weight_JI.t().contiguous()
        self._weight_JI = self._weight_IJ.t()
        most = math.inf if self._by_torch else FEW_OPERATIONS // weight_JI.numel()
        self._most_at_once = most if weight_JI.dtype == dtype else 0

    def __call__(self, sums_nJ: Tensor, rows_nI: Tensor) -> None:
        """Adds."""
        # Torch's own `len` and `split` take a few microseconds, of the 20 that a product of few rows takes.
        num_rows = rows_nI.shape[0]
        if num_rows <= self._most_at_once:
            sums_nJ.addmm_(rows_nI, self._weight_IJ)
            return
        rows_nI = rows_nI.to(self._weight_JI.dtype)
        if num_rows <= MOST_SIZES or self._by_torch:
            sums_nJ.add_(product(rows_nI, self._weight_JI))
            return
        sizes = list(blocks(num_rows))
        for sums, rows in zip(sums_nJ.split(sizes), rows_nI.split(sizes), strict=True):
            sums.add_(product(rows, self._weight_JI))


def blocks(rows: int) -> Iterator[int]:
    """Numbers of rows that these are the sum of, few different ones for all: for each new one oneDNN makes a kernel."""
    while rows > MOST_SIZES:
        grain = max(MOST_SIZES, 1 << (rows.bit_length() - 3))
        yield rows // grain * grain
        rows %= grain
    if rows:
        yield rows


def outer_sum(left_nJ: Tensor, right_nI: Tensor) -> Tensor:
    """Outer products of pairs of rows, summed (J, I): the gradient of a weight; not differentiable."""
    if _is_large(left_nJ, right_nI.shape[1]) and left_nJ.dtype == torch.float32:
        # Of the two oneDNN copies the first.
        if left_nJ.shape[1] > right_nI.shape[1]:
            return product(right_nI.t(), left_nJ.t()).t()
        return product(left_nJ.t(), right_nI.t())
    return left_nJ.t() @ right_nI


def _is_large(rows: Tensor, width: int) -> bool:
    """Whether a kernel for this many rows alone pays."""
    return not is_mkl_whole() and rows.numel() * width >= NEW_OPERATIONS


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, weight_JI: Tensor, bias_J: Tensor | None) -> Tensor:  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx.save_for_backward(rows, weight_JI)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight_JI, bias_J, "none", [], "")
        return product

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        rows, weight_JI = ctx.saved_tensors
        grad_nJ = grad.reshape(-1, grad.shape[-1])
        asked = ctx.needs_input_grad
        return (
            product(grad_nJ, weight_JI.t()).view_as(rows) if asked[0] else None,
            outer_sum(grad_nJ, rows.reshape(-1, rows.shape[-1])) if asked[1] else None,
            grad_nJ.sum(0) if asked[2] else None,
        )


def dense(rows: Tensor, weight_JI: Tensor, bias_J: Tensor | None = None) -> Tensor:
    """As `torch.nn.functional.linear`, by the fastest products that there are in float32, those of its gradients too."""
    if not _is_for_onednn(rows):
        return linear(rows, weight_JI, bias_J)
    if not torch.is_grad_enabled():
        known: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight_JI, bias_J, "none", [], "")
        return known
    found: Tensor = _Dense.apply(rows, weight_JI, bias_J)
    return found


def dense_of_new_sizes(rows: Tensor, weight_JI: Tensor, bias_J: Tensor | None = None) -> Tensor:
    """As `dense`, for rows whose number changes from call to call."""
    return (dense if _is_large(rows, len(weight_JI)) else linear)(rows, weight_JI, bias_J)


def rectified(rows: Tensor, weight_JI: Tensor, bias_J: Tensor) -> Tensor:
    """The positive part of `dense`; without gradients in the pass that forms it."""
    if torch.is_grad_enabled() or not _is_for_onednn(rows):
        return torch.relu(dense(rows, weight_JI, bias_J))
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight_JI, bias_J, "relu", [], "")
    return found


def dense_onto(values: Tensor, rows: Tensor, weight_JI: Tensor, bias_J: Tensor) -> Tensor:
    """Values and `dense` of rows, summed; without gradients in the pass that forms it."""
    if torch.is_grad_enabled() or not _is_for_onednn(rows):
        return values + dense(rows, weight_JI, bias_J)
    found: Tensor = torch.ops.mkldnn._linear_pointwise.binary(rows, values, weight_JI, bias_J, "add")
    return found


def products_onto(values: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Values (R, n, J) and the products of matrices (R, n, I) and (R, I, J), summed; without gradients in one pass."""
    is_cast = torch.is_autocast_enabled(values.device.type)
    return values + left @ right if torch.is_grad_enabled() or is_cast else torch.baddbmm(values, left, right)


def scaled_products(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """The products of matrices (R, n, I) and (R, I, J), times a number; without gradients in one pass."""
    if torch.is_grad_enabled() or torch.is_autocast_enabled(left.device.type):
        return left @ right * scale
    # What is multiplied by 0 is not read.
    return torch.baddbmm(left.new_empty(1, 1, 1), left, right, beta=0, alpha=scale)


def _is_for_onednn(rows: Tensor) -> bool:
    device = rows.device.type
    return device == "cpu" and has_onednn() and not torch.is_autocast_enabled(device) and rows.dtype == torch.float32


class Linear(nn.Linear):
    """torch's layer, by `dense`."""

    def forward(self, rows: Tensor) -> Tensor:
        """As torch's."""
        return dense(rows, self.weight, self.bias)


def tanh_(values: Tensor) -> Tensor:
    """The hyperbolic tangent in place, exact to 2e-7, by the faster way.

    torch leaves it to MKL, which on an Intel Xeon (family 6, model 106) takes .4 to .5 ns a value, the logistic function 1.4 to
    1.7. On an AMD EPYC (family 26) the logistic function takes a fifth of MKL's time.
    """
    if values.is_cuda or is_mkl_whole() or values.numel() < FEW_VALUES:
        return values.tanh_()
    return torch.add(_MINUS_ONE, values.mul_(2).sigmoid_(), alpha=2, out=values)
