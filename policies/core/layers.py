"""Layers that are fast on a CPU: an LSTM as one autograd node, dropout, products by oneDNN, and the measured gain of bfloat16.

LSTM: the equations are those of `torch.nn.LSTM` (gates in the order input, forget, cell, output), so weights are
interchangeable and a test holds the two equal. The caller forms the input products of all steps at once, and the backward
pass forms the weight gradient in one product over all steps.

Dropout: on a CPU torch draws each value of a mask by itself. Here 64 random bits decide four values.

bfloat16: its gain depends on the processor and on the sizes of a network, so it is measured at first use and kept in the cache
folder.

Products: on a CPU torch hands products in float32 to MKL, which uses only part of the vectors of some makers' processors;
oneDNN, which torch brings too, uses all. On its maker's processors MKL is the faster one for many rows (`is_mkl_whole`).
docs/scaling.md has figures of all three.

Shapes: B rows or texts, T steps or tokens of the longest, S steps of all rows, of different lengths, N tokens of all, H hidden
units, n rows, I width of a factor, J width of the product.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence

from parley.envs.corpora.arrow import cache_root

_LOG = logging.getLogger(__name__)

_LEVELS = 1 << 16
"""Values of 16 bits: the precision of the share of kept values, which are scaled by that share."""


class Dropout(nn.Dropout):
    """Dropout as torch's layer, with other draws."""

    def forward(self, values: Tensor) -> Tensor:
        """Return values; in training a share of them is 0 and the others are scaled up, so that their mean stays."""
        kept = round((1 - self.p) * _LEVELS)
        if not self.training or values.device.type != "cpu" or not 0 < kept < _LEVELS:
            return super().forward(values)
        bits = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
        # As int16 they go from -2**15 to 2**15 - 1.
        is_kept = bits.view(torch.int16)[: values.numel()] < kept - _LEVELS // 2
        return values * is_kept.view(values.shape).to(values.dtype).mul_(_LEVELS / kept)


class TokenPlaces(NamedTuple):
    """Positions of the tokens of texts, step by step without padding: the first tokens of all texts, then the second ones."""

    counts: list[int]
    """Texts of each step."""
    rows_N: Tensor
    """Text of the token at each position."""
    steps_N: Tensor
    """Index of the token in its text."""
    mirrored_N: Tensor
    """Position of the token as far from the last one as this is from the first."""
    at_BT: Tensor
    """Position of each token; 0 past the last one."""
    last_B: Tensor
    """Positions of the last tokens."""

    @classmethod
    def of(cls, lengths_B: np.ndarray, device: torch.device) -> TokenPlaces:
        """Return the positions for texts of so many tokens each (0 allowed), on a device."""
        order_B = np.argsort(-lengths_B, kind="stable")
        steps_N, ranks_N = by_step(lengths_B[order_B])
        rows_N = order_B[ranks_N]
        at_BT = np.zeros((len(lengths_B), lengths_B.max(initial=0)), dtype=np.int64)
        at_BT[rows_N, steps_N] = np.arange(len(rows_N))
        mirrored_N = at_BT[rows_N, lengths_B[rows_N] - 1 - steps_N]
        last_B = at_BT[np.arange(len(at_BT)), lengths_B - 1] if at_BT.size else np.zeros(len(at_BT), dtype=np.int64)
        parts = rows_N, steps_N, mirrored_N, at_BT, last_B
        return cls(np.bincount(steps_N).tolist(), *(torch.from_numpy(part).to(device) for part in parts))

    def padded(self, read_NH: Tensor, width: int) -> Tensor:
        """Return the readings of tokens in the order of their texts (B, width, H), zero behind the last one."""
        return read_NH.new_zeros(len(self.at_BT), width, read_NH.shape[1]).index_put((self.rows_N, self.steps_N), read_NH)


