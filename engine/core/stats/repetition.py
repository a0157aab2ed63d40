"""Agents that say the same words over and over: seq-rep-4 (Welleck et al. 2020, on unlikelihood training).

Adversarial training and self-play can end an agent's language: "i need the same as i need the same as ...". The perplexity of
recorded dialogues does not show it, for it asks what the agent thinks of people's words, not what it says itself, and a
language model finds repeated words likely.
"""

from __future__ import annotations

from collections.abc import Sequence

_WORDS = 4
LOST = 0.1
"""Share of repeated 4-grams above which an agent counts as having lost its language. Fitted negotiators have .00 to .02."""


def repeated(words: Sequence[str]) -> tuple[int, int]:
    """How many 4-grams of an utterance stand in it before, and how many it has."""
    grams = [tuple(words[start : start + _WORDS]) for start in range(len(words) - _WORDS + 1)]
    return len(grams) - len(set(grams)), len(grams)


def has_lost(share: float) -> bool:
    """Whether so large a share of repeated 4-grams is no language; an unknown one is not."""
    return share > LOST
