"""The cells that play against torch's own layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from parley.policies.core import layers as products
from parley.policies.core.gru import GRU
from parley.policies.negotiator.model import CELL_ROWS, Cell, Products

WORDS, EMBED, READ, HIDDEN, ROWS = 7, 5, 3, 4, CELL_ROWS + 9
CPU = torch.device("cpu")


@pytest.mark.parametrize("suffix", ["", "_reverse"])
@pytest.mark.parametrize("word_at", [0, READ], ids=["word first", "word last"])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
@torch.no_grad()
def test_a_step_is_a_step_of_torch(suffix: str, word_at: int, dtype: torch.dtype, close: float) -> None:
    torch.manual_seed(0)
    gru, embedding = GRU(EMBED + READ, HIDDEN, bidirectional=True), torch.randn(WORDS, EMBED)
    theirs = nn.GRUCell(EMBED + READ, HIDDEN)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        setattr(theirs, name, getattr(gru, f"{name}_l0{suffix}"))
    tokens, read, state = torch.randint(WORDS, (ROWS,)), torch.randn(ROWS, READ), torch.randn(ROWS, HIDDEN)
    words = embedding[tokens]
    wanted = theirs(torch.cat([words, read] if word_at == 0 else [read, words], dim=1), state)
    cell, found = Cell(gru, embedding, word_at, suffix, Products(dtype, CPU)), torch.empty_like(state)
    cell.step(cell.inputs(tokens, read), state, found)
    torch.testing.assert_close(found, wanted, rtol=0, atol=close)
    cell.step(cell.sums(tokens, read.to(dtype) @ cell.read_weight), state, state)
    torch.testing.assert_close(state, wanted, rtol=0, atol=close)


@torch.no_grad()
def test_steps_multiply_by_the_fastest_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []

    def product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        shapes.append((*rows.shape, len(weight)))
        return rows @ weight.t()

    for name, value in (("product", product), ("has_onednn", lambda *_: True), ("is_mkl_whole", lambda: False)):
        monkeypatch.setattr(products, name, value)
    monkeypatch.setattr(products, "FEW_OPERATIONS", 0)
    cell = Cell(GRU(EMBED + READ, HIDDEN), torch.randn(WORDS, EMBED), 0, "", Products(torch.float32, CPU))
    state = torch.randn(9, HIDDEN)
    cell.step(cell.inputs(torch.randint(WORDS, (9,)), torch.randn(9, READ)), state, state)
    assert shapes == [(9, READ, 3 * HIDDEN), (9, HIDDEN, 3 * HIDDEN)]
