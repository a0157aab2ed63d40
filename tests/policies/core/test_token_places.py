"""Where tokens stand without padding."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.policies.core.layers import TokenPlaces


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_every_token_has_one_place_step_by_step_the_longest_dialogues_first(lengths: list[int]) -> None:
    places = TokenPlaces.of(np.array(lengths), torch.device("cpu"))
    rows, steps = places.rows_N.tolist(), places.steps_N.tolist()
    assert sorted(zip(rows, steps, strict=True)) == [(row, step) for row, size in enumerate(lengths) for step in range(size)]
    assert steps == sorted(steps)
    assert places.counts == [sum(size > step for size in lengths) for step in range(max(lengths))]
    longest_first = [row for row, _ in sorted(enumerate(lengths), key=lambda each: -each[1])]
    at = places.at_BT.tolist()
    for n, (row, step, mirrored) in enumerate(zip(rows, steps, places.mirrored_N.tolist(), strict=True)):
        assert at[row][step] == n
        assert at[row][lengths[row] - 1 - step] == mirrored
        # Whose token it is does not change from step to step, so that a state stays in its row.
        assert row == longest_first[n - sum(places.counts[:step])]
    assert all(places.last_B[row] == at[row][size - 1] for row, size in enumerate(lengths) if size)
