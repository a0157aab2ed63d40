"""Draws of many items at once: each its own, spread evenly."""

from __future__ import annotations

import numpy as np
import pytest

from parley.engine.perturb.strategies.draws import uniforms


def test_an_item_draws_alike_in_any_company() -> None:
    together = uniforms([5, 6, 5], "name", [3, 2, 4])
    assert together[:3].tolist() == together[5:8].tolist() == uniforms([5], "name", [3]).tolist()
    assert together[3:5].tolist() == uniforms([6], "name", [9])[:2].tolist()


def test_seeds_and_names_draw_differently() -> None:
    draws = [uniforms([seed], name, [50]) for seed in (0, 1, 2**63 - 1) for name in ("a", "b")]
    assert len({value for drawn in draws for value in drawn.tolist()}) == 300


@pytest.mark.parametrize("counts", [[], [0], [0, 0]])
def test_nothing_is_drawn_for_nothing(counts: list[int]) -> None:
    assert uniforms(range(len(counts)), "name", counts).shape == (0,)


def test_draws_are_spread_evenly_within_and_across_items() -> None:
    # Four standard errors of a bin of a thousand.
    for drawn in (uniforms([1], "name", [10_000]), uniforms(range(10_000), "name", [1] * 10_000)):
        counts, _ = np.histogram(drawn, bins=10, range=(0, 1))
        assert np.abs(counts - 1000).max() < 4 * 30
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.04
