"""The recurrent core against torch's own layer: values, every gradient, precision, and the edges."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from parley.policies.core.gru import GRU, recur, recur_packed, runs

INPUT, HIDDEN = 3, 4


def layer(directions: int, seed: int = 0) -> GRU:
    """A double precision layer whose biases differ from each other and from zero."""
    gru = GRU(INPUT, HIDDEN, bidirectional=directions == 2).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in gru.parameters():
        parameter.data.normal_(generator=generator)
    return gru


def through_recur(gru: GRU, inputs_TBI: Tensor, start_DBH: Tensor) -> Tensor:
    """What the layer returns (T, B, D * H), formed by `recur`."""
    found = []
    for suffix, start_BH in zip(["", "_reverse"], start_DBH, strict=False):
        read, weight, bias, inner_bias = (
            getattr(gru, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        inputs = inputs_TBI.flip(0) if suffix else inputs_TBI
        states = recur(F.linear(inputs, read, bias), weight, inner_bias, start_BH)
        found.append(states.flip(0) if suffix else states)
    return torch.cat(found, dim=-1)


def values_and_gradients(gru: GRU, inputs: Tensor, start: Tensor, ours: bool) -> dict[str, Tensor]:
    leaves = {"inputs": inputs.clone().requires_grad_(), "start": start.clone().requires_grad_()}
    call = through_recur if ours else nn.GRU.forward
    out = call(gru, leaves["inputs"], leaves["start"])
    out = out if isinstance(out, Tensor) else out[0]
    # Each output weighs differently, so that no two gradients can be exchanged unnoticed.
    loss = (out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)).sum()
    named = leaves | dict(gru.named_parameters())
    grads = torch.autograd.grad(loss, list(named.values()))
    return {"out": out.detach(), **dict(zip(named, grads, strict=True))}


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("steps", "rows"), [(1, 1), (7, 3), (20, 1)])
def test_values_and_all_gradients_are_those_of_torch(directions: int, steps: int, rows: int) -> None:
    gru, generator = layer(directions), torch.Generator().manual_seed(1)
    inputs = torch.randn(steps, rows, INPUT, generator=generator, dtype=torch.float64)
    start = torch.randn(directions, rows, HIDDEN, generator=generator, dtype=torch.float64)
    theirs = values_and_gradients(gru, inputs, start, ours=False)
    ours = values_and_gradients(gru, inputs, start, ours=True)
    assert len(theirs) == 3 + 4 * directions
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-10, atol=1e-12, msg=name)


def test_gradients_are_those_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(2)
    shapes = [(3, 2, 3 * HIDDEN), (3 * HIDDEN, HIDDEN), (3 * HIDDEN,), (2, HIDDEN)]
    arguments = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(recur, arguments)


def test_nothing_differs_when_no_gradient_is_wanted() -> None:
    gru = layer(2)
    inputs, start = torch.linspace(-1, 1, 30).double().view(5, 2, INPUT), torch.zeros(2, 2, HIDDEN, dtype=torch.float64)
    wanted = through_recur(gru, inputs, start)
    with torch.no_grad():
        assert torch.equal(through_recur(gru, inputs, start), wanted)


def test_no_steps_leave_no_states_and_no_gradient() -> None:
    shapes = [(0, 3, 3 * HIDDEN), (3 * HIDDEN, HIDDEN), (3 * HIDDEN,), (3, HIDDEN)]
    arguments = [torch.ones(shape, requires_grad=True) for shape in shapes]
    states = recur(*arguments)
    assert states.shape == (0, 3, HIDDEN)
    states.sum().backward()
    for argument in arguments:
        assert argument.grad is not None
        assert argument.grad.shape == argument.shape
        assert not argument.grad.any()


def test_second_derivatives_are_refused_rather_than_wrong() -> None:
    gates = torch.ones(2, 1, 3 * HIDDEN, requires_grad=True)
    states = recur(gates, torch.ones(3 * HIDDEN, HIDDEN), torch.ones(3 * HIDDEN), torch.zeros(1, HIDDEN))
    (grad,) = torch.autograd.grad(states.square().sum(), gates, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_autocast_rounds_the_products_and_keeps_states_in_full() -> None:
    gru, generator = layer(2).float(), torch.Generator().manual_seed(3)
    for parameter in gru.parameters():
        parameter.data *= 0.3
    inputs, start = torch.randn(9, 4, INPUT, generator=generator), torch.zeros(2, 4, HIDDEN)
    full = values_and_gradients(gru, inputs, start, ours=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert through_recur(gru, inputs, start).dtype == torch.float32
        rounded = values_and_gradients(gru, inputs, start, ours=True)
    assert not torch.equal(rounded["out"], full["out"]), "autocast must reach the products"
    for name, value in full.items():
        assert rounded[name].dtype == torch.float32
        torch.testing.assert_close(rounded[name], value, rtol=0.02, atol=0.02 * float(value.abs().max()), msg=name)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_rows_of_different_lengths_are_read_as_each_alone(lengths: list[int]) -> None:
    lengths = sorted(lengths, reverse=True)
    counts = [sum(size > step for size in lengths) for step in range(lengths[0])]
    generator = torch.Generator().manual_seed(len(lengths))
    shapes = [(sum(counts), 3 * HIDDEN), (3 * HIDDEN, HIDDEN), (3 * HIDDEN,), (len(lengths), HIDDEN)]
    leaves = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    gates, weight, bias, start = leaves
    ends = torch.tensor([0, *counts]).cumsum(0).tolist()
    alone = torch.zeros(sum(counts), HIDDEN, dtype=torch.float64)
    for row, size in enumerate(lengths):
        at = [ends[step] + row for step in range(size)]
        states = recur(gates[at].unsqueeze(1), weight, bias, start[row : row + 1])
        alone = alone.index_copy(0, torch.tensor(at, dtype=torch.int64), states.squeeze(1))
    together = recur_packed(gates, weight, bias, start, counts)
    torch.testing.assert_close(together, alone)
    with torch.no_grad():
        assert torch.equal(recur_packed(gates, weight, bias, start, counts), together)
    weighed = torch.randn(alone.shape, generator=generator, dtype=torch.float64)
    wanted = torch.autograd.grad((alone * weighed).sum(), leaves, allow_unused=True, materialize_grads=True)
    for found, right in zip(torch.autograd.grad((together * weighed).sum(), leaves), wanted, strict=True):
        torch.testing.assert_close(found, right)


@given(st.lists(st.integers(0, 9), max_size=9).map(lambda counts: sorted(counts, reverse=True)), st.integers(0, 12))
def test_runs_are_all_steps_in_order_and_no_longer_than_asked(counts: list[int], most: int) -> None:
    found = list(runs(counts, most))
    assert [count for steps in found for count in steps] == counts
    assert all(sum(steps) <= most or sum(steps) == max(steps) for steps in found)
