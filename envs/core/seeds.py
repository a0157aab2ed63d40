"""Seed streams: every item of work draws from its own stream, named by the master seed and the item's key.

A stream never depends on a worker's id, the order of arrival or Python's salted `hash`, so one or many workers, batched
or not, resumed or not, see the same random numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

Key = str | int
MANY = 16
"""So many streams are made sooner together."""


def stable_hash(*key: Key) -> int:
    """A 64-bit hash of the key's parts, equal in every process and on every machine."""
    whole = b""
    for part in key:
        # Any integer type names the same stream; a number and its digits as text do not.
        text = f"str:{part}".encode() if isinstance(part, str) else f"int:{int(part)}".encode()
        whole += len(text).to_bytes(4, "little") + text
    return int.from_bytes(hashlib.blake2b(whole, digest_size=8).digest(), "little")


def stream(seed: int, *key: Key) -> np.random.Generator:
    """The random generator that belongs to one item of work.

    Args:
        seed: the run's master seed, at least 0.
        key: strings and integers that name the item, such as ("dialogue", 17).
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, stable_hash(*key)])))


def streams(names: Sequence[tuple[int, tuple[Key, ...]]]) -> list[np.random.Generator]:
    """`[stream(seed, *key) for seed, key in names]`, with equal numbers, but many at once in a fraction of the time.

    Args:
        names: seed, at least 0 and below 2**64, and key of each.
    """
    if len(names) < MANY:
        return [stream(seed, *key) for seed, key in names]
    words = np.array([(seed, stable_hash(*key)) for seed, key in names], dtype=np.uint64).reshape(-1, 2).view(np.uint32)
    # PCG64 takes any ISeedSequence, which its types do not say.
    return [np.random.Generator(np.random.PCG64(_Spread(state))) for state in _spread(words)]  # type: ignore[arg-type]


class _Spread(ISeedSequence):
    """A `SeedSequence` whose state is known."""

    def __init__(self, state: np.ndarray) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return self._state


def _spread(words: np.ndarray) -> np.ndarray:
    """The states that `SeedSequence` makes for PCG64 of seeds (n, 2) with n hashes, as words of 32 bits (n, 4): (n, 4) uint64.

    M. E. O'Neill's seed_seq_fe, as in numpy/random/bit_generator.pyx, for all at once.
    """
    # A seed below 2**32 is one word, and the hash follows at once.
    short = np.concatenate([words[:, :1], words[:, 2:], words[:, 1:2]], axis=1)
    pool = list(np.where(words[:, 1:2] == 0, short, words).T)
    hashed = _hashing(0x43B0D7E5, 0x931E8875)
    pool = [hashed(word) for word in pool]
    for i, j in permutations(range(4), 2):
        mixed = pool[j] * np.uint32(0xCA01F9DD) - hashed(pool[i]) * np.uint32(0x4973F715)
        pool[j] = mixed ^ (mixed >> np.uint32(16))
    hashed = _hashing(0x8B51F9DD, 0x58F38DED)
    return np.stack([hashed(pool[i % 4]) for i in range(8)], axis=1).view(np.uint64)


def _hashing(constant: int, factor: int) -> Callable[[np.ndarray], np.ndarray]:
    """Scatters the bits of words, each time by other constants."""

    def hashed(words: np.ndarray) -> np.ndarray:
        nonlocal constant
        words = words ^ np.uint32(constant)
        constant = constant * factor & 0xFFFFFFFF
        words = words * np.uint32(constant)
        return words ^ (words >> np.uint32(16))

    return hashed


def derive_seed(seed: int, *key: Key) -> int:
    """A 63-bit seed for a library that wants an integer (torch, RLlib), from the same naming."""
    return stable_hash("seed", seed, *key) >> 1
