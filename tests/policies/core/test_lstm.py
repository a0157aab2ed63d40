"""The one-node LSTM against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from parley.policies.core.layers import LSTM, LSTMCell

B, T, E, H = 3, 5, 4, 6


def layer() -> LSTM:
    torch.manual_seed(1)
    return LSTM(E, H, batch_first=True).double()


def gradients(states_BTH: Tensor, wanted: list[Tensor]) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 2, states_BTH.numel(), dtype=states_BTH.dtype).view_as(states_BTH)
    return torch.autograd.grad((weights * states_BTH).sum(), wanted)


@pytest.mark.parametrize("steps", [1, T])
def test_states_and_gradients_are_torchs_own(steps: int) -> None:
    lstm, inputs = layer(), torch.randn(B, steps, E, dtype=torch.float64, requires_grad=True)
    states, expected = lstm.read(inputs), lstm(inputs)[0]
    torch.testing.assert_close(states, expected)
    wanted = [inputs, *lstm.parameters()]
    for found, right in zip(gradients(states, wanted), gradients(expected, wanted), strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize("lengths", [[5, 5, 2, 1], [3], [1, 1]])
def test_rows_of_different_lengths_are_read_as_torch_reads_them_packed(lengths: list[int]) -> None:
    lstm, counts = layer(), [sum(length > step for length in lengths) for step in range(lengths[0])]
    inputs = torch.randn(sum(lengths), E, dtype=torch.float64, requires_grad=True)
    states, expected = lstm.read_packed(inputs, counts), lstm(PackedSequence(inputs, torch.tensor(counts)))[0].data
    torch.testing.assert_close(states, expected)
    wanted = [inputs, *lstm.parameters()]
    for found, right in zip(gradients(states, wanted), gradients(expected, wanted), strict=True):
        torch.testing.assert_close(found, right)


def test_a_step_of_the_cell_and_its_gradients_are_torchs_own() -> None:
    torch.manual_seed(1)
    theirs, ours = nn.LSTMCell(E, H), LSTMCell(E, H)
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(B, E, requires_grad=True)
    state = torch.randn(B, H, requires_grad=True), torch.randn(B, H, requires_grad=True)
    found, expected = (torch.cat(cell(inputs, state), dim=1) for cell in (ours, theirs))
    torch.testing.assert_close(found, expected)
    wanted = [inputs, *state]
    ours_wanted, theirs_wanted = [*wanted, *ours.parameters()], [*wanted, *theirs.parameters()]
    for mine, right in zip(gradients(found, ours_wanted), gradients(expected, theirs_wanted), strict=True):
        torch.testing.assert_close(mine, right)


def test_inputs_have_gradients_when_the_weights_are_frozen() -> None:
    lstm, inputs = layer().requires_grad_(False), torch.randn(B, T, E, dtype=torch.float64, requires_grad=True)
    found, right = gradients(lstm.read(inputs), [inputs]), gradients(lstm(inputs)[0], [inputs])
    torch.testing.assert_close(found, right)


def test_the_input_products_are_left_as_they_were() -> None:
    from parley.policies.core.layers import recur

    gates = torch.randn(T, B, 4 * H)
    before = gates.clone()
    recur(gates, torch.randn(4 * H, H))
    assert torch.equal(gates, before)


def test_states_stay_in_full_precision_under_autocast() -> None:
    lstm, inputs = layer().float(), torch.randn(B, T, E, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = lstm.read(inputs)
    expected = lstm(inputs)[0]
    assert states.dtype == torch.float32
    assert not torch.equal(states, expected), "no product was formed in bfloat16"
    torch.testing.assert_close(states, expected, atol=0.02, rtol=0.02)
    wanted = [inputs, *lstm.parameters()]
    for found, right in zip(gradients(states, wanted), gradients(expected, wanted), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, right, atol=0.05 * float(right.abs().max()), rtol=0.05)
