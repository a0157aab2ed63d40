"""The one record of ranking: a dialogue's context, replies to choose from, and which of them are right.

A context's turn is its words; utterance marks inside a turn are dropped. Whoever ranks sees context and candidates only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Utterance

Context = tuple[Utterance, ...]
"""Turns, oldest first."""


class CandidateKind(StrEnum):
    """Where a candidate comes from."""

    POSITIVE = "positive"
    """What was said, or what a person wrote as an answer."""
    RANDOM = "random"
    """A wrong reply drawn at random."""
    HARD = "hard"
    """A wrong reply that shares words with the context or the positive."""
    ADVERSARIAL = "adversarial"
    """A wrong reply that a person wrote to mislead."""
    NEGATIVE = "negative"
    """A wrong reply of a published list."""


@dataclass(frozen=True)
class CandidateGroup:
    """One context and its candidates.

    Args:
        key: unique in its corpus, such as "test-0000123"; sorts in the order of the corpus.
        context: the turns before, oldest first; at least one, of which some may have no word.
        candidates: the replies, at least two; a corpus gives each a word or more, an edit may leave none.
        labels: whether each is a right reply.
        kinds: where each comes from.
        attackable: whether an attack may change it.
    """

    key: str
    context: Context
    candidates: tuple[Utterance, ...]
    labels: tuple[bool, ...]
    kinds: tuple[CandidateKind, ...]
    attackable: tuple[bool, ...]

    def __post_init__(self) -> None:
        size = len(self.candidates)
        assert size > 1, f"{self.key}: one candidate leaves nothing to choose"
        assert len(self.labels) == len(self.kinds) == len(self.attackable) == size, f"{self.key}: one entry for each candidate"
        assert self.context, f"{self.key}: a context has a turn"


def order_of(key: str, size: int, seed: int) -> tuple[int, ...]:
    """The order in which the candidates of a group are shown, which its key and the seed name.

    Published files list the positive first, and a ranker that gives ties to the first looks perfect there.

    Returns:
        What stands at each place.
    """
    return tuple(stream(seed, "order of candidates", key).permutation(size).tolist())
