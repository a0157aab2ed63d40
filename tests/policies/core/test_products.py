"""Products are those of `torch.nn.functional.linear`, whichever kernel forms them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from parley.policies.core import layers as products
from parley.policies.core.layers import (
    Adder,
    Linear,
    Weight,
    activated,
    blocks,
    dense_of_new_sizes,
    dense_onto,
    outer_sum,
    product,
    products_onto,
    scaled_products,
    tanh_,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["as the machine has it", "without oneDNN"])
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without oneDNN":
        monkeypatch.setattr(products, "has_onednn", lambda *_: False)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_products_are_exact_up_to_rounding(rows: int) -> None:
    rows_nI, weight_JI = drawn(rows, 40), drawn(24, 40)
    right = rows_nI.double() @ weight_JI.double().T
    for found in (Weight(weight_JI)(rows_nI), product(rows_nI, weight_JI)):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("rows", "at_once"), [(9, 10**6), (9, 0), (200, 0)], ids=["few", "one size", "several sizes"])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 0.3)])
def test_products_are_added_in_place(
    whole: bool, rows: int, at_once: int, dtype: torch.dtype, close: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "is_mkl_whole", lambda: whole)
    monkeypatch.setattr(products, "FEW_OPERATIONS", at_once)
    sums_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    rows_nI, weight_JI, sums_nK = (drawn(*shape).to(sums_dtype) for shape in ((rows, 40), (24, 40), (rows, 80)))
    right = sums_nK.clone()
    right[:, 5:29] += rows_nI @ weight_JI.T
    Adder(weight_JI.to(dtype), sums_dtype)(sums_nK[:, 5:29], rows_nI)
    torch.testing.assert_close(sums_nK, right, rtol=close, atol=close)


def test_a_few_sizes_add_up_to_any_number_of_rows() -> None:
    sizes = [list(blocks(rows)) for rows in range(4097)]
    assert [sum(each) for each in sizes] == list(range(4097))
    assert len({size for each in sizes for size in each}) < 100


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("new", [0, 10**6], ids=["large", "small"])
def test_products_of_new_sizes_and_their_gradients_are_those_of_torch(new: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "is_mkl_whole", lambda: False)
    monkeypatch.setattr(products, "NEW_OPERATIONS", new)
    found, wanted = ([drawn(*shape).requires_grad_() for shape in ((7, 40), (24, 40), (24,))] for _ in range(2))
    ours, theirs = dense_of_new_sizes(*found), torch.nn.functional.linear(*wanted)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    (ours**2).sum().backward()
    (theirs**2).sum().backward()
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(outer_sum(ours, found[0]), ours.t() @ found[0], rtol=1e-5, atol=1e-4)


def test_outer_products_of_rows_with_gaps_are_of_dense_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []

    def product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        given.extend(tensor.t().is_contiguous() for tensor in (rows, weight))
        return rows @ weight.t()

    monkeypatch.setattr(products, "is_mkl_whole", lambda: False)
    monkeypatch.setattr(products, "NEW_OPERATIONS", 0)
    monkeypatch.setattr(products, "product", product)
    left, right = drawn(6, 3, 24)[:, 1], drawn(6, 2, 40)[:, 0]
    torch.testing.assert_close(outer_sum(left, right), left.t() @ right, rtol=1e-5, atol=1e-4)
    assert given == [True, True]


@pytest.mark.usefixtures("_kernels")
def test_rows_and_weights_may_be_parts_of_others() -> None:
    wide_nI, wide_JI = drawn(9, 80), drawn(24, 80)
    rows_nI, weight_JI = wide_nI[:, 40:], wide_JI[:, 40:]
    right = rows_nI @ weight_JI.T
    for found in (Weight(weight_JI)(rows_nI), product(rows_nI, weight_JI), Weight(weight_JI.T.contiguous().T)(rows_nI)):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 40), (3, 5, 40)])
def test_the_layer_and_its_gradients_are_those_of_torch(shape: tuple[int, ...], bias: bool) -> None:
    layer, rows = Linear(40, 24, bias=bias), drawn(*shape).requires_grad_()
    asked = [rows, *layer.parameters()]
    passes = layer(rows), torch.nn.functional.linear(rows, layer.weight, layer.bias)
    torch.testing.assert_close(*passes, rtol=1e-5, atol=1e-5)
    ours, theirs = (torch.autograd.grad(each.square().sum(), asked) for each in passes)
    for mine, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)
    layer.weight.requires_grad_(False)
    torch.testing.assert_close(torch.autograd.grad(layer(rows).square().sum(), rows)[0], theirs[0], rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("is_cast", [False, True])
def test_what_is_formed_in_one_pass_is_the_sum_or_the_positive_part(is_cast: bool) -> None:
    rows, others, values, layer = drawn(3, 5, 40), drawn(3, 40, 24), drawn(3, 5, 24), Linear(40, 24)

    def formed() -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
            return [
                activated(rows, layer.weight, layer.bias, "relu"),
                activated(rows, layer.weight, layer.bias, "gelu"),
                dense_onto(values, rows, layer.weight, layer.bias),
                products_onto(values, rows, others),
                scaled_products(rows, others, 0.5),
            ]

    product_ = torch.nn.functional.linear(rows, layer.weight, layer.bias)
    right = [
        product_.relu(),
        torch.nn.functional.gelu(product_),
        values + product_,
        values + rows @ others,
        0.5 * (rows @ others),
    ]
    with torch.no_grad():
        told = formed()
    assert [each.dtype for each in told[2:4]] == [torch.float32] * 2, "sums are as exact as what is added to"
    error = 0.2 if is_cast else 1e-5
    for mine, learning, exact in zip(told, formed(), right, strict=True):
        assert mine.dtype == learning.dtype
        for found in (mine, learning):
            torch.testing.assert_close(found.float(), exact, rtol=error, atol=error)


@pytest.mark.usefixtures("_kernels")
def test_bfloat16_is_near() -> None:
    rows_nI, weight_JI = drawn(9, 64), drawn(24, 64)
    found = Weight(weight_JI, torch.bfloat16)(rows_nI)
    assert found.dtype == torch.bfloat16
    assert 0 < (found.float() - rows_nI @ weight_JI.T).abs().max() < 0.3


WITHOUT = """
import torch
from parley.policies.core.layers import Adder, Weight, product
rows_nI, weight_JI, sums_nJ = torch.ones(9, 64).bfloat16(), torch.ones(24, 64).bfloat16(), torch.zeros(9, 24)
Adder(weight_JI, torch.float32)(sums_nJ, rows_nI)
for found in (Weight(weight_JI, torch.bfloat16)(rows_nI), product(rows_nI, weight_JI), sums_nJ):
    print(found.float().unique().tolist())
"""


def test_a_processor_whose_onednn_knows_no_bfloat16_forms_its_products_too() -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", WITHOUT], env=variables, capture_output=True, text=True, check=False)
    assert done.stdout == "[64.0]\n" * 3, done.stderr


@pytest.mark.parametrize("by_mkl", [True, False])
def test_the_hyperbolic_tangent(by_mkl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "is_mkl_whole", lambda: by_mkl)
    values = torch.linspace(-30, 30, 4001)
    torch.testing.assert_close(tanh_(values.clone()), values.tanh(), rtol=0, atol=3e-7)