def by_step(lengths_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return step and row (N,) of every token: the first ones of all rows, then the second ones, and so on."""
    step, row = np.nonzero(np.arange(lengths_n.max(initial=0))[:, None] < lengths_n)
    return step, row


def running(lengths: np.ndarray) -> list[int]:
    """Return how many rows have more than t steps, for t = 0, 1, ...; rows are longest first."""
    return np.searchsorted(-lengths, -np.arange(int(lengths[0])), side="left").tolist()


ENOUGH = 0.8
"""Largest share of float32's time at which bfloat16 is taken; a smaller gain cannot be told from noise."""
TURNS = 4
"""Measurements of each precision."""
_KNOWN: dict[Path, float] = {}
"""Measured costs of this process by cache file: decided once, whatever becomes of the file."""


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16 products; without them nothing is measured."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and any(there and name.endswith("bf16") for name, there in torch.cpu.get_capabilities().items())


def cost_of_bfloat16(device: torch.device, what: Mapping[str, Any], measure: Callable[[], float]) -> float:
    """Return the time of some work in bfloat16 as a share of float32's, for torch's present number of threads.

    Args:
        device: device of the work.
        what: description of the work, JSON types: the sizes that its time depends on.
        measure: tells the cost where neither this process nor the cache folder knows it.
    """
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.cpu.get_capabilities()
    where = {"device": device.type, "machine": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}
    metadata = {**where, **what}
    digest = sha256(json.dumps(metadata, sort_keys=True, default=str).encode()).hexdigest()[:16]
    path = cache_root() / "bfloat16" / f"{digest}.json"
    if path not in _KNOWN:
        cost = _kept(path)
        if cost is None:
            cost = measure()
            _keep(path, json.dumps({"cost": cost, **metadata}, default=str))
        _LOG.debug("%s takes %.2f of the time of float32 in bfloat16", ", ".join(what), cost)
        _KNOWN[path] = cost
    return _KNOWN[path]


def _kept(path: Path) -> float | None:
    """Return the cost in the file; None if it is missing or damaged."""
    try:
        cost = json.loads(path.read_bytes())["cost"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(cost) if isinstance(cost, float) and 0 < cost < math.inf else None


def _keep(path: Path, text: str) -> None:
    """Write the file whole or not at all; a read-only folder is ignored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError as error:
        _LOG.info("what bfloat16 costs is measured again by each process, since %s cannot be written: %s", path, error)


def clock_of(device: torch.device) -> Callable[[], float]:
    """Return a clock in seconds: of the processor, so that other processes do not count; on a GPU, of the wall."""
    return time.thread_time if device.type == "cpu" else time.perf_counter


def total_share(
    ours: Iterable[Callable[[], object]], theirs: Iterable[Callable[[], object]], clock: Callable[[], float]
) -> float:
    """Return the total time of different runs as a share of that of as many others, by turns; the first pair is not counted.

    It is for work whose sizes change from one run to the next, so that making kernels counts.
    """
    seconds = [0.0, 0.0]
    for turn, runs in enumerate(zip(ours, theirs, strict=True)):
        for i, run in enumerate(runs):
            start = clock()
            run()
            seconds[i] += (clock() - start) if turn else 0.0
    return seconds[0] / seconds[1]


def shortest_share(ours: Callable[[], object], theirs: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the shortest time of one run as a share of the shortest of the other, by turns; each returns when it is done."""
    seconds = [math.inf, math.inf]
    for turn in range(1 + TURNS):
        for i, run in enumerate((ours, theirs)):
            start = clock()
            run()
            # The first turn makes kernels.
            seconds[i] = min(seconds[i], clock() - start) if turn else math.inf
    return seconds[0] / seconds[1]


ROWS = 128
"""Number of rows for which a weight is laid out."""
FEW_OPERATIONS = 800_000
"""Multiplications below which MKL forms a product: oneDNN is twice as fast but starts some 10 microseconds later."""
NEW_OPERATIONS = 50_000_000
"""Multiplications above which oneDNN forms a product of a new size: making a kernel takes up to half a millisecond."""
MOST_SIZES = 64
"""Number of rows up to which each number has a kernel of its own."""
FEW_VALUES = 2048
"""Values below which MKL forms the hyperbolic tangent, as one call takes less than three."""
_MINUS_ONE = torch.tensor(-1.0)


@cache
def has_onednn(dtype: torch.dtype = torch.float32) -> bool:
    """Return whether torch can hand a product of this CPU to oneDNN; bfloat16 works on some processors only."""
    needed = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    if not torch.backends.mkldnn.is_available() or not all(hasattr(torch.ops.mkldnn, name) for name in needed):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


@cache
def is_mkl_whole() -> bool:
    """Return whether MKL uses all vectors of this processor."""
    cpuinfo = Path("/proc/cpuinfo")
    return torch.backends.mkl.is_available() and cpuinfo.is_file() and "GenuineIntel" in cpuinfo.read_text(encoding="utf-8")


class Weight:
    """The right factor of many products, laid out once.

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
        """Return products (n, J), in the weight's precision; not differentiable."""
        rows_nI = rows_nI.to(self.dtype)
        if self._packed:
            product_nJ: Tensor = torch.ops.mkldnn._linear_pointwise(rows_nI, self._weight_JI, None, "none", [], "")
            return product_nJ
        return linear(rows_nI, self._weight_JI)


def product(rows_nI: Tensor, weight_JI: Tensor, bias_J: Tensor | None = None) -> Tensor:
    """Return products (n, J) with a weight that serves a few times only, plus a bias; not differentiable."""
    if rows_nI.device.type == "cpu" and has_onednn(rows_nI.dtype):
        product_nJ: Tensor = torch.ops.mkldnn._linear_pointwise(rows_nI, weight_JI, bias_J, "none", [], "")
        return product_nJ
    return linear(rows_nI, weight_JI, bias_J)


class Adder:
    """An in-place sum of products of rows with a weight; not differentiable.

    Args:
        weight_JI: as `torch.nn.functional.linear` takes it; its precision is that of the products.
        dtype: of the sums.
    """

    def __init__(self, weight_JI: Tensor, dtype: torch.dtype) -> None:
        self._by_torch = weight_JI.device.type != "cpu" or not has_onednn() or is_mkl_whole() or dtype != torch.float32
        # MKL takes half as long for few rows with a weight in this layout.
        self._weight_IJ = weight_JI.t().contiguous()
        self._weight_JI = self._weight_IJ.t()
        most = math.inf if self._by_torch else FEW_OPERATIONS // weight_JI.numel()
        self._most_at_once = most if weight_JI.dtype == dtype else 0

    def __call__(self, sums_nJ: Tensor, rows_nI: Tensor) -> None:
        """Add the products of rows to sums."""
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
    """Return numbers of rows that add up to these, few different ones: oneDNN makes a kernel for each new one."""
    while rows > MOST_SIZES:
        grain = max(MOST_SIZES, 1 << (rows.bit_length() - 3))
        yield rows // grain * grain
        rows %= grain
    if rows:
        yield rows


def outer_sum(left_nJ: Tensor, right_nI: Tensor) -> Tensor:
    """Return outer products of pairs of rows, summed (J, I): the gradient of a weight; not differentiable."""
    if _is_large(left_nJ, right_nI.shape[1]) and left_nJ.dtype == torch.float32:
        # oneDNN 3 takes 400 times as long for rows with gaps between them, such as one step of stacked ones.
        left_nJ, right_nI = left_nJ.contiguous(), right_nI.contiguous()
        # Of the two oneDNN copies the first.
        if left_nJ.shape[1] > right_nI.shape[1]:
            return product(right_nI.t(), left_nJ.t()).t()
        return product(left_nJ.t(), right_nI.t())
    return left_nJ.t() @ right_nI


def _is_large(rows: Tensor, width: int) -> bool:
    return not is_mkl_whole() and rows.numel() * width >= NEW_OPERATIONS


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, weight_JI: Tensor, bias_J: Tensor | None) -> Tensor:  # type: ignore[no-untyped-def]  # torch has no type for ctx
        # A frozen weight needs no rows, which are most of what a reading keeps.
        ctx.save_for_backward(rows if ctx.needs_input_grad[1] else None, weight_JI)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight_JI, bias_J, "none", [], "")
        return product

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        rows, weight_JI = ctx.saved_tensors
        grad_nJ = grad.reshape(-1, grad.shape[-1])
        needs_grad = ctx.needs_input_grad
        return (
            product(grad_nJ, weight_JI.t()).view(*grad.shape[:-1], -1) if needs_grad[0] else None,
            outer_sum(grad_nJ, rows.reshape(-1, rows.shape[-1])) if needs_grad[1] else None,
            grad_nJ.sum(0) if needs_grad[2] else None,
        )


