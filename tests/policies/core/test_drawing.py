from __future__ import annotations

import numpy as np
import pytest
import torch

from parley.policies.core.decoding import drawn, raced


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


def test_a_race_draws_by_the_softmax_and_small_changes_of_logits_exchange_no_word() -> None:
    generator = torch.Generator().manual_seed(1)
    logits_1V = torch.randn(1, 40, generator=generator, dtype=torch.float64)
    logits_1V[0, 7] = -torch.inf
    words = raced(logits_1V.expand(20_000, -1), [np.random.default_rng(seed) for seed in range(20_000)])
    shares_V = torch.bincount(words, minlength=40) / len(words)
    expected_V = logits_1V[0].softmax(0)
    assert int(((shares_V - expected_V).abs() > 4.5 * (expected_V * (1 - expected_V) / len(words)).sqrt()).sum()) == 0
    # Of a flat distribution over many words nearly all sums move by more than a share.
    wide_BV = torch.randn(200, 50_000, generator=generator)
    sides = wide_BV, wide_BV * (1 + 1e-4)
    first, second = (raced(logits_BV, [np.random.default_rng(seed) for seed in range(200)]) for logits_BV in sides)
    assert int((first != second).sum()) == 0
    draws = torch.rand(200, generator=generator, dtype=torch.float64)
    assert int((drawn(sides[0], draws) != drawn(sides[1], draws)).sum()) > 4
