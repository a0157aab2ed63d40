"""What a rule on candidate replies is.

Source: Li et al. 2019, section 3. A rule edits replies of one label and leaves all else of a group as it is: the context, the
other candidates, the labels. What it makes of a group depends on that group and its seed alone.

A rule of a user's own that says what it changes, and not what comes out, inherits from `OnReplies`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from parley.engine.perturb.strategies.flat import Edits, FlatContexts
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup

Attacks = Literal["negatives", "positives", "context"]
"""What of a group a rule edits."""


class Attacked(NamedTuple):
    """What a rule made of a group.

    Args:
        group: with the labels that it had.
        changed: words changed of each candidate; 0: untouched.
    """

    group: CandidateGroup
    changed: tuple[int, ...]


class Rule(Protocol):
    """A fixed attack; a user's own needs these members."""

    @property
    def name(self) -> str:
        """The registered name, such as "iiw"."""

    @property
    def attacks(self) -> Attacks:
        """What it edits."""

    @property
    def keeps_labels(self) -> bool:
        """Whether a changed reply stays right or wrong.

        If not, it is the relevant one in A_n@k, and a new wrong one in training.
        """

    def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
        """The attacked groups.

        Args:
            groups: contexts and candidates; those that are not attackable stay.
            seeds: one for each group, at least 0; equal seeds draw alike.
        """


class OnReplies(ABC):
    """The base of a rule that says which words of replies it changes to what."""

    name: str
    attacks: Attacks
    keeps_labels: bool

    def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
        """The attacked groups, see `Rule`; replies without a word are untouched."""
        wanted = self.attacks == "positives"
        places = [
            [
                place
                for place, label in enumerate(group.labels)
                if label is wanted and group.attackable[place] and group.candidates[place]
            ]
            for group in groups
        ]
        flat = FlatContexts(
            [tuple((group.candidates[place],) for place in of) for group, of in zip(groups, places, strict=True)]
        )
        if not flat.words:
            return [Attacked(group, (0,) * len(group.candidates)) for group in groups]
        edits = self.edits(groups, flat, seeds)
        counts = np.bincount(
            np.searchsorted(flat.edges, edits.starts, side="right") - 1, _sizes(flat.words, edits), len(flat.utterances)
        )
        told = iter(counts.astype(np.int64).tolist())
        after = flat.replaced(edits)
        return [_attacked(group, of, turns, told) for group, of, turns in zip(groups, places, after, strict=True)]

    @abstractmethod
    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed.

        Args:
            groups: all, in their order.
            flat: each group's replies that may be changed, a turn of one utterance each, none without a word.
            seeds: one for each group, at least 0; equal seeds draw alike.

        Returns:
            Edits that change something; none inserts behind a reply's last word.
        """


def _attacked(
    group: CandidateGroup, places: Sequence[int], turns: Sequence[tuple[Utterance, ...]], told: Iterator[int]
) -> Attacked:
    candidates, changed = list(group.candidates), [0] * len(group.candidates)
    for place, (words,) in zip(places, turns, strict=True):
        candidates[place], changed[place] = words, next(told)
    if not any(changed):
        return Attacked(group, tuple(changed))
    # Sooner than `dataclasses.replace`.
    after = CandidateGroup(group.key, group.context, tuple(candidates), group.labels, group.kinds, group.attackable)
    return Attacked(after, tuple(changed))


def _sizes(words: Sequence[str], edits: Edits) -> np.ndarray:
    """How many words each edit changes: of a replacement, those of its longer side, without equal words at both ends (M,)."""
    lengths = np.fromiter(map(len, edits.others), dtype=np.int64, count=len(edits.others))
    spans = edits.ends - edits.starts
    sizes = np.maximum(lengths, spans)
    for place in np.flatnonzero((lengths > 0) & (spans > 0) & (sizes > 1)).tolist():
        before, after = words[edits.starts[place] : edits.ends[place]], edits.others[place]
        sizes[place] -= _shared(before, after)
    return sizes


def _shared(before: Sequence[str], after: Sequence[str]) -> int:
    """How many words two phrases share at their beginnings, and of the rest at their ends."""
    shorter = min(len(before), len(after))
    first = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    rest = shorter - first
    return first + next((i for i in range(rest) if before[-1 - i] != after[-1 - i]), rest)