def dense(rows: Tensor, weight_JI: Tensor, bias_J: Tensor | None = None) -> Tensor:
    """Return `torch.nn.functional.linear`, with gradients, by the fastest float32 products."""
    if not _is_for_onednn(rows):
        return linear(rows, weight_JI, bias_J)
    if not torch.is_grad_enabled():
        product_nJ: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight_JI, bias_J, "none", [], "")
        return product_nJ
    output: Tensor = _Dense.apply(rows, weight_JI, bias_J)
    return output


def dense_of_new_sizes(rows: Tensor, weight_JI: Tensor, bias_J: Tensor | None = None) -> Tensor:
    """Return `dense` of rows whose number changes from call to call."""
    return (dense if _is_large(rows, len(weight_JI)) else linear)(rows, weight_JI, bias_J)


class _DenseWithAdapter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, layer, down_RI, up_JR, scale):  # type: ignore[no-untyped-def]  # torch has no type for ctx
        flat_nI = rows.reshape(-1, rows.shape[-1])
        low_nR = (flat_nI @ down_RI.t()).mul_(scale)
        ctx.save_for_backward(flat_nI, down_RI, up_JR, low_nR, layer.weight)
        ctx.scale = scale
        output: Tensor = layer(rows)
        output.view(-1, output.shape[-1]).addmm_(low_nR, up_JR.t())
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        flat_nI, down_RI, up_JR, low_nR, weight_JI = ctx.saved_tensors
        grad_nJ = grad.reshape(-1, grad.shape[-1])
        low_grad_nR = (grad_nJ @ up_JR).mul_(ctx.scale)
        rows_grad = None
        if ctx.needs_input_grad[0]:
            rows_grad = product(grad_nJ, weight_JI.t()).addmm_(low_grad_nR, down_RI).view(*grad.shape[:-1], -1)
        return rows_grad, None, low_grad_nR.t() @ flat_nI, grad_nJ.t() @ low_nR, None


