"""Streams of random numbers and their names."""

from __future__ import annotations

import numpy as np

from parley.envs.core.seeds import Substreams, derive_seed, stable_hash, stream


def test_names_are_what_they_were() -> None:
    """Rows and corpora of other versions are found again by them."""
    assert stable_hash("friends", 17) == stable_hash("friends", np.int64(17)) != stable_hash("friends", "17")
    assert derive_seed(3, "friends", 17) == 5225015139303528795
    assert stream(3, "friends", 17).integers(1 << 40) == 533619359208


def test_substreams_are_numpys_jumps_in_any_order() -> None:
    drawn = Substreams(3, "friends")
    for number in (17, 0, 1 << 64, 17):
        bits = np.random.PCG64(np.random.SeedSequence([3, stable_hash("friends")])).jumped(number)
        assert drawn.at(number).random(5).tolist() == np.random.Generator(bits).random(5).tolist()
