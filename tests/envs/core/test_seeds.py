"""Streams of random numbers: many at once are those that are made one by one."""

from __future__ import annotations

import numpy as np

from envs.core import seeds
from envs.core.seeds import Key, derive_seed, stable_hash, stream, streams

SEEDS = (0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**64 - 1)
NAMES: list[tuple[int, tuple[Key, ...]]] = [(seed, ("friends", i)) for seed in SEEDS for i in range(20)]


def test_many_streams_are_those_that_are_made_one_by_one() -> None:
    together = streams(NAMES)
    for (seed, key), rng in zip(NAMES, together, strict=True):
        alone = stream(seed, *key)
        assert rng.random(3).tolist() == alone.random(3).tolist()
        assert rng.integers(1 << 40, size=3).tolist() == alone.integers(1 << 40, size=3).tolist()
    assert len(NAMES) > seeds.MANY
    assert [rng.random() for rng in streams(NAMES[:3])] == [stream(seed, *key).random() for seed, key in NAMES[:3]]
    assert streams([]) == []


def test_names_are_what_they_were() -> None:
    """Rows and corpora of other versions are found again by them."""
    assert stable_hash("friends", 17) == stable_hash("friends", np.int64(17)) != stable_hash("friends", "17")
    assert derive_seed(3, "friends", 17) == 5225015139303528795
    assert stream(3, "friends", 17).integers(1 << 40) == 533619359208
