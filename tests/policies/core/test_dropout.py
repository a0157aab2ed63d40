"""Dropout keeps the share that it says, each value by itself, and nothing is lost on average."""

from __future__ import annotations

import pytest
import torch

from parley.policies.core.layers import Dropout


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_is_dropped_and_the_rest_is_scaled(share: float) -> None:
    torch.manual_seed(0)
    values = torch.full((1001, 301), 3.0, requires_grad=True)
    found = Dropout(share)(values)
    kept = found != 0
    # Four standard deviations.
    near = 4 * (share * (1 - share) / values.numel()) ** 0.5
    assert abs(float(kept.float().mean()) - (1 - share)) < near
    torch.testing.assert_close(found[kept], torch.full_like(found[kept], 3 / (1 - share)), rtol=1e-4, atol=0)
    found.sum().backward()
    torch.testing.assert_close(values.grad, found / 3)
    # Neighbours, of which four come from one draw, know nothing of each other.
    flat = kept.flatten().double()
    for apart in (1, 2, 3, 4, 301):
        pair = torch.stack([flat[apart:], flat[:-apart]])
        assert abs(float(torch.corrcoef(pair)[0, 1])) < 4 / values.numel() ** 0.5


def test_a_seed_names_the_draws() -> None:
    layer, values = Dropout(0.5), torch.ones(5, 7)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(layer(values))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_nothing_is_dropped_outside_training_or_where_nothing_is_to_be() -> None:
    values = torch.randn(5, 7)
    assert Dropout(0.5).eval()(values) is values
    assert torch.equal(Dropout(0.0)(values), values)
    assert Dropout(0.5)(values[:0]).shape == (0, 7)
