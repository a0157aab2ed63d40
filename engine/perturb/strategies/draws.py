"""Random numbers for many contexts at once, each from its context's own seed.

The k-th number of an item is a hash of its seed, the strategy's name and k (SplitMix64: Steele, Lea & Flood 2014, "Fast
splittable pseudorandom number generators"). So one pass of numpy draws the numbers of all items, and each depends only on its
own item. A generator of numpy for each item costs more than a swap or a replaced word: even one Philox, keyed anew for each
item by its state, makes lists of texts up to a fifth slower and lists of contexts up to a third.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from zlib import crc32

import numpy as np

from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.pairs.tokens import normalised

_MASK = (1 << 64) - 1
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def uniforms(seeds: Sequence[int], name: str, counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Draw uniform numbers for many items, each from its own seed.

    Args:
        seeds: one for each item, at least 0.
        name: of the stream; other names draw other numbers from the same seed.
        counts: how many each item gets.

    Returns:
        (sum of counts,) float64 in [0, 1): the first item's numbers, then the second's, and so on.
    """
    counts = np.asarray(counts, dtype=np.int64)
    items = np.fromiter(map(_MASK.__and__, seeds), dtype=np.uint64, count=len(seeds))
    first = (np.cumsum(counts) - counts).astype(np.uint64)
    # The k-th number of an item that begins at number f of all is number f + k: what is once an item is not done once a number.
    starts = np.repeat(_mixed(items ^ np.uint64(_named(name))) - first * _STEP, counts)
    states = starts + np.arange(1, len(starts) + 1, dtype=np.uint64) * _STEP
    return (_mixed(states) >> np.uint64(11)) * 2.0**-53


def seeds_of(seed: int, texts: Sequence[str]) -> list[int]:
    """Return a seed for each text from its words: texts with equal words have equal seeds.

    Args:
        seed: at least 0.
        texts: as people write them.
    """
    # A sum that texts share now and then is no harm: they draw alike. `uniforms` mixes what is left alike in it.
    mixed = _mixed_seed(seed)
    return [mixed ^ crc32(normalised(text).encode("utf-8", "surrogatepass")) for text in texts]


def _mixed(values: np.ndarray) -> np.ndarray:
    """Hash values in place; the caller's array is overwritten."""
    for shift, factor in _ROUNDS:
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)
    return values


@lru_cache(1 << 10)
def _mixed_seed(seed: int) -> int:
    return int(_mixed(np.array([seed & _MASK], dtype=np.uint64))[0])


@lru_cache(1 << 10)
def _named(name: str) -> int:
    return stable_hash("perturb", name)