def dense_with_adapter(rows: Tensor, layer: nn.Linear, down_RI: Tensor, up_JR: Tensor, scale: float) -> Tensor:
    """Return a frozen layer's output plus scale times its low-rank adapter's, which has no pass over the output of its own.

    Args:
        rows: (..., I), in the precision of all weights.
        layer: whose weight (J, I) has no gradient.
        down_RI: the adapter's first weight, R its rank.
        up_JR: its second one.
        scale: of the adapter.
    """
    output: Tensor = _DenseWithAdapter.apply(rows, layer, down_RI, up_JR, scale)
    return output


def activated(rows: Tensor, weight_JI: Tensor, bias_J: Tensor, activation: Literal["relu", "gelu"]) -> Tensor:
    """Return an activation of `dense`; in one pass without gradients."""
    if torch.is_grad_enabled() or not _is_for_onednn(rows):
        output: Tensor = getattr(F, activation)(dense(rows, weight_JI, bias_J))
        return output
    output = torch.ops.mkldnn._linear_pointwise(rows, weight_JI, bias_J, activation, [], "none")
    return output


def dense_onto(values: Tensor, rows: Tensor, weight_JI: Tensor, bias_J: Tensor) -> Tensor:
    """Return values plus `dense` of rows; in one pass without gradients."""
    if torch.is_grad_enabled() or not _is_for_onednn(rows):
        return values + dense(rows, weight_JI, bias_J)
    output: Tensor = torch.ops.mkldnn._linear_pointwise.binary(rows, values, weight_JI, bias_J, "add")
    return output


