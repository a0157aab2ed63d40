"""Byte pair encoding as its paper writes it (Sennrich et al. 2016, algorithm 1): the reference of `benchmarks.subwords`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

Pair = tuple[str, str]


def characters(word: str) -> list[str]:
    """Return the characters of a word, the last with the blank that ends words."""
    return [*word[:-1], f"{word[-1]} "]


def merged(word: str, ranks: Mapping[Pair, int]) -> list[str]:
    """Return the pieces of a word: merge the pair that was learnt first wherever it stands, until none is left.

    Args:
        word: at least one character.
        ranks: of the merges, in the order in which they were learnt.
    """
    pieces = characters(word)
    while len(pieces) > 1:
        best = min(pairwise(pieces), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        pieces = joined(pieces, best)
    return pieces


def joined(pieces: Sequence[str], pair: Pair) -> list[str]:
    """Join a pair of pieces wherever it stands, from left to right."""
    merged_pieces: list[str] = []
    index = 0
    while index < len(pieces):
        if tuple(pieces[index : index + 2]) == pair:
            merged_pieces.append(pair[0] + pair[1])
            index += 2
        else:
            merged_pieces.append(pieces[index])
            index += 1
    return merged_pieces


def learn(counts: Mapping[str, int], merges: Sequence[Pair]) -> Counter[Pair]:
    """Count each pair in a text after some merges: one more merge takes one of the most frequent.

    Args:
        counts: of words.
        merges: that were made, in their order.
    """
    spelt = {word: characters(word) for word in counts}
    for pair in merges:
        spelt = {word: joined(pieces, pair) for word, pieces in spelt.items()}
    pairs: Counter[Pair] = Counter()
    for word, pieces in spelt.items():
        for pair in pairwise(pieces):
            pairs[pair] += counts[word]
    return pairs
