"""Seed streams: each item of work draws from its own random stream, keyed by the master seed and the item's key.

A stream does not depend on a worker's id, the order of arrival or Python's salted `hash`. So the random numbers are the same
for one or many workers, batched or single items, resumed or complete runs.
"""

from __future__ import annotations

import hashlib

import numpy as np

Key = str | int
_JUMP = 210306068529402873165736369884012333109
"""Draws that `numpy.random.PCG64.jumped` skips."""


def stable_hash(*key: Key) -> int:
    """Return a 64-bit hash of the key's parts, equal in every process and on every machine."""
    message = b""
    for part in key:
        # Any integer type names the same stream; a number and its digits as text do not.
        text = f"str:{part}".encode("utf-8", "surrogatepass") if isinstance(part, str) else f"int:{int(part)}".encode()
        message += len(text).to_bytes(4, "little") + text
    return int.from_bytes(hashlib.blake2b(message, digest_size=8).digest(), "little")


def stream(seed: int, *key: Key) -> np.random.Generator:
    """Return the random generator of one item of work.

    Args:
        seed: the run's master seed, at least 0.
        key: strings and integers that identify the item, such as ("dialogue", 17).
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, stable_hash(*key)])))


def derive_seed(seed: int, *key: Key) -> int:
    """Return a 63-bit seed with the same keys, for libraries that take an integer (torch, RLlib)."""
    return stable_hash("seed", seed, *key) >> 1


class Substreams:
    """Numbered parts of one stream; each starts in a tenth of the time of a separate `stream`.

    Args:
        seed: as of `stream`.
        key: as of `stream`.
    """

    def __init__(self, seed: int, *key: Key) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, stable_hash(*key)]))
        self._begin = self._bits.state
        self._rng = np.random.Generator(self._bits)

    def at(self, number: int) -> np.random.Generator:
        """Return the generator at the state of `PCG64.jumped(number)`; the next call moves the same generator."""
        self._bits.state = self._begin
        self._bits.advance(number * _JUMP)
        return self._rng
