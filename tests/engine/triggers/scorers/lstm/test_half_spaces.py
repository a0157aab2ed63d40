"""The bound lies below the nats everywhere, touches them where it was made, and its gradient is the right one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from parley.engine.triggers.scorers.lstm import half_spaces
from parley.engine.triggers.scorers.lstm.half_spaces import OutputLayer, Touched

NUM_WORDS, HIDDEN, LENGTH = 31, 8, 3
WORDS = torch.tensor([[7, 2, 30], [7, 7, 4]])


@pytest.fixture(autouse=True, scope="module")
def few_exact_words() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(half_spaces, "SUBSET", 4)
        patched.setattr(half_spaces, "SEGMENTS", 3)
        yield


def made(seed: int) -> tuple[OutputLayer, Tensor, list[Touched]]:
    torch.manual_seed(seed)
    layer = nn.Linear(HIDDEN, NUM_WORDS)
    layer.weight.data.mul_(8)
    output, states = OutputLayer(layer), torch.randn(2, LENGTH, HIDDEN).tanh()
    flat = states.flatten(0, 1)
    return output, states, output.touch(flat, output.logits(flat), WORDS)


@given(seed=st.integers(0, 10_000), far=st.floats(0, 3))
def test_the_bound_is_never_above_the_nats(seed: int, far: float) -> None:
    output, states, touched = made(seed)
    moved = states + far * torch.randn(20, 2, LENGTH, HIDDEN)
    for row, each in enumerate(touched):
        for place in range(LENGTH):
            bound = each.half_spaces.bound(place, moved[None, :, row, place], rounding=0.0)
            exact = output.exact(moved[:, row, place], WORDS[row, place].expand(20))
            assert (bound.nll[0] <= exact.nll + 1e-4 * (1 + exact.nll)).all()
            assert (bound.likeliest[0] | ~exact.likeliest).all()


def test_the_bound_touches_the_nats_where_it_was_made() -> None:
    _, states, touched = made(1)
    for row, each in enumerate(touched):
        at = torch.stack([each.half_spaces.bound(t, states[row, t][None, None], rounding=0.0).nll[0, 0] for t in range(LENGTH)])
        torch.testing.assert_close(at, each.nats.nll)


def test_the_nats_and_their_gradient_are_those_of_a_log_softmax() -> None:
    output, states, touched = made(2)
    states.requires_grad_()
    weight, bias = output._weight_VH[:NUM_WORDS], output._bias_V[:NUM_WORDS]
    log = (states @ weight.t() + bias).log_softmax(-1)
    nll = -log.gather(-1, WORDS[..., None])[..., 0]
    nll.sum().backward()
    for row, each in enumerate(touched):
        torch.testing.assert_close(each.nats.nll, nll[row].detach())
        torch.testing.assert_close(each.pull_TH, states.grad[row])
        assert each.nats.likeliest.tolist() == (log[row].argmax(-1) == WORDS[row]).tolist()


def test_rounding_widens_the_bound() -> None:
    _, states, touched = made(3)
    half_spaces = touched[0].half_spaces
    tight, wide = (half_spaces.bound(0, states[0, :1][None], rounding).nll.item() for rounding in (0.0, 0.25))
    assert wide == pytest.approx(max(tight - 0.25, 0.0), abs=1e-5)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
def test_a_row_of_logits_does_not_depend_on_its_place_or_its_neighbours(rows: int) -> None:
    # At published widths: there the library's kernels for full and remaining rows differ.
    torch.manual_seed(4)
    output, states = OutputLayer(nn.Linear(600, 2000)), torch.randn(rows, 600)
    together = output.logits(states)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(output.logits(states[row : row + 1])[0], together[row])
