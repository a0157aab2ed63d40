"""What came of attacks, example by example, and what is read off: success against queries, and transfer to other rankers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from parley.engine.core.stats.statistics import Estimate, rate
from parley.engine.ranking.attacks.goals import RankGoal, tolerance
from parley.engine.ranking.metrics.searched import QUERIES
from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup
from parley.policies.ranking.ranker import Ranker, compared_outcomes

Status = Literal["success", "failure", "skipped", "error"]


class TracePoint(NamedTuple):
    """A draft that came closer to the goal than all before it.

    Args:
        queries: made until then, its own included.
        margin: how close, see `RankGoal.margin`.
        cost: words changed.
    """

    queries: int
    margin: float
    cost: int


@dataclass(frozen=True)
class AttackOutcome:
    """What came of one example.

    Args:
        key: of the group.
        status: success; failure: budget or edits ran out; skipped: nothing to attack; error: the ranker gave no scores.
        reason: why there is no success, or why none was tried.
        place: of the edited candidate; None where none was chosen.
        scores: of all candidates before any edit, as they are compared (`compared_outcomes`); empty when there are none.
        words: the edited reply, the closest to the goal that was found.
        edited: which of its words are not as they were.
        cost: words changed.
        moves: names of the edits in their order.
        score: of the edited reply, on the same scale.
        queries: made; the scores before any edit are none.
        num_slopes: gradients asked for.
        num_unscored: drafts that the ranker gave no score; they are taken to be no closer to the goal than the reply as it was.
        trace: of the drafts that came closer.
    """

    key: str
    status: Status
    reason: str = ""
    place: int | None = None
    scores: tuple[float, ...] = ()
    words: Utterance = ()
    edited: tuple[bool, ...] = ()
    cost: int = 0
    moves: tuple[str, ...] = ()
    score: float | None = None
    queries: int = 0
    num_slopes: int = 0
    num_unscored: int = 0
    trace: tuple[TracePoint, ...] = ()

    @property
    def was_tried(self) -> bool:
        """Whether there was something to attack and the ranker gave scores."""
        return self.status in ("success", "failure")

    def succeeded_by(self, queries: int) -> bool:
        """Whether it succeeded with at most so many queries; an attack ends when it succeeds."""
        return self.status == "success" and self.queries <= queries

    def ranks(self) -> tuple[float, float] | None:
        """The rank of the reply before and after, from 1; places of ties are shared. None where nothing was scored."""
        if self.place is None or self.score is None:
            return None
        others, near = np.delete(self.scores, self.place), tolerance(np.array(self.scores))
        before, after = (
            1 + np.count_nonzero(others > score + near) + np.count_nonzero(np.abs(others - score) <= near) / 2
            for score in (self.scores[self.place], self.score)
        )
        return float(before), float(after)


def success_curve(outcomes: Sequence[AttackOutcome], budget: int, at: Sequence[int] = QUERIES) -> list[tuple[int, Estimate]]:
    """Success rates against queries, with Wilson intervals; examples that were skipped or failed with an error do not count.

    Args:
        outcomes: of one attack.
        budget: which it had; nothing is known of more queries than that.
        at: numbers of queries.
    """
    tried = [outcome for outcome in outcomes if outcome.was_tried]
    known = sorted({queries for queries in at if queries <= budget} | {budget})
    return [(queries, rate(sum(outcome.succeeded_by(queries) for outcome in tried), len(tried))) for queries in known]


def transferred(
    outcomes: Sequence[AttackOutcome], groups: Sequence[CandidateGroup], goal: RankGoal, ranker: Ranker
) -> list[bool | RankerError | None]:
    """Whether edits that were found on one ranker reach the same goal on another.

    Args:
        outcomes: of an attack.
        groups: of the outcomes, in their order.
        goal: of the attack.
        ranker: another one.

    Returns:
        Of each example whether they do, or why the ranker gave no scores; None where nothing was edited, or where the other
        ranker puts the reply where it is wanted before any edit.
    """
    found: list[bool | RankerError | None] = [None] * len(outcomes)
    rows = [row for row, outcome in enumerate(outcomes) if outcome.was_tried and outcome.cost]
    pairs = [(groups[row].context, (*groups[row].candidates, outcomes[row].words)) for row in rows]
    for row, scored in zip(rows, compared_outcomes(ranker, pairs), strict=True):
        if isinstance(scored, RankerError):
            found[row] = scored
            continue
        place, scores, edited = outcomes[row].place, scored[:-1], float(scored[-1])
        assert place is not None, "an edited reply has a place"
        bar, near = goal.bar(groups[row], scores, place), tolerance(scores)
        if bar is not None and goal.margin(float(scores[place]), bar) <= near:
            found[row] = goal.margin(edited, bar) > near
    return found
