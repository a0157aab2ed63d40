"""The fused loss against torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.policies.core.fitting import batches as loss
from parley.policies.core.fitting.batches import OutputLoss

M, H, V = 20, 9, 31


def made_up(rows: int = M) -> tuple[nn.Linear, Tensor, Tensor]:
    torch.manual_seed(1)
    return nn.Linear(H, V), torch.randn(rows, H, requires_grad=True), torch.randint(0, V, (rows,))


@pytest.mark.parametrize("block", [1, 7, 64])
def test_loss_and_gradients_are_torchs_own(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(loss, "BLOCK", block)
    output, states, targets = made_up()
    fused = OutputLoss(output)
    wanted = [states, *output.parameters()]
    for rows in (M, 5, M):
        found = fused(states[:rows], targets[:rows])
        right = F.cross_entropy(output(states[:rows]), targets[:rows], reduction="sum")
        torch.testing.assert_close(found, right)
        for mine, theirs in zip(torch.autograd.grad(found / 3, wanted), torch.autograd.grad(right / 3, wanted), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_products_are_of_autocasts_precision_and_results_are_not() -> None:
    output, states, targets = made_up()
    fused = OutputLoss(output)
    full = F.cross_entropy(output(states), targets, reduction="sum")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fused(states, targets)
    assert found.dtype == torch.float32
    assert not torch.equal(found, full), "no product was formed in bfloat16"
    torch.testing.assert_close(found, full, rtol=0.01, atol=0)
    wanted = [states, *output.parameters()]
    for mine, theirs in zip(torch.autograd.grad(found, wanted), torch.autograd.grad(full, wanted), strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.02)
    torch.testing.assert_close(fused(states, targets), full)


@pytest.mark.parametrize("block", [7, 64])
def test_targets_may_count_more_or_less_and_against(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(loss, "BLOCK", block)
    output, states, targets = made_up()
    shares, fused = torch.linspace(-2, 3, M), OutputLoss(output)
    wanted = [states, *output.parameters()]
    first = fused(states, targets)
    found = fused(states, targets, shares)
    right = (F.cross_entropy(output(states), targets, reduction="none") * shares).sum()
    torch.testing.assert_close(found, right)
    plain = F.cross_entropy(output(states), targets, reduction="sum")
    # Both are asked for their gradients after both were formed.
    both = torch.autograd.grad(first + found, wanted), torch.autograd.grad(plain + right, wanted)
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs)
