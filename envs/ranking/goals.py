"""What an attack on a ranker wants: a wrong reply among the best, or the right one not among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from parley.envs.ranking.groups import CandidateGroup

GoalKind = Literal["promote", "demote"]
Target = Literal["best", "random"]
TOLERANCE = 1e-5
"""Scores that differ by less than this share of a group's largest are equal: a network's rounding in a batch does as much."""


@dataclass(frozen=True)
class RankGoal:
    """Where the edited reply shall stand.

    Args:
        kind: promote a wrong reply to the top, or demote the right one below it.
        rank: how many places are the top.
        target: of several replies that may be edited the one that scores best, or one at random.
    """

    kind: GoalKind = "promote"
    rank: int = 1
    target: Target = "best"

    def __str__(self) -> str:
        where = "rank 1" if self.rank == 1 else f"ranks 1 to {self.rank}"
        whose = {"promote": "a wrong reply to", "demote": "the right reply below"}[self.kind]
        return f"{self.kind} {whose} {where}, the {'best-scored' if self.target == 'best' else 'drawn'} one"

    def choose(self, group: CandidateGroup, scores: np.ndarray, rng: np.random.Generator) -> int | None:
        """Which candidate is edited; None where no attackable one is of the goal's kind.

        Args:
            group: with its labels.
            scores: of the candidates as they are (C,), `comparable` as all below.
            rng: what draws, if one is drawn.
        """
        wanted = self.kind == "demote"
        places = [i for i, label in enumerate(group.labels) if label is wanted and group.attackable[i]]
        if not places:
            return None
        return places[int(rng.integers(len(places)))] if self.target == "random" else max(places, key=lambda i: scores[i])

    def bar(self, group: CandidateGroup, scores: np.ndarray, place: int) -> float | None:
        """The score that the edited reply has to pass; None where the top has room for all others.

        Others are all candidates to one that is promoted, wrong ones to one that is demoted: a ranker does not err where
        another right reply is first.

        Args:
            group: with its labels.
            scores: of the candidates as they are (C,).
            place: of the edited one.
        """
        counts = np.array([self.kind == "promote" or not label for label in group.labels])
        counts[place] = False
        others = np.sort(scores[counts])[::-1]
        return float(others[self.rank - 1]) if self.rank <= len(others) else None

    def margin(self, score: float, bar: float) -> float:
        """How far a score is on the wanted side of the bar; success is above the tolerance, so that a tie is none."""
        return score - bar if self.kind == "promote" else bar - score


def tolerance(scores: np.ndarray) -> float:
    """The difference up to which scores of a group are equal."""
    return TOLERANCE * float(np.abs(scores).max())
