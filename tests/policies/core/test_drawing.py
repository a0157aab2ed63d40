from __future__ import annotations

import pytest
import torch

from parley.policies.core.decoding import drawn


@pytest.mark.parametrize("size", [5, 512, 513, 700])
def test_a_word_is_drawn_where_the_summed_probabilities_pass_the_number(size: int) -> None:
    torch.manual_seed(size)
    logits_nV, draws_R = 3 * torch.randn(4, size), torch.rand(200, dtype=torch.float64)
    logits_nV[:, ::3] = logits_nV[:, -2:] = -torch.inf
    draws_R[:2] = torch.tensor([0.0, 1 - 2.0**-53])
    rows_R = torch.arange(200) % 4
    passed_RV = logits_nV.double().softmax(1).cumsum(1)[rows_R]
    words_R = drawn(logits_nV, draws_R, rows_R)
    assert logits_nV[rows_R, words_R].isfinite().all()
    before_R = torch.where(words_R > 0, passed_RV.gather(1, (words_R - 1).clamp(min=0).unsqueeze(1)).squeeze(1), 0.0)
    assert (before_R <= draws_R + 1e-6).all()
    assert (passed_RV.gather(1, words_R.unsqueeze(1)).squeeze(1) >= draws_R - 1e-6).all()
    assert drawn(logits_nV, draws_R[:4]).tolist() == words_R[:4].tolist()
