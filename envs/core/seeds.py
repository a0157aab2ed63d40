"""Seed streams: every item of work draws from its own stream, named by the master seed and the item's key.

A stream never depends on a worker's id, the order of arrival or Python's salted `hash`, so one or many workers, batched
or not, resumed or not, see the same random numbers.
"""

from __future__ import annotations

import hashlib

import numpy as np

Key = str | int


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


def derive_seed(seed: int, *key: Key) -> int:
    """A 63-bit seed for a library that wants an integer (torch, RLlib), from the same naming."""
    return stable_hash("seed", seed, *key) >> 1
