"""Seed streams: every item of work draws from its own stream, named by the master seed and the item's key.

A stream never depends on a worker's id, the order of arrival or Python's salted `hash`, so one or many workers, batched
or not, resumed or not, see the same random numbers.
"""

from __future__ import annotations

import hashlib

import numpy as np

Key = str | int
_JUMP = 210306068529402873165736369884012333109
"""Numbers that `numpy.random.PCG64.jumped` leaves out."""


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


class Substreams:
    """Parts of one stream for items with numbers: each begins in a tenth of the time that a `stream` of its own takes.

    Args:
        seed: as of `stream`.
        key: as of `stream`.
    """

    def __init__(self, seed: int, *key: Key) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, stable_hash(*key)]))
        self._begin = self._bits.state
        self._rng = np.random.Generator(self._bits)

    def at(self, number: int) -> np.random.Generator:
        """Where `PCG64.jumped(number)` would be; the same generator each time, so that an item has it until the next one."""
        self._bits.state = self._begin
        self._bits.advance(number * _JUMP)
        return self._rng
