"""The decoder whose attention is fed back, as one node: its steps written out, and its gradients against finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from parley.policies.seq2seq.scoring import recur_fed

B, N, T, H = 3, 4, 3, 2


def inputs(layers: int) -> list[Tensor]:
    """Products of words, what is attended to, what is barred, where layers start, what dropout keeps, and weights."""
    generator = torch.Generator().manual_seed(layers)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    barred = torch.zeros(B, N, dtype=torch.float64)
    barred[1, 2:] = -torch.inf
    kept = (drawn(layers, T, B, H) > -0.5).double() * 1.5
    shapes = [(layers, B, H), (layers, B, H)], [(H, 2 * H), (layers, 4 * H, 2 * H), (layers, 4 * H)]
    starts, weights = ([drawn(*shape) for shape in group] for group in shapes)
    return [drawn(T, B, 4 * H), drawn(B, N, H), barred, *starts, kept, *weights]


def found(*given: Tensor) -> Tensor:
    gates, states, barred, hidden, cell, kept, *weights = given
    return recur_fed(gates, states, barred, (hidden, cell), kept, *weights)


@pytest.mark.parametrize("layers", [1, 2])
def test_each_step_reads_what_is_fed_back_and_dropout_is_of_readings_alone(layers: int) -> None:
    gates, states, barred, hidden, cell, kept, fed, weight, bias = given = inputs(layers)
    state, expected = [*zip(hidden, cell, strict=True)], []

    def attended() -> Tensor:
        scores = torch.einsum("bnh,bh->bn", states, state[-1][0]) + barred
        return torch.cat([torch.einsum("bn,bnh->bh", scores.softmax(1), states), state[-1][0]], dim=1)

    for t in range(T):
        below = torch.tanh(attended() @ fed.t())
        for layer in range(layers):
            read = torch.cat([below * kept[layer, t], state[layer][0]], dim=1)
            sums = read @ weight[layer].t() + bias[layer] + (gates[t] if layer == 0 else 0)
            enter, forget, candidate, leave = sums.chunk(4, dim=1)
            after = forget.sigmoid() * state[layer][1] + enter.sigmoid() * candidate.tanh()
            below = leave.sigmoid() * after.tanh()
            state[layer] = below, after
        expected.append(attended())
    torch.testing.assert_close(found(*given), torch.stack(expected))


@pytest.mark.parametrize("layers", [1, 2])
def test_its_gradients_are_those_of_finite_differences(layers: int) -> None:
    given = inputs(layers)
    for place, part in enumerate(given):
        # What is barred and what dropout keeps are given.
        part.requires_grad_(place not in (2, 5))
    assert torch.autograd.gradcheck(found, given)