def products_onto(values: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return values (R, n, J) plus products of matrices (R, n, I) and (R, I, J); in one pass without gradients."""
    is_cast = torch.is_autocast_enabled(values.device.type)
    return values + left @ right if torch.is_grad_enabled() or is_cast else torch.baddbmm(values, left, right)


def scaled_products(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """Return products of matrices (R, n, I) and (R, I, J), times a number; in one pass without gradients."""
    if torch.is_grad_enabled() or torch.is_autocast_enabled(left.device.type):
        return left @ right * scale
    # With a factor of 0 the values are not read.
    return torch.baddbmm(left.new_empty(1, 1, 1), left, right, beta=0, alpha=scale)


def _is_for_onednn(rows: Tensor) -> bool:
    device = rows.device.type
    return device == "cpu" and has_onednn() and not torch.is_autocast_enabled(device) and rows.dtype == torch.float32


class Linear(nn.Linear):
    """torch's linear layer, by `dense`."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return the output of torch's layer."""
        return dense(rows, self.weight, self.bias)


def tanh_(values: Tensor) -> Tensor:
    """Set values to their hyperbolic tangent in place, exact to 2e-7, by the faster way: MKL's, or the logistic function."""
    if values.is_cuda or is_mkl_whole() or values.numel() < FEW_VALUES:
        return values.tanh_()
    return torch.add(_MINUS_ONE, values.mul_(2).sigmoid_(), alpha=2, out=values)


class LSTM(nn.LSTM):
    """torch's LSTM as a holder of weights, their types declared; all but `read_whole` read one layer."""

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def read(self, inputs_BTE: Tensor) -> Tensor:
        """Return the hidden state (B, T, H) after every step from zero, as the layer itself does; it must be `batch_first`."""
        if self.training and inputs_BTE.is_cuda:
            # cuDNN starts a few kernels where a loop starts several a step; it differentiates in training alone.
            states: Tensor = self(inputs_BTE)[0]
            return states
        return recur(self._gates(inputs_BTE.transpose(0, 1)), self.weight_hh_l0).transpose(0, 1)

    def read_packed(self, inputs_SE: Tensor, counts: list[int]) -> Tensor:
        """Return the hidden states of rows of different lengths, none of them padded.

        Args:
            inputs_SE: of all rows in the first step, behind them those in the second, and so on; the longest rows first.
            counts: rows of each step.

        Returns:
            The hidden states (S, H), in the order of the inputs.
        """
        if self.training and inputs_SE.is_cuda:
            states: Tensor = self(PackedSequence(inputs_SE, torch.tensor(counts)))[0].data
            return states
        return recur_packed(self._gates(inputs_SE), self.weight_hh_l0, counts)[0]

    def read_whole(self, inputs_SE: Tensor, places: TokenPlaces, dropout: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states of all layers over rows of different lengths, read to their ends.

        Args:
            inputs_SE: in the order of the places.
            places: of the inputs of B rows, none of them empty.
            dropout: between two layers.

        Returns:
            The upmost layer's hidden states (S, H), and hidden states and cells (L, B, H) after each row's last step.
        """
        if inputs_SE.is_cuda:
            states, (hidden_LBH, cell_LBH) = self(PackedSequence(inputs_SE, torch.tensor(places.counts)))
            # The longest row is the first one there.
            ranks_B = places.at_BT[:, 0]
            return states.data, hidden_LBH[:, ranks_B], cell_LBH[:, ranks_B]
        below, hidden, cells = inputs_SE, [], []
        for layer in range(self.num_layers):
            read, kept, *biases = (getattr(self, f"{name}_l{layer}") for name in _PARTS)
            found_SH, cells_SH = recur_packed(F.linear(below, read, sum(biases)), kept, places.counts)
            hidden.append(found_SH[places.last_B])
            cells.append(cells_SH[places.last_B])
            below = dropout(found_SH)
        return found_SH, torch.stack(hidden), torch.stack(cells)

    def _gates(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0)


_PARTS = "weight_ih", "weight_hh", "bias_ih", "bias_hh"


class LSTMCell(nn.LSTMCell):
    """torch's LSTM cell, by the fastest products."""

    def forward(self, rows_BE: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the output of torch's cell."""
        assert state is not None, "a state is always given"
        hidden_BH, cell_BH = state
        gates_B4H = dense(rows_BE, self.weight_ih, self.bias_ih) + dense(hidden_BH, self.weight_hh, self.bias_hh)
        enter, forget, candidate, leave = gates_B4H.chunk(4, dim=1)
        after_BH = forget.sigmoid() * cell_BH + enter.sigmoid() * candidate.tanh()
        return leave.sigmoid() * after_BH.tanh(), after_BH


def product_dtype(like: Tensor) -> torch.dtype:
    """Return the precision of matrix products: autocast's lower one if it is on, else the tensor's own."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype


def advance(gates_B4H: Tensor, cell_BH: Tensor, after_BH: Tensor, squashed_BH: Tensor, hidden_BH: Tensor) -> None:
    """Compute the element-wise part of one step, in place.

    Args:
        gates_B4H: sums of products and biases; become the gates.
        cell_BH: the cell before the step.
        after_BH: receives the cell after it.
        squashed_BH: receives the tanh of that.
        hidden_BH: receives the hidden state after it.
    """
    hidden = cell_BH.shape[1]
    gates_B4H[:, : 2 * hidden].sigmoid_()
    gates_B4H[:, 2 * hidden : 3 * hidden].tanh_()
    gates_B4H[:, 3 * hidden :].sigmoid_()
    enter, forget, candidate, leave = gates_B4H.split(hidden, dim=1)
    torch.mul(forget, cell_BH, out=after_BH)
    after_BH.addcmul_(enter, candidate)
    torch.tanh(after_BH, out=squashed_BH)
    torch.mul(leave, squashed_BH, out=hidden_BH)


def retreat(
    gates_B4H: Tensor, cell_BH: Tensor, squashed_BH: Tensor, hidden_grad_BH: Tensor, cell_grad_BH: Tensor, grad_B4H: Tensor
) -> None:
    """Compute the backward of `advance`, in place.

    Args:
        gates_B4H: the gates.
        cell_BH: the cell before the step.
        squashed_BH: tanh of the cell after it.
        hidden_grad_BH: gradient of the hidden state after it.
        cell_grad_BH: gradient of the cell after it from later steps; becomes that of the cell before it.
        grad_B4H: receives the gradient of the gates' sums.
    """
    enter, forget, candidate, leave = gates_B4H.split(cell_BH.shape[1], dim=1)
    d_enter, d_forget, d_candidate, d_leave = grad_B4H.split(cell_BH.shape[1], dim=1)
    cell_grad_BH += torch.ops.aten.tanh_backward(hidden_grad_BH * leave, squashed_BH)
    _OF_SIGMOID(hidden_grad_BH * squashed_BH, leave, grad_input=d_leave)
    _OF_SIGMOID(cell_grad_BH * candidate, enter, grad_input=d_enter)
    _OF_SIGMOID(cell_grad_BH * cell_BH, forget, grad_input=d_forget)
    _OF_TANH(cell_grad_BH * enter, candidate, grad_input=d_candidate)
    cell_grad_BH *= forget


_OF_SIGMOID, _OF_TANH = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input


class _LstmRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx, gates_S4H: Tensor, weight_4HH: Tensor, counts: list[int], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        hidden = weight_4HH.shape[1]
        gates = gates_S4H.float() if gates_S4H.dtype == torch.bfloat16 else gates_S4H.clone()
        add = Adder(weight_4HH.to(dtype), gates.dtype)
        states, cells, squashed = (gates.new_empty(len(gates), hidden) for _ in range(3))
        state, cell = gates[:0, :hidden], gates.new_zeros(counts[0], hidden)
        views = zip(*(part.split(counts) for part in (gates, cells, squashed, states)), strict=True)
        for step_gates, after, squashed_after, step_state in views:
            rows = len(step_gates)
            if len(state):
                add(step_gates, state[:rows])
            advance(step_gates, cell[:rows], after, squashed_after, step_state)
            state, cell = step_state, after
        ctx.save_for_backward(weight_4HH, gates, states, cells, squashed)
        ctx.counts, ctx.dtype, ctx.given = counts, dtype, gates_S4H.dtype
        ctx.set_materialize_grads(False)
        return states, cells

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[no-untyped-def]  # as above
        ctx, grad_SH: Tensor | None, cell_grad_SH: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        weight_4HH, gates, states, cells, squashed = ctx.saved_tensors
        counts, hidden = ctx.counts, states.shape[1]
        enter, forget, candidate, leave = gates.split(hidden, 1)
        states_before, cells_before = (_earlier(part, counts) for part in (states, cells))
        # Factors from the gradients of cells and states to those of the gates' sums.
        gates_grad = torch.empty_like(gates)
        d_enter, d_forget, d_candidate, d_leave = gates_grad.split(hidden, 1)
        _OF_SIGMOID(candidate, enter, grad_input=d_enter)
        _OF_SIGMOID(cells_before, forget, grad_input=d_forget)
        _OF_TANH(enter, candidate, grad_input=d_candidate)
        _OF_SIGMOID(squashed, leave, grad_input=d_leave)
        through = torch.ops.aten.tanh_backward(leave, squashed)
        add = Adder(weight_4HH.to(ctx.dtype).t(), gates.dtype)
        if grad_SH is None:
            grads = torch.zeros_like(states)
        else:
            grads = grad_SH.to(gates.dtype, memory_format=torch.contiguous_format, copy=True)
        cell_grad, parts = torch.zeros_like(cells[: counts[0]]), (grads, through, forget, gates_grad)
        steps = list(zip(*(part.split(counts) for part in parts), strict=True))
        cell_grads = [None] * len(steps) if cell_grad_SH is None else cell_grad_SH.split(counts)[::-1]
        for (grad, to_cell, kept, step_grad), previous, cell in zip(
            steps[::-1], [*steps[-2::-1], None], cell_grads, strict=True
        ):
            rows = len(grad)
            if cell is not None:
                cell_grad[:rows] += cell
            cell_grad[:rows].addcmul_(grad, to_cell)
            step_grad.view(rows, 4, hidden)[:, :3].mul_(cell_grad[:rows].unsqueeze(1))
            step_grad[:, 3 * hidden :].mul_(grad)
            cell_grad[:rows].mul_(kept)
            if previous is not None:
                add(previous[0][:rows], step_grad)
        weight_grad = None
        if ctx.needs_input_grad[1]:
            weight_grad = (gates_grad.to(ctx.dtype).t() @ states_before.to(ctx.dtype)).to(weight_4HH.dtype)
        return gates_grad.to(ctx.given), weight_grad, None, None


def _earlier(after_SH: Tensor, counts: list[int]) -> Tensor:
    rows = zip(after_SH.split(counts), counts[1:], strict=False)
    return torch.cat([after_SH.new_zeros(counts[0], after_SH.shape[1]), *(after[:num] for after, num in rows)])


def recur(gates_TB4H: Tensor, weight_4HH: Tensor) -> Tensor:
    """Return the hidden states of an LSTM from zero over given input products.

    Args:
        gates_TB4H: input products and both biases, per step.
        weight_4HH: hidden weights, as `torch.nn.LSTM.weight_hh_l0`.

    Returns:
        The hidden state after every step (T, B, H). Under autocast the hidden products are formed in its lower precision
        while states and gates stay in float32.
    """
    steps, rows = gates_TB4H.shape[:2]
    return recur_packed(gates_TB4H.flatten(0, 1), weight_4HH, [rows] * steps)[0].unflatten(0, (steps, rows))


def recur_packed(gates_S4H: Tensor, weight_4HH: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """Return the states of an LSTM over rows of different lengths, the longest first, none of them padded.

    Args:
        gates_S4H: the products of all rows for the first step, behind them those for the second, and so on.
        weight_4HH: as there.
        counts: rows of each step, none more than the one before it.

    Returns:
        The hidden states and the cells (S, H), in the order of the products.
    """
    dtype = product_dtype(weight_4HH)
    with torch.autocast(weight_4HH.device.type, enabled=False):
        states: tuple[Tensor, Tensor] = _LstmRecurrence.apply(gates_S4H, weight_4HH, counts, dtype)
        return states


class LinearOfNewSizes(nn.Linear):
    """torch's linear layer, by `dense_of_new_sizes`."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return the output of torch's layer."""
        return dense_of_new_sizes(rows, self.weight, self.bias)


def multiply_fast(model: nn.Module) -> None:
    """Let torch's linear layers of a model form their products by the fastest kernels; derived layers stay as they are."""
    if not is_mkl_whole():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = LinearOfNewSizes
